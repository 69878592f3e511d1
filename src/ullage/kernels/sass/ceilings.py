"""How fast an instruction can be at best, as a fraction of the GPU's stated peak: measured by others, with their source; else not known."""

from __future__ import annotations

from dataclasses import dataclass

# "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", Luo et al., 2024
_TABLE = "arXiv 2402.13499, Table VII, H800 PCIe"
_AVERAGE = "arXiv 2402.13499, section IV-C, H800 PCIe"

# What `mma` reaches on an H800, and its stated peak, in TFLOP/s (integers: TOP/s): the paper's Table VII. Shapes of sparse
# instructions are those of the opcode (the table prints the compressed k), and their peak is twice the dense one.
_MMA_ON_HOPPER = {
    "HMMA.1688.F16": (368.6, 756.5),
    "HMMA.16816.F16": (494.4, 756.5),
    "HMMA.1688.F32": (363.7, 756.5),
    "HMMA.16816.F32": (490.7, 756.5),
    "HMMA.1684.F32.TF32": (180.6, 378.0),
    "HMMA.1688.F32.TF32": (246.4, 378.0),
    "IMMA.16816.S8.S8": (730.3, 1513.0),
    "IMMA.16832.S8.S8": (977.9, 1513.0),
    "HMMA.SP.16816.F16": (493.8, 1513.0),
    "HMMA.SP.16832.F16": (722.8, 1513.0),
    "HMMA.SP.16816.F32": (488.7, 1513.0),
    "HMMA.SP.16832.F32": (721.8, 1513.0),
    "HMMA.SP.1688.F32.TF32": (240.7, 756.0),
    "HMMA.SP.16816.F32.TF32": (363.3, 756.0),
    "IMMA.SP.16832.S8.S8": (970.0, 3026.0),
    "IMMA.SP.16864.S8.S8": (1435.0, 3026.0),
}
_FP8_PEAK = 1513.0  # dense, of the same H800


@dataclass(frozen=True)
class InstructionCeiling:
    """The most that can be had, as a `fraction` of the stated peak of `of`, by whose measurement. None: nobody measured it."""

    fraction: float | None
    of: str
    source: str

    def __str__(self) -> str:
        if self.fraction is None:
            return "not known"
        return f"{100 * self.fraction:.1f} % of the {self.of}"


UNKNOWN = InstructionCeiling(None, "", "")


def legacy(opcode: str, architecture: str) -> InstructionCeiling:
    """Return the ceiling of a warp's matrix instruction where a newer kind exists; on Hopper what the paper measured, elsewhere not known.

    A type that Table VII lacks (BF16, binary) gets the paper's average over types.

    >>> str(legacy("HMMA.16816.F32", "sm_90")), str(legacy("HMMA.16816.F32.BF16", "sm_90a")), str(legacy("HMMA.16816.F32", "sm_100"))
    ('64.9 % of the dense peak', '62.9 % of the dense peak', 'not known')
    """
    if not architecture.startswith("sm_90"):
        return UNKNOWN
    of = "sparse peak" if ".SP." in opcode else "dense peak"
    if opcode not in _MMA_ON_HOPPER:
        return UNKNOWN if ".SP." in opcode else InstructionCeiling(0.629, of, f"{_AVERAGE}: mma's average over types")
    reached, peak = _MMA_ON_HOPPER[opcode]
    return InstructionCeiling(reached / peak, of, f"{_TABLE}: {_figures(opcode)}")


def emulated(kind: str, opcode: str, architecture: str) -> InstructionCeiling:
    """Return the ceiling of a type that another type's instruction stands in for: that instruction's rate, conversions not counted.

    FP8 by HMMA on Hopper: half of FP8's peak is FP16's, of which mma reaches 490.7 of 756.5.

    >>> str(emulated("e4m3", "HMMA.16816.F32", "sm_90")), str(emulated("b1.and", "IMMA.16832.U8.U8", "sm_100"))
    ('32.4 % of the dense FP8 peak', 'not known')
    """
    if not architecture.startswith("sm_90") or opcode not in _MMA_ON_HOPPER:
        return UNKNOWN
    reached, peak = _MMA_ON_HOPPER[opcode]
    sparse = 2 if ".SP." in opcode else 1
    dense = "sparse" if sparse == 2 else "dense"
    found = f"{_TABLE}: {opcode} reaches {_figures(opcode)}; conversions not counted"
    if kind in ("e4m3", "e5m2") and opcode.startswith("HMMA"):
        return InstructionCeiling(reached / (sparse * _FP8_PEAK), f"{dense} FP8 peak", found)
    if kind in ("s4", "u4"):
        return InstructionCeiling(reached / peak, f"{dense} INT8 peak", found)
    return UNKNOWN


def _figures(opcode: str) -> str:
    reached, peak = _MMA_ON_HOPPER[opcode]
    return f"{reached:,} of {peak:,} {'TOP/s' if opcode.startswith('IMMA') else 'TFLOP/s'}"
