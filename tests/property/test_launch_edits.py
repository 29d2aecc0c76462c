"""Random flags, forms, spellings and quotings: an edit does what was asked, and nothing else."""

from __future__ import annotations

from collections import Counter

import yaml as pyyaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests import stub_engine
from tests.fuzz.oracle import check_bytes, check_mutation, check_shell, check_yaml
from tests.launch_generator import changes, generate
from vllm_tuning.engine.args import edit_args, read_args
from vllm_tuning.engine.manifest.document import Stream
from vllm_tuning.engine.manifest.scalars import is_plain_safe, map_scalar, quoted
from vllm_tuning.engine.outcome import Refusal

slow = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
randoms = st.randoms(use_true_random=False)


@slow
@given(randoms)
def test_edits_are_exact(rng):
    line = generate(rng)
    wanted = changes(rng, line.version)
    args = read_args(line.container, version=line.version)
    assert [word.text for word in args.reading.launch.words] == line.words
    edit = edit_args(line.container, wanted, version=line.version)
    assert not isinstance(edit, Refusal), edit
    check_bytes(line, edit, wanted)
    again = edit_args(edit.container, wanted, version=line.version)
    assert again.operations == (), "an edit that is there already changes something"


@settings(slow, max_examples=25)
@given(randoms)
def test_a_real_shell_agrees(rng):
    line = generate(rng)
    if line.form not in ("shell", "forwarded"):
        return
    edit = edit_args(line.container, changes(rng, line.version), version=line.version)
    check_shell(edit.container, line.version, stub_engine)


@settings(slow, max_examples=40)
@given(randoms)
def test_the_same_edit_in_a_file(rng):
    line = generate(rng)
    wanted = changes(rng, line.version)
    edit = edit_args(line.container, wanted, version=line.version)
    check_yaml(rng, line, wanted, edit, Counter())


@slow
@given(randoms)
def test_broken_input_never_crashes_or_lies(rng):
    line = generate(rng)
    check_mutation(rng, line, changes(rng, line.version), Counter())


TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]) | st.sampled_from(" \n'\"#:-")
)


@slow
@given(TEXT, st.sampled_from(["'", '"', None, "|", ">"]), st.integers(20, 200))
@example("\n\n", ">", 20)
@example("\xa0", "|", 20)
def test_every_character_of_a_scalar_is_traced(value, style, width):
    dumped = pyyaml.safe_dump([value], default_style=style, width=width, allow_unicode=True)
    stream = Stream.parse(dumped)
    if isinstance(stream, Refusal) or list(stream.values[0]) != [value]:
        return  # the writer and the reader disagree on this text
    node = stream.roots[0].value[0]
    scalar = map_scalar(dumped, node.start_mark.index, node.end_mark.index, node.style, value)
    assert scalar is not None
    assert len(scalar.spans) == len(value)
    ends = [0, *(end for _, end in scalar.spans)]
    assert ends == sorted(ends)


@slow
@given(TEXT)
@example("=")
@example("<<")
def test_plain_scalars_and_quotes_read_back(text):
    if is_plain_safe(text):
        assert pyyaml.safe_load(f"[{text}]") == [text]
        assert pyyaml.safe_load(f"- {text}\n") == [text]
    assert pyyaml.safe_load(quoted(text)) == text
    assert pyyaml.safe_load(quoted(text, "'")) == text
