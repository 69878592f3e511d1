"""What most families share: attention to itself and to others, the MLP, the head, as work per layer; each is said here alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.sample import LOGITS, PROMPT, TEXT, Quantity, pairs
from ullage.models.work import Work, attention, lookup, matmul

Parts = Sequence[tuple[Quantity, Sequence[int]]]  # pairs of attention, each with the layers to which they belong
TO_QUERIES = ("to_q", "to_k", "to_v", "to_out.0")  # as diffusers names the weights of attention


def embedding(module: str = "model.embed_tokens") -> Work:
    """Return the token embedding: no FLOPs."""
    return lookup("embedding", TEXT, module)


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
    of: Quantity | Parts | None = None,
    value_dim: int | None = None,
    output_gate: bool = False,
    name: str = "attention",
    stack: str = "model.layers",
    module: str = "self_attn",
    modules: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    stream: str = "stream",
    reads: tuple[str, ...] = (),
) -> Iterator[Work]:
    """Yield multi-head, grouped or multi-query attention: projections, two products over the pairs (causal by default), the way out.

    `dim` is a head's width, which need not be width / heads. An output gate doubles the query projection (Qwen3-Next). Four
    `modules` below `module` are queries, keys, values and output; two are the first three at once, and output; without the
    last one of either, the values stay to be projected. `reads` are streams that stand in one sequence, `stream` alone by default.
    """
    values = dim if value_dim is None else value_dim
    columns = (heads * dim * (2 if output_gate else 1), key_heads * dim, key_heads * values)
    fused = len(modules) < 3
    made = [f"{name}.qkv"] if fused else [f"{name}.{what}" for what in "qkv"]
    inputs = (made[0], made[0], made[0]) if fused else (made[0], made[1], made[2])
    for what, wide, path in zip(made, (sum(columns),) if fused else columns, modules, strict=False):
        yield matmul(what, rows, width, wide, layers, stack=stack, module=below(module, path), reads=reads or (stream,), to=None)
    for seen, members in [(of or pairs(), layers)] if of is None or isinstance(of, Quantity) else of:
        yield from attention(seen, heads, dim, members, value_dim=values, name=name, stack=stack, inputs=inputs)
    if len(modules) in (2, 4):
        out, read = below(module, modules[-1]), (f"{name}.values",)
        yield matmul(f"{name}.out", rows, heads * values, width, layers, stack=stack, module=out, reads=read, to=stream)


def cross_attention(
    width: int,
    heads: int,
    dim: int,
    layers: Sequence[int],
    *,
    rows: Quantity,
    source: Quantity = PROMPT,
    of: Quantity,
    source_width: int,
    source_stream: str = "prompt",
    key_heads: int | None = None,
    name: str = "cross_attention",
    stack: str,
    module: str = "attn2",
    modules: Sequence[str] = TO_QUERIES,
    stream: str = "stream",
    beside: Sequence[Work] = (),
) -> Iterator[Work]:
    """Yield cross-attention: queries and output of the stream, keys and values of a source of its own width.

    `beside` is attention of the same queries to another source; its result joins before the output.
    """
    inner, keys = heads * dim, (key_heads or heads) * dim
    q, k, v, out = (below(module, path) for path in modules)
    yield matmul(f"{name}.q", rows, width, inner, layers, stack=stack, module=q, reads=(stream,), to=None)
    for what, path in (("k", k), ("v", v)):
        yield matmul(f"{name}.{what}", source, source_width, keys, layers, stack=stack, module=path, reads=(source_stream,), to=None)
    yield from attention(of, heads, dim, layers, name=name, stack=stack)
    yield from beside
    made = (f"{name}.values", *(work.name for work in beside if work.name.endswith(".values")))
    yield matmul(f"{name}.out", rows, inner, width, layers, stack=stack, module=out, reads=made, to=stream)


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
    modules: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
    stream: str = "stream",
    reads: tuple[str, ...] = (),
    times: int = 1,
    gradient: bool = True,
) -> Iterator[Work]:
    """Yield a feed-forward block, `times` a row: up and down, and a gate where it has one (three products instead of two).

    The last two `modules` below `module` are up and down, the one before them the gate; a gated block of two has gate and up
    in one matrix. `reads` are streams that stand in one sequence, `stream` alone by default.
    """
    *before, down = modules if gated else modules[-2:]
    fused = gated and len(before) == 1
    made = [f"{name}.gate_up"] if fused else [f"{name}.gate", f"{name}.up"][-len(before) :]
    for what, path in zip(made, before, strict=True):
        place, wide, read = below(module, path), 2 * inner if fused else inner, reads or (stream,)
        yield matmul(what, rows, width, wide, layers, stack=stack, module=place, times=times, reads=read, to=None, gradient=gradient)
    place, read = below(module, down), tuple(made)
    out = f"{name}.down"
    yield matmul(out, rows, inner, width, layers, stack=stack, module=place, times=times, reads=read, to=stream, gradient=gradient)


def below(module: str, name: str) -> str:
    """Return the path of a module below another, or the name itself where there is none above it.

    >>> below("mlp", "up_proj"), below("", "lm_head")
    ('mlp.up_proj', 'lm_head')
    """
    return f"{module}.{name}" if module else name
