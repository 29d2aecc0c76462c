"""Measure, prove and apply the batch limits of vLLM servers.

Rooms (arrows point to what may be imported; import-linter enforces them)::

    cli ─► controller ─► cluster ─► reconcile ─► tuning ─► engine, api
    cli ─► report, bench ─────────────────────► tuning
"""
