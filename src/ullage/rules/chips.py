"""What each model of GPU can do, as series that every rule is divided by: a fleet of mixed models is right because of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ullage.gpus.chip import CHIPS, Chip, find
from ullage.rules.query import PromQuery, number, recorded

MODEL = ("model",)
HALVED = 8  # queries that stand in one row


@dataclass(frozen=True)
class ModelConstant:
    """A ceiling of a GPU, recorded for every model: the series' name, what it says, its unit, and its value (None: not known)."""

    name: str
    what: str
    unit: str
    value: Callable[[Chip], float | None]

    @property
    def query(self) -> PromQuery:
        """The query of the recorded series."""
        return recorded(self.name, MODEL)


def _bf16(chip: Chip) -> float | None:
    found = [precision for precision in ("bf16", "fp16") if precision in chip.precisions]
    return chip.peak(found[0]) if found else None


TENSOR_CLOCK = ModelConstant(
    "model:ullage_tensor_clock:hertz", "clock at which the tensor pipes reach the stated peak", "Hz", lambda c: c.tensor_clock
)
SM_CLOCK = ModelConstant("model:ullage_sm_clock:hertz", "highest SM clock", "Hz", lambda c: c.sm_clock or c.tensor_clock)
MEMORY_CLOCK = ModelConstant("model:ullage_memory_clock:hertz", "highest memory clock", "Hz", lambda c: c.memory_clock)
SMS = ModelConstant("model:ullage_sms:count", "streaming multiprocessors (AMD: compute units)", "1", lambda c: float(c.sms))
MIG_SLICES = ModelConstant(
    "model:ullage_mig_slices:count", "slices that a GPU in MIG mode is cut into", "1", lambda c: float(c.mig_slices) or None
)
PEAK = ModelConstant("model:ullage_peak:flops", "dense peak in BF16 (FP16 where a GPU has no BF16)", "FLOP/s", _bf16)
POWER_LIMIT = ModelConstant("model:ullage_power_limit:watts", "power that the maker states", "W", lambda c: c.power)
NVLINK = ModelConstant(
    "model:ullage_nvlink:bytes", "rate of its links to other GPUs, one direction", "B/s", lambda c: c.link.per_direction if c.link else None
)
PCIE = ModelConstant(
    "model:ullage_pcie:bytes", "rate of PCI Express, one direction", "B/s", lambda c: c.pcie.per_direction if c.pcie else None
)

CONSTANTS = (TENSOR_CLOCK, SM_CLOCK, MEMORY_CLOCK, SMS, MIG_SLICES, PEAK, POWER_LIMIT, NVLINK, PCIE)


def models_of(names: Sequence[str], vendor: str = "") -> Mapping[str, Chip]:
    """Return chips by the names that exporters give them: those named, or every chip (of a `vendor`) under its driver's name.

    AMD's driver adds the form of a board to the name ("AMD Instinct MI300X OAM"), so that its chips stand under those names too.
    Raises UllageError for a name that no chip has.
    """
    if names:
        return {name: find(name) for name in dict.fromkeys(names)}
    chips = [chip for chip in CHIPS.values() if vendor in ("", chip.vendor)]
    boards = {_name_of_board(alias): chip for chip in chips for alias in chip.aliases if vendor == "AMD"}
    return boards | {chip.name: chip for chip in chips}


def _name_of_board(alias: str) -> str:
    return alias if alias.upper().startswith("AMD") else f"AMD Instinct {alias}"


def constant_query(constant: ModelConstant, models: Mapping[str, Chip]) -> str:
    """Return the expression of a constant: a value for every model of which it is known, "" where it is known of none."""
    values = {name: constant.value(chip) for name, chip in models.items()}
    lines = [
        f'label_replace(vector({number(value)}), "model", "{_escaped_for_replacement(name)}", "", "")'
        for name, value in values.items()
        if value is not None
    ]
    return _either(lines)


def _either(lines: Sequence[str]) -> str:
    """Return the union of some queries, in halves: a database compares each of a long row of `or` with all before it."""
    if len(lines) <= HALVED:
        return "\nor ".join(lines)
    half = len(lines) // 2
    return f"(\n{_either(lines[:half])}\n) or (\n{_either(lines[half:])}\n)"


def _escaped_for_replacement(name: str) -> str:
    """Return a name as a PromQL string and as the replacement of `label_replace`, in which a dollar sign names a group."""
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("$", "$$")
