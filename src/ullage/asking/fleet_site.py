"""A fleet's report as a folder of pages: an index, and a page for each of the worst jobs, users and hosts, linked with one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.errors import UllageError, harmless
from ullage.job_names import plain_name, separate_names
from ullage.views.site import FilePage, FileSite, file_stem
from ullage.written_values import expanded_path

if TYPE_CHECKING:
    import pyarrow as pa

    from ullage.reports.fleet.fleet import FleetReport
    from ullage.reports.fleet.judged import JudgedFleet
    from ullage.reports.fleet.request import FleetRequest
    from ullage.reports.fleet.where import Condition
    from ullage.views.view import View

FOLDERS = {"job": "jobs", "user": "users", "host": "hosts"}
INDEX = FilePage("index.html", "Fleet")
LISTS = {by: FilePage(f"{folder}.html", folder.capitalize()) for by, folder in FOLDERS.items()}
ENTRIES = (INDEX.file, *(page.file for page in LISTS.values()), *FOLDERS.values())
MAKER = "ullage fleet --out"
_OF_A_LIST = ("by-group", "every-group")  # the sections of a page that lists jobs, users or hosts

Commands = Callable[[str, str], str]  # "job", "4711" → the command of the report on it


@dataclass(frozen=True)
class NamedPart:
    """A job, a user or a host of a fleet: its name as samples have it, its cluster where it has one, and what reports call it."""

    by: str
    name: str
    cluster: str | None
    label: str

    def condition(self) -> Condition:
        """Return the condition that its rows fit."""
        from ullage.reports.fleet.where import FieldTest, FleetFilter

        return FleetFilter("and", (FieldTest(self.by, self.name), FieldTest("cluster", self.cluster or "")))


@dataclass(frozen=True)
class SiteReport:
    """What a site is made from: the judged fleet, the part of it that is asked about, its job records, and the request.

    `marked` says of each report whether all that was asked for was read; `command_on` names the command of each page.
    """

    whole: JudgedFleet
    asked: JudgedFleet
    jobs: pa.Table | None
    request: FleetRequest
    notes: Sequence[str]
    marked: Callable[[Any], Any]
    finished: Callable[[FleetReport], FleetReport]
    command_on: Commands

    def by(self, by: str) -> FleetReport:
        """Return the fleet's report with a row a job, user or host."""
        from ullage.reports.fleet.fleet import report_of

        request = replace(self.request, by=by)
        made: FleetReport = self.marked(report_of(self.whole, self.asked, self.jobs, request, [*self.notes]))
        return self.finished(made)


def write_pages(site: SiteReport, folder: Path, most: int) -> int:
    """Write a fleet's pages into a folder, those of its `most` worst jobs, users and hosts; returns how many pages there are.

    All are made aside and put in place together: an earlier site stays until the new one is whole. Raises UllageError where something is
    in the way that is not an earlier site.
    """
    from ullage.output_folder import output_folder
    from ullage.render.fleet import view

    reports = {by: site.by(by) for by in FOLDERS}
    named = {by: _named_rows(site.asked, report) for by, report in reports.items()}
    chosen = {by: parts[:most] for by, parts in named.items()}
    pages, words = _pages(chosen), _words(named, chosen)
    around = FileSite([INDEX, *LISTS.values()], {(part.by, name): page for part, page in pages for name in _names_of(part)}, words)
    with output_folder(folder, MAKER, ENTRIES) as stage:
        for name in FOLDERS.values():
            (stage / name).mkdir()
        whole = view(reports["job"])
        _write(stage, INDEX, whole, around)
        for by, page in LISTS.items():
            _write(stage, page, _part(view(reports[by]), _OF_A_LIST), around)
        for number, (part, page) in enumerate(pages, 1):
            site.request.progress(f"page {number:,} of {len(pages):,}: {part.by} {harmless(part.label, 60)}")
            _write(stage, page, _view_of(site, part), around)
    return 1 + len(LISTS) + len(pages)


def _write(stage: Path, page: FilePage, shown: View, around: FileSite) -> None:
    from ullage.views.html import html

    (stage / page.file).write_text(html(shown, around.frame(page)), encoding="utf-8", errors="replace")


def _part(shown: View, sections: Sequence[str]) -> View:
    return replace(shown, sections=[one for one in shown.sections if one.name in sections], findings=(), facts=())


def _named_rows(asked: JudgedFleet, report: FleetReport) -> list[NamedPart]:
    """Return the rows of a report that can have a page: those with a name of their own, in the report's order."""
    known = {part.label: part for part in named_parts(asked, report.by)}
    return [known[group.key] for group in report.groups if group.key in known]


def named_parts(fleet: JudgedFleet, by: str) -> Iterator[NamedPart]:
    """Yield the jobs, users or hosts of a fleet; what several hold together is none of them."""
    import pyarrow as pa

    seen = fleet.rated.sums.select(["cluster", by]).group_by(["cluster", by]).aggregate([])
    pairs = {*zip(seen["cluster"].cast(pa.string()).to_pylist(), seen[by].cast(pa.string()).to_pylist(), strict=True)}
    clusters: dict[str, set[str | None]] = {}
    for cluster, word in pairs:
        if word:
            clusters.setdefault(word, set()).add(cluster)
    for cluster, word in sorted(((cluster, word) for cluster, word in pairs if word), key=str):
        if by == "host" or len(separate_names(word)) == 1:
            label = f"{cluster or 'no cluster'}/{word}" if len(clusters[word]) > 1 else word
            yield NamedPart(by, word if by == "host" else plain_name(word), cluster, harmless(label))


def _names_of(part: NamedPart) -> set[str]:
    """Return under which names links look for a page: findings have the cluster before a job."""
    return {part.label, *([harmless(f"{part.cluster}/{part.name}")] if part.cluster else [])}


def _pages(chosen: dict[str, list[NamedPart]]) -> list[tuple[NamedPart, FilePage]]:
    return [(part, FilePage(f"{FOLDERS[by]}/{file_stem(part.label)}.html")) for by, parts in chosen.items() for part in parts]


def _words(named: dict[str, list[NamedPart]], chosen: dict[str, list[NamedPart]]) -> str:
    """Return what the site has pages of, and what it has none of."""
    words = ", ".join(f"{len(chosen[by]):,} of {len(parts):,} {FOLDERS[by]}" for by, parts in named.items())
    missing = any(len(chosen[by]) < len(parts) for by, parts in named.items())
    return f"Pages: {words}." + (" Those that fall short most have one; --top N writes more." if missing else "")


def _view_of(site: SiteReport, part: NamedPart) -> View:
    """Return the page of a job, a user or a host."""
    return _job_view(site, part) if part.by == "job" else _part_view(site, part)


def _job_view(site: SiteReport, part: NamedPart) -> View:
    from ullage.render.job import view
    from ullage.reports.job.job import report_on_jobs
    from ullage.reports.job.job_ids import MeantJobs, NamedJob

    request = replace(site.request, by="job", command=site.command_on("job", part.label))
    meant = MeantJobs((NamedJob(part.cluster, part.name),))
    made = report_on_jobs(site.whole, part.label, meant, site.jobs, request, [*site.notes])
    return view(site.marked(replace(made, next_command=site.command_on("waterfall", part.label))))


def _part_view(site: SiteReport, part: NamedPart) -> View:
    from ullage.render.fleet import view
    from ullage.reports.fleet.fleet import report_of
    from ullage.reports.fleet.judged import part_of_fleet

    request = replace(site.request, by="job", command=site.command_on(part.by, part.label))
    told = part_of_fleet(site.asked, part.condition())
    own: dict[str, Any] = {part.by: (part.name,)}
    named = replace(request, **own)
    notes = [f"this is the part of the fleet of {part.by} {harmless(part.label, 300)}", *site.notes]
    made = site.finished(site.marked(report_of(site.whole, told, site.jobs, named, notes)))
    shown = view(made)
    return replace(shown, subject=f"{part.by.capitalize()} {harmless(part.label, 200)}")


def refuse_what_is_read(folder: Path, places: Sequence[str]) -> None:
    """Refuse a folder for pages that is read itself, or lies in one that is: the pages would be read next time."""
    for place in places:
        path = expanded_path(place)
        if "://" not in place and path.is_dir() and folder.resolve().is_relative_to(path.resolve()):
            raise UllageError(f"'{harmless(str(folder), 200)}' is read, and pages would lie in it", "name another folder with --out")
