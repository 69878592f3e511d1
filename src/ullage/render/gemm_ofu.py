"""The view of OFU beside the MFU of known products: the OFU paper's table II and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from ullage.benches.bench import Plain
from ullage.errors import UllageError, harmless
from ullage.render.svg import gemm_ofu as pictures
from ullage.reports.gemms.ofu import BASE, EstimatorRow, GemmOfuReport, PrecisionSpeedup
from ullage.views.declared import At, Document, Ratio, Words, plain_data
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.markup import Markup
from ullage.views.notation import COUNT, FACTOR, PERCENT, POINTS_2, change
from ullage.views.numbers import percent
from ullage.views.view import Column, Headline, Part, Picture, Section, Table, Value, View

Draw = Callable[..., Markup | None]
FORMS = (*VIEW_FORMS, ".svg")


def view(report: GemmOfuReport) -> View:
    """Return the answer as data: table II with the paper's rows below the measured ones, the distribution of errors, padding, speedups."""
    return View(
        kind="bench-gemm-ofu",
        subject="OFU against MFU of known products",
        headline=headline(report),
        sections=[
            Section("table", "Table II", [_table(report)], _TABLE),
            Section("errors", "Distribution of errors", [*_picture(report, pictures.errors)], _ERRORS),
            Section("overheads", "Padding over size", [*_picture(report, pictures.overheads)], _OVERHEADS),
            Section("speedups", "Speedup by precision", [*_picture(report, pictures.speedups), _speedups(report)], _SPEEDUPS),
        ],
        notes=report.notes,
    )


def _picture(report: GemmOfuReport, draw: Draw) -> Iterator[Part]:
    """Yield a picture where there is something to draw."""
    if draw(report) is not None:
        yield Picture(lambda width: draw(report, width=width, standalone=False) or Markup(""))


def more_forms(report: GemmOfuReport, view: View) -> dict[str, Form]:  # noqa: ARG001 - a describer's `more_forms`
    """Return the form of its own: SVG is one of the pictures. Raises UllageError where there is nothing to draw."""

    def drawn() -> str:
        picture: Markup | None = getattr(pictures, report.picture)(report)
        if picture is None:
            raise UllageError(f"there is nothing to draw of {report.picture}", "measure more products, or choose another --picture")
        return str(picture)

    return {".svg": drawn}


def headline(report: GemmOfuReport) -> Headline:
    """Return how near the best estimator comes to MFU, on which GPU."""
    found = [row for row in report.rows if not row.paper and row.exact == report.exact]
    chosen = [row for row in found if row.adjusted] or found
    count, gpu = sum(row.statistics.count for row in chosen), harmless(report.recording.gpu, 80)
    if not count:
        return Headline("nothing was measured", f" on {gpu}: no product has both OFU and MFU")
    within = sum(row.statistics.within_2 * row.statistics.count for row in chosen) / count
    error = sum(row.statistics.error * row.statistics.count for row in chosen) / count
    name = "adjusted OFU" if chosen[0].adjusted else "OFU"
    rest = f" is within 2 points of MFU for {percent(within)} of {count:,} products on {gpu}"
    return Headline(name, rest, aside=f"mean absolute error {POINTS_2.words(error)} points")


def _table(report: GemmOfuReport) -> Table:
    columns = [Column("GPU"), Column("precision"), Column("estimator"), Column("GEMMs", COUNT)]
    columns += [Column("MAE, pp", POINTS_2), Column("bias, pp", change(POINTS_2))]
    columns += [Column("within 2 pp", PERCENT), Column("within 5 pp", PERCENT)]
    return Table("table", columns, [_row(row) for row in report.rows], brief=len(report.rows))


def _row(row: EstimatorRow) -> list[Value]:
    told = row.statistics
    gpu = f"{row.gpu} (paper)" if row.paper else row.gpu
    return [gpu, row.precision.upper(), estimator(row), told.count, told.error, told.bias, told.within_2, told.within_5]


def estimator(row: EstimatorRow) -> str:
    """Return how a row's OFU was had."""
    name = "adjusted OFU" if row.adjusted else "OFU"
    return name if row.exact is None else f"{name}, {'cycle counters' if row.exact else 'sampled clock'}"


def _speedups(report: GemmOfuReport) -> Table:
    columns = [Column("M = N = K", COUNT), Column("precision"), Column(f"speedup over {BASE.upper()}", FACTOR)]
    rows: list[list[Value]] = [[one.size, one.precision.upper(), one.measured, one.by_ofu] for one in report.speedups]
    return Table(
        "speedups", [*columns, Column("by OFU × peak", FACTOR)], rows, brief=len(rows), drawn=pictures.speedups(report) is not None
    )


class EstimatorRowDocument(Document):
    """How far OFU is from MFU over the products of a precision, as measured or in the paper."""

    gpu: str
    paper: bool
    precision: str
    exact: bool | None
    adjusted: bool
    count: Annotated[int, At("statistics.count")]
    mean_absolute_error: Annotated[float, At("statistics.error")]
    bias: Annotated[float | None, At("statistics.bias")]
    within_2_points: Annotated[Ratio, At("statistics.within_2")]
    within_5_points: Annotated[Ratio, At("statistics.within_5")]


class EstimateDocument(Document):
    """A product: its MFU, and OFU as sampled and as counted."""

    kind: Annotated[str, At("gemm.kind")]
    precision: Annotated[str, At("gemm.precision")]
    m: Annotated[int, At("gemm.m")]
    n: Annotated[int, At("gemm.n")]
    k: Annotated[int, At("gemm.k")]
    mfu: Ratio | None
    sampled_ofu: Annotated[Ratio | None, At("sampled")]
    exact_ofu: Annotated[Ratio | None, At("exact")]
    tile_efficiency: Annotated[Ratio | None, At("efficiency")]
    tile: Annotated[str | None, At("cover.tiling.words")]
    unknown: Words


class GemmOfuSettingsDocument(Document, kw_only=True):
    """How products were measured: seconds each, the seed and the largest of shapes, which precisions are left out and why, and notes."""

    seconds: float
    seed: int | UnsetType = UNSET
    largest: int
    left_out: dict[str, str] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


class GemmOfuDocument(Document):
    """The answer of `ullage bench gemm-ofu`: OFU beside MFU over random products."""

    gpu: Annotated[str, At("recording.gpu")]
    date: Annotated[str, At("recording.date")]
    machine: Annotated[dict[str, Plain], At("recording.machine")]
    settings: GemmOfuSettingsDocument
    rows: list[EstimatorRowDocument]
    speedups: list[PrecisionSpeedup]
    overheads: dict[str, list[list[float]]]
    gemms: Annotated[list[EstimateDocument], At("estimates")]
    notes: list[str]


def record(report: GemmOfuReport) -> dict[str, Any]:
    """Return table, pictures' data and every product as plain data: ratios, None for what is not known."""
    recorded = {name: value for name, value in report.recording.settings.items() if name in GemmOfuSettingsDocument.__struct_fields__}
    return plain_data(GemmOfuDocument, report, settings=GemmOfuSettingsDocument(**recorded))


_TABLE = "Each product's OFU beside its MFU (FLOPs timed, over the peak of its precision), and the paper's own. MAE: mean absolute error."
_ERRORS = "Each dot is a product. The paper's figure 4."
_OVERHEADS = "What squares execute beyond need, by the kernel's name. The paper's figure 1."
_SPEEDUPS = "Solid: measured; dashed: as OFU × peak tells it. The paper's figure 3."
