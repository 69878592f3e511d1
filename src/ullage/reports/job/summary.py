"""A job's report as a Jobstats summary, for Slurm's AdminComment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ullage.reports.job.devices import GpuOfJob
from ullage.reports.job.job import JobReport
from ullage.sources.jobs.jobstats import JobstatsGpu, JobstatsNode, JobstatsSummary

DIGITS = 4  # of what Ullage adds: a comment is kept in a database for ever


def summary_of(report: JobReport) -> JobstatsSummary:
    """Return what Jobstats' summary says of a job by its telemetry; what an earlier summary of it knows beyond that stays (its CPUs)."""
    before = report.jobstats
    earlier = {} if before is None else {node.name: node for node in before.nodes}
    found = {host: _node(host, [*gpus], earlier.get(host)) for host, gpus in groupby(report.gpus, key=lambda gpu: gpu.host or "unknown")}
    seconds = (report.window[1] - report.window[0]) / 1000 if before is None else before.seconds
    gpus = len({gpu.gpu for gpu in report.gpus}) if before is None or before.gpus is None else before.gpus
    return JobstatsSummary(round(seconds), gpus, tuple((earlier | found).values()), _added(report))


def _node(host: str, gpus: Sequence[GpuOfJob], before: JobstatsNode | None) -> JobstatsNode:
    told = tuple(
        JobstatsGpu(
            number=_number(gpu),
            utilization=gpu.gpu_util,
            used_memory=gpu.memory,
            # without the one Jobstats can't print the other
            total_memory=None if gpu.memory is None else gpu.memory_size,
        )
        for gpu in gpus
    )
    return JobstatsNode(host, gpus=told) if before is None else replace(before, gpus=told)


def _number(gpu: GpuOfJob) -> str:
    number = gpu.gpu or "?" if gpu.index is None else str(gpu.index)
    return f"{number}/{gpu.mig}" if gpu.mig else number


def _added(report: JobReport) -> dict[str, float | str | None]:
    """Return what Jobstats has not: OFU, how full, where the rest went (GPU-hours by step), kWh."""
    fleet = report.fleet
    losses = {factor.name: lost for factor, lost in fleet.tree.losses(fleet.counted_hours)}
    numbers = {"ofu": fleet.ofu, "gpu_hours": fleet.gpu_hours, "ullage_gpu_hours": fleet.ullage, "kwh": fleet.energy.kwh} | losses
    return {name: float(f"{value:.{DIGITS}g}") for name, value in numbers.items() if value is not None}
