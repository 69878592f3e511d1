"""Traces from Python and in notebooks: one run as read, and its trees, which print and draw themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ullage.errors import UllageError
from ullage.recording import Mode

if TYPE_CHECKING:
    from ullage.metrics.tree import Node
    from ullage.profiles import Profile, ProfileRequest, Tables
    from ullage.reports.trace.trace import TraceReport
    from ullage.sums.lanes.states import Host


By = Literal["rank", "device", "region", "step"]


@dataclass(frozen=True, repr=False)
class Tree:
    """The host's and the device's efficiency tree of one run or region; a notebook shows it as a picture, `print` as text.

    `host` and `device` are `ullage.metrics.tree.Node`s, None where the run has no hosts or devices. Iterating gives the names of the
    efficiencies, `tree[name]` the value of one, `dict(tree.items())` all of them.
    """

    report: TraceReport

    @property
    def host(self) -> Node | None:
        """The host's tree."""
        return self.report.whole.host

    @property
    def device(self) -> Node | None:
        """The device's tree."""
        return self.report.whole.device

    def __getitem__(self, metric: str) -> float | None:
        """Return an efficiency by its metric's name, None where it is not known. Raises KeyError for one that the trees don't have."""
        for name, value in self.items():
            if name == metric:
                return value
        raise KeyError(f"no efficiency is called '{metric}'; there are {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the efficiencies, the host's first, parents before children."""
        return (name for name, _ in self.items())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keys(self) -> list[str]:
        """Return the names of the efficiencies."""
        return list(self)

    def items(self) -> Iterator[tuple[str, float | None]]:
        """Yield each efficiency's name and value."""
        return ((node.metric, node.value) for tree in (self.host, self.device) if tree is not None for _, node in tree.walk())

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each efficiency, as data frames take them: tree, depth, metric, label, value and its bounds."""
        found = (("host", self.host), ("device", self.device))
        return [
            {"tree": name, "depth": depth, **{key: getattr(node, key) for key in ("metric", "label", "value", "low", "high")}}
            for name, tree in found
            if tree is not None
            for depth, node in tree.walk()
        ]

    def __str__(self) -> str:
        """Return the trees as text."""
        from ullage.render.trace_parts import trees_table
        from ullage.views.text import table_text

        return table_text(trees_table([(name, tree) for name, tree in (("Host", self.host), ("Device", self.device)) if tree is not None]))

    __repr__ = __str__

    def json(self) -> dict[str, Any]:
        """Return the report as plain data: times in ns, ratios in [0, 1], null for what is not known."""
        return self.report.json()

    def svg(self) -> str:
        """Return the trees as a picture."""
        from ullage.render.svg.tree import tree

        return str(tree(self.host, self.device, title=f"{self.report.whole.name}, {self.report.mode} mode"))

    def _repr_svg_(self) -> str:
        return self.svg()


@dataclass(frozen=True, repr=False)
class Traced:
    """One run as read from its trace files; `tree()` gives its trees, `report()` everything that `ullage trace` prints.

    A notebook shows its timeline, `print` the whole report as text.
    """

    profile: Profile
    window: str
    asked: ProfileRequest | None = None

    def report(
        self, mode: Mode | None = None, region: str | None = None, price: float | None = None, link: float | None = None
    ) -> TraceReport:
        """Return the whole report; `link` is the rate of a GPU's link one way, in B/s, for collectives that are not within a host. For the
        tables of a `region` the files are read again.

        Raises UllageError for a region that the run doesn't have."""
        from ullage.profiles import with_region_tables
        from ullage.reports.trace.trace import TraceRequest, trace

        read = self.profile if region is None or self.asked is None else with_region_tables(self.profile, self.asked, region)
        return trace(read, self.window, TraceRequest(mode, region, price, link=link))

    def tree(self, mode: Mode | None = None, region: str | None = None) -> Tree:
        """Return the trees: "talp" counts collectives as work, "ai" apart; None takes what suits the source."""
        return Tree(self.report(mode, region))

    def rows(self, by: By = "rank", mode: Mode | None = None, region: str | None = None) -> list[dict[str, Any]]:
        """Return a row for each rank, device, region or step, as data frames take them: name, elapsed in s, each efficiency."""
        report = self.report(mode, region)
        views = {"rank": report.ranks, "device": report.devices, "region": report.regions, "step": report.steps}
        if by not in views:
            raise UllageError(f"there are no rows by '{by}'", f"ask by {', '.join(views)}")
        return [{"name": v.name, "elapsed_s": v.elapsed / 1e9, **dict(Tree(replace(report, whole=v)).items())} for v in views[by]]

    def write(self, path: str | Path, mode: Mode | None = None, region: str | None = None) -> None:
        """Write the report to a file; its name says how: .html, .md, .csv, .json, .txt, .svg, .parquet, .pftrace
        (Perfetto)."""
        from ullage.render.trace_files import write

        write(self.report(mode, region), Path(path), files=self.profile.places)

    def svg(self) -> str:
        """Return the timeline as a picture. Raises UllageError for files that hold sums only."""
        from ullage.render.trace_files import timeline_of

        return timeline_of(self.report())

    def _repr_svg_(self) -> str:
        return self.svg() if self.profile.run is not None else self.tree().svg()

    def __repr__(self) -> str:
        run, places = self.profile.run, self.profile.places
        what = f"{len(self.profile.regions)} regions" if run is None else f"{len(run.processes)} processes, {len(run.devices)} devices"
        return f"<Traced {places[0]}{f' and {len(places) - 1:,} more' if len(places) > 1 else ''} ({self.profile.source}): {what}>"

    def __str__(self) -> str:
        """Return the report as text, as `ullage trace` prints it."""
        return str(self.report())


def read_trace(
    files: str | Path | Sequence[str | Path],
    *,
    window: str = "first-last",
    ranks: Mapping[str, int] | None = None,
    strict: bool = False,
    limit: int = 64 * 2**30,
    workers: int | None = None,
    engine: str | None = None,
    host: Host = "busiest",
    tables: Tables = "common",
    what_if: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Traced:
    """Return one run from its trace files: a file, a folder or a glob of them (a file a rank), or several.

    `window` is "first-last", "steps" or "A:B" seconds; `ranks` gives ranks by file name to files that don't tell; `strict`
    refuses damaged files; `limit` is the most bytes that a file may unpack to; `workers` how many files are read side by side;
    `engine` is the Spark that reads each file as a task ("spark://HOST:PORT", "sc://HOST:PORT"; None: this machine does); `host` makes a
    process' host lane its busiest thread in the GPU's interface, or the "union" of all; `tables` are of the "common" time of all ranks
    (files of unequal times are read twice) or of all that was "recorded"; `what_if` makes the report replay the run with other durations.
    Raises UllageError for what the user can fix.
    """
    from ullage.asking.traces import TraceReading
    from ullage.profiles import profile

    reading = TraceReading(window=window, strict=strict, limit=limit, workers=workers, engine=engine, host=host)
    asked = reading.profile_request(progress or (lambda _: None), ranks=dict(ranks or {}), tables=tables, replay=what_if)
    places = [files] if isinstance(files, str | Path) else list(files)
    read = profile([str(place) for place in places], asked)
    return Traced(read, read.window, asked)
