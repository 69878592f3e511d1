"""Whether a kernel falls short of what its GPU has (an `sm80_xmma` on an H200), and whether it can run there at all."""

from __future__ import annotations

import re

from ullage.errors import UllageError, harmless
from ullage.kernels.gemms.gemm import GemmName

_CAPABILITY = re.compile(r"(?:(?:sm|compute)_?(?P<run>[0-9]{2,3})|(?P<major>[0-9]{1,2})\.(?P<minor>[0-9]))[af]?", re.IGNORECASE)

# Which types each generation's own instruction multiplies (PTX ISA: wgmma.mma_async; tcgen05.mma, kinds f16, tf32, f8f6f4, i8, mxf4).
# What is missing there has nothing better than mma: FP64, and INT8 on 10.3.
_WGMMA = {"fp16", "bf16", "tf32", "fp8", "e4m3", "e5m2", "int8", "uint8", "binary"}
_TCGEN05 = {"fp16", "bf16", "tf32", "fp8", "e4m3", "e5m2", "fp6", "fp4"}
_INT8 = {"int8", "uint8"}
# From which compute capability on tensor cores take a type; FP32 they never do.
_SINCE = {
    "fp16": 70, "int8": 72, "uint8": 72, "int4": 75, "bf16": 80, "tf32": 80, "fp8": 89, "e4m3": 89, "e5m2": 89, "fp6": 100, "fp4": 100,
}  # fmt: skip
# The compute capability that a name's word means
_GENERATIONS = {"maxwell": 50, "pascal": 60, "volta": 70, "turing": 75, "ampere": 80, "ada": 89, "hopper": 90}
_ONLY = {"wgmma": range(90, 100), "tcgen05": range(100, 120)}  # instructions of one generation alone
_FP64 = (80, 90, 100)  # the data-centre chips whose tensor cores take FP64


def legacy_on(gemm: GemmName, architecture: str) -> str | None:
    """Return why a kernel cannot reach the peak of a GPU for its types, one sentence; None where it can, or where it cannot be told.

    `architecture` is a compute capability, "sm_90", "sm_100a", "9.0"; AMD's ("gfx942") are never legacy. Hopper's peak takes
    wgmma, that of data-centre Blackwell tcgen05; on Ampere, Ada and GeForce Blackwell mma is the GPU's own. Raises UllageError for
    another text. Source: PTX ISA; for Hopper, Luo et al., Dissecting the NVIDIA Hopper Architecture, section on tensor cores.

    >>> from ullage.kernels.gemms.gemm import decode
    >>> old = decode("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align8")
    >>> print(legacy_on(old, "sm_90"))
    mma instead of wgmma: on Hopper mma reached 62.9 % of peak on average (H800, all types)
    >>> legacy_on(old, "sm_80") is None, legacy_on(old, "12.0") is None
    (True, True)
    """
    if architecture.strip().lower().startswith("gfx"):
        return None
    capability = _capability(architecture)
    if gemm.unit == "simt":
        return _without_tensor_cores(gemm.a, capability)
    if gemm.unit not in ("mma", "wmma"):
        return None
    if 90 <= capability < 100 and gemm.a in _WGMMA:
        return f"{gemm.unit} instead of wgmma: on Hopper mma reached 62.9 % of peak on average (H800, all types)"
    if 100 <= capability < 120 and gemm.a in _TCGEN05 | (_INT8 if capability != 103 else set()):
        return f"{gemm.unit} instead of tcgen05, through which alone data-centre Blackwell reaches its peak"
    return None


def impossible_on(gemm: GemmName, architecture: str) -> str | None:
    """Return why a GPU cannot run a kernel, a clause with the kernel as its subject; None where it can, or where the name does not tell.

    `architecture` is as for `legacy_on`. NVIDIA's kernels run on later GPUs too, those with wgmma or tcgen05 on one generation
    alone (PTX ISA, target notes of both); AMD's on the architecture that they are named after. Raises UllageError for another text.

    >>> from ullage.kernels.gemms.gemm import decode
    >>> impossible_on(decode("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"), "10.0")
    'uses wgmma, which sm_100 has not'
    >>> impossible_on(decode("Cijk_Alik_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_GSU1_ISA942"), "9.0")
    'is for gfx942, not for sm_90'
    """
    named, runs = gemm.architecture or "", architecture.strip().lower()
    if runs.startswith("gfx"):
        theirs = gemm.library in ("tensile", "triton") and named in ("", runs)
        return None if theirs else f"is for {named or 'NVIDIA GPUs'}, not for {runs}"
    capability = _capability(runs)
    if gemm.library == "tensile":
        return f"is for {named or 'AMD GPUs'}, not for sm_{capability}"
    if capability not in _ONLY.get(gemm.unit or "", range(1000)):
        return f"uses {gemm.unit}, which sm_{capability} has not"
    least = _GENERATIONS.get(named) or int(named.removeprefix("sm") or 0)
    return f"is for {named}, which is newer than sm_{capability}" if least > capability else None


def _without_tensor_cores(a: str | None, capability: int) -> str | None:
    if capability not in _FP64 if a == "fp64" else capability < _SINCE.get(a or "", 1000):
        return None
    return f"CUDA cores alone, though the tensor cores of this GPU multiply {a}"


def _capability(architecture: str) -> int:
    """Return ten times the compute capability.

    >>> _capability("sm_100a"), _capability("9.0"), _capability("compute_89")
    (100, 90, 89)
    """
    found = _CAPABILITY.fullmatch(architecture.strip())
    if found is None:
        word = harmless(architecture, 40)
        raise UllageError(f"'{word}' is no architecture of a GPU", "say its compute capability: 9.0, sm_90, sm_100a; or gfx942")
    return int(found["run"]) if found["run"] else int(found["major"]) * 10 + int(found["minor"])
