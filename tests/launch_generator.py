"""Random command lines in every plain form and style, with what each flag must mean."""

from __future__ import annotations

import json
import random
import shlex
from dataclasses import dataclass, field

from vllm_tuning.engine.flags.model import Flag, Kind
from vllm_tuning.engine.flags.table import FlagTable, Spelling, releases, table_for

LIMITS = (
    "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "enable_chunked_prefill",
    "max_model_len", "long_prefill_token_threshold", "port", "served_model_name",
)  # fmt: skip
TEXTS = (
    "a", "a b", "it's", '"q"', "$HOME", "$(NOPE)", "a;b|c&d", "x=y", "{{ m }}", "{% if a %}",
    "`id`",
    "*", "#c", "tab\there", "back\\slash", "ünï", "a,b", "100%", "[1]", "~", "!x", "a\nb", "-1",
    "$$",
    "${X}", "&a", "|",
)  # fmt: skip
SKIPPED = ("config", "model", "help")
"""Flags that change what the parser reads."""
PRELUDES = (
    "", "set -e\n", "ulimit -c 0; ", "export A=1 && ", "true || echo no\n",
    "for i in 1; do :; done\n",
    "cd /tmp\n# vllm serve old --max-num-seqs 1\n", "if true; then :; fi\n",
)  # fmt: skip
POSTLUDES = (
    "", "\n", " # --max-num-seqs 1", " 2>&1", " > /dev/null 2>&1", "\n# done\n", " &\nwait\n",
    " | cat\n",
)  # fmt: skip


@dataclass
class Line:
    """A generated container."""

    version: str
    container: dict
    form: str
    words: list[str]
    """The engine's own words, as the process must see them."""
    kubelet: bool = True
    notes: list[str] = field(default_factory=list)


def flag_words(
    rng: random.Random, flag: Flag, table: FlagTable, value: str | None = None
) -> list[str]:
    """One flag with a random value, in a random spelling."""
    if not flag.kind.takes_value:
        pool = flag.options + flag.negatives
        return [spelled(rng, rng.choice(pool), table)]
    option = spelled(rng, rng.choice(flag.options), table)
    values = [
        value if value is not None else random_value(rng, flag)
        for _ in range(rng.randint(1, 3) if flag.is_list else 1)
    ]
    if (
        len(values) == 1
        and rng.random() < 0.4
        and not (option.startswith("-") and not option.startswith("--"))
    ):
        return [f"{option}={values[0]}"]
    return [option, *values]


def spelled(rng: random.Random, option: str, table: FlagTable) -> str:
    """The option, abbreviated where that is unique, with `_` for some `-`."""
    if not option.startswith("--"):
        return option
    if rng.random() < 0.15:
        cut = option[: rng.randint(max(5, len(option) - 6), len(option))]
        if isinstance(table.match(cut), Spelling):
            option = cut
    if rng.random() < 0.25:
        option = "--" + "".join("_" if c == "-" and rng.random() < 0.7 else c for c in option[2:])
    return option


def random_value(  # noqa: PLR0911 - one per kind
    rng: random.Random, flag: Flag
) -> str:
    """A value that the parser takes."""
    if flag.choices:
        return rng.choice([c for c in flag.choices if c != "None"])
    match flag.kind:
        case Kind.INT:
            return str(rng.randint(1, 9999))
        case Kind.HUMAN_INT:
            return rng.choice(["2048", "8k", "8K", "1.5k", "65536", "16_384"])
        case Kind.HUMAN_INT_OR_AUTO:
            return rng.choice(["2048", "8k", "auto", "-1"])
        case Kind.FLOAT:
            return rng.choice(["0.5", "0.92", "1e-1", "0.875"])
        case Kind.JSON:
            return json.dumps({"a": rng.choice([1, "x y", True])})
        case _:
            return rng.choice([t for t in TEXTS if not t.startswith("-")])


def quoted(rng: random.Random, word: str) -> str:
    """The word in one of the ways that a shell reads as it."""
    styles = ["shlex"]
    if "'" not in word:
        styles.append("single")
    if "!" not in word:
        styles.append("double")
    if word and not set("\n\t") & set(word):
        styles.append("backslash")
    match rng.choice(styles):
        case "single":
            return f"'{word}'"
        case "double":
            return '"' + "".join("\\" + c if c in '$`"\\' else c for c in word) + '"'
        case "backslash":
            return "".join(c if c.isalnum() or c in "-_=./" else "\\" + c for c in word)
        case _:
            return shlex.quote(word)


def escaped(word: str) -> str:
    """`$` as the kubelet must be given it."""
    return word.replace("$", "$$")


def generate(rng: random.Random) -> Line:
    """A random container with an engine."""
    version = rng.choice(releases())
    table = table_for(version)
    flags = [f for f in table if f.name not in SKIPPED]
    chosen = rng.sample(flags, rng.randint(0, 6))
    chosen += [f for name in LIMITS if (f := table.get(name)) and rng.random() < 0.4]
    rng.shuffle(chosen)
    if rng.random() < 0.2 and chosen:
        chosen.append(rng.choice(chosen))
    words = ["org/model"]
    for flag in chosen:
        words += flag_words(rng, flag, table)
    form = rng.choice(["args", "command", "image", "shell", "shell", "forwarded"])
    return _container(rng, version, form, words)


def _container(rng: random.Random, version: str, form: str, words: list[str]) -> Line:
    env: list[dict] = []
    program = rng.choice([["vllm", "serve"], ["/opt/venv/bin/vllm", "serve"]])
    if form in ("shell", "forwarded"):
        return _shell(rng, version, form, words)
    items = [_item(rng, word, env) for word in words]
    if form == "command":
        container = {"command": [*program, *items]}
    elif form == "image":
        container = {"image": f"vllm/vllm-openai:v{version}", "args": items}
    else:
        container = {"command": program, "args": items}
    return Line(version, {"name": "vllm", **container, "env": env}, form, words)


def _item(rng: random.Random, word: str, env: list[dict]) -> str:
    """The word as a list item, sometimes by way of a variable."""
    if rng.random() < 0.1:
        name = f"V{len(env)}"
        head, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if not word.startswith("-") or equals:
            env.append({"name": name, "value": escaped(value)})
            return f"{head}{equals}$({name})"
    return escaped(word)


def _shell(rng: random.Random, version: str, form: str, words: list[str]) -> Line:
    prelude, postlude = rng.choice(PRELUDES), rng.choice(POSTLUDES)
    env: list[dict] = []
    start = rng.choice(["vllm serve", "exec vllm serve"])
    if form == "forwarded":
        script = f'{prelude}{start} "$@"{postlude}'
        container = {
            "command": [rng.choice(["sh", "bash"]), "-c", escaped(script), "x"],
            "args": [escaped(w) for w in words],
        }
        return Line(version, {"name": "vllm", **container, "env": env}, form, words)
    gap = rng.choice([" ", "  ", " \\\n  ", " \\\n\t"])
    parts = []
    for word in words:
        part = quoted(rng, word)
        if rng.random() < 0.08 and not word.startswith("-"):
            name = f"V{len(env)}"
            env.append({"name": name, "value": escaped(word)})
            part = rng.choice([f'"${name}"', f'"${{{name}}}"', f'"${{{name}:-other}}"'])
        parts.append(part)
    script = f"{prelude}{start} {gap.join(parts)}{postlude}"
    container = {
        "command": [rng.choice(["sh", "bash", "/bin/sh"]), "-c"],
        "args": [escaped(script)],
    }
    return Line(version, {"name": "vllm", **container, "env": env}, form, words)


def changes(rng: random.Random, version: str) -> dict[str, str | None]:
    """Random valid changes of limits."""
    table = table_for(version)
    names = [n for n in LIMITS if table.get(n)]
    picked = rng.sample(names, rng.randint(1, 3))
    made: dict[str, str | None] = {}
    for name in picked:
        flag = table.get(name)
        assert flag is not None
        if rng.random() < 0.15:
            made[name] = None
        elif not flag.kind.takes_value:
            made[name] = rng.choice(["true", "false"])
        elif flag.is_list:
            made[name] = rng.choice(["a", "it's", "a b", "$x"])
        else:
            made[name] = random_value(rng, flag)
    return made
