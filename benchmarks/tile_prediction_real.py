"""How far the predicted tiles are from those of kernels that libraries really ran, over PyTorch profiles with shapes.

    python benchmarks/tile_prediction_real.py FOLDER [--heuristics nvidia] [--products]

FOLDER holds Kineto traces (`*.json`, `*.json.gz`) recorded with record_shapes=True; a file's GPU is told by its name (`GPUS`). A product
counts where its kernel's name tells the tile. For each file and for each library: how many products, their tile efficiency by the
kernels' names and as predicted (all FLOPs together), how far the two are apart for one product (mean, and how many within 1 and 5
points), how often the tile is the very same, what the prediction executes over what was executed. `--products` lists them. No GPU.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ullage
from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.gpus.precision import canonical
from ullage.kernels.gemms.gemm import decode
from ullage.kernels.tiling import Cover, TiledProduct, Tiling
from ullage.render.gemms import record
from ullage.reports.gemms.gemm import Heuristics, predicted
from ullage.views.table import table

GPUS = {"h100": "H100 SXM", "mi300": "MI300X", "mi210": "MI210", "a100": "A100", "v100": "Tesla V100-SXM2-16GB"}
HEAD = ["", "products", "by name", "predicted", "apart", "within 1", "within 5 points", "same tile", "predicted / executed"]


@dataclass(frozen=True)
class Pair:
    """A product under the tile that its kernel's name tells, and under the one that is predicted for it; it ran `count` times."""

    library: str
    count: int
    real: Cover
    expected: Cover

    @property
    def apart(self) -> float:
        return abs(self.real.efficiency - self.expected.efficiency)


def gpu(path: Path) -> str:
    """Return the GPU that a file is from."""
    return next(name for word, name in GPUS.items() if word in path.name.lower())


def pairs(path: Path, heuristics: Heuristics) -> list[Pair]:
    """Return the products of a trace whose kernels tell their tile."""
    chip = find(gpu(path))
    found = ullage.trace([str(path)]).gemms
    rows = [row for row in (record(found)["gemms"] if found is not None else ()) if row["tile_efficiency"] is not None]
    return [pair for row in rows if (pair := _pair(row, chip, heuristics)) is not None]


def _pair(row: dict[str, Any], chip: Chip, heuristics: Heuristics) -> Pair | None:
    name = decode(row["kernel"])
    assert name is not None and name.tile is not None
    tiling = Tiling(name.tile, name.k_tile, name.cluster or (1, 1))
    asked = TiledProduct(row["m"], row["n"], row["k"], row["batch"])
    covers = [Cover(product, tiling) for product in (asked.swapped, asked)]  # most libraries count column-major
    real = next(cover for cover in covers if row["count"] * cover.executed == row["executed_flops"])
    try:
        ((expected, _, _),) = predicted([real.product], canonical(row["precision"]), chip, heuristics)
    except UllageError:
        return None  # no precision of the tensor cores: nothing to predict
    return Pair(name.library, row["count"], real, Cover(real.product, expected))


def summed(label: str, members: Sequence[Pair]) -> list[str]:
    """Return a row of the table."""
    needed = sum(pair.count * pair.real.product.flops for pair in members)
    real = sum(pair.count * pair.real.executed for pair in members)
    expected = sum(pair.count * pair.expected.executed for pair in members)
    apart = f"{100 * statistics.mean(pair.apart for pair in members):.1f} points"
    near = [f"{sum(pair.apart <= limit for pair in members) / len(members):.0%}" for limit in (0.01, 0.05)]
    same = sum(sorted(pair.real.tiling.tile) == sorted(pair.expected.tiling.tile) for pair in members) / len(members)
    return [
        label,
        f"{len(members)}",
        f"{needed / real:.1%}",
        f"{needed / expected:.1%}",
        apart,
        *near,
        f"{same:.0%}",
        f"{expected / real:.3f}",
    ]


def listed(members: Iterable[Pair]) -> str:
    """Return a row a product, the largest first."""
    ordered = sorted(members, key=lambda pair: -pair.count * pair.real.product.flops)
    rows = [[_sizes(pair.real.product), f"{pair.count}", pair.library, _tiles(pair.real), _tiles(pair.expected)] for pair in ordered]
    return table(["batch × M × N × K", "count", "library", "by name", "predicted"], rows, left=3)


def _sizes(product: TiledProduct) -> str:
    return f"{product.batch} × {product.m} × {product.n} × {product.k}"


def _tiles(cover: Cover) -> str:
    return f"{cover.tiling.words} {cover.tiling.cluster[0]}x{cover.tiling.cluster[1]} {cover.efficiency:.1%}"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("folder", type=Path)
    words.add_argument("--heuristics", choices=["ours", "nvidia"], default="ours")
    words.add_argument("--products", action="store_true", help="list every product")
    asked = words.parse_args()
    files = sorted(path for path in asked.folder.glob("*.json*") if any(word in path.name.lower() for word in GPUS))
    read = {path: pairs(path, asked.heuristics) for path in files}
    known = {path.name.removesuffix(".gz").removesuffix(".json"): members for path, members in read.items() if members}
    libraries: dict[str, list[Pair]] = {}
    for path, members in read.items():
        for pair in members:
            libraries.setdefault(f"{gpu(path)}, {pair.library}", []).append(pair)
    for groups in (known, libraries):
        print(table(HEAD, [summed(label, members) for label, members in groups.items()], left=1))
    if asked.products:
        print(*(f"\n{name}\n{listed(members)}" for name, members in known.items()), sep="\n")


if __name__ == "__main__":
    main()
