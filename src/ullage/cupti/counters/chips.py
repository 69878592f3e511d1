"""Which of NVIDIA's chips a GPU has, as CUPTI calls it: "NVIDIA H200" is a GH100.

Source: the PCI ID repository (pci.ids), whose entries name chip and board: "GH100 [H200 SXM 141GB]", "GB110 [B300 SXM6 AC]". On a GPU
cuptiDeviceGetChipName says it, and goes before this: some boards are sold with one of two chips, and stand here with the usual one.
"""

from __future__ import annotations

_BY_CAPABILITY = {
    "7.0": "GV100", "7.5": "TU102", "8.0": "GA100", "8.6": "GA102", "8.7": "GA10B", "8.9": "AD102", "9.0": "GH100",
    "10.0": "GB100", "10.3": "GB110", "11.0": "GB10B", "12.0": "GB202", "12.1": "GB20B",
}  # fmt: skip
_OTHERS = {  # the boards that have another chip than most of their compute capability
    "TU104": ("Tesla T4",),
    "GA104": ("NVIDIA RTX A4000", "NVIDIA GeForce RTX 3070 Ti", "NVIDIA GeForce RTX 3070", "NVIDIA GeForce RTX 3060 Ti"),
    "GA106": ("NVIDIA RTX A2000", "NVIDIA RTX A2000 12GB", "NVIDIA GeForce RTX 3060"),
    "GA107": ("NVIDIA A2", "NVIDIA A16"),
    "AD103": ("NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 4080", "NVIDIA GeForce RTX 4070 Ti SUPER"),
    "AD104": (
        "NVIDIA L4", "NVIDIA L2", "NVIDIA RTX 4500 Ada Generation", "NVIDIA RTX 4000 Ada Generation", "NVIDIA RTX 4000 SFF Ada Generation",
        "NVIDIA GeForce RTX 4070 Ti", "NVIDIA GeForce RTX 4070 SUPER", "NVIDIA GeForce RTX 4070",
    ),
    "AD106": ("NVIDIA GeForce RTX 4060 Ti",),
    "AD107": ("NVIDIA GeForce RTX 4060", "NVIDIA RTX 2000 Ada Generation"),
    "GB102": ("NVIDIA B100",),
    "GB203": ("NVIDIA GeForce RTX 5080", "NVIDIA GeForce RTX 5070 Ti"),
    "GB205": ("NVIDIA GeForce RTX 5070",),
    "GB206": ("NVIDIA GeForce RTX 5060 Ti", "NVIDIA GeForce RTX 5060"),
}  # fmt: skip
_BY_NAME = {name: chip for chip, boards in _OTHERS.items() for name in boards}


def code(name: str, compute_capability: str) -> str:
    """Return CUPTI's name of the chip of a GPU that `ullage gpus` knows; "" where it is not known, as for other makers.

    >>> code("NVIDIA H200", "9.0"), code("NVIDIA L4", "8.9"), code("AMD Instinct MI300X", "gfx942")
    ('GH100', 'AD104', '')
    """
    return _BY_NAME.get(name) or _BY_CAPABILITY.get(compute_capability, "")
