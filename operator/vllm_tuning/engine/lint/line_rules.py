"""Rules about the command line as a whole: the model, strays, repetitions, the config file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vllm_tuning.engine.images import image_program
from vllm_tuning.engine.launch.entry import Program
from vllm_tuning.engine.lint.model import Context, Issue, Severity, rule


def _program(context: Context) -> Program | None:
    """The program, with the image's entrypoint resolved where it is known."""
    program = context.args.program
    if program is not Program.IMAGE or context.engine.managed:
        return program
    return image_program(str(context.engine.container.get("image", "")), context.version)


@rule(
    "flag-and-value-in-one-item",
    Severity.ERROR,
    "`--flag value` in one list item is not read as a flag.",
)
def flag_and_value_in_one_item(context: Context) -> Iterator[Issue]:
    """``- "--max-num-seqs 64"``: refused, or swallowed as the model by the API server module."""
    reading = context.args.reading
    for index in reading.scan.positionals if reading else ():
        assert reading is not None
        word = reading.launch.words[index]
        if not (word.text.startswith("--") and " " in word.text):
            continue
        swallowed = _program(context) is Program.API_SERVER
        effect = "it is swallowed in silence and has no effect" if swallowed else "exit code 2"
        flag, _, value = word.text.partition(" ")
        yield Issue(
            f"`{word.text}` is one item, not a flag with a value: {effect}",
            f"two items, `{flag}` and `{value.strip()}`, or `{flag}={value.strip()}`",
            word.anchor,
        )


@rule(
    "positional-model-ignored", Severity.ERROR, "The API server module ignores a positional model."
)
def positional_model_ignored(context: Context) -> Iterator[Issue]:
    """``python -m vllm.entrypoints.openai.api_server MODEL`` serves the default model."""
    reading = context.args.reading
    if reading is None or _program(context) is not Program.API_SERVER:
        return
    for index in reading.scan.positionals[:1]:
        word = reading.launch.words[index]
        if not word.text.startswith("-") and context.args.get("model") is None:
            yield Issue(
                f"the API server module ignores `{word.text}` and serves its default model",
                f"--model {word.text}",
                word.anchor,
            )


@rule("repeated-serve", Severity.ERROR, "`serve` stands in both the entrypoint and the args.")
def repeated_serve(context: Context) -> Iterator[Issue]:
    """``vllm serve serve MODEL``."""
    reading = context.args.reading
    if reading is None or not reading.scan.positionals:
        return
    word = reading.launch.words[reading.scan.positionals[0]]
    if word.text == "serve" and _program(context) is Program.SERVE:
        yield Issue(
            "the program is `vllm serve` already: exit code 2", "args without `serve`", word.anchor
        )


@rule("arguments-not-forwarded", Severity.ERROR, "Items behind a script are not part of it.")
def arguments_not_forwarded(context: Context) -> Iterator[Issue]:
    """``["sh", "-c", "vllm serve m", "--max-num-seqs=64"]``: the flag becomes ``$0``."""
    reading = context.args.reading
    for word in reading.launch.ignored if reading else ():
        if word.text.startswith("--") and word.text != "--":
            yield Issue(
                f"`{word.text}` stands behind the script of `sh -c` and never reaches the engine",
                'into the script, or end the script\'s command with "$@" and put a name before it',
                word.anchor,
            )


@rule("model-not-first", Severity.ERROR, "A list flag before the model swallows it.")
def model_not_first(context: Context) -> Iterator[Issue]:
    """``vllm serve --served-model-name a MODEL``."""
    reading = context.args.reading
    if reading is None or _program(context) is not Program.SERVE or context.engine.managed:
        return
    if context.args.model is not None or reading.scan.positionals or context.args.config_file:
        return
    for occurrence in context.args.occurrences:
        if occurrence.name == "served_model_name" and len(occurrence.values) > 1:
            last = reading.launch.words[occurrence.values[-1]].text
            yield Issue(
                f"`{occurrence.option}` takes every word behind it, `{last}` too: no model is left",
                f"vllm serve {last} {occurrence.option} ...",
                context.mark(occurrence),
            )


@rule("duplicate-flag", Severity.WARNING, "The last one wins; the others have no effect.")
def duplicate_flag(context: Context) -> Iterator[Issue]:
    """The same flag twice, also as ``--x`` and ``--no-x``."""
    plain = [o for o in context.args.occurrences if o.dotted is None and o.flag is not None]
    counts = Counter(o.name for o in plain)
    appended = {"middleware"}
    for name in sorted(n for n, count in counts.items() if count > 1 and n not in appended):
        first, *_, last = [o for o in plain if o.name == name]
        yield Issue(
            f"`{context.text(first)}` has no effect: `{context.text(last)}` comes later",
            f"only `{context.text(last)}`",
            context.mark(first),
        )


@rule(
    "config-file-ignored",
    Severity.WARNING,
    "`--config=FILE` is ignored; only `--config FILE` is read.",
)
def config_file_ignored(context: Context) -> Iterator[Issue]:
    """The parser looks for the bare word ``--config``."""
    for occurrence in context.args.occurrences:
        if occurrence.name == "config" and occurrence.inline_at is not None:
            value = context.text(occurrence).partition("=")[2]
            yield Issue(
                f"the engine ignores `{context.text(occurrence)}` in silence",
                f"--config {value}, as two words",
                context.mark(occurrence),
            )


@rule("config-file-false", Severity.WARNING, "`key: false` in a config file is dropped.")
def config_file_false(context: Context) -> Iterator[Issue]:
    """``enable-x: false`` leaves the default on."""
    config = context.args.config_file
    if config is None:
        return
    kept = config.values(context.args.table, context.args.program or Program.SERVE)
    for key, value in config.entries().items():
        name = key.replace("-", "_")
        if value is False and name not in kept:
            yield Issue(
                f"`{key}: false` in {config.path} is dropped: the default stays",
                f"no-{key.replace('_', '-')}: true",
                place=f"{config.path}:{key}",
            )
