"""A simulated job into files: what its telemetry, its traces, its configuration and its matrix products say, and the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ullage.checked_parquet import write_table
from ullage.errors import UllageError
from ullage.output_folder import output_folder
from ullage.simulate.job import ALONE, COLLECTIVE, GPU, INTERVAL, PIECES, SAMPLES, SMALL, SimulatedJob, sampled
from ullage.simulate.job_kernels import SubstituteKernel, kernels_by_rank
from ullage.simulate.traces import kineto
from ullage.simulate.traces.scenario import EPOCH, ProcessScenario, Scenario
from ullage.simulate.traces.training import ALLREDUCE, COMPUTE, COPY, NETWORK
from ullage.tables import samples
from ullage.units import HOUR_MS

CALL = 3_000  # ns of a call of the GPU's interface
START = EPOCH // 1_000_000 - HOUR_MS // 2  # telemetry begins half an hour before the trace


NAMES = ("telemetry.parquet", "traces", "config.json", "gemms.json", "truth.json")


@dataclass(frozen=True)
class JobFiles:
    """Where a job's files are."""

    telemetry: Path
    traces: Path
    config: Path
    gemms: Path
    truth: Path

    @classmethod
    def within(cls, folder: Path) -> Self:
        """Return where in a folder they are."""
        return cls(*(folder / name for name in NAMES))


def write(job: SimulatedJob, folder: Path) -> JobFiles:
    """Write a job into a folder, which is made, in place of the last simulated one; return what was written.

    Raises UllageError where something else is in the way, and for a folder that can't be written.
    """
    try:
        with output_folder(folder, "ullage simulate job", NAMES) as stage:
            made = JobFiles.within(stage)
            write_table(pa.Table.from_batches([telemetry(job)]), made.telemetry)
            kineto.write(scenario(job), made.traces)
            for path, data in ((made.config, config(job)), (made.gemms, job.model.gemms(job.plan.ranks)), (made.truth, job.truth)):
                path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UllageError(f"{error.filename or folder} can't be written: {error.strerror or error}") from error
    return JobFiles.within(folder)


def telemetry(job: SimulatedJob) -> pa.RecordBatch:
    """Return what the exporters of the job's GPUs read: engine, SM and tensor activity, and samples of the clock."""
    ranks = job.plan.ranks
    kernel, collective = (np.array(times, float)[:, None] / job.elapsed for times in (job.kernel, job.collective))
    fill, active = (np.array(shares)[:, None] for shares in zip(*(job.grids.over(time, job.hidden) for time in job.kernel), strict=True))
    wobble = job.wobble
    columns: dict[str, Any] = {
        "time": np.tile(START + (1 + np.arange(SAMPLES)) * INTERVAL * 1000, ranks),
        "host": ["node-1"] * (ranks * SAMPLES),
        "gpu": [uuid(job, rank) for rank in range(ranks) for _ in range(SAMPLES)],
        "index": np.repeat(np.arange(ranks), SAMPLES).astype(np.int16),
        "model": [GPU] * (ranks * SAMPLES),
        "job": [name(job)] * (ranks * SAMPLES),
        "gr_active": ((kernel + collective) * wobble).ravel(),
        "sm_active": ((kernel * active + collective * job.grids.held) * wobble).ravel(),
        "tensor_active": (kernel * fill * job.tensor_issue * wobble).ravel(),
        "gpu_util": np.ones(ranks * SAMPLES),
        "sm_clock": sampled(job).ravel(),
    }
    return samples(columns)


def name(job: SimulatedJob) -> str:
    """Return the job's name."""
    return f"simulated-{job.plan.seed}"


def uuid(job: SimulatedJob, rank: int) -> str:
    """Return the UUID of a rank's GPU."""
    return f"GPU-{rank:08x}-7369-6d75-6c61-{job.plan.seed:012x}"


def config(job: SimulatedJob) -> dict[str, Any]:
    """Return the model's configuration, with its step in a section of its own."""
    model = job.model
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "intermediate_size": model.inner,
        "vocab_size": model.vocabulary,
        "step": {
            "batch": model.batch,
            "seq": model.seq,
            "recompute": "full" if model.recomputed else "none",
            "step_time": job.elapsed / 1e9,
        },
    }


def scenario(job: SimulatedJob) -> Scenario:
    """Return the job's traced steps: idle, a copy, kernels, and a collective that ends on all ranks at once."""
    recorders = [ProcessScenario(7001 + 100 * rank, rank) for rank in range(job.plan.ranks)]
    kernels = kernels_by_rank(job)
    for step in range(job.plan.steps):
        for rank, to in enumerate(recorders):
            _step(job, rank, to, step, kernels[rank])
    return Scenario(
        "job",
        tuple(event for to in recorders for event in to.events),
        {to.process: rank for rank, to in enumerate(recorders)},
        {rank: (GPU, uuid(job, rank)) for rank in range(job.plan.ranks)},
        prefers="ai",
    )


def _step(job: SimulatedJob, rank: int, to: ProcessScenario, step: int, pieces: Sequence[Sequence[SubstituteKernel]]) -> None:
    """Record one step of one rank: the host launches everything while the GPU idles, then waits until the step ends."""
    begin, end = step * job.elapsed, (step + 1) * job.elapsed
    now = begin + job.elapsed - job.active
    kernels = sum(len(short) for short in pieces)
    launches = kernels + (job.plan.ranks > 1) + (job.hidden > 0)  # and collectives where there is somebody to talk to
    calls = [to.call(begin + n * CALL, begin + (n + 1) * CALL, "cudaLaunchKernel", "launch", to.process) for n in range(launches)]
    copy = to.call(begin + (kernels + 2) * CALL, begin + (kernels + 3) * CALL, "cudaMemcpyAsync", "copy", to.process)
    to.work(now, now + job.copies, "memcpy", "Memcpy HtoD (Pinned -> Device)", COPY, copy, bytes=1 << 20)
    now += job.copies
    edges = [now + job.kernel[rank] * n // PIECES for n in range(PIECES + 1)]
    launched = iter(calls)
    for n, short in enumerate(pieces):
        launch = {"blocks": job.grids.blocks[n], **_block(ALONE if job.grids.alone(n) else SMALL)}
        times = list(accumulate((kernel.time for kernel in short), initial=0))
        parts = [edges[n] + (edges[n + 1] - edges[n]) * time // times[-1] for time in times]
        for (start, stop), kernel in zip(pairwise(parts), short, strict=True):
            to.work(start, stop, "kernel", kernel.name, COMPUTE, next(launched), product=kernel.asked, **launch)
    if job.plan.ranks > 1:
        _collectives(job, to, edges, end, calls[kernels:], step)
    to.call(begin + (kernels + 4) * CALL, end, "cudaDeviceSynchronize", "sync", to.process)
    to.host(begin, end, "host", "aten::step", to.process)
    to.host(begin, end, "step", f"ProfilerStep#{step}", to.process)


def _collectives(job: SimulatedJob, to: ProcessScenario, edges: list[int], end: int, calls: list[int], step: int) -> None:
    """Record a collective that computing hides, which costs no time but SMs, and one that it does not."""
    if job.hidden:
        _reduce(job, to, edges[0], edges[0] + job.hidden, calls[1], 2 * step)
    _reduce(job, to, edges[-1], end, calls[0], 2 * step + 1)


def _reduce(job: SimulatedJob, to: ProcessScenario, begin: int, end: int, correlation: int, sequence: int) -> None:
    known = {"operation": "allreduce", "group": "default_pg", "sequence": sequence, "members": job.plan.ranks}
    known |= {"blocks": job.grids.channels, **_block(COLLECTIVE)}
    to.work(begin, end, "collective", ALLREDUCE, NETWORK, correlation, bytes=64 << 20, **known)


def _block(shape: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("threads", "registers", "shared"), shape, strict=True))
