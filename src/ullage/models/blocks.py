"""What many families share: self-attention, the MLP, the head, as work per layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.sample import LOGITS, TEXT, Quantity, pairs
from ullage.models.work import Work, attention, lookup, matmul


def embedding(rows: Quantity = TEXT, module: str = "model.embed_tokens") -> Work:
    """Return the token embedding: no FLOPs."""
    return lookup("embedding", rows, module)


def head(width: int, vocabulary: int, rows: Quantity = LOGITS, module: str = "lm_head") -> Work:
    """Return the LM head, tied or not: the same product either way."""
    return matmul("head", rows, width, vocabulary, module=module)


def self_attention(
    width: int,
    heads: int,
    key_heads: int,
    dim: int,
    layers: Sequence[int],
    *,
    rows: Quantity = TEXT,
    of: Quantity | None = None,
    value_dim: int | None = None,
    output_gate: bool = False,
    name: str = "attention",
    stack: str = "model.layers",
    module: str = "self_attn",
    modules: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    stream: str = "stream",
) -> Iterator[Work]:
    """Yield multi-head, grouped or multi-query attention: four projections and two products over the pairs (causal by default).

    `dim` is a head's width, which need not be width / heads. An output gate doubles the query projection (Qwen3-Next).
    """
    values = dim if value_dim is None else value_dim
    paths = [f"{module}.{m}" for m in modules]
    queries = heads * dim * (2 if output_gate else 1)
    yield matmul(f"{name}.q", rows, width, queries, layers, stack=stack, module=paths[0], reads=(stream,), to=None)
    yield matmul(f"{name}.k", rows, width, key_heads * dim, layers, stack=stack, module=paths[1], reads=(stream,), to=None)
    yield matmul(f"{name}.v", rows, width, key_heads * values, layers, stack=stack, module=paths[2], reads=(stream,), to=None)
    yield from attention(of or pairs(), heads, dim, layers, value_dim=values, name=name, stack=stack)
    yield matmul(f"{name}.out", rows, heads * values, width, layers, stack=stack, module=paths[3], reads=(f"{name}.values",), to=stream)


def mlp(
    width: int,
    inner: int,
    layers: Sequence[int],
    *,
    gated: bool,
    rows: Quantity = TEXT,
    name: str = "mlp",
    stack: str = "model.layers",
    module: str = "mlp",
    modules: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    stream: str = "stream",
    times: int = 1,
) -> Iterator[Work]:
    """Yield a feed-forward block: up and down, and a gate where it has one (three products instead of two)."""
    gate, up, down = (f"{module}.{m}" for m in modules)
    if gated:
        yield matmul(f"{name}.gate", rows, width, inner, layers, stack=stack, module=gate, times=times, reads=(stream,), to=None)
    yield matmul(f"{name}.up", rows, width, inner, layers, stack=stack, module=up, times=times, reads=(stream,), to=None)
    made = (f"{name}.gate", f"{name}.up") if gated else (f"{name}.up",)
    yield matmul(f"{name}.down", rows, inner, width, layers, stack=stack, module=down, times=times, reads=made, to=stream)
