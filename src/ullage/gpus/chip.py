"""What a chip is: how fast it can multiply matrices, what it is connected by, and by which names it goes.

Begin here; every other module of this folder but `names`, `precision`, `overrides`, `links`, `mig`, `slices` and `measured` holds
the chips of one generation, each one call of `chip(...)`. Adding a GPU is such a call: docs/adding-a-gpu.md.

Units are SI without prefixes: Hz, FLOP/s (for int8: operations per second), B/s, B, W. Peaks are dense; a "with sparsity"
figure of a datasheet is twice the dense one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from ullage.errors import UllageError, did_you_mean, harmless
from ullage.gpus import names, overrides, slices
from ullage.gpus.links import Link, Pcie
from ullage.gpus.precision import PRECISIONS, canonical
from ullage.registry import Registry

Confidence = Literal["high", "medium", "low"]

# How the tensor clock is known. "documented": the maker states it apart from the SM clock. "boost clock": no other is
# stated, and with the maximum SM clock eq. 5 gives the stated peak. "same silicon": documented for a sister board.
# "derived from stated peak": the clock that makes eq. 5 give the stated peak. "assumed": taken over from another chip.
ClockStatus = Literal["documented", "boost clock", "same silicon", "derived from stated peak", "assumed"]


@dataclass(frozen=True)
class ToldClock:
    """By which factors, `least` to `most`, the driver told an SM clock above the cycles that SMs counted a second, under tensor load.

    `measured` says on what. OFU by such clocks is too high by the same factors; OFU by counted cycles is not.
    """

    least: float
    most: float
    measured: str


@dataclass(frozen=True, eq=False)
class Chip:
    """A GPU model and its ceilings; two names of one model are the same object.

    `flops_per_cycle` is per SM (AMD: per compute unit), dense, by precision; `tensor_clock` is the clock at which tensor
    pipes reach the peak, and together they are a pair: sms × flops_per_cycle × clock is the peak (eq. 5), so neither may
    be replaced alone. `precision_clock` holds the clocks of precisions that run at another one. `stated` is what the maker
    prints, of the precisions that it prints. `checked` says how the figures were confirmed, "" when nobody could. `caution` is
    said whenever the chip is used.

    What it is connected by, None where it has none or nobody states it: `link` to other GPUs (NVLink, Infinity Fabric), `host_link`
    to a CPU (NVLink-C2C), `pcie`; `l2` is the size of the L2 cache in bytes, `l2_bandwidth` its rate in B/s. `links_source` says
    where these are from. `memory_clock` is the highest that the driver tells of the memory ("Max Clocks" of `nvidia-smi -q`): both edges
    of such a clock, times the width of the bus, are the bandwidth. `told_clock` is how far the clock that the driver tells was seen from
    the SMs' own; None: nobody measured it.
    """

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    sms: int
    sm_clock: float | None
    tensor_clock: float
    tensor_clock_status: ClockStatus
    flops_per_cycle: Mapping[str, int]
    bandwidth: float
    memory: float
    power: float
    stated: Mapping[str, float]
    source: str
    confidence: Confidence
    checked: str = ""
    note: str = ""
    caution: str = ""
    aliases: tuple[str, ...] = ()
    shared_names: tuple[str, ...] = ()
    mig_slices: int = 0
    precision_clock: Mapping[str, float] = field(default_factory=dict)
    link: Link | None = None
    host_link: Link | None = None
    pcie: Pcie | None = None
    l2: float | None = None
    l2_bandwidth: float | None = None
    memory_clock: float | None = None
    links_source: str = ""
    told_clock: ToldClock | None = None

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions for which a peak is known, widest first."""
        return tuple(p for p in PRECISIONS if p in self.flops_per_cycle or p in self.stated)

    def clock(self, precision: str) -> float:
        """Return the clock in Hz at which the tensor pipes reach the peak of this precision."""
        return self.precision_clock.get(canonical(precision), self.tensor_clock)

    def peak(self, precision: str) -> float:
        """Return the dense peak in FLOP/s by eq. 5; where the maker documents no rate per cycle, the stated one.

        Raises UllageError for a precision that the chip lacks.
        """
        wanted = canonical(precision)
        if wanted in self.flops_per_cycle:
            return self.sms * self.flops_per_cycle[wanted] * self.clock(wanted)
        if wanted in self.stated:
            return self.stated[wanted]
        raise UllageError(f"{self.name} has no {wanted} peak", f"it has {', '.join(self.precisions)}")

    @property
    def warning(self) -> str:
        """What a report must say when it relies on this chip: sentences, or "" when there is nothing to say."""
        said = []
        if self.confidence == "low":
            said.append(f"the figures of {self.name} are not confirmed")
        if self.tensor_clock_status in ("derived from stated peak", "assumed"):
            how = self.tensor_clock_status.replace("from", "from the")
            said.append(f"the tensor clock of {self.name} ({self.tensor_clock / 1e6:,.0f} MHz) is {how}, not documented")
        if self.caution:
            said.append(f"{self.name}: {self.caution}")
        return "; ".join(said)

    @property
    def clock_warning(self) -> str:
        """What a report must say when it takes OFU by the clock that the driver tells; "" where nothing is known against that clock."""
        if self.told_clock is None:
            return ""
        least, most = (f"{100 * (factor - 1):.0f}" for factor in (self.told_clock.least, self.told_clock.most))
        return (
            f"OFU of {self.name} by sampled clocks is {least} to {most} % too high under tensor load: the driver tells an SM clock that "
            f"is higher than the SMs' own ({self.told_clock.measured}); OFU by counted cycles has no such error "
            "(DCGM 4.6 fields 1084 to 1096, `ullage run --counters pm`)"
        )


CHIPS: Registry[Chip] = Registry("GPU", package="ullage.gpus", command="ullage gpus")
_BY_NAME: dict[names.Folded, Chip] = {}
_BY_SHARED_NAME: dict[names.Folded, list[Chip]] = {}


def chip(name: str, **properties: Any) -> Chip:
    """Register a chip under its driver's name and its aliases, and return it. The properties are those of `Chip`.

    `aliases` are names of this chip alone; `shared_names` are what people also call other chips ("V100"): they are found
    only where all that share them have the same peaks. Raises ValueError for a name that is taken or a figure that cannot be.
    """
    member = Chip(name=name, **properties)
    _refuse_nonsense(member)
    folded = {names.fold(n) for n in (name, *member.aliases)}
    shared = {names.fold(n) for n in member.shared_names}
    taken = [words for words in folded if words in _BY_NAME or words in _BY_SHARED_NAME or words in shared]
    taken += [words for words in shared if words in _BY_NAME]
    if taken or () in folded | shared:
        raise ValueError(f"a name of '{name}' is empty or belongs to another GPU: {taken}")
    CHIPS.add(name, member)
    _BY_NAME.update(dict.fromkeys(folded, member))
    for words in shared:
        _BY_SHARED_NAME.setdefault(words, []).append(member)
    return member


def _refuse_nonsense(member: Chip) -> None:
    unknown = {*member.flops_per_cycle, *member.stated, *member.precision_clock} - set(PRECISIONS)
    figures = [member.sms, member.tensor_clock, member.bandwidth, member.memory, member.power]
    figures += [*member.flops_per_cycle.values(), *member.stated.values(), *member.precision_clock.values()]
    joined = [link.bandwidth for link in (member.link, member.host_link, member.pcie) if link is not None]
    joined += [figure for figure in (member.l2, member.l2_bandwidth) if figure is not None]
    words_known = member.confidence in get_args(Confidence) and member.tensor_clock_status in get_args(ClockStatus)
    if member.told_clock is not None:
        figures += [member.told_clock.least, member.told_clock.most / member.told_clock.least]
    sourced = member.source and (member.links_source or not joined)
    if unknown or min(figures + joined) <= 0 or not sourced or not words_known:
        raise ValueError(f"'{member.name}' lacks a source, or has a figure or word that cannot be {sorted(unknown) or ''}")


def find(name: str, environment: Mapping[str, str] | None = None) -> Chip:
    """Return the chip that a driver, an exporter, Kubernetes or a person calls `name`; a MIG profile behind it is allowed.

    Case, separators and the words NVIDIA, Tesla, AMD and Instinct do not matter; apart from that the name must be one
    that the chip has. A bare "H100" is the SXM board, whose driver name alone carries no form factor. A name of a vGPU or of a MIG
    instance gives the figures of the whole chip, and a `warning` that says so. The `environment` (the process's own by default)
    may name relabelled boards in ULLAGE_GPU_ALIAS. Raises UllageError for an unknown name, with the nearest ones, and for a name of
    several chips with different peaks, with the candidates.

    >>> find("NVIDIA-H100-80GB-HBM3").name, find("H200 NVL").name, find("h100 sxm MIG 1g.10gb").name
    ('NVIDIA H100 80GB HBM3', 'NVIDIA H200 NVL', 'NVIDIA H100 80GB HBM3')
    >>> find("NVIDIA A40-48Q").warning
    'NVIDIA A40: what was named is a vGPU, whose time others may share; peak, bandwidth and power are those of the whole GPU'
    """
    renamed = overrides.renames((os.environ if environment is None else environment).get(overrides.ALIAS, ""))
    if names.fold(name) in renamed:
        return _lookup(renamed[names.fold(name)])
    part = slices.part(name)
    if part is None:
        return _lookup(name)
    return _named_as_part(_lookup(renamed.get(names.fold(part.whole), part.whole)), part.what)


@functools.lru_cache(maxsize=1024)
def _named_as_part(whole: Chip, what: str) -> Chip:
    """Return a chip whose warning says that a part of it was named: the same object every time."""
    said = f"what was named is {what}; peak, bandwidth and power are those of the whole GPU"
    return replace(whole, caution=f"{whole.caution}; {said}" if whole.caution else said)


def _lookup(name: str) -> Chip:
    CHIPS.load()
    words = names.fold(name)
    candidates = [_BY_NAME[words]] if words in _BY_NAME else _BY_SHARED_NAME.get(words, [])
    maker = names.vendor(name)
    candidates = [c for c in candidates if maker in (None, c.vendor)]
    if not candidates:
        raise _unknown(name)
    if any(not _same_ceilings(candidates[0], other) for other in candidates[1:]):
        listed = ", ".join(f"'{c.name}'" for c in candidates)
        raise UllageError(f"'{harmless(name, 80)}' may be any of {len(candidates)} GPUs with different peaks", f"say which: {listed}")
    return candidates[0]


def _same_ceilings(one: Chip, other: Chip) -> bool:
    return one.tensor_clock == other.tensor_clock and {p: one.peak(p) for p in one.precisions} == {
        p: other.peak(p) for p in other.precisions
    }


def _unknown(name: str) -> UllageError:
    word = harmless(name, 80)
    near = did_you_mean(word, all_names(), "ullage gpus")
    return UllageError(f"no GPU is called '{word}'", f"{near}. A relabelled board: {overrides.ALIAS}='{word}=H200 SXM'")


def all_names() -> Iterable[str]:
    """Yield every name under which a chip can be found, drivers' names first."""
    members = CHIPS.values()
    yield from (member.name for member in members)
    yield from (alias for member in members for alias in member.aliases)


def peak(name: str, precision: str, *, override: str | float | None = None, environment: Mapping[str, str] | None = None) -> float:
    """Return the dense peak in FLOP/s of the chip called `name` at a precision ("bf16", "float16", "fp8", "nvfp4", …).

    `override` (TFLOP/s: a number for BF16 and FP16, or "bf16=989.4,fp8=1978.9") or else ULLAGE_PEAK_TFLOPS of the
    `environment` goes before the tables, and then the chip need not be known. Raises UllageError for an unknown GPU or
    precision, for a precision that the chip lacks, and for a malformed override.

    >>> round(peak("H100 SXM", "bf16", environment={}) / 1e12, 1)
    989.4
    >>> peak("L20X", "bf16", override=989.4)
    989400000000000.0
    """
    environment = os.environ if environment is None else environment
    wanted = canonical(precision)
    given = overrides.peaks(environment.get(overrides.PEAK, "") if override is None else override)
    return given[wanted] if wanted in given else find(name, environment).peak(wanted)


def tensor_clock(name: str, environment: Mapping[str, str] | None = None) -> float:
    """Return f_tensor of eq. 1 in Hz for the chip called `name`; for a MIG instance it is the whole chip's.

    Ask `find(name).warning` for what must be said with it. Raises UllageError as `find` does.

    >>> tensor_clock("NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    1830000000.0
    """
    return find(name, environment).tensor_clock
