"""Write every file that is generated from a registry; ``--check`` only compares.

Usage: ``.venv/bin/python hack/generate.py [--check]``.

Generated: ``crds/``, the chart's copy of it and its roles,
``docs/reference/{api,reasons,rbac,metrics}.md``, ``docs/reference/report.schema.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from metrics_page import metrics_page

from vllm_tuning.api.crd import KINDS
from vllm_tuning.api.manifest import HEADER, manifest, to_yaml
from vllm_tuning.api.permissions import Scope, rules
from vllm_tuning.api.reference import api_page, permissions_page, reasons_page
from vllm_tuning.report.schema import report_schema

ROOT = Path(__file__).resolve().parent.parent
CHART = Path("charts/vllm-tuning-operator/files")


def files() -> Iterator[tuple[Path, str]]:
    """Yield each generated file, relative to the repository, with its text."""
    for kind in KINDS:
        name = f"{kind.plural}.yaml"
        yield Path("crds") / name, manifest(kind)
        yield CHART / "crds" / name, manifest(kind)
    for scope in Scope:
        header = HEADER.format(source="operator/vllm_tuning/api/permissions.py")
        yield CHART / "rbac" / f"{scope}.yaml", header + to_yaml(rules(scope))
    reference = Path("docs/reference")
    yield reference / "api.md", api_page(KINDS)
    yield reference / "reasons.md", reasons_page()
    yield reference / "rbac.md", permissions_page()
    yield reference / "metrics.md", metrics_page()
    yield reference / "report.schema.json", json.dumps(report_schema(), indent=2) + "\n"


def main() -> int:
    """Write or compare; return 1 if a comparison found a difference."""
    check = sys.argv[1:] == ["--check"]
    changed = []
    for path, text in files():
        target = ROOT / path
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        changed.append(str(path))
        if not check:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    for name in changed:
        print(f"{'differs' if check else 'wrote'}: {name}")
    if check and changed:
        print("run `make generate` and commit what it writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
