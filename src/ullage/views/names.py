"""Names of kernels and of code, as short as they still tell one from another."""

from __future__ import annotations

from ullage.errors import harmless


def kernel(name: str) -> str:
    """Return a kernel's name without its return type and arguments.

    >>> kernel("void gemm<(int)128, float>(float*, int)"), kernel("Memcpy HtoD (Pinned -> Device)")
    ('gemm<(int)128, float>', 'Memcpy HtoD (Pinned -> Device)')
    """
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    depth = 0
    for place, sign in enumerate(plain):
        if sign == "(" and depth == 0 and place and plain[place - 1] != " ":
            return plain[:place]
        depth += (sign == "<") - (sign == ">" and plain[place - 1 : place] != "-")
    return plain


def innermost(name: str, room: int) -> str:
    """Return a name cut to a room: of a path the end, for that is the innermost; of other names the start.

    >>> innermost("transformers/image_transforms.py(390): normalize", 30), innermost("Model/Layer/Linear", 16)
    ('…transforms.py(390): normalize', '…el/Layer/Linear')
    """
    if len(name) <= room or "/" not in name:
        return harmless(name, room)
    return "…" + name[1 - room :]


def lowered(label: str) -> str:
    """Return a label as it stands within a sentence.

    >>> lowered("Load balance"), lowered("MPI parallel efficiency")
    ('load balance', 'MPI parallel efficiency')
    """
    return label if label[:2].isupper() else label[:1].lower() + label[1:]
