"""What the user may say against the tables: a peak, or which chip a relabelled board really is.

`ULLAGE_PEAK_TFLOPS="989.4"` or `"bf16=989.4,fp8=1978.9"`: dense peaks in TFLOP/s; a plain number is the peak of BF16 and
FP16. It holds for every GPU of the run and changes what OFU is multiplied with, not OFU itself.
`ULLAGE_GPU_ALIAS="L20X=H200 SXM"`: a driver's name and the chip that it stands for; several are separated by commas.
"""

from __future__ import annotations

import math
from typing import Final

from ullage.errors import UllageError, harmless
from ullage.gpus.names import Folded, fold
from ullage.gpus.precision import canonical

PEAK: Final = "ULLAGE_PEAK_TFLOPS"
ALIAS: Final = "ULLAGE_GPU_ALIAS"

_HIGHEST: Final = 1e6  # TFLOP/s; above any chip: somebody wrote FLOP/s
_PEAK_HINT: Final = f"write {PEAK}='989.4' (BF16 and FP16) or {PEAK}='bf16=989.4,fp8=1978.9', in dense TFLOP/s"
_ALIAS_HINT: Final = f"write {ALIAS}='L20X=H200 SXM': the driver's name, '=', a name that `ullage gpus` lists"


def peaks(given: str | float) -> dict[str, float]:
    """Return the peaks that the user gave, in FLOP/s by precision; nothing given is an empty dictionary.

    Raises UllageError when the text is not of the two forms, names a precision twice, or a number is not a peak.

    >>> peaks("989.4"), peaks("fp8=1978.9")
    ({'bf16': 989400000000000.0, 'fp16': 989400000000000.0}, {'fp8': 1978900000000000.0})
    """
    found: dict[str, float] = {}
    for part in (p.strip() for p in str(given).split(",")):
        if not part and len(str(given).strip()) == 0:
            continue
        word, equals, number = part.rpartition("=")
        for precision in [canonical(word)] if equals else ["bf16", "fp16"]:
            if precision in found:
                raise UllageError(f"the peak override '{harmless(str(given), 80)}' gives {precision} twice", _PEAK_HINT)
            found[precision] = _tera(number, given)
    return found


def _tera(number: str, given: str | float) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value <= _HIGHEST:
        raise UllageError(
            f"the peak override '{harmless(str(given), 80)}' holds '{harmless(number, 40)}', which is no peak in TFLOP/s", _PEAK_HINT
        )
    return value * 1e12


def renames(given: str) -> dict[Folded, str]:
    """Return the chips' names by the folded name of the board; raises UllageError when the text is malformed.

    >>> renames("L20X=H200 SXM, Mystery GPU=A30")
    {('l', '20', 'x'): 'H200 SXM', ('mystery', 'gpu'): 'A30'}
    """
    found: dict[Folded, str] = {}
    for part in given.split(",") if given.strip() else []:
        board, _, chip = (piece.strip() for piece in part.partition("="))
        words = fold(board)
        if not words or not chip or "=" in chip:
            raise UllageError(f"the GPU alias '{harmless(part.strip(), 80)}' is not of the form NAME=CHIP", _ALIAS_HINT)
        if words in found:
            raise UllageError(f"the GPU aliases name '{harmless(board, 80)}' twice", _ALIAS_HINT)
        found[words] = chip
    return found
