"""Matrix products of a job as a file lists them: what their tiles cost together.

What `ullage trace gemms … --json` or `ullage gemm … --json` prints, with `theoretical_flops`, `executed_flops` and, of several
products, the share that is `covered`; or a JSON list (or an object with a list `gemms`) of products, each as `ullage gemm` prints it, or
with sizes `m`, `n`, `k` and a kernel's name (`kernel`) or its `tile` [m, n] and, where there is one, `cluster` [m, n] and `k_tile`. `count`
says how often it runs (1 unless given). A product whose tile nobody knows is counted as not covered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.kernels.gemms.gemm import decode
from ullage.kernels.tiling import PAIRS
from ullage.metrics.metric import ratio
from ullage.metrics.tiles import effective_size, gemm_flops, tile_efficiency

LARGEST = 64 << 20  # bytes of a file; a list of products is not longer
_HINT = 'each product is {"m": 4096, "n": 4096, "k": 1024, "tile": [128, 256], "count": 32}, or what `ullage gemm … --json` prints'


@dataclass(frozen=True)
class Gemms:
    """Summed FLOPs of the products whose tile is known, and the share of all FLOPs that they are.

    `executed_at_most` counts kernels whose name is silent on clusters in the one that pads most.
    """

    theoretical_flops: int
    executed_flops: int
    executed_at_most: int
    covered: float

    @property
    def tile_efficiency(self) -> float | None:
        """The share of executed FLOPs that is no padding."""
        value: float | None = tile_efficiency(self.theoretical_flops, self.executed_flops)
        return value


def read_gemms(path: Path) -> Gemms:
    """Return what the products of a file cost; raises UllageError for a file that lists none, and for a product that can't be."""
    import msgspec

    try:
        if path.stat().st_size > LARGEST:
            raise UllageError(f"{path} is too large for a list of matrix products", _HINT)
        found = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UllageError(f"{path} is not JSON: {harmless(str(error), 120)}", _HINT) from None
    except OSError as error:
        raise UllageError(f"{path} can't be read: {error.strerror}", "name a file of matrix products") from None
    if isinstance(found, dict) and "theoretical_flops" in found:  # sums over all of its products
        needed, executed, most = _flops(found, str(path))
        return Gemms(needed, executed or 0, most or 0, _covered(found, path))
    rows = found.get("gemms") if isinstance(found, dict) else found
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise UllageError(f"{path} lists no matrix products", _HINT)
    return summed([_flops(row, f"product {number} of {path}") for number, row in enumerate(rows, 1)])


def _covered(found: Mapping[str, Any], path: Path) -> float:
    value = found.get("covered", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UllageError(f"'covered' of {path} is {harmless(repr(value), 60)}", "write a share from 0 to 1")
    return float(value)


Flops = tuple[int, int | None, int | None]  # what a product needs, what it executes (None: not known), and what it may execute at most


def summed(products: list[Flops]) -> Gemms:
    """Return the sums over products.

    >>> summed([(100, 125, 150), (100, None, None)])
    Gemms(theoretical_flops=100, executed_flops=125, executed_at_most=150, covered=0.5)
    """
    known = [(needed, executed, most or executed) for needed, executed, most in products if executed is not None]
    needed, executed, most = (sum(flops[place] for flops in known) for place in range(3))
    return Gemms(needed, executed, most, ratio(needed, sum(flops[0] for flops in products)) or 0.0)


def _flops(row: Mapping[str, Any], place: str) -> Flops:
    count = _whole(row, "count", place) if "count" in row else 1
    if "theoretical_flops" in row:
        needed, executed = (_whole(row, name, place) for name in ("theoretical_flops", "executed_flops"))
        if executed < needed:
            raise UllageError(f"{place} executes fewer FLOPs than it needs", "exchange theoretical_flops and executed_flops")
        most = _whole(row, "executed_at_most", place) if row.get("executed_at_most") is not None else executed
        if most < executed:
            raise UllageError(f"{place} executes at most fewer FLOPs than it executes", "exchange executed_flops and executed_at_most")
        return count * needed, count * executed, count * most
    m, n, k = (_whole(row, name, place) for name in ("m", "n", "k"))
    tile, clusters, step = _tiles(row, place)
    if tile is None:
        return count * gemm_flops(m, n, k), None, None
    executed_in = [
        gemm_flops(effective_size(m, tile[0], cluster[0]), effective_size(n, tile[1], cluster[1]), effective_size(k, step, 1))
        for cluster in clusters
    ]
    return count * gemm_flops(m, n, k), count * executed_in[0], count * max(executed_in)


def _tiles(row: Mapping[str, Any], place: str) -> tuple[tuple[int, int] | None, tuple[tuple[int, int], ...], int]:
    """Return tile, possible clusters (the first counts) and K step of a product: as given, else as the kernel's name says.

    A tile that is given without a cluster has none.
    """
    name = row.get("kernel")
    decoded = decode(name) if isinstance(name, str) else None
    tile = _pair(row, "tile", place) or (decoded.tile if decoded is not None else None)
    cluster = _pair(row, "cluster", place) or (decoded.cluster if decoded is not None else None)
    step = _whole(row, "k_tile", place) if "k_tile" in row else decoded.k_tile if decoded is not None else None
    silent = cluster is None and decoded is not None and decoded.silent_on_cluster
    return tile, (cluster or (1, 1),) if not silent else PAIRS, step or 1


def _pair(row: Mapping[str, Any], name: str, place: str) -> tuple[int, int] | None:
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise UllageError(f"'{name}' of {place} is {harmless(repr(value), 60)}", f"write two whole numbers. {_HINT}")
    return _number(value[0], name, place), _number(value[1], name, place)


def _whole(row: Mapping[str, Any], name: str, place: str) -> int:
    if name not in row:
        raise UllageError(f"{place} has no '{name}'", _HINT)
    return _number(row[name], name, place)


def _number(value: Any, name: str, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**24:
        raise UllageError(f"'{name}' of {place} is {harmless(repr(value), 60)}", f"write a whole number above 0. {_HINT}")
    return value
