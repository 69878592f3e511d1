"""The child process that calls nvMatmulHeuristics: products in as JSON on stdin, a line of JSON out for each, as soon as it is known.

Run by `ullage.kernels.heuristics` alone. A line is [tile m, tile n, tile k, cluster m, cluster n, split-K], or null.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import Any


def main() -> None:
    """Answer the one request on stdin."""
    asked = json.load(sys.stdin)
    library, layout, precision = _opened(asked)
    _say({"version": importlib.metadata.version("nvidia-matmul-heuristics")})
    for m, n, k, batch in asked["products"]:
        problem = library.makeNvMatmulHeuristicsProblem(m, n, k, layout, batch)
        found = library.get(problem, 1, precision)
        _say(_sizes(found[0]["kernel"]) if found else None)


def _opened(asked: dict[str, Any]) -> tuple[Any, Any, str]:
    import nvMatmulHeuristics as nvidia  # noqa: N813 - the library's own spelling

    # Its own tuning by a model of performance, without which the first answer is a cautious 128 × 128 for nearly everything
    flags = nvidia.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING
    target, gpu = nvidia.NvMatmulHeuristicsTarget[asked["backend"]], nvidia.NvMatmulHeuristicsNvidiaGpu[asked["gpu"]]
    library = nvidia.NvMatmulHeuristicsInterfaceEx(backend=target, flags=flags, gpu=gpu)
    layout = nvidia.NvMatmulHeuristicsMatmulLayout.TN_COL_MAJOR  # as a linear layer's forward product is called
    library.loadInternalDiscoverySet(layout, asked["precision"])
    return library, layout, asked["precision"]


def _sizes(kernel: Any) -> list[int]:
    tile = (kernel.cta_tile_m, kernel.cta_tile_n, kernel.cta_tile_k)
    return [int(size) for size in (*tile, kernel.cluster_m, kernel.cluster_n, kernel.split_k)]


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
