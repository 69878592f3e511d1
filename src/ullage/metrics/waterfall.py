"""The waterfall: one multiplicative chain from the peak to model progress (Ullage equations, sections 6 and 7).

    MFU = load balance × communication × orchestration × SM fill × tensor issue × clock × tile × model

Each source knows how much of the peak is left at some points of the chain; a step's factor is what is left after it over
what was left before, so the product is the end, whatever is known. Between two points that are known, factors are merged
and say so. Nothing is invented and nothing is clipped: a factor above 1 is shown as one.

How sources join. A trace gives the share of time in which the devices compute, and splits it into load balance,
communication and orchestration. Telemetry gives tensor activity and OFU; its engine activity counts a running collective
as work, so beside a trace it is only held against it. SM activity less what collectives hold of the SMs, which the trace
tells by their grids, lies between the two. Without a trace communication is part of SM fill. Without telemetry
MFU, divided by what is known of tile and model, takes the place of OFU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ullage.metrics.evidence import REST, Disagreement, Evidence, Measured, Telemetry, TraceEvidence, compared, computed_sms, levels
from ullage.metrics.metric import Value, metric, ratio
from ullage.metrics.steps import TIME, WORK, ChainStep, Walk
from ullage.metrics.telemetry import clock_efficiency, sm_fill, tensor_issue


@metric(unit="1", source="Ullage equations, section 6")
def device_computational_efficiency(ofu: Value, device_parallel_efficiency: Value) -> Value:
    """How much of the peak is reached while the devices compute: SM fill × tensor issue × clock.

    >>> device_computational_efficiency(ofu=0.3, device_parallel_efficiency=0.6)
    0.5
    """
    return ratio(ofu, device_parallel_efficiency)


@metric(unit="1", source="Ullage equations, section 7")
def expected_mfu(ofu: Value, tile_efficiency: Value, model_efficiency: Value) -> Value:
    """Which MFU the counters allow: OFU less the padding of tiles, and less executed work that the model did not need.

    >>> expected_mfu(ofu=0.5, tile_efficiency=0.8, model_efficiency=0.75)
    0.30000000000000004
    """
    return ofu * tile_efficiency * model_efficiency


@metric(unit="1", source="Ullage equations, section 7")
def unexplained_factor(mfu: Value, expected_mfu: Value) -> Value:
    """What is left between the MFU that the counters allow and the one that is reported: 1 when both agree.

    Away from 1 by more than the errors, one of the numbers is wrong: `ullage audit mfu` looks for the mistake.

    >>> unexplained_factor(mfu=0.5, expected_mfu=0.25)
    2.0
    """
    return ratio(mfu, expected_mfu)


@dataclass(frozen=True)
class Closure:
    """Whether the chain closes: the MFU that OFU, tile and model come to, beside the one that was measured independently."""

    expected: Measured
    mfu: Measured
    closes: bool


@dataclass(frozen=True)
class Waterfall:
    """The chain as far as the evidence goes; the product of the steps' factors is `end`.

    `reaches` names what the end is; `missing` are the factors after which nobody knows what is left. `ofu` and `mfu` are those
    that count.
    """

    steps: tuple[ChainStep, ...]
    end: Measured
    reaches: str
    missing: tuple[str, ...]
    ofu: Measured | None
    mfu: Measured | None
    closure: Closure | None
    disagreements: tuple[Disagreement, ...]

    @property
    def ends(self) -> str:
        """What `end` is. Where MFU was measured and the chain comes to one of its own, that is the expected MFU."""
        return "expected MFU" if self.mfu is not None and self.closure is not None and self.end.value != self.mfu.value else self.reaches

    @property
    def allowed(self) -> Measured | None:
        """Which MFU all else allows at most, where the one that was measured can't be; None where nothing contradicts it."""
        if self.closure is not None:
            return None if self.closure.closes else self.closure.expected
        impossible = next((step for step in self.steps if step.impossible), None)
        return None if impossible is None or self.mfu is None else self.mfu.over(impossible.factor, impossible.factor.source)

    def step(self, *names: str) -> ChainStep | None:
        """Return the step that stands for just these factors."""
        return next((step for step in self.steps if step.names == names), None)


def waterfall(evidence: Evidence) -> Waterfall:
    """Return the chain from the peak to MFU, as far as the evidence goes.

    OFU 34 %, three quarters of what is executed is the model's, and 26 % is reported (OFU paper, section VI-C):

    >>> say = Measured.exact
    >>> chain = waterfall(Evidence(ofu=(say(0.34, "ofu"),), model=(say(0.75, "step"),), mfu=(say(0.26, "report"),)))
    >>> [(step.label, round(step.factor.value, 3)) for step in chain.steps][1:]
    [('tile', 1.02), ('model', 0.75)]
    """
    walk = Walk()
    ofu, mfu = next(iter(evidence.ofus), None), next(iter(evidence.mfu), None)
    known = {name: values[0] for name, values in (("tile", evidence.tile), ("model", evidence.model)) if values}
    if evidence.trace is not None:
        _trace(walk, evidence.trace, evidence.telemetry)
    elif evidence.telemetry is not None:
        _telemetry(walk, evidence.telemetry)
    closure = None
    if ofu is not None:
        if rest := [name for name in walk.missing if name in TIME]:
            walk.down_to(rest, ofu)
        closure = _work(walk, known, mfu, evidence.error)
    else:
        _without_ofu(walk, known, mfu)
    return Waterfall(
        tuple(walk.steps), walk.level, _reaches(walk, ofu, mfu), tuple(walk.missing), ofu, mfu, closure, tuple(compared(evidence))
    )


def _trace(walk: Walk, trace: TraceEvidence, telemetry: Telemetry | None) -> None:
    """Walk down to the time in which devices compute, and on to tensor activity where telemetry has it."""
    if trace.whole:
        walk.times(["load_balance"], trace.load_balance)
        walk.times(["communication"], trace.communication)
    else:  # who waits in a collective for a rank that was not traced loses by its load, too
        walk.times(["load_balance", "communication"], trace.load_balance * trace.communication)
    walk.times(["orchestration"], trace.orchestration, trace.parallel)
    found = {} if telemetry is None else levels(telemetry.tree)
    tensor, sm = found.get("tensor_issue"), found.get("sm_fill")
    if tensor is None:
        return
    if sm is not None and tensor > 0:
        _filled(walk, trace, sm, tensor)
    if rest := [name for name in walk.missing if name in ("sm_fill", "tensor_issue")]:
        walk.down_to(rest, Measured.exact(tensor, "telemetry"))
    _clock(walk, telemetry, tensor)


def _filled(walk: Walk, trace: TraceEvidence, sm: float, tensor: float) -> None:
    """Take the step of SM fill, where there is a share of SMs that all sources allow.

    Computing kernels are on the SMs that are active and that collectives do not hold: on no more than they have blocks for, as long as
    they run, and on no fewer than have active tensor pipes. Among those what their grids say is nearest, else what telemetry does.
    """
    parallel, active, held = walk.level, computed_sms(sm, trace.held), trace.held
    assert active.low is not None and active.high is not None
    least, most = max(active.low, tensor), min(active.high, parallel.value)
    if least <= held.most_computed:
        most = min(most, held.most_computed)
    if least > most:
        return
    grids = held.equal_computed is not None and least <= held.equal_computed <= most
    on = held.equal_computed if grids and held.equal_computed is not None else min(max(active.value, least), most)
    level = Measured(on, least, most, "grids" if grids else "telemetry")
    low, high = parallel.low or parallel.value, parallel.high or parallel.value
    fill = Measured(sm_fill(on, parallel.value), sm_fill(least, high), sm_fill(most, low), level.source)
    walk.times(["sm_fill"], fill, level)
    issue = Measured(tensor_issue(tensor, on), tensor_issue(tensor, most), tensor_issue(tensor, least), "telemetry")
    walk.down_to(["tensor_issue"], Measured.exact(tensor, "telemetry"), issue)


def _telemetry(walk: Walk, telemetry: Telemetry) -> None:
    """Walk the telemetry tree. A running collective is activity: what it costs shows in SM fill, and how much nobody knows."""
    alone = telemetry.gpus == 1
    tensor = levels(telemetry.tree).get("tensor_issue")
    for factor in telemetry.tree.factors:
        if factor.value is None or factor.stands_for[-1] == "clock":
            break
        value = Measured.exact(factor.value, "telemetry")
        walk.times(_named(factor.stands_for, alone), value if alone else replace(value, low=None, high=None))
    if tensor is not None and walk.steps:
        walk.level = Measured.exact(walk.level.value, "telemetry")  # how it is split is not known, the product is
        walk.steps[-1] = replace(walk.steps[-1], after=walk.level)
        _clock(walk, telemetry, tensor)


def _named(names: Sequence[str], alone: bool) -> list[str]:
    """Return the factors of the chain that a factor of the telemetry tree holds.

    One GPU has no collectives: what it idles is copies and orchestration. Of several, collectives lower SM activity.
    """
    held = set(names)
    if "activity" in held:
        held |= {"orchestration", "communication"} if alone else {"orchestration"}
    if "sm_fill" in held:
        held |= set() if alone else {"communication"}
    return [name for name in TIME if name in held]


def _clock(walk: Walk, telemetry: Telemetry | None, tensor: float) -> None:
    """Take the step of the clock, whose error is that of sampling it."""
    ofu = None if telemetry is None else telemetry.ofu
    if ofu is None or not tensor:
        return
    low, high = (None if edge is None else clock_efficiency(edge, tensor) for edge in (ofu.low, ofu.high))
    walk.down_to(["clock"], ofu, Measured(clock_efficiency(ofu.value, tensor), low, high, ofu.source))


def _work(walk: Walk, known: dict[str, Measured], mfu: Measured | None, error: float) -> Closure | None:
    """Walk from OFU through tile and model, and see whether the chain closes where MFU is known independently.

    From here on what is left is known no better than OFU measures executed FLOPs.
    """
    if known or mfu is not None:
        walk.level = walk.level * Measured(1.0, 1 - error, 1 + error, walk.level.source)
    unknown = [name for name in WORK if name not in known]
    if mfu is None or not unknown:
        for name in WORK:
            if name in known:
                walk.times([name], known[name])
        return None if mfu is None else _close(walk, mfu)
    rest = mfu
    for factor in known.values():
        rest = rest.over(factor, mfu.source) or rest
    missing = rest.over(walk.level, REST)
    for name in WORK:
        if name in known:
            walk.times([name], known[name], mfu if name == "model" else None)
        elif name == unknown[0] and missing is not None:
            walk.times(unknown, missing, mfu if "model" in unknown else rest)
    return None


def _close(walk: Walk, mfu: Measured) -> Closure:
    """Return whether the chain ends at the measured MFU; where it does not, what is unexplained is its last step."""
    expected = walk.level
    low, high = expected.value if expected.low is None else expected.low, expected.value if expected.high is None else expected.high
    closes = (mfu.value if mfu.high is None else mfu.high) >= low and (mfu.value if mfu.low is None else mfu.low) <= high
    if not closes:
        walk.down_to(["unexplained"], mfu.from_(REST))
    return Closure(expected, mfu, closes)


def _without_ofu(walk: Walk, known: dict[str, Measured], mfu: Measured | None) -> None:
    """Walk on without OFU: MFU over what is known of tile and model takes its place."""
    if mfu is not None:
        rest = mfu
        for factor in known.values():
            rest = rest.over(factor, mfu.source) or rest
        if missing := [name for name in walk.missing if name not in known]:
            walk.down_to(missing, rest.from_(REST))
    done = [name for name in WORK if name in known]
    for name in done:
        walk.times([name], known[name], mfu if name == done[-1] else None)


def _reaches(walk: Walk, ofu: Measured | None, mfu: Measured | None) -> str:
    """Return what the end of the chain is."""
    missing = set(walk.missing)
    if mfu is not None:
        return "MFU"
    if not missing:
        return "expected MFU"
    if ofu is not None and walk.steps:
        return "OFU" + "".join(f" × {label}" for name, label in WORK.items() if name not in missing)
    return "what is known"
