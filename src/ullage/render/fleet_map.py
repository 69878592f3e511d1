"""The view of a fleet's map: GPUs where they stand, and the ullage by owner and cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ullage.errors import harmless
from ullage.metrics.telemetry import LABELS
from ullage.render.svg.treemap import TreemapArea, TreemapOwner, treemap
from ullage.reports.fleet.fleet_map import FleetMap, MappedGpu, MappedHost, OwnerLosses
from ullage.views.declared import Document, Hours, Ratio, iso, plain
from ullage.views.markup import Markup, known
from ullage.views.notation import COUNT, GPU_HOURS, PERCENT, PERCENT_1
from ullage.views.numbers import hours, part_read, percent, span
from ullage.views.view import BRIEF, Cell, Column, Fact, Headline, Part, Picture, Section, Table, Value, View

MOST_HOSTS = 4_000  # rows of a page's map: those that lose most, of a fleet that has more
MOST_OWNERS = 24  # that a picture has an area for: what the others lose is one more
SURE = 0.999_999  # of a GPU's hours: with less, a part of them is left out of its OFU


def view(report: FleetMap) -> View:
    """Return the answer as data: where most is lost, and whose it is."""
    return View(
        kind="fleet-map",
        subject="Fleet map",
        window=span(report.window),
        headline=_headline(report),
        facts=[
            Fact("OFU", report.ofu, PERCENT_1),
            *_worth(report),
            Fact("GPUs", report.gpus, COUNT, f"{GPU_HOURS.words(report.gpu_hours)} GPU-hours observed"),
            Fact("Hosts", len({(one.cluster, one.host) for one in report.hosts}), COUNT),
        ],
        sections=[
            Section("gpus", "GPU by GPU", [_hosts(report)], _GPUS, opens=True),
            Section("owners", f"By {report.by} and cause", _owners(report), _OWNERS, headed=True, opens=True),
        ],
        notes=report.notes,
        command=report.command,
        closing=_CLOSING,
    )


def _worth(report: FleetMap) -> Iterator[Fact]:
    if known(report.money.ullage_cost) is not None:
        terms = report.money.terms
        yield Fact("Worth of what falls short", report.money.ullage_cost, terms.notation, terms.at_which_price)


def _headline(report: FleetMap) -> Headline:
    before = part_read(report.complete, report.read_until)
    short = known(report.ullage)
    if short is None:
        return Headline("OFU unknown", f" for {hours(report.gpu_hours)} GPU-hours", before)
    most = max(((lost, cause, one.key) for one in report.owners for cause, lost in one.losses.items()), default=(0.0, "", ""))
    whose = most[2] if most[2].startswith("no ") else f"{report.by} {most[2]}"
    worst = f", {hours(most[0])} of them at {most[1]}, {harmless(whose, 60)}" if most[0] > 0 else ""
    cost = known(report.money.ullage_cost)
    worth = "" if cost is None else f"; worth {report.money.terms.words(cost)}"
    return Headline(f"{hours(short)} GPU-hours fall short", f" of {hours(report.gpu_hours)}{worst}{worth}", before)


def _hosts(report: FleetMap) -> Table:
    """Return the map: a row a host, a column a place; a page draws it."""
    worst = sorted(range(len(report.hosts)), key=lambda row: -report.hosts[row].ullage)
    kept = sorted(worst[:MOST_HOSTS])
    shown = [report.hosts[row] for row in kept]
    places = range(max((len(one.gpus) for one in shown), default=0))
    chosen = [kept.index(row) for row in worst[:BRIEF]]
    rows: list[list[Value | Cell]] = [
        [host_name(report, one), *(_cell(one.gpus[place] if place < len(one.gpus) else None) for place in places)] for one in shown
    ]
    left = len(report.hosts) - len(shown)
    note = f"{left:,} hosts that lose less are left out; the JSON form has them all" if left else ""
    columns = [Column("host", names_of="" if report.several_clusters else "host"), *(Column(str(place), PERCENT) for place in places)]
    return Table("hosts", columns, rows, chosen=chosen, page=len(rows), elsewhere="--json has them all", note=note, heat=True)


def host_name(report: FleetMap, host: MappedHost) -> str:
    """Return what a row of the map is called."""
    name = host.host or "no host"
    name = f"{host.cluster or 'no cluster'}/{name}" if report.several_clusters else name
    return f"{name} from {host.first}" if host.first else name


def _cell(gpu: MappedGpu | None) -> Cell:
    if gpu is None:
        return Cell(None, " ")
    lost = f"most lost: {gpu.most_lost}" if gpu.most_lost else ""
    if gpu.ofu is None:
        return Cell(None, tip="cannot be trusted" if gpu.trusted_share < SURE else "OFU not known", look="doubt")
    sure = f"{percent(gpu.trusted_share)} of its hours can be trusted" if gpu.trusted_share < SURE else ""
    return Cell(gpu.ofu, tip="; ".join(filter(None, (lost, sure))), look="doubt" if sure else "")


def causes_of(owners: Sequence[OwnerLosses]) -> list[str]:
    """Return the causes that any owner has, in the order of the chain, those of several steps after their first."""
    order = list(LABELS.values())
    seen = {cause for one in owners for cause in one.losses}
    return sorted(seen, key=lambda cause: (order.index(cause.split(" × ")[0]), len(cause)))


def _owners(report: FleetMap) -> list[Part]:
    causes = causes_of(report.owners)
    terms, priced = report.money.terms, any(one.ullage_cost is not None for one in report.owners)
    columns = [
        Column(report.by, names_of=report.by),
        Column("ullage, GPU-hours", GPU_HOURS, key="ullage_gpu_hours"),
        *(Column(cause, GPU_HOURS) for cause in causes),
        Column("of GPU-hours", GPU_HOURS, key="gpu_hours"),
        *([Column(terms.heading_with_price("worth of ullage"), terms.amounts, key="ullage_cost")] if priced else []),
    ]
    rows: list[list[Value | Cell]] = [
        [
            one.key,
            Cell(one.ullage, look="strong"),
            *(one.losses.get(cause) for cause in causes),
            one.gpu_hours,
            *([one.ullage_cost] if priced else []),
        ]
        for one in report.owners
    ]
    table = Table("owners", columns, rows, elsewhere="--json has them all")
    areas = treemap_owners(report)

    def linked(width: int, address_of: Any) -> Markup:
        return treemap(areas, report.by, causes, width=width, standalone=False, address_of=address_of)

    return [Picture(lambda width: treemap(areas, report.by, causes, width=width, standalone=False), linked), table]


def treemap_owners(report: FleetMap) -> list[TreemapOwner]:
    """Return what a treemap draws: each owner's losses by cause, the largest first; what a clock above the peak's gave back is no area."""
    made = [TreemapOwner(one.key, _areas(one.losses), leads=not one.key.startswith("no ")) for one in report.owners[:MOST_OWNERS]]
    rest = report.owners[MOST_OWNERS:]
    if rest:
        added = {cause: sum(max(0.0, one.losses.get(cause, 0.0)) for one in rest) for cause in causes_of(rest)}
        made.append(TreemapOwner(f"{len(rest):,} others", _areas(added), leads=False))
    return sorted((one for one in made if one.size > 0), key=lambda one: -one.size)


def _areas(losses: Mapping[str, float]) -> list[TreemapArea]:
    return [TreemapArea(cause, lost) for cause, lost in losses.items() if lost > 0]


class MappedGpuDocument(Document):
    """A GPU: OFU (null: not known), GPU-hours, the part of them that can be trusted, and the step of the chain that loses most."""

    gpu: str
    index: int
    ofu: Ratio | None
    gpu_hours: Hours
    trusted_share: Ratio
    most_lost: str | None


class MappedHostDocument(Document):
    """A host with its GPUs; `index` of each is its place."""

    cluster: str | None
    host: str | None
    ullage_gpu_hours: Hours
    gpus: list[MappedGpuDocument]


class OwnerLossesDocument(Document):
    """What is whose: GPU-hours, those that fall short, what each cause takes of them (below 0: a gain), and what they cost."""

    key: str
    gpu_hours: Hours
    ullage_gpu_hours: Hours
    losses: dict[str, float]
    ullage_cost: float | None


class FleetMapDocument(Document):
    """The answer of `ullage fleet-map`: every GPU where it stands, and what falls short by owner and cause."""

    start: str
    end: str
    complete: bool
    ofu: Ratio | None
    gpus: int
    gpu_hours: Hours
    ullage_gpu_hours: Hours | None
    ullage_cost: float | None
    currency: str | None
    price: str
    by: str
    hosts: list[MappedHostDocument]
    owners: list[OwnerLossesDocument]
    notes: list[str]
    command: str


def record(report: FleetMap) -> dict[str, Any]:
    """Return the answer as plain data, ready for JSON."""
    return plain(
        FleetMapDocument(
            start=iso(report.window[0]),
            end=iso(report.window[1]),
            complete=report.complete,
            ofu=report.ofu,
            gpus=report.gpus,
            gpu_hours=report.gpu_hours,
            ullage_gpu_hours=report.ullage,
            ullage_cost=report.money.ullage_cost,
            currency=report.money.terms.currency or None,
            price=report.money.terms.price,
            by=report.by,
            hosts=[_host_document(one) for one in report.hosts],
            owners=[
                OwnerLossesDocument(harmless(one.key), one.gpu_hours, one.ullage, dict(one.losses), one.ullage_cost)
                for one in report.owners
            ],
            notes=list(report.notes),
            command=report.command,
        )
    )


def _host_document(host: MappedHost) -> MappedHostDocument:
    gpus = [
        MappedGpuDocument(harmless(gpu.gpu), host.first + place, gpu.ofu, gpu.gpu_hours, gpu.trusted_share, gpu.most_lost or None)
        for place, gpu in enumerate(host.gpus)
        if gpu is not None
    ]
    cluster, name = (None if one is None else harmless(one) for one in (host.cluster, host.host))
    return MappedHostDocument(cluster, name, host.ullage, gpus)


_GPUS = "Every host with its GPUs, in order of their names; the number is OFU. A GPU without one is not known, or cannot be trusted."
_OWNERS = "The area of a name is what it falls short by, in GPU-hours; the parts of it are what takes them. A name leads to its own page."
_CLOSING = "GPU-hours that fall short are those whose OFU is known, times 1 − OFU; the causes of one add up to them."
