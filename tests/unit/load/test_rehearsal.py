"""What the rehearsal is for: no module is imported while requests are in flight."""

import subprocess
import sys

VERDICT = """
import sys

import numpy as np

from vllm_tuning.bench.rehearsal import rehearse
from vllm_tuning.tuning.model import SLO, Limits, Metric, OpenLoad, Probe, Purpose
from vllm_tuning.tuning.samples import RequestSamples, Window
from vllm_tuning.tuning.verdict import judge

slos = (SLO(Metric.TTFT, 95, 300), SLO(Metric.ITL, 99, 80), SLO(Metric.ERROR_RATE, max_percent=1))
probe = Probe("p1", Purpose.CONFIRM, Limits(8, 2048), OpenLoad(20.0), 1, 30.0, decide=True)
before = set(sys.modules)
rehearse(probe, slos)
rehearsed = set(sys.modules)
at = np.arange(1200) / 20
samples = RequestSamples.of(
    scheduled_at=at,
    first_token_at=at + 0.1,
    last_token_at=at + 0.2,
    output_tokens=np.full(1200, 2),
    gap_ms=np.full(1200, 100.0),
    gap_row=np.arange(1200),
)
windows = [Window(0.0, 30.0), Window(30.0, 60.0)]
judged = judge(samples, slos, probe, windows=windows, in_flight=[(t, 2) for t in at])
assert judged.slos[0].upper_milliseconds is not None
print(*sorted(rehearsed - before))
print(*sorted(set(sys.modules) - rehearsed))
"""


def test_a_verdict_imports_nothing_that_its_rehearsal_has_not():
    done = subprocess.run(
        [sys.executable, "-c", VERDICT], check=True, capture_output=True, text=True
    )
    rehearsed, later = done.stdout.splitlines()
    assert "scipy.special" in rehearsed.split()
    assert not later
