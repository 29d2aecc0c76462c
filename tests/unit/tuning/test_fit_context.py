"""A workload is cut to the engine's context, once, and the report says so."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy_engine import MakeProblem, Run, Toy
from vllm_tuning.bench.load.lengths import draw_lengths
from vllm_tuning.tuning.lengths import fit_context, longest, tell_cut
from vllm_tuning.tuning.model import Lengths, Limits, Purpose, Start, StartResult, Workload
from vllm_tuning.tuning.search import Search

LENGTHS = st.one_of(
    st.builds(Lengths, st.integers(1, 200_000)),
    st.builds(Lengths, st.integers(1, 200_000), st.integers(1, 300)),
    st.builds(
        Lengths, st.integers(1, 9000), st.integers(0, 300), maximum=st.integers(9000, 200_000)
    ),
    st.builds(
        lambda edges: Lengths(edges[0], histogram=tuple((edge, 1.0) for edge in sorted(edges))),
        st.lists(st.integers(1, 200_000), min_size=1, max_size=6, unique=True),
    ),
)


@given(LENGTHS, LENGTHS, st.integers(16, 131_072))
def test_what_comes_back_fits_and_fits_for_good(prompts, outputs, context):
    fitted = fit_context(Workload(prompts, outputs), context)
    assert longest(fitted.input_tokens) + longest(fitted.output_tokens) <= context
    assert fitted.input_tokens.mean >= 1
    assert fitted.output_tokens.mean >= 1
    assert fit_context(fitted, context) == fitted
    drawn = draw_lengths(fitted.output_tokens, seed=1, stream=2)
    if outputs != fitted.output_tokens:
        assert max(islice(drawn, 2000)) <= longest(fitted.output_tokens)


@given(LENGTHS, LENGTHS)
def test_a_workload_that_fits_stays_as_it_is(prompts, outputs):
    declared = Workload(prompts, outputs)
    assert fit_context(declared, longest(prompts) + longest(outputs)) is declared
    assert fit_context(declared, None) is declared


@pytest.mark.parametrize(
    ("prompt", "output", "fitted"),
    [
        (4000, 1000, (1536, 512)),  # a quarter of 2048 for the output, the rest for the prompt
        (100, 4000, (100, 1948)),  # short prompts leave more than a quarter
        (4000, 10, (2038, 10)),  # a short output keeps all of its own
    ],
)
def test_the_output_keeps_a_quarter_and_the_prompt_gets_the_rest(
    prompt: int, output: int, fitted: tuple[int, int]
):
    cut = fit_context(Workload(Lengths(prompt), Lengths(output)), 2048)
    assert (cut.input_tokens.mean, cut.output_tokens.mean) == fitted


def test_what_was_cut_is_told_with_its_numbers():
    declared = Workload(Lengths(4000, 50), Lengths(10))
    told = tell_cut(declared, fit_context(declared, 2048), 2048)
    assert "max_model_len of 2048" in told
    assert "prompts to 2038 tokens were cut" in told
    assert "outputs" not in told


def test_the_search_measures_what_the_started_engine_takes(
    problem: MakeProblem, toy: Toy, run: Run
):
    """The toy's context is 1,024 tokens."""
    asked = problem(workload=Workload(Lengths(4000), Lengths(1000)), current=Limits(16, 2048))
    search = Search(asked)
    question = search.ask()
    assert isinstance(question, Start)
    assert search.problem.workload.input_tokens.mean == 4000
    answer = toy().answer(question)
    assert isinstance(answer, StartResult)
    search.tell(answer)
    assert search.problem.workload == Workload(Lengths(768), Lengths(256))
    found, answers = run(asked, toy())
    assert found.message.count("max_model_len of 1024") == 1
    assert (
        "768 tokens" in next(step for step in found.decisions if step.topic == "traffic").decision
    )
    assert any(
        answer.start.purpose is Purpose.CONFIRM
        for answer in answers
        if isinstance(answer, StartResult)
    )
