"""Put a governor around the scheduler's step."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from .governor import Governor

_ATTRIBUTE = "_vllm_tuning_governor"


def install(scheduler_class: type[Any], directory: Path) -> None:
    """Wrap ``scheduler_class`` once.

    Subclasses that call the base's methods are governed too; others leave no steps.
    """
    if hasattr(scheduler_class, _ATTRIBUTE):
        return
    setattr(scheduler_class, _ATTRIBUTE, None)
    begin = scheduler_class.__init__
    schedule = scheduler_class.schedule
    update = scheduler_class.update_from_output

    @functools.wraps(begin)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes the class's
        begin(self, *args, **kwargs)
        setattr(self, _ATTRIBUTE, Governor(self, directory))

    @functools.wraps(schedule)
    def governed_schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        governor = getattr(self, _ATTRIBUTE)
        if governor is None:
            return schedule(self, *args, **kwargs)
        governor.before_step(self)
        output = schedule(self, *args, **kwargs)
        governor.after_step(self, output)
        return output

    @functools.wraps(update)
    def governed_update(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = update(self, *args, **kwargs)
        governor = getattr(self, _ATTRIBUTE)
        if governor is not None and not self.running:
            governor.went_idle()
        return result

    scheduler_class.__init__ = __init__
    scheduler_class.schedule = governed_schedule
    scheduler_class.update_from_output = governed_update
