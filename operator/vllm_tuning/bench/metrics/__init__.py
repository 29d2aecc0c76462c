"""Telemetry beside a running load: the engine's metrics page, read again and again."""
