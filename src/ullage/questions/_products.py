"""What tiles pad of a matrix product."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ullage.errors import UllageError, did_you_mean

if TYPE_CHECKING:
    from ullage.reports.gemms.gemm import GemmReport


def gemm(m: int, n: int, k: int, *, batch: int = 1, row_major: bool = False, **asked: Any) -> GemmReport:
    """Return how much of a matrix product is padding; the command `ullage gemm` prints the same.

    M and N are as the library counts them, column-major in cuBLAS; `row_major` swaps them. Asked may be: dtype, gpu, kernel (its
    name), tile (m, n[, k]), cluster (m, n), split_k, heuristics ("auto", "ours", "nvidia"), ofu (a ratio). Raises UllageError
    for what the user can fix.

    >>> gemm(4096, 4096, 4096, kernel="nvjet_sm90_hsh_256x160_64x4_2x1").cover.effective
    (4096, 4160, 4096)
    """
    from ullage.kernels.tiling import TiledProduct
    from ullage.reports.gemms.gemm import GemmQuestion
    from ullage.reports.gemms.gemm import gemm as answer

    known = {f.name for f in dataclasses.fields(GemmQuestion)}
    for word in asked:
        if word not in known:
            raise UllageError(f"a matrix product has no '{word}'", did_you_mean(word, known, "ullage gemm --help"))
    product = TiledProduct(m, n, k, batch)
    return answer(product.swapped if row_major else product, GemmQuestion(**asked))
