"""What is told while a run goes on: on the terminal, and in the tuning's status."""

from __future__ import annotations

from vllm_tuning.reconcile.progress import _measuring
from vllm_tuning.report.progress import progress_line
from vllm_tuning.tuning.model import Limits, Purpose, Start
from vllm_tuning.tuning.own_start import WHY
from vllm_tuning.tuning.run import StartBegan

OWN_START = StartBegan(
    4, 100.0, Start("s2", Purpose.BASELINE, Limits(64, 8192), hook=False, why=WHY), ("vllm",)
)


def test_a_start_says_what_it_is_for():
    assert progress_line(OWN_START) == (
        "server start s2 (exact args, no hook): max_num_seqs=64 max_num_batched_tokens=8192 "
        f"[dim]{WHY}[/]"
    )
    assert _measuring([OWN_START]).message == (
        f"starting the engine with max_num_seqs=64, max_num_batched_tokens=8192 ({WHY})"
    )
