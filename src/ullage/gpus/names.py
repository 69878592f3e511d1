"""Names of GPUs as drivers, exporters, Kubernetes and people write them, folded to one form.

Two names mean the same chip when they fold to the same words, and never otherwise: no part of a name is searched for
in another, so that "L40S" is not "L40" and "H200 NVL" is not "H200".
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

Folded = tuple[str, ...]

LONGEST: Final = 200  # no driver writes a longer name; what is longer is not looked at

_BRANDS: Final = {"nvidia": "NVIDIA", "tesla": "NVIDIA", "amd": "AMD", "instinct": "AMD"}
_MARKS: Final = re.compile(r"[®™]|\((?:r|tm)\)", re.IGNORECASE)
# The GPU feature discovery of Kubernetes appends this to the product label of a time-sliced GPU.
_SHARED: Final = re.compile(r"[\s_-]+shared$", re.IGNORECASE)
# A run of letters and a run of digits are words of their own: "80 GB" is "80GB", but "A10 0" is not "A100".
# Anything else than a space, a hyphen or an underscore is a word too, and so keeps a name from matching.
_WORD: Final = re.compile(r"[a-z]+|[0-9]+|[^a-z0-9\s_-]")


def fold(name: str) -> Folded:
    """Return the words by which a name is compared: case, separators and the makers' brand words are gone.

    >>> fold("NVIDIA-H100-80GB-HBM3") == fold("nvidia h100 80 GB hbm3")
    True
    >>> fold("Tesla T4"), fold("L40S"), fold("AMD Instinct MI300X")
    (('t', '4'), ('l', '40', 's'), ('mi', '300', 'x'))
    >>> fold("A10 0") == fold("A100")
    False
    """
    if len(name) > LONGEST:
        return ()
    plain = _SHARED.sub("", _MARKS.sub("", name).strip())
    if not plain.isascii():  # no maker's name holds other letters, and look-alikes must not match
        return (plain,)
    return tuple(word for word in _WORD.findall(plain.lower()) if word not in _BRANDS)


def vendor(name: str) -> str | None:
    """Return the maker that a name mentions, or None when it mentions none; a name of two makers is "both".

    >>> vendor("Tesla T4"), vendor("AMD Instinct MI210"), vendor("H100 SXM")
    ('NVIDIA', 'AMD', None)
    """
    makers = {_BRANDS[word] for word in _WORD.findall(name[:LONGEST].lower()) if word in _BRANDS}
    return None if not makers else makers.pop() if len(makers) == 1 else "both"


def pseudonym(uuid: str) -> str:
    """Return the published form of a UUID: the same for the same GPU, and the UUID can't be had from it.

    >>> pseudonym("GPU-1") == pseudonym("GPU-1") != pseudonym("GPU-2")
    True
    """
    return "GPU-" + hashlib.sha256(uuid.encode()).hexdigest()[:16]
