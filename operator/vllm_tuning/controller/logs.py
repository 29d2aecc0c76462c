"""Logs as JSON lines: an event's name, its fields, nothing else. No specs, no secrets."""

from __future__ import annotations

import json
import logging
import sys
from typing import Final

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


class JSONFormatter(logging.Formatter):
    """One JSON object per record; what was passed as ``extra`` becomes its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        fields = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **{k: v for k, v in record.__dict__.items() if k not in _STANDARD and _is_plain(v)},
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | None)


def configure_logs(level: str) -> None:
    """Send all logs to stderr.

    kopf tells every watched event at INFO: only its warnings are kept.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("kopf").setLevel(max(logging.WARNING, root.level))
