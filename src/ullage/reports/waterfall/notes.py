"""What a waterfall rests on, and what must be said with it."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.metrics.evidence import REST, Telemetry, TraceEvidence
from ullage.metrics.steps import FACTORS, ChainStep
from ullage.metrics.waterfall import Waterfall
from ullage.reports.trace.trace import TraceReport
from ullage.reports.waterfall import evidence as evidence_of
from ullage.reports.waterfall.known import GivenByHand, SourceReports, products, untiled
from ullage.reports.waterfall.match import mismatches
from ullage.units import HOUR_MS
from ullage.views.numbers import percent

APART = 0.05  # relative; a step time that differs more from the trace's own steps is pointed out
ABOVE = 1.005  # a factor above this is pointed out
LEAST_TILE = 0.8  # a job's products together rarely lose more to tiles than up to here
WORTH_SAYING = 0.005  # of the time of kernels that multiply, and of the SMs
COLLECTIVES = (
    "telemetry counts a running collective as activity: what it costs, and waiting in it, lies in the steps with SM fill; "
    "a trace sets it apart"
)
PARTLY = "the trace does not hold every GPU of the job: how evenly they compute is not known, and is merged with communication"


def rests_on(found: SourceReports, given: GivenByHand) -> list[str]:
    """Return what was read and what was said by hand, a line a source."""
    lines = []
    if (report := found.telemetry) is not None:
        hours = (report.window[1] - report.window[0]) / HOUR_MS
        ofu = "no OFU" if report.ofu is None else f"{report.method} OFU"
        lines.append(f"telemetry: {_count(round(report.gpus), 'GPU')} over {hours:,.3g} h, {ofu}")
    if (trace := found.trace) is not None:
        devices = trace.whole.device_totals.devices if trace.whole.device_totals is not None else 0
        files = f"{_count(len(trace.places), 'file')} ({trace.source})"
        lines.append(f"trace: {_count(devices, 'GPU')} over {trace.whole.elapsed / 1e9:,.4g} s, {_window(trace)}, {files}")
    if (flops := found.flops) is not None:
        timed = "" if flops.step_time is None else f" in {flops.step_time:,.4g} s on {_count(flops.gpus, 'GPU')}"
        lines.append(f"step: {flops.ledger.architecture}, {flops.ledger.training / 1e12:,.4g} TFLOP{timed}")
    if (log := found.log) is not None:
        told = [] if log.mfu is None else [f"MFU {percent(log.mfu)}"]
        told += [] if log.step_time is None else [f"{log.step_time:,.4g} s a step"]
        lines.append(f"log: {', '.join([_count(log.steps, 'line'), *told])} ({log.place})")
    lines += [f"{source}: tiles are known of {percent(loss.covered)} of the matrix products" for source, loss in products(found)]
    said = [f"{word} {value:.4g}" for word, value in _said(given) if value is not None]
    return lines + ([f"given: {', '.join(said)}"] if said else [])


def _window(trace: TraceReport) -> str:
    """Return the trace's window in words: whether it begins and ends with the job's own steps, or with the capture."""
    words = {"steps": "from the first profiler step to the end of the last", "first-last": "from the first event to the last"}
    return words.get(trace.window, f"window {trace.window}")


def _said(given: GivenByHand) -> list[tuple[str, float | None]]:
    by_hand = (("OFU", given.ofu), ("MFU", given.mfu), ("tile", given.tile), ("model", given.model))
    return [*by_hand, ("hours", given.hours), ("steps", given.steps)]


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def notes(
    found: SourceReports, given: GivenByHand, chain: Waterfall, telemetry: Telemetry | None, trace: TraceEvidence | None
) -> list[str]:
    """Return what must be said with the numbers: sources that do not match, factors that can't be, what is not known."""
    said = list(mismatches(found, chain))
    if found.trace is not None:
        said += _traced(found.trace, trace)
    if telemetry is not None and trace is None and telemetry.gpus > 1:
        said.append(COLLECTIVES)
    if telemetry is not None and telemetry.ofu is not None and telemetry.ofu.value > 0 and _unsampled(found):
        said.append(f"too few samples to tell what sampling the clock costs: {percent(given.error)} of OFU is allowed")
    if found.gemms is not None and not found.gemms.covered:
        said.append("the tiles of the listed products are not known: give each its kernel's name or its tile")
    said += _held(chain, trace)
    said += [words for step in chain.steps if (words := _odd(step, chain)) is not None]
    if chain.missing and chain.reaches != "MFU":
        said.append(f"not known: {', '.join(FACTORS[name] for name in chain.missing)}")
    return [*said, *_step_time(found), *_cost(found, given), *([given.ceiling_caution] if given.ceiling_caution else [])]


def _traced(report: TraceReport, trace: TraceEvidence | None) -> Iterator[str]:
    if trace is None:
        yield "the trace holds no device that computes, or too little is known of its devices: it is left out"
        return
    if not trace.whole:
        yield PARTLY
    if report.gemms is not None and report.gemms.tile_efficiency is not None:
        yield from report.gemms.notes
        if (apart := untiled(report)) >= WORTH_SAYING:
            share = f"{percent(apart)} of the time of all that multiply"
            yield f"attention and convolution kernels ({share}) have no tile model: they may lose 0 to 10 %"
    if not report.partial and trace.parallel.low != trace.parallel.high:  # why its times have bounds
        yield from report.notes


def _held(chain: Waterfall, trace: TraceEvidence | None) -> Iterator[str]:
    """Yield how much of SM fill is lost to collectives that computing hides: their SMs are the network's affair, not the kernels'."""
    fill = chain.step("sm_fill")
    if trace is None or fill is None or trace.held.hidden < WORTH_SAYING or fill.lost <= 0:
        return
    held, lost = min(trace.held.hidden, fill.lost), fill.lost
    yield (
        f"collectives hold {percent(trace.held.hidden / fill.before.value, 1)} of the SMs while kernels compute: "
        f"up to {held * 100:.1f} of the "
        f"{lost * 100:.1f} points of SM fill are communication's; fewer channels (NCCL_MAX_CTAS) or copy engines leave them to kernels"
    )


def _unsampled(found: SourceReports) -> bool:
    report = found.telemetry
    return report is not None and report.method != "exact" and evidence_of.sampling_error(report) is None


def _odd(step: ChainStep, chain: Waterfall) -> str | None:
    """Return what is to be said of a factor that is not what such factors are, None of all others."""
    value = step.factor.value
    if step.names == ("tile",) and step.factor.source == REST and value < LEAST_TILE:
        return f"tile comes to {value:.2f}, and padding rarely costs so much: the other numbers may not be of one job; `ullage audit mfu`"
    if value <= ABOVE or step.names == ("unexplained",):
        return None
    if step.names == ("clock",):
        return f"clock comes to {value:.2f}, above 1: the SM clock passes the clock that the peak is stated at"
    why = "what it is made of contradicts itself, or is not of the same time"
    audit = "; `ullage audit mfu` knows the usual mistakes" if chain.mfu is not None else ""
    return f"{step.label} comes to {value:.2f}, above 1: {why}{audit}"


def _step_time(found: SourceReports) -> list[str]:
    if found.flops is None or found.flops.step_time is None or found.trace is None:
        return []
    mean = evidence_of.mean_step(found.trace)
    if mean is None or abs(mean / found.flops.step_time - 1) <= APART:
        return []
    return [
        f"the step takes {found.flops.step_time:,.4g} s, and {mean:,.4g} s in the trace: recording slows a job down, or it is another step"
    ]


def _cost(found: SourceReports, given: GivenByHand) -> Iterator[str]:
    """Yield what the GPU-hours rest on, and why there are none where somebody asked for them."""
    timed = given.steps is not None and found.flops is not None and found.flops.step_time is not None
    if given.hours is None and given.steps is not None and not timed:
        yield "how long a step takes is not known, and so neither how long they all take: --config with --step-time, or --hours"
    if (given.hours is not None or timed) and found.gpus is None:
        yield "how many GPUs there were is not known: the GPU-hours are those of one (--gpus)"
    if (given.hours is not None or timed) and found.telemetry is not None:
        yield f"GPU-hours are those given; telemetry saw {found.telemetry.gpu_hours:,.3g} of them, and the rest is taken to be alike"
    if given.price is not None and given.hours is None and not timed and found.telemetry is None:
        yield f"what the price {given.price:g} comes to is not known: --hours says how long the job ran"
