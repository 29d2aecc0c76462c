"""One benchmark run: launcher, live limits, load driver, telemetry, and the loop that joins them.

Knows nothing of Kubernetes. A ``RunSpec`` goes in, a JSON line per event comes out.
"""
