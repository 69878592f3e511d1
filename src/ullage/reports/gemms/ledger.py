"""How much of a model step's matrix products will be padding, by predicted tiles: `ullage flops CONFIG --tiles`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.errors import UllageError
from ullage.gpus import chip as gpus
from ullage.kernels.tiling import Cover, TiledProduct
from ullage.metrics.tiles import tile_efficiency
from ullage.models.config import Config
from ullage.models.gemms import Sharding, StepGemm, gemms, share
from ullage.reports.flops import FlopsReport, StepQuestion, formula_of, training
from ullage.reports.gemms.gemm import DEFAULT_GPU, Heuristics, TilingSource, predicted


@dataclass(frozen=True)
class TiledGemm:
    """One size of product of the step, and what it becomes under the tile that is predicted for it."""

    gemm: StepGemm
    cover: Cover
    source: TilingSource

    @property
    def executed(self) -> int:
        """FLOPs of all products of this size, padding included."""
        return self.cover.executed * self.gemm.count


@dataclass(frozen=True)
class TilesReport:
    """The products of a step under predicted tiles. `share` is how much of the step's FLOPs they are; the rest is not predicted."""

    rows: tuple[TiledGemm, ...]
    gpu: str
    share: float
    notes: tuple[str, ...] = ()

    @property
    def efficiency(self) -> float | None:
        """Expected tile efficiency of all of the products together, by FLOPs; None where there is no product."""
        return efficiency(self.rows)

    @property
    def terms(self) -> dict[tuple[str, str], list[TiledGemm]]:
        """The rows by name and pass of the ledger's term."""
        found: dict[tuple[str, str], list[TiledGemm]] = {}
        for row in self.rows:
            found.setdefault((row.gemm.name, row.gemm.pass_), []).append(row)
        return found

    @property
    def sources(self) -> tuple[str, ...]:
        """Who predicted the tiles."""
        return tuple(dict.fromkeys(row.source.by for row in self.rows))


def efficiency(rows: Sequence[TiledGemm]) -> float | None:
    """Return the tile efficiency of products together: what they need over what they execute; None for none."""
    value: float | None = tile_efficiency(sum(row.gemm.flops for row in rows), sum(row.executed for row in rows)) if rows else None
    return value


def expected(config: Config, question: StepQuestion, report: FlopsReport, heuristics: Heuristics = "auto") -> TilesReport:
    """Return the products of the step that `report` is about, with the tiles to expect on the question's GPU.

    Raises UllageError for an unknown GPU and for a precision that it lacks.
    """
    chip, notes = gpus.find(question.gpu or DEFAULT_GPU), []
    if question.gpu is None:
        notes.append(f"no --gpu was given: tiles are those to expect on {DEFAULT_GPU}")
    layout = question.layout
    cut = Sharding(layout.dp * layout.cp * layout.sp, layout.tp, layout.ep, question.shapes.accumulation)
    precisions = {term.name: term.precision for term in report.ledger.terms}
    found = gemms(formula_of(config, question), report.step, training(question), precisions, cut)
    rows: list[TiledGemm] = []
    for precision in dict.fromkeys(gemm.precision for gemm in found):
        members = [gemm for gemm in found if gemm.precision == precision]
        products = [_product(gemm) for gemm in members]
        answers = predicted(products, precision, chip, heuristics)
        notes += [note for _, _, why in answers for note in why]
        rows += [
            TiledGemm(gemm, Cover(product, tiling), source)
            for gemm, product, (tiling, source, _) in zip(members, products, answers, strict=True)
        ]
    return TilesReport(tuple(rows), chip.name, share(found, report.ledger.executed), tuple(dict.fromkeys(notes)))


def _product(gemm: StepGemm) -> TiledProduct:
    try:
        return TiledProduct(gemm.m, gemm.n, gemm.k)
    except UllageError as error:
        hint = "--dp and --accumulation share the rows of a step, --tp the columns of its weights"
        raise UllageError(f"{gemm.name} is {gemm.m:,} × {gemm.n:,} × {gemm.k:,}: {error.problem}", hint) from None
