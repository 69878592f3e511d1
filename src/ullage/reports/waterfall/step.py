"""Whether a step's FLOPs can be those of the job that was traced: held against the matrix products that the trace shows.

The products of a trace whose sizes are known are executed work, so a step can't have fewer FLOPs. Nor can it have more than
these and what all other kernels that may multiply could have done at the GPU's highest rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.reports.trace.trace import TraceReport
from ullage.reports.waterfall.evidence import mean_step
from ullage.reports.waterfall.known import SourceReports, gpu_name

SLACK = 1.05  # what counts of FLOPs may be apart: sizes that a library pads, products that a formula leaves out
UNEVEN = 2.0  # the same where not all ranks were traced: stages of a pipeline do not do the same
# Families of kernels that multiply no matrices (ullage.kernels.family)
WITHOUT_PRODUCTS = (
    *("collective", "copy", "memset", "elementwise", "reduction", "normalisation", "softmax", "optimiser", "gather", "sort", "scan"),
    *("pooling", "random"),
)


@dataclass(frozen=True)
class StepContradiction:
    """A step of `asked` FLOPs of which the trace shows `shown`: more of matrix products than that, or no room for so many at `most`.

    FLOPs are of the whole job.
    """

    asked: int
    shown: float
    most: bool = False

    @property
    def words(self) -> str:
        """The contradiction in one sentence.

        >>> print(StepContradiction(10**12, 17e12).words)
        the step is said to be 1 TFLOP, and the trace shows matrix products of 17 TFLOP a step (17 times as much)
        >>> print(StepContradiction(10**13, 5e12, most=True).words)
        the step is said to be 10 TFLOP, and the trace has room for 5 TFLOP a step at most (0.5 of it, or less)
        """
        said = f"the step is said to be {self.asked / 1e12:,.4g} TFLOP, and the trace"
        if self.most:
            share = self.shown / self.asked
            part = f"{share:.2g} of it, or less"
            return f"{said} has room for {self.shown / 1e12:,.4g} TFLOP a step at most ({part})"
        return f"{said} shows matrix products of {self.shown / 1e12:,.4g} TFLOP a step ({self.shown / self.asked:,.3g} times as much)"


HINT = "its batch, sequence, passes or model are others, and it counts for nothing here"


def contradiction(found: SourceReports) -> StepContradiction | None:
    """Return how a step's FLOPs contradict the trace's products, None where they do not, or where one of the two is not known."""
    if found.flops is None or found.trace is None or found.trace.gemms is None or not found.trace.gemms.flops:
        return None
    totals, steps = found.trace.whole.device_totals, traced_steps(found.trace)
    if totals is None or steps is None:
        return None
    gpus = found.gpus or totals.devices
    share, slack = totals.devices / gpus, SLACK if totals.devices >= gpus else UNEVEN
    asked, shown = found.flops.ledger.executed, found.trace.gemms.flops / share
    # work of the step before and after may be in the window, and work of a step outside of it
    if asked * slack < shown / (steps + 1):
        return StepContradiction(asked, shown / steps)
    possible = _possible(found, found.trace)
    if possible is not None and asked > possible / share / max(steps - 1, steps / 2) * slack:
        return StepContradiction(asked, possible / share / max(steps - 1, steps / 2), most=True)
    return None


def traced_steps(report: TraceReport) -> float | None:
    """Return how many steps a trace holds, by its profiler's steps; None where it has none."""
    mean = mean_step(report)
    return None if not mean else max(float(len(report.steps)), report.whole.elapsed / 1e9 / mean)


def _possible(found: SourceReports, report: TraceReport) -> float | None:
    """Return the FLOPs of products that all kernels together may have done: known ones, and all else at the highest rate there is."""
    name, gemms = gpu_name(found), report.gemms
    if name is None or gemms is None or report.kernels is None:
        return None
    try:
        chip = find(name)
    except UllageError:
        return None
    highest = max(chip.peak(precision) for precision in chip.precisions) * max((chip.sm_clock or 0.0) / chip.tensor_clock, 1.0)
    multiplying = sum(row.time for row in report.kernels.families if row.family not in WITHOUT_PRODUCTS)
    return float(gemms.flops + max(multiplying - gemms.shaped, 0) / 1e9 * highest)
