"""Every form that people deploy: read, edited or refused as the file says, to the byte."""

from __future__ import annotations

import pytest

from tests import stub_engine
from tests.launch_corpus import EDIT, Case, load
from vllm_tuning.engine.args import read_args
from vllm_tuning.engine.launch.forms import Form
from vllm_tuning.engine.manifest.document import Stream
from vllm_tuning.engine.manifest.edit import parse, read_engine, set_flags
from vllm_tuning.engine.manifest.workloads import Engine, Misfit, find_engines
from vllm_tuning.engine.outcome import Refusal

CASES = load()
READABLE = [c for c in CASES if c.read_refusal is None]
EDITABLE = [c for c in CASES if c.edit_refusal is None]


def named(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def engines(text: str) -> tuple[Stream, list[Engine]]:
    stream = parse(text)
    assert isinstance(stream, Stream)
    return stream, [f for f in find_engines(stream.values) if isinstance(f, Engine)]


def values(text: str) -> dict[str, str | None]:
    stream, found = engines(text)
    args = read_engine(found[0], stream.values)
    read = {name: flag.value for name, flag in args.flags.items()}
    return {"model": args.model.value, **read} if args.model else read


def test_corpus_is_large_enough():
    assert len(CASES) >= 60


@named(READABLE)
def test_reads_what_the_engine_will_use(case: Case):
    read = values(case.text)
    assert {name: read.get(name, "absent") for name in case.read} == case.read


@named([c for c in CASES if c.read_refusal])
def test_says_why_it_can_not_read(case: Case):
    stream = parse(case.text)
    if isinstance(stream, Refusal):
        reasons = {stream.reason}
    else:
        found = find_engines(stream.values)
        misfits = [f.refusal.reason for f in found if isinstance(f, Misfit)]
        refusals = [read_engine(f, stream.values).refusal for f in found if isinstance(f, Engine)]
        reasons = {*misfits, *(r.reason for r in refusals if r)} or {"NoEngineContainer"}
    assert reasons == {case.read_refusal}


@named([c for c in CASES if c.edit_refusal])
def test_refuses_and_says_why(case: Case):
    edit = set_flags(case.text, EDIT)
    assert isinstance(edit, Refusal)
    assert edit.reason == case.edit_refusal
    assert len(edit.message) > 30


@named(EDITABLE)
def test_edits_and_reads_back(case: Case):
    edit = set_flags(case.text, EDIT)
    assert not isinstance(edit, Refusal), edit
    before, after = values(case.text), values(edit.text)
    assert {name: after[name] for name in EDIT} == EDIT
    assert {n: v for n, v in after.items() if n not in EDIT} == {
        n: v for n, v in before.items() if n not in EDIT
    }


@named(EDITABLE)
def test_nothing_to_change_changes_nothing(case: Case):
    assert set_flags(case.text, {}).text == case.text
    known = {n: v for n, v in values(case.text).items() if n in EDIT and v is not None}
    assert set_flags(case.text, known).text == case.text


NOT_REVERSIBLE = {
    "argv-human-numbers.yaml": "a plain word becomes a number, which must be quoted",
    "yaml-anchor-alone.yaml": "a plain word becomes a number, which must be quoted",
    "env-shared.yaml": "the shared variable is replaced by literals",
    "env-config-map.yaml": "the reference is replaced by a literal",
    "env-config-map-elsewhere.yaml": "the reference is replaced by a literal",
    "env-from-config-map.yaml": "the reference is replaced by a literal",
    "shell-cut-assignment.yaml": "the reference is replaced by a literal",
    "shell-script-variable-changed.yaml": "the reference is replaced by a literal",
    "shell-brace-expansion.yaml": "a value in two pieces becomes one",
}


@named([c for c in EDITABLE if c.name not in NOT_REVERSIBLE])
def test_undoing_an_edit_gives_the_same_bytes(case: Case):
    """Setting the old text again, or removing what was added, restores the file."""
    stream, found = engines(case.text)
    flags = read_engine(found[0], stream.values).flags
    old = {name: flags[name].raw if name in flags else None for name in EDIT}
    edited = set_flags(case.text, EDIT)
    assert set_flags(edited.text, old).text == case.text


@named(EDITABLE)
def test_touches_only_lines_that_hold_the_flags(case: Case):
    edit = set_flags(case.text, EDIT)
    old, new = case.text.splitlines(), edit.text.splitlines()
    gone = [line for line in old if line not in new]
    assert len(gone) <= len(EDIT)
    assert len(new) - len(old) <= 2 * len(EDIT)


@named([c for c in EDITABLE if c.name.startswith("shell-")])
def test_a_real_shell_starts_the_engine_as_read(case: Case):
    """Before and after the edit: the argv that a stub engine gets is what the reader says."""
    for text in (case.text, set_flags(case.text, EDIT).text):
        _, found = engines(text)
        container = found[0].container
        args = read_args(container)
        assert args.form in (Form.SHELL, Form.FORWARDED)
        argv = stub_engine.run_container(container, stub_engine.literal_env(container))
        assert argv is not None
        words = args.reading.launch.words
        if all(word.known for word in words):
            assert argv[len(argv) - len(words) :] == [word.text for word in words]
        started = read_args({"command": argv})
        for name, flag in args.flags.items():
            if flag.value is not None:
                assert started.flags[name].value == flag.value
