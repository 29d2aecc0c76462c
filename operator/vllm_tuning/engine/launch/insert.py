"""Put new flags where they are safe: at the end, so that they win; before a bare ``--``."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_tuning.engine.launch.forms import ListEnd
from vllm_tuning.engine.launch.operations import InsertItems, ReplaceText
from vllm_tuning.engine.launch.read import Reading
from vllm_tuning.engine.launch.replace import escape_for_kubelet, quote_for_shell
from vllm_tuning.engine.outcome import Refusal


def insert_flags(
    reading: Reading, additions: Sequence[tuple[str, ...]]
) -> InsertItems | ReplaceText | Refusal:
    """One operation that adds the words of all new flags."""
    launch, end = reading.launch, reading.launch.insertion
    escape = escape_for_kubelet if launch.kubelet else str
    sentinel = reading.scan.sentinel
    if isinstance(end, ListEnd):
        index = end.index
        if sentinel is not None:
            anchor = launch.words[sentinel].anchor
            if anchor.path[:1] != end.path or anchor.in_script:
                return _behind_sentinel()
            index = int(anchor.path[1])
        items = tuple(escape(word) for words in additions for word in words)
        return InsertItems(end.path, index, items)
    if sentinel is not None:
        return _behind_sentinel()
    flags = (" ".join(quote_for_shell(word) for word in words) for words in additions)
    text = "".join(end.separator + escape(flag) for flag in flags)
    top = end.tail.top
    return ReplaceText(top.path, top.end, top.end, text)


def _behind_sentinel() -> Refusal:
    return Refusal(
        "EndOfOptions",
        "a bare `--` ends the options; remove it so that a flag can be added at the end",
    )
