"""CUTLASS 3 as its template stands in a binary: `cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<…, CollectiveMma<…>, …>>`.

vLLM, SGLang and TransformerEngine instantiate it themselves, so that no procedural name (`cutlass3x_…`) goes with it.
"""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, Unit, grammar
from ullage.kernels.gemms.number_types import number_type
from ullage.kernels.gemms.shapes import SIZE

_KERNEL = re.compile(r"\bGemmUniversal<")
_COLLECTIVE = re.compile(r"\bCollectiveMma<")
_CONVOLUTION = re.compile(r"\bConvUniversal|\bconv::")
_POLICY = re.compile(r"\bMainloopSm(?P<architecture>[0-9]{2,3})(?P<words>\w*?)<(?:\(int\))?(?P<stages>[0-9]{1,3})\b")
_CONSTANT = re.compile(
    rf"cute::C<(?:\(int\))?(?P<plain>{SIZE})>|cute::constant<int, (?:\(int\))?(?P<long>{SIZE})>|cute::_(?P<short>{SIZE})\b"
)
_HOPPER = re.compile(
    rf"\bMMA_(?P<sparse>SPARSE_)?(?P<shape>{SIZE}x{SIZE}x{SIZE})_(?P<sum>F32|F16|S32)(?P<a>E4M3|E5M2|BF16|F16|TF32|S8|U8)(?P<b>E4M3|E5M2|BF16|F16|TF32|S8|U8)_"
    rf"|\bSM90_(?P<named>{SIZE}x{SIZE}x{SIZE})_(?P<named_sum>F32|F16|S32)(?P<named_a>E4M3|E5M2|BF16|F16|TF32|S8|U8)(?P<named_b>E4M3|E5M2|BF16|F16|TF32|S8|U8)_"
)
_WORDS = {"signed char": "s8", "unsigned char": "u8", "int8_t": "s8", "uint8_t": "u8", "tfloat32_t": "tf32"}
_TYPE = re.compile(
    r"\b(?:cutlass::)?(bfloat16_t|half_t|tfloat32_t|float_e4m3_t|float_e5m2_t|float_e2m1_t|float|double|u?int8_t|(?:un)?signed char)\b"
)
_UNITS: dict[str, Unit] = {"90": "wgmma", "100": "tcgen05", "101": "tcgen05", "103": "tcgen05", "110": "tcgen05"}


@grammar(
    "CUTLASS 3, templates",
    source="NVIDIA/cutlass, include/cutlass/gemm: collective/*_mma_*.hpp (CollectiveMma), dispatch_policy.hpp; cute/arch/mma_sm90_gmma.hpp",
)
def cutlass3_template(text: str) -> GemmName | None:
    """Read a kernel of CUTLASS 3 by its template, as far as it is not cut off; sizes that the launch decides are None.

    >>> found = cutlass3_template(
    ...     "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
    ...     "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4, cute::tuple<cute::C<2>, "
    ...     "cute::C<1>, cute::C<1> >, cutlass::gemm::KernelTmaWarpSpecializedPingpong>, cute::tuple<cute::C<128>, cute::C<256>, "
    ...     "cute::C<64> >, cutlass::bfloat16_t, …")
    >>> found.unit, found.tile, found.k_tile, found.stages, found.cluster, found.a
    ('wgmma', (128, 256), 64, 4, (2, 1), 'bf16')
    """
    if _KERNEL.search(text) is None or _CONVOLUTION.search(text):
        return None
    collective = _COLLECTIVE.search(text)
    arguments = _arguments(text, collective.end()) if collective else []
    policy = _POLICY.search(arguments[0]) if arguments else None
    if policy is None:
        return None
    architecture, shape = policy["architecture"], _constants(arguments[1]) if len(arguments) > 1 else None
    instruction = arguments[6] if len(arguments) > 6 else ""
    two_sm = "2x1SM" in instruction or "2SM" in instruction
    a, b = (_type(arguments[place]) if len(arguments) > place else None for place in (2, 4))
    atom = _HOPPER.search(instruction)
    told = {name: atom[name] or atom[f"named_{name}"] for name in ("sum", "a", "b")} if atom else {}
    tensor = _UNITS.get(architecture) is not None or bool(atom)
    return GemmName(
        name="GemmUniversal",
        library="cutlass3",
        unit=_UNITS.get(architecture, "mma"),
        architecture=f"sm{architecture}",
        instruction=_shape(atom),
        a=number_type(told.get("a")) or ("tf32" if tensor and a == "fp32" else a),
        b=number_type(told.get("b")) or ("tf32" if tensor and b == "fp32" else b),
        accumulator=number_type(told.get("sum")),
        tile=(shape[0] // 2 if two_sm and shape[0] % 2 == 0 else shape[0], shape[1]) if shape else None,
        k_tile=shape[2] if shape else None,
        stages=int(policy["stages"]),
        cluster=_cluster(arguments[0]),
        two_cta=two_sm,
        split="StreamK" in text or "SplitK" in text,
        features=tuple(word for word in ("StreamK", "Pingpong", "Cooperative", "Sparse", "BlockScaled", "MixedInput") if word in text),
        doubts=_doubts(architecture, shape, instruction),
    )


def _arguments(text: str, start: int) -> list[str]:
    """Return the template's arguments from a place behind its bracket on, as far as they are there; the last may be cut off.

    >>> _arguments("F<a<b, c>, d(e, f)>, g", 2)
    ['a<b, c>', 'd(e, f)']
    """
    found, depth, begin = [], 0, start
    for place in range(start, len(text)):
        sign = text[place]
        if sign in "<([{":
            depth += 1
        elif sign in ">)]}":
            depth -= 1
        if (sign == "," and depth == 0) or depth < 0:
            found.append(text[begin:place].strip())
            begin = place + 1
        if depth < 0:
            return found
    return found  # what is cut off is not known to be whole


def _constants(argument: str) -> tuple[int, int, int] | None:
    """Return the three sizes of a shape; None where one is known to the launch alone."""
    sizes = [int(found["plain"] or found["long"] or found["short"]) for found in _CONSTANT.finditer(argument)]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 and argument.startswith("cute::tuple<") else None


def _cluster(policy: str) -> tuple[int, int] | None:
    at = policy.find("cute::tuple<")
    shape = _constants(next(iter(_arguments(f"{policy[at:]},", 0)), "")) if at >= 0 else None
    return shape[:2] if shape else None


def _type(argument: str) -> str | None:
    """Return the type of a matrix's elements; with scales beside them it is the first of a tuple."""
    found = _TYPE.search(argument)
    return number_type(_WORDS.get(found[1], found[1])) if found else None


def _shape(atom: re.Match[str] | None) -> tuple[int, int, int] | None:
    if atom is None:
        return None
    m, n, k = (int(size) for size in (atom["shape"] or atom["named"]).split("x"))
    return m, n, k


def _doubts(architecture: str, shape: tuple[int, int, int] | None, instruction: str) -> tuple[str, ...]:
    silent = _UNITS.get(architecture) == "tcgen05" and shape is not None and shape[0] > 128 and not instruction
    return ("the name is cut off before it says whether two blocks share an instruction",) if silent else ()
