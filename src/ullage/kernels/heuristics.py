"""NVIDIA's own prediction of tiles, nvMatmulHeuristics (PyPI `nvidia-matmul-heuristics`): asked in a process of its own.

The library is optional, proprietary, and a call of it can crash or never return; so it runs in a child process, many products a
process, each answered as soon as it is known. After a crash the child is started again behind the product that it died of. What
gets no answer is None, with the reason. It needs no GPU, and is shown none: its answers are for a GPU that we name.

It is an advisor: of kernels that CUTLASS could build, not of what cuBLAS has (docs/gemm.md says how far the two agree with us).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from ullage.kernels.tiling import TiledProduct, Tiling

MODULE = "nvMatmulHeuristics"
# The library's letters for inputs, sums and result (its header, "Supported precisions")
LETTERS = {"fp64": "DDD", "tf32": "SFS", "bf16": "TST", "fp16": "HSH", "fp8": "QQTST", "int8": "BII", "fp4": "OOTST"}
# The GPUs that it knows, by our names
GPUS = {
    "NVIDIA A100-SXM4-80GB": "A100_SXM_80GB",
    "NVIDIA A100 80GB PCIe": "A100_PCIE_80GB",
    "NVIDIA A30": "A30_PCIE",
    "NVIDIA A10": "A10_PCIE",
    "NVIDIA A40": "A40_PCIE",
    "NVIDIA GeForce RTX 3090": "RTX_3090",
    "NVIDIA RTX A6000": "RTX_A6000",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA L4": "L4",
    "NVIDIA GeForce RTX 4090": "RTX_4090",
    "NVIDIA RTX 6000 Ada Generation": "RTX_6000_ADA",
    "NVIDIA H100 80GB HBM3": "H100_SXM",
    "NVIDIA H100 PCIe": "H100_PCIE",
    "NVIDIA H100 NVL": "H100_NVL",
    "NVIDIA H200": "H200_SXM",
    "NVIDIA H20": "H20_SXM",
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200_NVL",
    "NVIDIA GB300": "GB300_NVL",
    "NVIDIA GeForce RTX 5090": "RTX_5090",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX_PRO_6000",
}
_CLUSTERED = ("H", "B2", "GB")  # Hopper and Blackwell's large chips, whose kernels are CUTLASS 3's
_RESTARTS = 3
_CHILD = ("-m", "ullage.kernels.heuristics_process")


@dataclass(frozen=True)
class Advice:
    """A tiling for each product that was asked for, in their order; None where the library gave none, with the reason in `problem`."""

    tilings: tuple[Tiling | None, ...]
    version: str = ""
    problem: str = ""


@dataclass
class _Answers:
    count: int
    tilings: list[Tiling | None] = field(default_factory=list)
    version: str = ""
    problem: str = ""

    @property
    def advice(self) -> Advice:
        missing: list[Tiling | None] = [None] * (self.count - len(self.tilings))
        return Advice(tuple(self.tilings + missing), self.version, self.problem)


def unavailable(gpu: str) -> str:
    """Return why the library can't be asked about this GPU, "" when it can."""
    if importlib.util.find_spec(MODULE) is None:
        return "nvMatmulHeuristics is not installed: pip install 'ullage[heuristics]'"
    return "" if gpu in GPUS else f"nvMatmulHeuristics does not know {gpu}"


def advise(
    products: Sequence[TiledProduct], dtype: str, gpu: str, *, timeout: float = 60.0, child: Sequence[str] = (sys.executable, *_CHILD)
) -> Advice:
    """Return the tiling that NVIDIA's library would choose for each product on a GPU (its driver's name) at a precision ("bf16", …).

    Never raises for what the library does: `problem` says what went wrong. `timeout` in seconds is that of one child process.
    """
    reason = unavailable(gpu)
    if reason:
        return Advice((None,) * len(products), problem=reason)
    asked = {
        "gpu": GPUS[gpu],
        "backend": "CUTLASS3" if GPUS[gpu].startswith(_CLUSTERED) else "CUTLASS",
        "precision": LETTERS[dtype],
    }
    answers = _Answers(len(products))
    for _ in range(_RESTARTS):
        rest = products[len(answers.tilings) :]
        if not rest:
            break
        _ask({**asked, "products": [(p.m, p.n, p.k, p.batch) for p in rest]}, answers, timeout, child)
    return answers.advice


def _ask(asked: dict[str, object], answers: _Answers, timeout: float, child: Sequence[str]) -> None:
    """Ask one child; what it died of is answered by None, so that the next child begins behind it."""
    try:
        done = subprocess.run(
            child, input=json.dumps(asked), capture_output=True, text=True, timeout=timeout, check=False, env=_environment()
        )
        said, cause = done.stdout, "" if done.returncode == 0 else f"it ended with {done.returncode}"
    except subprocess.TimeoutExpired as late:
        said, cause = _text(late.stdout), f"it gave no answer within {timeout:g} s"
    except OSError as error:
        said, cause = "", f"it could not be started: {error.strerror}"
    begun = len(answers.tilings)
    for line in said.splitlines():
        _take(line, answers)
    if cause and len(answers.tilings) < answers.count:
        answers.tilings.append(None)
        answers.problem = f"nvMatmulHeuristics failed at product {len(answers.tilings):,}: {cause}"
    elif len(answers.tilings) == begun:  # it ended well and said nothing that can be read
        answers.tilings += [None] * (answers.count - begun)
        answers.problem = "nvMatmulHeuristics gave no answer"


def _take(line: str, answers: _Answers) -> None:
    """Read one line of a child: its version first, then a tiling a product; the last line of one that died may be cut."""
    try:
        said = json.loads(line)
    except ValueError:
        return
    if isinstance(said, dict) and "version" in said:
        answers.version = str(said["version"])
    elif said is None or isinstance(said, list):
        answers.tilings.append(_tiling(said))
        if answers.tilings[-1] is None:
            answers.problem = "nvMatmulHeuristics has no kernel for some of the products"


def _tiling(said: list[int] | None) -> Tiling | None:
    if said is None or len(said) != 6 or min(said) < 1:
        return None
    m, n, k, cluster_m, cluster_n, split = said
    return Tiling((m, n), k, (cluster_m, cluster_n), split)


def _environment() -> dict[str, str]:
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # with CUDA in sight the library would open the first GPU


def _text(said: bytes | str | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""
