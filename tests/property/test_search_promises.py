"""Promises that hold for every engine, budget and seed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy_engine import ToyEngine, make_problem, run_search
from vllm_tuning.tuning.experiment import CONFIRM_SEEDS
from vllm_tuning.tuning.model import (
    Answer,
    Bounds,
    Budget,
    Done,
    Ending,
    FailureKind,
    Limits,
    ProbeResult,
    Purpose,
    Space,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.search import Search
from vllm_tuning.tuning.verdict import MOST_SEEDS

ENGINES = st.builds(
    ToyEngine,
    peak=st.floats(0.05, 300.0),
    best_tokens=st.sampled_from([256, 1024, 4096, 16384]),
    need_seqs=st.integers(4, 400),
    width=st.floats(0.7, 8.0),
    noise=st.floats(0.0, 0.3),
    kv_tokens=st.sampled_from([3_000, 60_000, 900_000]),
    live_limits=st.sampled_from([None, None, "too old"]),
    largest=st.sampled_from([None, None, Limits(64, 4096)]),
    failures=st.sampled_from([(), (), (FailureKind.ENVIRONMENT,), (FailureKind.INFEASIBLE,)]),
    invalid_from=st.sampled_from([None, None, None, 9]),
    alone_ms=st.floats(1.0, 400.0),
    slow_fresh=st.floats(0.6, 1.1),
    graph_cap=st.sampled_from([0, 512]),
)
PROBLEMS = st.builds(
    make_problem,
    seed=st.integers(0, 1000),
    quick=st.booleans(),
    current=st.builds(
        Limits, st.sampled_from([1, 16, 128, 256]), st.sampled_from([512, 2048, 8192])
    ),
    budget=st.builds(lambda s: Budget(s, s), st.floats(10.0, 20_000.0)),
    space=st.sampled_from(
        [Space(), Space(max_num_batched_tokens=None), Space(max_num_seqs=Bounds(4, 96))]
    ),
)


@settings(deadline=None, max_examples=150)
@given(PROBLEMS, ENGINES)
def test_every_search_ends_and_keeps_its_promises(problem, engine):
    found, answers = run_search(problem, engine, rounds=400)

    # Never recommend what was not confirmed on a fresh start with the exact limits.
    if found.limits is not None:
        assert found.ending is Ending.RECOMMENDED
        confirming = [
            answer
            for answer in answers
            if isinstance(answer, ProbeResult)
            and answer.probe.purpose is Purpose.CONFIRM
            and answer.probe.load == found.load
        ]
        assert CONFIRM_SEEDS <= len(confirming) <= MOST_SEEDS
        for answer in confirming:
            assert answer.probe.decide
            assert answer.probe.limits == found.limits
            assert answer.verdict in {Verdict.PASS, Verdict.UNDECIDED}
        last = [answer.start for answer in answers if isinstance(answer, StartResult)][-1]
        assert (last.limits, last.hook) == (found.limits, False)
        assert last.purpose is Purpose.CONFIRM

    # Budgets are hard. A toy probe takes no longer than planned, so neither does the sum.
    started = sum(answer.seconds for answer in answers if isinstance(answer, StartResult))
    probed = sum(answer.seconds for answer in answers if isinstance(answer, ProbeResult))
    slack = 130.0  # the start that no one knew to take longer than assumed
    assert started + probed <= problem.budget.gpu_seconds + slack

    # A start never asks for all that an infeasible one asked for.
    failed = []
    for answer in answers:
        if not isinstance(answer, StartResult):
            continue
        limits = answer.start.limits
        assert not any(
            limits.max_num_seqs >= other.max_num_seqs
            and limits.max_num_batched_tokens >= other.max_num_batched_tokens
            for other in failed
        )
        if answer.failure is not None and answer.failure.kind is FailureKind.INFEASIBLE:
            failed.append(limits)


@settings(deadline=None, max_examples=40)
@given(PROBLEMS, ENGINES, st.floats(0.0, 1.0))
def test_replay_gives_the_same_state(problem, engine, share):
    found, answers = run_search(problem, engine, rounds=400)
    cut = int(share * len(answers))
    resumed = Search(problem)
    assert resumed.replay(answers[:cut]) == cut
    assert resumed.spent_seconds == sum(answer.seconds for answer in answers[:cut])
    for answer in answers[cut:]:
        question = resumed.ask()
        assert question == question_of(answer)
        resumed.tell(answer)
    ended = resumed.ask()
    assert isinstance(ended, Done)
    assert ended.recommendation == found


def question_of(answer: Answer):
    return answer.start if isinstance(answer, StartResult) else answer.probe
