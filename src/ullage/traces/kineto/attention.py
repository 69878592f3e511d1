"""Which attention an operator of a PyTorch profile computed: the shapes of its queries, keys and values, and whether it was causal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ullage.product import LARGEST, Attention


@dataclass(frozen=True)
class _Signature:
    """Where an operator's queries stand among its inputs (keys and values follow), and its mask: a word, or a number of its kind.

    `heads_first`: tensors are batch × heads × length × dim, else batch × length × heads × dim. `window` is where the first of two sizes
    of a sliding window stands.
    """

    queries: int
    mask: int
    backward: bool = False
    heads_first: bool = False
    window: int | None = None


# The signatures are those of PyTorch 2.5 and later (native_functions.yaml) and of flash-attn 2.7
_SIGNATURES = {
    "aten::_flash_attention_forward": _Signature(0, 8),
    "aten::_flash_attention_backward": _Signature(1, 11, backward=True),
    "aten::_efficient_attention_forward": _Signature(0, 9),
    "aten::_efficient_attention_backward": _Signature(1, 14, backward=True),
    "aten::_scaled_dot_product_cudnn_attention": _Signature(0, 6, heads_first=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Signature(1, 14, backward=True, heads_first=True),
    "flash_attn::_flash_attn_forward": _Signature(0, 5, window=6),
    "flash_attn::_flash_attn_backward": _Signature(1, 11, backward=True, window=12),
}
OPERATORS = frozenset(_SIGNATURES)
_CAUSAL = {"True": True, "False": False, "0": False, "1": True, "2": True}
_NO_WINDOW = ("-1", "")


def attention_by(operator: str, dims: Any, concrete: Any, precision: str) -> Attention | None:
    """Return the attention of an operator's inputs; None where shapes or mask are not recorded, and for sequences of unequal length.

    `concrete` are its inputs that are no tensors, as text ("" for tensors). A causal one of fewer queries than keys, or the other way
    round, is None too: operators differ in which keys a query then attends to.

    >>> shape, said = [2, 559, 16, 64], [""] * 8 + ["True"]
    >>> attention_by("aten::_flash_attention_forward", [shape] * 3, said, "bf16").word
    'attention 2x16x16x559x559x64x64 causal bf16'
    >>> attention_by("aten::_flash_attention_forward", [[1118, 16, 64]] * 3, said, "bf16") is None
    True
    """
    known = _SIGNATURES[operator]
    if not isinstance(dims, list) or not isinstance(concrete, list) or len(dims) < known.queries + 3 or len(concrete) <= known.mask:
        return None
    shapes = dims[known.queries : known.queries + 3]
    causal = _CAUSAL.get(str(concrete[known.mask]))
    if causal is None or not all(_is_shape(one) for one in shapes) or _windowed(known, concrete):
        return None
    (batch, heads, queries, dim), (*_, keys, key_dim), (batches, kv_heads, values, value_dim) = (
        (b, x, y, d) if known.heads_first else (b, y, x, d) for b, x, y, d in shapes
    )
    if batches != batch or key_dim != dim or values != keys or (causal and keys != queries):
        return None
    return Attention(batch, heads, kv_heads, queries, keys, dim, value_dim, causal, known.backward, precision)


def _is_shape(dims: Any) -> bool:
    return isinstance(dims, list) and len(dims) == 4 and all(isinstance(size, int) and 0 < size < LARGEST for size in dims)


def _windowed(known: _Signature, concrete: list[Any]) -> bool:
    if known.window is None:
        return False
    return any(str(size) not in _NO_WINDOW for size in concrete[known.window : known.window + 2])
