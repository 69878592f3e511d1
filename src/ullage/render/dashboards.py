"""The view of dashboards: the JSON of one, to be imported, or which files were written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.render.simulated import WrittenFileDocument
from ullage.views.declared import Document, plain
from ullage.views.files import replace
from ullage.views.notation import UNCUT
from ullage.views.numbers import counted
from ullage.views.shown import ShownByView
from ullage.views.view import Column, Headline, Paragraph, Section, Table, View


@dataclass(frozen=True)
class GrafanaDashboards(ShownByView, view="ullage.render.dashboards"):
    """Dashboards by name, as Grafana imports them, and the files that were written of them."""

    dashboards: Mapping[str, Mapping[str, Any]]
    files: tuple[Path, ...] = ()


class DashboardsDocument(Document):
    """The answer of `ullage dashboard`: dashboards by name, each as Grafana imports it, and the files that were written."""

    dashboards: dict[str, dict[str, Any]]
    files: list[WrittenFileDocument]


def printed(report: GrafanaDashboards) -> str:
    """Return the JSON of a dashboard, as the command prints it."""
    return "".join(f"{dashboard_text(one)}\n" for one in report.dashboards.values())


def view(report: GrafanaDashboards) -> View:
    """Return a dashboard: how many panels it has, and the file itself."""
    headline = Headline(counted(len(report.dashboards), "dashboard"), " for Grafana")
    files = [Paragraph(dashboard_text(one), kept=True) for one in report.dashboards.values()]
    return View("dashboards", "Dashboards", headline, sections=[Section("file", "The file", files, detail=True)])


def files_view(report: GrafanaDashboards) -> View:
    """Return which files were written."""
    rows = [[str(file), one["title"]] for file, one in zip(report.files, report.dashboards.values(), strict=True)]
    table = Table("files", [Column("file", UNCUT), Column("dashboard", UNCUT)], rows)
    headline = Headline(f"wrote {counted(len(rows), 'dashboard')}", " for Grafana")
    return View("dashboards", "Dashboards", headline, sections=[Section("files", "Files", [table])])


def record(report: GrafanaDashboards) -> dict[str, Any]:
    """Return dashboards, and the files that were written of them, for JSON."""
    files = zip(report.files, report.dashboards.values(), strict=bool(report.files))
    written = [WrittenFileDocument(str(file), one["title"]) for file, one in files]
    return plain(DashboardsDocument({name: dict(one) for name, one in report.dashboards.items()}, written))


files_record = record


def dashboard_text(dashboard: Mapping[str, Any]) -> str:
    """Return a dashboard as it stands in a file."""
    return json.dumps(dashboard, indent=1, ensure_ascii=False)


def write_dashboards(dashboards: Mapping[str, Mapping[str, Any]], folder: Path) -> tuple[Path, ...]:
    """Write a file for each dashboard into a folder, which is made; an earlier version of it is replaced.

    Raises UllageError where another file has its name.
    """
    files = {folder / f"{one['uid']}.json": one for one in dashboards.values()}
    for file, one in files.items():
        _refuse_another(file, one["uid"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UllageError(f"{harmless(str(folder))} can't be made: {error.strerror or error}", "name a folder that is yours") from error
    for file, one in files.items():
        replace(file, dashboard_text(one).encode() + b"\n")
    return tuple(files)


def _refuse_another(file: Path, uid: str) -> None:
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("uid") != uid:
        raise UllageError(f"'{harmless(str(file))}' is there already, and is another file than this dashboard", "name another folder")
