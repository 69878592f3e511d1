"""The measured ceiling of a job's GPU, looked up when its sources have said which GPU that is."""

from __future__ import annotations

from dataclasses import replace

from ullage.errors import UllageError
from ullage.gpus.measured import ceilings_of, measured_ceiling
from ullage.reports.waterfall.known import GivenByHand, SourceReports, gpu_name

MEASURED = "measured"  # what is said for "as `ullage bench --save` kept it"


def with_measured(given: GivenByHand, found: SourceReports) -> GivenByHand:
    """Return what was said by hand with the ceiling that was measured of the job's GPU, where that was asked for.

    Raises UllageError where nobody says which GPU it is, and where nothing was measured of it.
    """
    if given.measured_at is None:
        return given
    gpu = gpu_name(found)
    if gpu is None:
        raise UllageError("nothing says of which GPU the measured ceiling is wanted", "name it: --gpu 'H100 SXM'")
    chosen, found_of_gpu = measured_ceiling(gpu, given.measured_at), ceilings_of(gpu)
    memory = None if found_of_gpu is None else found_of_gpu.memory
    return replace(given, ceiling=chosen.value, ceiling_source=chosen.source, ceiling_caution=chosen.caution, memory=memory)
