"""kopf handlers, wiring, Lease, metrics.

The only room that imports kopf; its handlers only enqueue keys.
"""
