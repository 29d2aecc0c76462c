"""The report as one self-contained HTML page: no script, no network, light, dark and print."""

from __future__ import annotations

import hashlib

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from vllm_tuning.report.model import Report, limits_text, slos_of
from vllm_tuning.report.plots import pictures
from vllm_tuning.report.sweep import curves
from vllm_tuning.report.terminal import number, slo_line
from vllm_tuning.report.timeline import timeline
from vllm_tuning.tuning.text import load_text


def render(report: Report) -> str:
    """Return the whole page as text."""
    environment = Environment(
        loader=PackageLoader("vllm_tuning.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, limits=limits_text, load=load_text, slo=slo_line, inline=_inline
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        slos=slos_of(report),
        curves=curves(report.probes),
        pictures=pictures(report),
        timeline=timeline(report),
    )


def _inline(svg: str) -> Markup:
    """Give a picture's ids a prefix of its own: several pictures share one page."""
    prefix = "p" + hashlib.sha256(svg.encode()).hexdigest()[:8]
    for mark in ('id="', 'href="#', "url(#"):
        svg = svg.replace(mark, mark + prefix)
    return Markup(svg)  # noqa: S704 - made by matplotlib from numbers; its texts are escaped there
