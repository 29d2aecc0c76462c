"""The last word of a run."""

import pytest

from vllm_tuning.bench.termination import LIMIT_BYTES, render_summary, write_summary
from vllm_tuning.tuning.model import Limits, OpenLoad, Purpose
from vllm_tuning.tuning.run import SUMMARY, Summary


def summary(message):
    return Summary(
        run_id="r",
        attempt=1,
        reason="Recommended",
        message=message,
        limits=Limits(64, 2048),
        load=OpenLoad(12.5),
        purpose=Purpose.CONFIRM,
        gain_percent=31.0,
        engine_starts=2,
        probes=20,
        engine_seconds=900.0,
    )


def test_it_can_be_read_back():
    assert SUMMARY.validate_json(render_summary(summary("fine"))) == summary("fine")


@pytest.mark.parametrize("letter", ["x", "≤", "\n", '"', "\N{GRINNING FACE}"])
def test_only_the_text_is_cut_to_fit(letter):
    data = render_summary(summary(letter * 5000))
    assert len(data) <= LIMIT_BYTES
    found = SUMMARY.validate_json(data)
    assert found.limits == Limits(64, 2048)
    assert found.message.startswith(letter * 100)


def test_it_is_written_where_the_environment_says(tmp_path, monkeypatch):
    path = tmp_path / "message"
    monkeypatch.setenv("TERMINATION_LOG", str(path))
    write_summary(summary("fine"))
    assert SUMMARY.validate_json(path.read_bytes()).message == "fine"
