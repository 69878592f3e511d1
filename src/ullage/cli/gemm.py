"""`ullage gemm`: how much of a matrix product is padding, by a kernel's name or predicted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ullage.cli.options import check_out, give, output_options
from ullage.errors import UllageError, harmless
from ullage.views.files import FORMS, Form

_EPILOG = """\b
Examples:
  ullage gemm 4096 4096 4096 --kernel nvjet_sm90_hsh_256x160_64x4_2x1_v_bz_TNN
  ullage gemm 4096 14336 4096 --gpu 'H100 SXM'          which tile to expect, and what it pads
  ullage gemm 8192 8192 8192 --dtype fp8 --gpu B200 --heuristics nvidia
  ullage gemm 1000 3000 512 --tile 128x256x64 --cluster 2x1 --ofu 0.42
  ullage gemm 512 4096 4096 --row-major                 a row-major product, as PyTorch has it
  ullage gemm 1024:16384:128 --out overhead.svg         square products: figure 1 of the OFU paper
  ullage gemm 4096 1:512 4096 --json                    one size of three varies
"""
_MOST = 20_000  # products of one sweep
_NUMBER = "-?[0-9]{1,20}"


def _sizes(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Read 256x128x64."""
    if value is None:
        return None
    if not re.fullmatch(f"{_NUMBER}(x{_NUMBER})*", value.lower()):
        raise click.BadParameter(f"'{harmless(value, 60)}' is not sizes with an x between them: {parameter.metavar}")
    return tuple(int(part) for part in value.lower().split("x"))


def _pair(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    found = _sizes(context, parameter, value)
    if found is not None and len(found) != 2:
        raise click.BadParameter(f"'{harmless(value or '', 60)}' is not two sizes, those along M and N: 2x1")
    return found


@click.command("gemm", epilog=_EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("sizes", nargs=-1, required=True, metavar="M N K")
@click.option("--dtype", metavar="NAME", help="Precision of A and B.  [default: the kernel's, else bf16]")
@click.option("--kernel", metavar="NAME", help="Kernel, as a profiler names it: its tile and cluster are read from the name.")
@click.option("--gpu", metavar="NAME", help="Which GPU.  [default: that of the kernel's name; to predict, H100 SXM]")
@click.option("--batch", type=int, default=1, show_default=True, help="Products of that size in one call.")
@click.option("--tile", callback=_sizes, metavar="MxN[xK]", help="Tile of a thread block and its step in K: 256x160x64.")
@click.option("--cluster", callback=_pair, metavar="MxN", help="Thread blocks of a cluster along M and N: 2x1.")
@click.option("--split-k", type=int, help="Slices of K.")
@click.option("--row-major", is_flag=True, help="C = A·B lies in memory row by row: M and N change places, as cuBLAS sees it.")
@click.option(
    "--heuristics",
    type=click.Choice(["auto", "ours", "nvidia"]),
    default="auto",
    show_default=True,
    help="Who predicts a tile: our own model (auto, ours), or nvMatmulHeuristics where it is installed.",
)
@click.option("--ofu", type=float, metavar="RATIO", help="A measured OFU, to be adjusted for the padding: 0.42.")
@output_options
def command(sizes: tuple[str, ...], batch: int, row_major: bool, as_json: bool, out: Path | None, **asked: Any) -> None:
    """How much of a matrix product is padding: C (M × N) from A (M × K) and B (K × N).

    M and N are those of the library: cuBLAS counts column-major, so a product of PyTorch, whose matrices lie row by row, has
    its columns as M there and its rows as N; --row-major swaps them. A size may be a range LOW:HIGH[:STEP]; a single one stands
    for M, N and K alike.
    """
    from ullage.kernels.tiling import TiledProduct
    from ullage.reports.gemms.gemm import GemmQuestion, sweep

    check_out(out, (*FORMS, ".svg"))
    triples = spread(sizes)
    products = [TiledProduct(m, n, k, batch) for m, n, k in triples]
    products = [product.swapped for product in products] if row_major else products
    reports = sweep(products, GemmQuestion(**asked))
    _give(reports, any(":" in size for size in sizes), as_json, out)


def spread(sizes: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return M, N and K of every product that the sizes mean: numbers or ranges, one for all three or three.

    >>> spread(["1:3"])
    [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    >>> spread(["64", "128:256:128", "32"])
    [(64, 128, 32), (64, 256, 32)]
    """
    if len(sizes) not in (1, 3):
        raise click.UsageError(f"a product has three sizes, M, N and K, or one for all; {len(sizes)} are given")
    ranges = [_range(size) for size in sizes]
    longest = max(len(values) for values in ranges)
    if any(len(values) not in (1, longest) for values in ranges):
        raise UllageError(f"the ranges {', '.join(sizes)} have different lengths", "ranges run side by side: give them equal lengths")
    columns = [list(values) * (longest if len(values) == 1 else 1) for values in ranges]
    m, n, k = columns * 3 if len(columns) == 1 else columns
    return list(zip(m, n, k, strict=True))


def _range(size: str) -> Sequence[int]:
    if not re.fullmatch(f"{_NUMBER}(:{_NUMBER})*", size):
        if re.match("-[^0-9]", size):
            raise click.NoSuchOption(size)
        raise UllageError(f"'{harmless(size, 60)}' is not a size", "write a whole number, or a range LOW:HIGH:STEP: 1024:16384:128")
    low, *rest = (int(part) for part in size.split(":"))
    if not rest:
        return [low]
    high, step = rest[0], rest[1] if len(rest) > 1 else 1
    if len(rest) > 2 or step < 1 or high < low or low < 1:
        raise UllageError(f"'{size}' is not a range of sizes", "write LOW:HIGH:STEP, the low end at least 1: 1024:16384:128")
    if (high - low) // step >= _MOST:
        raise UllageError(f"'{size}' has {(high - low) // step + 1:,} sizes", f"a sweep has at most {_MOST:,}: give a larger step")
    return range(low, high + 1, step)


def _give(reports: Sequence[Any], ranged: bool, as_json: bool, out: Path | None) -> None:
    from ullage.render import gemm as render

    more: dict[str, Form] = {".svg": lambda: str(_picture(reports, ranged))}
    if ranged:
        give(render.sweep_view(reports), lambda: render.sweep_record(reports), as_json=as_json, out=out, more=more)
    else:
        give(render.view(reports[0]), lambda: render.record(reports[0]), as_json=as_json, out=out, more=more)


def _picture(reports: Sequence[Any], ranged: bool) -> Any:
    from ullage.render.svg import gemm as drawn
    from ullage.reports.gemms.gemm import squares

    return drawn.curve(reports) if ranged else drawn.cover(reports[0], squares(reports[0]))
