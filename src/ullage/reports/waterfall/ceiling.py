"""The measured ceiling of a job's GPU: as it is given, or looked up when its sources have said which GPU that is."""

from __future__ import annotations

from dataclasses import replace

from ullage.errors import UllageError, harmless
from ullage.gpus.measured import ChosenCeiling, ceilings_of, load, measured_ceiling
from ullage.reports.waterfall.known import GivenByHand, SourceReports, gpu_name
from ullage.written_values import expanded_path

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


def stated_ceiling(text: str | float, precision: str) -> tuple[ChosenCeiling, ChosenCeiling | None]:
    """Return a measured ceiling and the memory's bandwidth beside it: a number in FLOP/s, or what a file of `ullage bench --save` has.

    >>> stated_ceiling("800e12", "bf16")
    (ChosenCeiling(value=800000000000000.0, source='given', caution=''), None)
    """
    try:
        return ChosenCeiling(float(text), "given"), None
    except ValueError:
        pass
    path = expanded_path(str(text))
    if not path.is_file():
        raise UllageError(
            f"the ceiling '{harmless(str(text))}' is neither a number nor a file", f"give FLOP/s such as 800e12, a file, or '{MEASURED}'"
        )
    ceilings = load(path)
    found = ceilings.peak(precision)
    if found is None:
        raise UllageError(f"{path} has no measured ceiling at {precision}", f"it has {', '.join(ceilings.precisions) or 'none'}")
    return found, ceilings.memory
