# Stand-ins mimic any object, and argparse keeps its actions private:
# ruff: noqa: ANN001, ANN002, ANN003, ANN202, ANN204, ARG002, SLF001
"""Run the real argument parser of an unpacked vLLM wheel and print its flags as JSON.

Usage: python dump_parser.py DIRECTORY      (the directory that holds the wheel's `vllm/`)

vLLM's own code builds the parser. What that code imports but what needs a GPU stack (torch,
transformers, the rest
of vLLM) is replaced by inert stand-ins: only names, types and arities of flags matter here.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import re
import sys
import types
import typing
from pathlib import Path

REAL = re.compile(
    r"vllm\.(config(\..*)?|engine(\.arg_utils)?|utils(\.(argparse_utils|func_utils|mem_constants))?|"
    r"entrypoints(\.(openai|launchers|common|serve|cli))*(\.(cli_args|models|lora|serve))?(\.protocol)?)"
)
"""Modules of vLLM that are run; all others are stand-ins."""

INSTALLED = {
    "pydantic",
    "pydantic_core",
    "yaml",
    "_yaml",
    "typing_extensions",
    "annotated_types",
    "typing_inspection",
}
PARSERS = (
    "vllm.entrypoints.openai.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.common.cli_args",
)
"""Where `make_arg_parser` has lived; the newest last."""
SUBCOMMAND = "vllm.entrypoints.cli.serve"
PARSER_CLASSES = ("vllm.utils.argparse_utils", "vllm.utils")


class _Meta(type):
    """A class that puts up with everything module-level code does with an imported name."""

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __getitem__(cls, item):
        return cls

    def __iter__(cls):
        return iter(())

    def __len__(cls):
        return 0

    def __contains__(cls, item):
        return False

    def __bool__(cls):
        return False

    def __or__(cls, other):
        return typing.Union[cls, other]  # noqa: UP007 - `|` is what is being defined

    def __ror__(cls, other):
        return typing.Union[other, cls]  # noqa: UP007 - as above

    def __enter__(cls):
        return cls

    def __exit__(cls, *exc):
        return None

    def __lt__(cls, other):
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __mul__(cls, other):
        return 0

    __rmul__ = __add__ = __radd__ = __mul__

    def __instancecheck__(cls, value):
        return type.__instancecheck__(_Meta, value)

    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema

        return core_schema.any_schema()

    def __call__(cls, *args, **kwargs):
        if not cls.__dict__.get("_stand_in"):
            return super().__call__(*args, **kwargs)
        decorates = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType | type)
        if decorates and not type.__instancecheck__(_Meta, args[0]):
            return args[0]
        return _stand_in(cls.__name__)


def _stand_in(name: str) -> type:
    return _Meta(name, (), {"_stand_in": True, "__module__": "stand_in"})


class _Module(types.ModuleType):
    __path__: typing.ClassVar = []

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = _stand_in(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serve stand-ins for what is neither installed nor part of the parser."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_spec(self, fullname, path=None, target=None):
        top = fullname.partition(".")[0]
        if top == "vllm":
            real = self.root / fullname.replace(".", "/")
            if REAL.fullmatch(fullname) and (real.is_dir() or real.with_suffix(".py").exists()):
                return None
        elif top in INSTALLED or top in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        module = _Module(spec.name)
        if spec.name == "vllm":
            module.__path__ = [str(self.root / "vllm")]
        return module

    def exec_module(self, module):
        match module.__name__:
            case "vllm.version":
                module.__version__ = "0"
            case "vllm.platforms":
                module.current_platform = _stand_in("current_platform")
                module.current_platform.device_type = "cuda"
            case "regex":
                module.__dict__.update({k: v for k, v in vars(re).items() if k[:2] != "__"})


def _inner_type(kind):
    """The function inside vLLM's wrappers `optional_type(...)` and `parse_type(...)`."""
    while getattr(kind, "__name__", "") in ("_optional_type", "_parse_type"):
        cells = [cell.cell_contents for cell in kind.__closure__ or ()]
        kind = next(c for c in cells if callable(c))
    return kind


KINDS = {
    "int": "int", "FlexibleInt": "int", "check_port": "int", "float": "float",
    "human_readable_int": "human_int", "human_readable_int_or_auto": "human_int_or_auto",
    "loads": "json", "parse_dataclass": "json",
}  # fmt: skip


def describe(action: argparse.Action, options: list[str]) -> dict:
    """One flag in the words of `vllm_tuning.engine.flags.model.Flag`."""
    flag: dict = {"options": options}
    kind = _inner_type(action.type)
    is_switch = isinstance(action, argparse._StoreTrueAction)
    if action.nargs == 0:
        flag["kind"] = "switch" if is_switch else "bool"
        if not is_switch:
            # Since 0.33 the action knows its negatives (`--disable-x` among them); before, they
            # are `--no-...`.
            known = getattr(action, "negative_option_strings", None)
            negatives = [o for o in options if (o in known if known else o.startswith("--no-"))]
            flag["options"] = [o for o in options if o not in negatives]
            flag["negatives"] = negatives
    else:
        flag["kind"] = KINDS.get(getattr(kind, "__name__", ""), "string")
        if action.nargs is not None:
            flag["arity"] = action.nargs
        if action.choices:
            flag["choices"] = [str(c) for c in action.choices if c is not None]
    if getattr(action, "deprecated", False):
        flag["deprecated"] = True
    return flag


def load_parser(root: Path) -> argparse.ArgumentParser:
    """The parser of `vllm serve`, built by the sources under `root`. Once per process."""
    sys.argv = ["vllm", "serve"]
    sys.path.insert(0, str(root))
    sys.meta_path.insert(0, _Finder(root))
    importlib.metadata.version = lambda _name: "2.8.0"

    def first(name: str, modules: tuple[str, ...]):
        for module in modules:
            path = root / module.replace(".", "/")
            if path.with_suffix(".py").exists() or path.is_dir():
                return getattr(importlib.import_module(module), name)
        raise SystemExit(f"no {name} in {root}: has vLLM moved its parser?")

    parser_class = first("FlexibleArgumentParser", PARSER_CLASSES)
    parser = first("make_arg_parser", PARSERS)(parser_class())
    if "--config" not in parser._option_string_actions:
        # Up to 0.9 the subcommand itself added `--config`, `--headless` and a few more.
        subparsers = types.SimpleNamespace(add_parser=lambda *_, **__: parser_class())
        parser = first("ServeSubcommand", (SUBCOMMAND,))().subparser_init(subparsers)
    return parser


def main() -> None:
    """Print the flags of the wheel at `sys.argv[1]`."""
    parser = load_parser(Path(sys.argv[1]).resolve())
    flags = {}
    for action in parser._actions:
        # Also the spellings that are hidden from the help text.
        options = [o for o, owner in parser._option_string_actions.items() if owner is action]
        longs = [o for o in options if o.startswith("--")]
        if longs and longs[0] != "--help":
            flags[longs[0].removeprefix("--").replace("-", "_")] = describe(action, options)
    json.dump(flags, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
