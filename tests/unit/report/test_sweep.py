"""The knee, on numbers measured on an H200: 512 + 512 tokens, 256 clients, 97,488 KV tokens."""

import pytest

from tests.unit.report.runs import a_result
from vllm_tuning.report.sweep import curves
from vllm_tuning.tuning.knee import knee
from vllm_tuning.tuning.model import ClosedLoad, OpenLoad, Verdict

# max_num_seqs: output tokens/s, TPOT p99 (stands in for p95), preemptions
H200 = {
    48: (6107, 7.6, 0),
    64: (7487, 8.4, 0),
    96: (8570, 10.2, 5),
    128: (8590, 17.8, 134),
    256: (8036, 25.8, 321),
}


def h200(*seqs):
    return [
        a_result(s, throughput=H200[s][0], tpot=H200[s][1], preemptions=H200[s][2]) for s in seqs
    ]


def points(results):
    return [(result.probe.limits.max_num_seqs, result) for result in results]


def test_the_knee_is_the_last_setting_before_preemptions():
    index, why = knee(points(h200(48, 64, 96, 128, 256)))
    assert (index, why) == (2, "at 128 sequences the engine preempts (134 times)")


def test_without_preemptions_a_jump_of_tpot_is_the_knee():
    rows = [
        a_result(s, tpot=t, throughput=100.0 * s, preemptions=None)
        for s, t in ((32, 10.0), (64, 12.0), (128, 40.0))
    ]
    assert knee(points(rows)) == (1, "TPOT p95 jumps 12 → 40 ms at 128")


def test_a_flat_throughput_is_the_knee():
    rows = [a_result(s, throughput=t) for s, t in ((32, 4000), (64, 7000), (128, 7100))]
    assert knee(points(rows)) == (1, "128 sequences add only +1.4% throughput")


def test_a_curve_that_still_rises_has_no_knee():
    assert knee(points(h200(48, 64, 96))) is None


def test_what_is_not_known_makes_no_knee():
    rows = [a_result(s, throughput=None, tpot=None, preemptions=None) for s in (1, 2, 4)]
    assert knee(points(rows)) is None


def test_curves_vary_one_limit_under_one_load():
    probes = [
        *h200(48, 64, 96),
        a_result(64, 2048),
        a_result(64, 8192, load=OpenLoad(3)),
        a_result(96, verdict=Verdict.INVALID),
    ]
    found = {(c.varied, c.fixed): [r.result.probe.limits for r in c.rows] for c in curves(probes)}
    assert {key: len(rows) for key, rows in found.items()} == {
        ("max_num_seqs", "max_num_batched_tokens=8192"): 3,
        ("max_num_batched_tokens", "max_num_seqs=64"): 2,
    }


@pytest.mark.parametrize("seqs", [[64, 96], [64], []])
def test_two_sizes_are_no_curve(seqs):
    assert curves(h200(*seqs)) == ()


def test_loops_of_as_many_clients_as_sequences_are_one_sweep():
    """The cap may be larger than the clients: it holds nobody back."""
    sizes = {1: 900, 8: 4000, 64: 7487, 128: 7600}
    probes = [
        a_result(seqs, 2048, load=ClosedLoad(seqs), throughput=rate) for seqs, rate in sizes.items()
    ]
    probes.append(a_result(512, 2048, load=ClosedLoad(256), throughput=7590))
    probes.append(a_result(64, 2048, load=ClosedLoad(512)))  # most of these wait in a queue
    (sweep,) = curves(probes)
    assert (sweep.varied, sweep.load) == ("max_num_seqs", None)
    assert [row.value for row in sweep.rows] == [1, 8, 64, 128, 256]
    assert [row.knee for row in sweep.rows] == [
        None, None, "128 sequences add only +1.5% throughput", None, None,
    ]  # fmt: skip


def test_a_canary_and_a_loaded_loop_are_no_sweep():
    assert curves([a_result(512, load=ClosedLoad(1)), a_result(512, load=ClosedLoad(32))]) == ()
