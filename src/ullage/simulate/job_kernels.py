"""The kernels of a simulated job with their shapes: matrix products and elementwise passes that come to the job's own FLOPs.

With `shapes`, each long kernel of a step becomes many short ones of one shape, as many as its share of the step's executed FLOPs takes.
Their tiles are as the grids have them, padded as the job's products are. With `mixed`, it becomes one of each precision and one of
attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import log2

import numpy as np

from ullage.gpus.chip import find
from ullage.product import Product, moved_word
from ullage.simulate.job import GPU, K_TILE, KERNEL, PIECES, TILE, WHOLE_GRID, SimulatedJob
from ullage.simulate.job_precisions import PrecisionPart, parts
from ullage.simulate.traces.training import POINTWISE

ACROSS = WHOLE_GRID  # tiles along the library's m
DEEPEST = 16384  # K of a product: as wide as layers are
FEWEST = 8  # products that a long kernel should become
PASSES = 20  # elementwise kernels in place of a long one
LEAST_TILE = 0.92  # below, the padding of `ACROSS` tiles would be a tile

Asked = tuple[tuple[str, ...], ...]
GRAIN = 10**9  # parts of a long kernel's time


@dataclass(frozen=True)
class SubstituteKernel:
    """A kernel in place of a long one: its name, what was asked for, and its time relative to the others'."""

    name: str
    asked: str | None = None
    time: int = 1


def kernels_by_rank(job: SimulatedJob) -> tuple[tuple[tuple[SubstituteKernel, ...], ...], ...]:
    """Return what runs in place of each long kernel of a step, of each rank."""
    names = [KERNEL if job.grids.alone(piece) else POINTWISE for piece in range(PIECES)]
    if job.mixture is not None:
        return _mixed(job, parts(job.model, job.mixture, GPU))
    if not job.plan.shapes:
        return (tuple((SubstituteKernel(name),) for name in names),) * job.plan.ranks
    return tuple(
        tuple(tuple(SubstituteKernel(name, word) for word in words) for name, words in zip(names, row, strict=True))
        for row in asked_by_rank(job)
    )


def _mixed(job: SimulatedJob, split: tuple[PrecisionPart, ...]) -> tuple[tuple[tuple[SubstituteKernel, ...], ...], ...]:
    tile = max(job.truth["factors"]["tile"], LEAST_TILE)
    found = []
    for row in _executed(job, 1.0):
        products = [[_kernel(part, _product(job, piece, 1, tile), flops) for part in split] for piece, flops in enumerate(row)]
        found.append(tuple(tuple(products[n]) if job.grids.alone(n) else (SubstituteKernel(POINTWISE),) for n in range(PIECES)))
    return tuple(found)


def _kernel(part: PrecisionPart, sized: Product, flops: float) -> SubstituteKernel:
    """Return a kernel of one precision: a product as deep as its share of a long kernel's FLOPs asks for."""
    deep = None if part.precision is None else replace(sized, k=round(flops * part.flops / sized.flops), precision=part.precision).word
    return SubstituteKernel(part.name, deep, round(part.time * GRAIN))


def asked_by_rank(job: SimulatedJob) -> tuple[Asked, ...]:
    """Return what each short kernel of a step is asked for, as words of `ullage.product`: of each rank, of each long kernel.

    >>> from ullage.simulate.job import JobPlan, job
    >>> (asked,) = asked_by_rank(job(JobPlan(ranks=1, seed=3, shapes=True)))
    >>> len(asked), asked[0][0], asked[3][0], len(asked[3])
    (12, '1x9984x1505x16384 bf16', '2490577288 B', 20)
    """
    tile = max(job.truth["factors"]["tile"], LEAST_TILE)
    executed = _executed(job, tile)
    least = min(min(row[piece] / _area(job, piece) for piece in _multiplying(job)) for row in executed)
    depth = min(max(2 ** int(log2(max(least / 2 / FEWEST, 1))), K_TILE), DEEPEST)
    words = [_product(job, piece, depth, tile).word for piece in range(PIECES)]
    passes = (_pass(job),) * PASSES
    found = []
    for row in executed:
        counts = _counts([row[piece] / (2 * _area(job, piece) * depth) for piece in range(PIECES)])
        found.append(tuple((words[n],) * counts[n] if job.grids.alone(n) else passes for n in range(PIECES)))
    return tuple(found)


def _multiplying(job: SimulatedJob) -> list[int]:
    return [piece for piece in range(PIECES) if job.grids.alone(piece)]


def _product(job: SimulatedJob, piece: int, depth: int, tile: float) -> Product:
    """Return the product of a long kernel: row-major, so that the library's m and n are its n and m."""
    return Product(1, job.grids.blocks[piece] // ACROSS * TILE[1], round(ACROSS * TILE[0] * tile), depth, "bf16")


def _area(job: SimulatedJob, piece: int) -> int:
    """Return how many elements of the result a long kernel's tiles hold."""
    return job.grids.blocks[piece] * TILE[0] * TILE[1]


def _executed(job: SimulatedJob, tile: float) -> list[list[float]]:
    """Return the FLOPs that long kernels execute, padding included: a rank's share by its work, a kernel's by the SMs that it is on."""
    work = [kernel * fill for kernel, fill in zip(job.kernel, job.fills, strict=True)]
    fills = [job.grids.fill(piece, False) * job.grids.alone(piece) for piece in range(PIECES)]
    whole = job.model.flops[1] / tile
    return [[whole * own / sum(work) * fill / sum(fills) for fill in fills] for own in work]


def _counts(wanted: list[float]) -> list[int]:
    """Return whole numbers of kernels, at least one; what rounding leaves of one is the next one's."""
    edges = [round(edge) for edge in accumulate(wanted, initial=0.0)]
    return [max(after - before, 1) for before, after in pairwise(edges)]


def _pass(job: SimulatedJob) -> str:
    """Return what an elementwise kernel is asked for, whose bytes take a drawn share of its time."""
    random = np.random.Generator(np.random.PCG64([job.plan.seed, 4]))
    seconds = min(job.kernel) / PIECES / PASSES / 1e9
    return moved_word(int(random.uniform(0.5, 0.95) * seconds * find(GPU).bandwidth / 4) * 4)
