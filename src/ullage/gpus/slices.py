"""Parts of a GPU by name: NVIDIA vGPU types, and MIG instances. A part is never taken for the whole chip without saying so.

A vGPU goes by its board's code, its share and its kind: "NVIDIA A40-48Q" is 48 GB of an A40 in time slices, "GRID A100D-1-10C" a
MIG slice of an A100 80GB PCIe handed to a virtual machine. The codes are those of the tables of NVIDIA's vGPU documentation,
"Virtual GPU Types for Supported GPUs" (NVIDIA vGPU Software User Guide, appendix A; NVIDIA AI Enterprise User Guide).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ullage.gpus import mig
from ullage.gpus.names import LONGEST, Folded, fold, vendor

_BOARDS: Final = {
    "V100": "Tesla V100-PCIE-16GB", "V100X": "Tesla V100-SXM2-16GB", "V100D": "Tesla V100-PCIE-32GB", "V100DX": "Tesla V100-SXM2-32GB",
    "V100S": "Tesla V100S-PCIE-32GB",
    "T4": "Tesla T4", "RTX6000": "Quadro RTX 6000", "RTX8000": "Quadro RTX 8000",
    "A2": "NVIDIA A2", "A10": "NVIDIA A10", "A16": "NVIDIA A16", "A30": "NVIDIA A30", "A40": "NVIDIA A40",
    "RTXA5000": "NVIDIA RTX A5000", "RTXA5500": "NVIDIA RTX A5500", "RTXA6000": "NVIDIA RTX A6000",
    "A100": "NVIDIA A100-PCIE-40GB", "A100X": "NVIDIA A100-SXM4-40GB", "A100D": "NVIDIA A100 80GB PCIe",
    "A100DX": "NVIDIA A100-SXM4-80GB", "A800": "NVIDIA A800 40GB Active", "A800D": "NVIDIA A800 80GB PCIe",
    "A800DX": "NVIDIA A800-SXM4-80GB",
    "L2": "NVIDIA L2", "L4": "NVIDIA L4", "L20": "NVIDIA L20", "L40": "NVIDIA L40", "L40S": "NVIDIA L40S",
    "RTX5000-Ada": "NVIDIA RTX 5000 Ada Generation", "RTX5880-Ada": "NVIDIA RTX 5880 Ada Generation",
    "RTX6000-Ada": "NVIDIA RTX 6000 Ada Generation",
    "H100": "NVIDIA H100 PCIe", "H100L": "NVIDIA H100 NVL", "H100XM": "NVIDIA H100 80GB HBM3",
    "H100XL": "NVIDIA H100 94GB HBM2e", "H100XS": "NVIDIA H100 64GB HBM2e",
    "H800": "NVIDIA H800 PCIe", "H800L": "NVIDIA H800 NVL", "H800XM": "NVIDIA H800",
    "H200": "NVIDIA H200 NVL", "H200X": "NVIDIA H200", "H20": "NVIDIA H20", "H20X": "NVIDIA H20-3e",
    "GH200": "NVIDIA GH200 480GB", "GH200L": "NVIDIA GH200 144G HBM3e",
    "RTX Pro 6000 Blackwell DC": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}  # fmt: skip
_BY_CODE: Final[dict[Folded, str]] = {fold(code): board for code, board in _BOARDS.items()}

# "A40-48Q", "A100D-1-10C", "A100D-1-10CME": code, slices of a MIG-backed type, GB of memory, series (Q, C, B, A: by licence), kind.
_TYPE: Final = re.compile(
    r"(?:nvidia[\s_-]+)?(?:grid[\s_-]+)?(?P<board>.+?)[\s_-](?:(?P<slices>[1-9])[\s_-])?(?P<memory>[0-9]{1,3})(?P<series>[qcba])"
    r"(?:me(?:all)?|nome|gfx)?(?:[\s_-]+shared)?",
    re.IGNORECASE,
)


class NamedSlice(NamedTuple):
    """A name that means a part of a GPU: the whole chip's name, and what the part is, as a clause about it."""

    whole: str
    what: str


def part(name: str) -> NamedSlice | None:
    """Return which part of which chip a name means, None for a name that says nothing of a part.

    >>> part("GRID A100D-1-10C")
    NamedSlice(whole='NVIDIA A100 80GB PCIe', what='a vGPU on a MIG instance, 1 of its slices')
    >>> part("NVIDIA H200 MIG 1g.18gb").whole, part("Tesla T4")
    ('NVIDIA H200', None)
    """
    plain, profile = mig.split(name)
    virtual = _virtual(plain)
    if virtual is not None:
        return virtual
    return None if profile is None else NamedSlice(plain, f"a MIG instance, {profile}")


def _virtual(name: str) -> NamedSlice | None:
    found = _TYPE.fullmatch(name.strip()) if len(name) <= LONGEST else None
    whole = _BY_CODE.get(fold(found["board"])) if found else None
    if found is None or whole is None or vendor(name) not in (None, "NVIDIA"):
        return None
    slices = found["slices"]
    return NamedSlice(whole, f"a vGPU on a MIG instance, {slices} of its slices" if slices else "a vGPU, whose time others may share")
