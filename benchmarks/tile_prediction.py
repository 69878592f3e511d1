"""How far our small model of tiles agrees with NVIDIA's nvMatmulHeuristics, over random products.

    python benchmarks/tile_prediction.py [--count 300] [--seed 0]

Sizes are multiples of 16 from 128 to 16,384, as in table II of the OFU paper, drawn anew by the seed. For each GPU and precision:
how often the two tile efficiencies lie within 1 and 5 points, both means, and how often the tile is the very same. Neither of the
two is a measurement: what a library runs is told by its kernels' names. Needs `pip install 'ullage[heuristics]'`, and no GPU.
"""

from __future__ import annotations

import argparse
import random
import statistics

from ullage.gpus.chip import find
from ullage.kernels.heuristics import advise
from ullage.kernels.prediction import machine, predict
from ullage.kernels.tiling import Cover, TiledProduct
from ullage.views.table import table

CASES = (
    ("H100 SXM", "bf16"), ("H100 SXM", "fp8"), ("H100 SXM", "tf32"), ("B200", "bf16"), ("B200", "fp8"), ("B200", "fp4"),
    ("A100", "bf16"), ("RTX 4090", "bf16"),
)  # fmt: skip
HEAD = ["GPU", "precision", "products", "within 1 point", "within 5 points", "ours, mean", "NVIDIA's, mean", "same tile"]


def compared(gpu: str, dtype: str, products: list[TiledProduct]) -> list[str]:
    """Return a row of the table."""
    chip = find(gpu)
    on = machine(chip.compute_capability, chip.sms, chip.flops_per_cycle[dtype])
    advice = advise(products, dtype, chip.name)
    if advice.problem:
        print(f"{gpu}, {dtype}: {advice.problem}")
    pairs = [(Cover(p, predict(p, dtype, on)), Cover(p, theirs)) for p, theirs in zip(products, advice.tilings, strict=True) if theirs]
    if not pairs:
        return [gpu, dtype, "0", *["–"] * 5]
    apart = [abs(ours.efficiency - theirs.efficiency) for ours, theirs in pairs]
    same = sum(sorted(ours.tiling.tile) == sorted(theirs.tiling.tile) for ours, theirs in pairs)
    near = [f"{sum(d <= limit for d in apart) / len(apart):.0%}" for limit in (0.01, 0.05)]
    means = [f"{statistics.mean(pair[side].efficiency for pair in pairs):.1%}" for side in (0, 1)]
    return [gpu, dtype, f"{len(pairs)}", *near, *means, f"{same / len(pairs):.0%}"]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--count", type=int, default=300)
    words.add_argument("--seed", type=int, default=0)
    asked = words.parse_args()
    draw = random.Random(asked.seed)
    products = [TiledProduct(*(16 * draw.randint(8, 1024) for _ in range(3))) for _ in range(asked.count)]
    print(table(HEAD, [compared(gpu, dtype, products) for gpu, dtype in CASES], left=2))


if __name__ == "__main__":
    main()
