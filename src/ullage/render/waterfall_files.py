"""A waterfall written to a file: a picture, a page, plain data or text, as its name says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ullage.errors import UllageError
from ullage.render.svg.waterfall import waterfall
from ullage.render.waterfall import record, text
from ullage.render.waterfall_html import page
from ullage.reports.waterfall import WaterfallReport
from ullage.views.files import replace
from ullage.views.json_text import json_text

FORMS = (".svg", ".html", ".json", ".txt")


def write(report: WaterfallReport, path: Path) -> None:
    """Write a waterfall to a file; an old one stays until the new one is whole. Raises UllageError for a name of no form."""
    forms: dict[str, Callable[[], str]] = {
        ".svg": lambda: str(waterfall(report)),
        ".html": lambda: page(report),
        ".json": lambda: json_text(record(report)),
        ".txt": lambda: text(report),
    }
    if path.suffix.lower() not in forms:
        raise UllageError(f"{path} has no form that this report can take", f"name it {', '.join(forms)}")
    replace(path, forms[path.suffix.lower()]().encode("utf-8", "replace"))
