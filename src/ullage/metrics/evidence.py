"""What is known of a job, as far as it is known: the evidence from which its waterfall is drawn.

Every number says between which values it lies and where it comes from. Several sources may say one thing: the first is
used, the others are held against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ullage.metrics.metric import ratio
from ullage.metrics.telemetry import TelemetryTree

SAME = 0.02  # two sources that are at most this far apart (2 points) say the same
# What OFU may be off as a measure of executed FLOPs, relative: the tensor clock, pipes that fill and drain (OFU paper, V)
OFU_ERROR = 0.03
GIVEN, REST = "given", "what remains"  # sources that measured nothing: a person, and whatever the others leave


@dataclass(frozen=True)
class Measured:
    """A ratio, the values between which it lies (None: not known), and its source.

    >>> Measured.within(0.5, 0.1, "counters")
    Measured(value=0.5, low=0.45, high=0.55, source='counters')
    """

    value: float
    low: float | None
    high: float | None
    source: str

    @staticmethod
    def exact(value: float, source: str) -> Measured:
        """Return a value that nothing is known against."""
        return Measured(value, value, value, source)

    @staticmethod
    def within(value: float, error: float, source: str) -> Measured:
        """Return a value with a relative error."""
        return Measured(value, value * (1 - error), value * (1 + error), source)

    def __mul__(self, other: Measured) -> Measured:
        """Return the product; its bounds hold wherever the factors lie within theirs."""
        return Measured(self.value * other.value, _product(self.low, other.low), _product(self.high, other.high), self.source)

    def over(self, whole: Measured, source: str) -> Measured | None:
        """Return this divided by another, None where that is 0."""
        value = ratio(self.value, whole.value)
        return None if value is None else Measured(value, ratio(self.low, whole.high), ratio(self.high, whole.low), source)

    def agrees(self, other: Measured) -> bool:
        """Return whether two values may be the same: their bounds meet, or they are hardly apart."""
        low, high = (self.value if self.low is None else self.low), (self.value if self.high is None else self.high)
        other_low, other_high = (other.value if other.low is None else other.low), (other.value if other.high is None else other.high)
        return other_low - SAME <= high and low - SAME <= other_high

    def from_(self, source: str) -> Measured:
        """Return the same under another source."""
        return replace(self, source=source)


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


@dataclass(frozen=True)
class Telemetry:
    """What a job's gauges say: the telemetry tree over `gpus` GPUs, and OFU with the error of sampling it (None without a clock)."""

    tree: TelemetryTree
    gpus: int
    ofu: Measured | None


@dataclass(frozen=True)
class Held:
    """The share of the SMs, over the devices' whole time (m E), that collectives hold, and of that the part while kernels compute.

    `most_computed` is the share that kernels can be on at most, for their grids have no more blocks; `equal_computed` the one that they
    are on where the blocks of a kernel take equally long (None: too little is known of them).
    """

    collectives: Measured
    hidden: float
    most_computed: float
    equal_computed: float | None


@dataclass(frozen=True)
class TraceEvidence:
    """What a trace says of its devices, collectives set apart (`ai` mode).

    `held` says of how many SMs kernels and collectives make use. `busy` is Σ(K + C) / (m E) and `busy_balance`
    Σ(K + C) / (m max(K + C)): what telemetry's engine activity is to be held against. `whole` is False where not every GPU of the job
    was traced: then nobody knows how evenly they compute.
    """

    load_balance: Measured
    communication: Measured
    orchestration: Measured
    parallel: Measured
    held: Held
    busy: Measured
    busy_balance: Measured
    whole: bool = True


@dataclass(frozen=True)
class Evidence:
    """All that is known of a job. The tuples hold one quantity by several sources, the one that counts first.

    `tile` and `model` are tile and model efficiency, `mfu` model FLOPs over the peak; an `ofu` here stands beside the telemetry's.
    `error` is what OFU may be off as a measure of executed FLOPs, relative: it counts once, where the chain goes on from OFU to MFU.
    """

    telemetry: Telemetry | None = None
    trace: TraceEvidence | None = None
    ofu: tuple[Measured, ...] = ()
    tile: tuple[Measured, ...] = ()
    model: tuple[Measured, ...] = ()
    mfu: tuple[Measured, ...] = ()
    error: float = OFU_ERROR

    @property
    def ofus(self) -> tuple[Measured, ...]:
        """OFU by every source, the telemetry's first."""
        own = self.telemetry.ofu if self.telemetry is not None else None
        return self.ofu if own is None else (own, *self.ofu)


def levels(tree: TelemetryTree) -> dict[str, float]:
    """Return how much of the peak is left after each factor of a telemetry tree: Ḡ under "activity", S̄ under "sm_fill", then TPĀ, OFU.

    A factor that is merged with its neighbour gives the level after the last of those it stands for.

    >>> from ullage.metrics.telemetry import tree
    >>> found = levels(tree(ofu=0.27, tensor=0.3, sm=0.6, sm_max=0.7, gr=0.72, gr_max=0.8, tensor_max=0.4))
    >>> {name: round(value, 3) for name, value in found.items()}
    {'load_balance': 0.9, 'activity': 0.72, 'sm_fill': 0.6, 'tensor_issue': 0.3, 'clock': 0.27}
    """
    level, found = 1.0, {}
    for factor in tree.factors:
        if factor.value is not None:
            level *= factor.value
            found[factor.stands_for[-1]] = level
    if "activity" not in found:  # then balance is that of another gauge
        found.pop("load_balance", None)
    return found


def computed_sms(sm_activity: float, held: Held) -> Measured:
    """Return the share of SMs, over all time, that computing kernels are on: SM activity less what collectives hold.

    Of 0.9 collectives hold 0.15, unless up to a third of their blocks share an SM with a kernel's:

    >>> held = Held(Measured(0.15, 0.1, 0.15, "trace"), 0.15, 1.0, None)
    >>> [round(edge, 6) for edge in (computed_sms(0.9, held).low, computed_sms(0.9, held).value, computed_sms(0.9, held).high)]
    [0.75, 0.75, 0.8]
    """
    low, value, high = (sm_activity - (taken or 0.0) for taken in (held.collectives.high, held.collectives.value, held.collectives.low))
    return Measured(max(value, 0.0), max(low, 0.0), high, "telemetry")


@dataclass(frozen=True)
class Disagreement:
    """One thing that two sources say: `used` counts in the chain, or is nearest to what does."""

    what: str
    used: Measured
    other: Measured

    @property
    def agree(self) -> bool:
        """Whether both may be right."""
        return self.used.agrees(self.other)


def compared(evidence: Evidence) -> Iterator[Disagreement]:
    """Yield what two sources say of one thing."""
    trace, telemetry = evidence.trace, evidence.telemetry
    if trace is not None and telemetry is not None:
        found = levels(telemetry.tree)
        if "activity" in found:
            yield Disagreement("share of time with a kernel", trace.busy, Measured.exact(found["activity"], "telemetry"))
        if "load_balance" in found and trace.whole and telemetry.gpus > 1:
            balance = Measured.exact(found["load_balance"], "telemetry")
            yield Disagreement("load balance of that time", trace.busy_balance, balance)
        if "sm_fill" in found and trace.held.equal_computed is not None:
            equal, most = trace.held.equal_computed, trace.held.most_computed
            kernels = Measured(equal, equal, max(equal, most), "grids")
            yield Disagreement("SMs that kernels are on", computed_sms(found["sm_fill"], trace.held), kernels)
    named = {"OFU": evidence.ofus, "tile": evidence.tile, "model": evidence.model, "MFU": evidence.mfu}
    for what, (used, *others) in ((what, values) for what, values in named.items() if values):
        for other in others:
            yield Disagreement(what, used, other)
