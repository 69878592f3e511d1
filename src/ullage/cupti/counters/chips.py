"""Which of NVIDIA's chips a GPU has, as CUPTI calls it: "NVIDIA H200" is a GH100.

Source: the PCI ID repository (pci.ids), whose entries name chip and board: "GH100 [H200 SXM 141GB]", "GB110 [B300 SXM6 AC]". On a GPU
cuptiDeviceGetChipName says it, and goes before this.
"""

from __future__ import annotations

_BY_CAPABILITY = {
    "7.0": "GV100", "7.5": "TU104", "8.0": "GA100", "8.6": "GA102", "8.9": "AD102", "9.0": "GH100", "10.0": "GB100", "10.3": "GB110",
    "12.0": "GB202",
}  # fmt: skip
_BY_NAME = {"NVIDIA L4": "AD104", "NVIDIA B100": "GB102"}


def code(name: str, compute_capability: str) -> str:
    """Return CUPTI's name of the chip of a GPU that `ullage gpus` knows; "" where it is not known, as for other makers.

    >>> code("NVIDIA H200", "9.0"), code("NVIDIA L4", "8.9"), code("AMD Instinct MI300X", "gfx942")
    ('GH100', 'AD104', '')
    """
    return _BY_NAME.get(name) or _BY_CAPABILITY.get(compute_capability, "")
