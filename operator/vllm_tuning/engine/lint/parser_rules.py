"""Rules about single flags: what the engine's parser knows and takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vllm_tuning.engine.flags.checks import check_value
from vllm_tuning.engine.flags.model import Flag, Kind
from vllm_tuning.engine.flags.scan import Fault, Occurrence, dashed
from vllm_tuning.engine.flags.table import lifetime, release_line
from vllm_tuning.engine.lint.model import Context, Issue, Severity, rule
from vllm_tuning.engine.lint.removed import INSTEAD


def _with_fault(context: Context, fault: Fault) -> Iterator[Occurrence]:
    return (o for o in context.args.occurrences if o.fault is fault)


@rule("removed-flag", Severity.ERROR, "The release no longer has this flag and exits with code 2.")
def removed_flag(context: Context) -> Iterator[Issue]:
    """Flags of older releases."""
    for occurrence in _gone(context):
        name = _known_name(occurrence)
        gone = (lifetime(name) or ("", None))[1] or ""
        instead = INSTEAD.get(name, "drop it")
        release = context.version or f"{context.args.table.release} and newer"
        yield Issue(
            f"`{occurrence.option}` was removed in vLLM {release_line(gone)}; {release} exits"
            " with code 2",
            instead,
            context.mark(occurrence),
            severity=None if context.version else Severity.WARNING,
        )


def _gone(context: Context) -> Iterator[Occurrence]:
    table = context.args.table
    for occurrence in context.args.occurrences:
        if occurrence.fault is Fault.UNKNOWN_FLAG:
            span = lifetime(_known_name(occurrence))
            if span is not None and span[1] is not None:
                yield occurrence
        elif (
            context.version is None and occurrence.flag and occurrence.flag.name not in table.flags
        ):
            yield occurrence


def _known_name(occurrence: Occurrence) -> str:
    name = dashed(occurrence.option).lstrip("-").partition(".")[0].replace("-", "_")
    return occurrence.flag.name if occurrence.flag else name.removeprefix("no_")


@rule("unknown-flag", Severity.ERROR, "The release does not know this flag and exits with code 2.")
def unknown_flag(context: Context) -> Iterator[Issue]:
    """Misspelt flags, and flags of newer releases."""
    gone = set(_gone(context))
    for occurrence in _with_fault(context, Fault.UNKNOWN_FLAG):
        if occurrence in gone:
            continue
        span = lifetime(_known_name(occurrence))
        if span is not None:
            message = f"`{occurrence.option}` came with vLLM {release_line(span[0])}"
            instead = f"an image of vLLM {release_line(span[0])} or newer, or drop the flag"
        else:
            message = f"vLLM {context.args.table.release} has no flag `{occurrence.option}`"
            instead = "check the spelling with `vllm serve --help`"
        exact = context.version is not None and context.args.table.exact
        yield Issue(
            message, instead, context.mark(occurrence), severity=None if exact else Severity.WARNING
        )


@rule("ambiguous-flag", Severity.ERROR, "An abbreviation fits several flags.")
def ambiguous_flag(context: Context) -> Iterator[Issue]:
    """Abbreviations that a release made ambiguous."""
    for occurrence in _with_fault(context, Fault.AMBIGUOUS_FLAG):
        yield Issue(
            f"`{occurrence.option}` fits {', '.join(occurrence.candidates)}: exit code 2",
            "the name in full",
            context.mark(occurrence),
        )


@rule("abbreviated-flag", Severity.NOTE, "An abbreviation breaks when a release adds a like flag.")
def abbreviated_flag(context: Context) -> Iterator[Issue]:
    """Abbreviations that work today."""
    for occurrence in context.args.occurrences:
        flag, option = occurrence.flag, dashed(occurrence.option).partition(".")[0]
        if flag is None or not option.startswith("--") or option in flag.options + flag.negatives:
            continue
        spellings = flag.negatives if occurrence.negative else flag.options
        full = next(o for o in spellings if o.startswith(option))
        yield Issue(
            f"`{occurrence.option}` is an abbreviation; it ends in exit code 2 once a release has"
            " two flags that fit",
            full,
            context.mark(occurrence),
        )


@rule("missing-value", Severity.ERROR, "A flag that takes a value has none.")
def missing_value(context: Context) -> Iterator[Issue]:
    """``--max-num-seqs`` at the end, or before another flag."""
    for occurrence in _with_fault(context, Fault.MISSING_VALUE):
        yield Issue(
            f"`{occurrence.option}` has no value",
            f"{occurrence.option} VALUE",
            context.mark(occurrence),
        )


@rule(
    "boolean-with-value",
    Severity.ERROR,
    "Switches take no value: `--enable-x=False` exits with code 2.",
)
def boolean_with_value(context: Context) -> Iterator[Issue]:
    """``--enable-x=False`` and ``--enable-x False``."""
    for occurrence in _with_fault(context, Fault.UNEXPECTED_VALUE):
        assert occurrence.flag is not None
        name = occurrence.flag.name
        wanted = context.args.flags[name].value == "true"
        spellings = occurrence.flag.options if wanted else occurrence.flag.negatives
        yield Issue(
            f"`{context.text(occurrence)}`: this flag takes no value, the engine exits with code 2",
            spellings[0] if spellings else f"leave {occurrence.flag.long} out",
            context.mark(occurrence),
        )


@rule("bad-value", Severity.ERROR, "The engine's parser refuses the value.")
def bad_value(context: Context) -> Iterator[Issue]:
    """Numbers and choices that do not parse."""
    reading = context.args.reading
    for occurrence in context.args.occurrences:
        flag = occurrence.flag
        if reading is None or flag is None or occurrence.fault or occurrence.dotted is not None:
            continue
        texts = reading.value_texts(occurrence)
        if not flag.kind.takes_value or not texts or not all(t.known for t in texts):
            continue
        refusal = check_value(_without_json(flag), [t.text for t in texts])
        if refusal is not None:
            expected = refusal.message.rpartition(": ")[2]
            yield Issue(
                f"`{context.text(occurrence)}`: {expected}",
                f"{flag.long} with a value that fits",
                context.mark(occurrence),
            )


def _without_json(flag: Flag) -> Flag:
    """JSON is not judged: the engine also takes files, names and numbers with suffixes there."""
    return replace(flag, kind=Kind.STRING) if flag.kind is Kind.JSON else flag


@rule("deprecated-flag", Severity.WARNING, "The flag will go.")
def deprecated_flag(context: Context) -> Iterator[Issue]:
    """Flags that the release itself calls deprecated."""
    for occurrence in context.args.occurrences:
        if occurrence.flag and (
            occurrence.flag.deprecated or occurrence.name == "disable_log_requests"
        ):
            span = lifetime(occurrence.name)
            if context.version is None or span is None:
                continue
            yield Issue(
                f"`{occurrence.option}` is deprecated"
                + (f" and gone in vLLM {release_line(span[1])}" if span[1] else ""),
                INSTEAD.get(occurrence.name, "drop it"),
                context.mark(occurrence),
            )
