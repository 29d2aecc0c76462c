"""The simulated engine: a discrete-event twin of vLLM's V1 scheduler with a fitted step time.

``scheduler`` decides what each step holds, ``cost`` how long it takes, ``engine`` joins them on one
clock. Two faces share that core: ``inprocess`` (virtual time, for searches) and ``server`` (vLLM's
HTTP API).
"""
