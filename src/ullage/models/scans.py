"""What recurrent layers share: short causal convolutions, and scans (Mamba 1, Mamba 2, delta rules, lightning attention).

Scans are counted as their usual chunked algorithm does them (transformers' own path in torch); `Work.least` holds the FLOPs of
the recurrence itself, so that the ledger can say how much of the total depends on the algorithm. A step of one new token upon a
cached state is counted as the recurrence. Element-wise work (decays, gates, masks, cumulative sums) counts 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.sample import TEXT, Quantity, Sample, quantity
from ullage.models.work import Work, contraction, convolution, matmul


def stepping(sample: Sample) -> bool:
    """Return whether a sample is one token upon a cached state, where scans are a step of their recurrence.

    >>> stepping(Sample(text=1, context=99)), stepping(Sample(text=1)), stepping(Sample(text=8, context=99))
    (True, False, False)
    """
    return sample.text == 1 and sample.context > 0


def scanned(sample: Sample) -> int:
    """Return how many tokens of a sample are scanned by chunks: all, or none of a single step."""
    return 0 if stepping(sample) else sample.text


def chunks(tokens: int, size: int) -> int:
    """Return how many chunks hold the tokens.

    >>> chunks(256, 128), chunks(257, 128), chunks(0, 128)
    (2, 3, 0)
    """
    return -(-tokens // size)


STEPS = quantity("tokens of single steps", lambda s: s.text if stepping(s) else 0)
SCANNED = quantity("tokens of chunked scans", scanned)


def taps_positions(taps: int) -> Quantity:
    """Return the output positions of a causal convolution: it is padded on both sides, so taps - 1 more than the tokens.

    A single step needs one position.

    >>> taps_positions(4).of(Sample(text=100), "full"), taps_positions(4).of(Sample(text=1, context=9), "full")
    (103, 1)
    """
    return quantity(
        f"positions of a causal convolution of {taps} taps",
        lambda s: s.text + (taps - 1 if scanned(s) else 0),
    )


def chunk_pairs(size: int) -> Quantity:
    """Return the pairs of positions within chunks, all with all, the last chunk padded: chunks × size².

    >>> chunk_pairs(8).of(Sample(text=9), "full")
    128
    """
    return quantity(f"pairs within chunks of {size}, padded", lambda s: chunks(scanned(s), size) * size**2)


def block_pairs(size: int) -> Quantity:
    """Return the pairs of positions within blocks, the last block as short as it is.

    >>> block_pairs(8).of(Sample(text=9), "full")
    65
    """

    def of(sample: Sample) -> int:
        full, rest = divmod(scanned(sample), size)
        return full * size**2 + rest**2

    return quantity(f"pairs within blocks of {size}", of)


def chunk_padding(size: int) -> Quantity:
    """Return the positions by which a sequence is padded to whole chunks.

    >>> chunk_padding(8).of(Sample(text=9), "full")
    7
    """
    return quantity(f"padding to chunks of {size}", lambda s: -scanned(s) % size)


def state_pairs(size: int) -> Quantity:
    """Return the pairs of states at the borders of chunks, the one before the first chunk included: (chunks + 1)².

    >>> state_pairs(8).of(Sample(text=9), "full")
    9
    """
    return quantity(f"pairs of states of chunks of {size}", lambda s: (chunks(scanned(s), size) + 1) ** 2 if scanned(s) else 0)


def short_convolution(
    name: str, taps: int, channels: int, layers: Sequence[int], *, stack: str, module: str, reads: tuple[str, ...]
) -> Work:
    """Return a depthwise causal convolution: 2 × taps FLOPs a channel and position, over tokens + taps - 1 positions."""
    positions = taps_positions(taps)
    return convolution(name, positions, taps, channels, channels, layers, groups=channels, stack=stack, module=module, reads=reads, to=None)


def selective_scan(
    width: int,
    inner: int,
    state: int,
    rank: int,
    taps: int,
    layers: Sequence[int],
    *,
    stack: str = "model.layers",
    module: str = "mixer",
) -> Iterator[Work]:
    """Yield a Mamba 1 mixer: in, convolution, x (time step, B, C), dt, scan, out.

    A token and layer cost 2[2hD + D(r+2N) + rD + DN + Dh] FLOPs and the convolution. Of the scan, only its output C·h counts
    (2DN): the update of its diagonal state, as many multiply-adds again, is element-wise.
    """
    yield matmul("mamba.in", TEXT, width, 2 * inner, layers, stack=stack, module=f"{module}.in_proj", to=None)
    yield short_convolution("mamba.conv", taps, inner, layers, stack=stack, module=f"{module}.conv1d", reads=("mamba.in",))
    yield matmul("mamba.x", TEXT, inner, rank + 2 * state, layers, stack=stack, module=f"{module}.x_proj", reads=("mamba.conv",), to=None)
    yield matmul("mamba.dt", TEXT, rank, inner, layers, stack=stack, module=f"{module}.dt_proj", reads=("mamba.x",), to=None)
    yield contraction("mamba.scan", TEXT, 2 * inner * state, layers, stack=stack, reads=("mamba.dt", "mamba.x"))
    yield matmul("mamba.out", TEXT, inner, width, layers, stack=stack, module=f"{module}.out_proj", reads=("mamba.scan",))


def state_space(
    width: int,
    heads: int,
    dim: int,
    state: int,
    groups: int,
    taps: int,
    chunk: int,
    layers: Sequence[int],
    *,
    stack: str = "model.layers",
    module: str = "mixer",
) -> Iterator[Work]:
    """Yield a Mamba 2 mixer (state-space duality): in, convolution, the chunked scan, out; D = heads × dim.

    A token and layer cost 2[h(2D + 2GN + heads) + Dh] FLOPs, the convolution over D + 2GN channels, and the scan.
    """
    inner, both = heads * dim, 2 * groups * state
    yield matmul(
        "mamba.in", TEXT, width, 2 * inner + both + heads, layers,
        stack=stack, module=f"{module}.in_proj", to=None,
    )  # fmt: skip
    yield short_convolution("mamba.conv", taps, inner + both, layers, stack=stack, module=f"{module}.conv1d", reads=("mamba.in",))
    yield from duality_scan(heads, dim, state, chunk, layers, stack=stack)
    yield matmul("mamba.out", TEXT, inner, width, layers, stack=stack, module=f"{module}.out_proj", reads=("mamba.ssd.output",))


def duality_scan(heads: int, dim: int, state: int, chunk: int, layers: Sequence[int], *, stack: str = "model.layers") -> Iterator[Work]:
    """Yield the scan of Mamba 2 by chunks of Q: for each chunk 2Q²(N + P) FLOPs a head within it, 4QNP for the states, and
    2NP for each pair of the states at the chunks' borders.

    The recurrence needs 4NP a token and head (a rank-1 update and a product of state and C): the uncertainty.
    """
    conv, carry = "mamba.conv", "mamba.ssd.carry"
    rank_one = 2 * heads * dim * state
    yield contraction("mamba.ssd.scores", chunk_pairs(chunk), 2 * heads * state, layers, stack=stack, reads=(conv, conv), least=0)
    within = ("mamba.ssd.scores", conv)
    yield contraction("mamba.ssd.values", chunk_pairs(chunk), 2 * heads * dim, layers, stack=stack, reads=within, least=0)
    yield contraction("mamba.ssd.states", SCANNED, rank_one, layers, stack=stack, reads=(conv, conv))
    yield contraction(carry, state_pairs(chunk), rank_one, layers, stack=stack, reads=("mamba.in", "mamba.ssd.states"), least=0)
    yield contraction("mamba.ssd.padding", chunk_padding(chunk), 2 * rank_one, layers, stack=stack, reads=(conv, carry), least=0)
    yield contraction("mamba.ssd.step", STEPS, 2 * rank_one, layers, stack=stack, reads=(conv, conv))
    yield contraction("mamba.ssd.output", SCANNED, rank_one, layers, stack=stack, reads=(conv, carry))


def opening(size: int) -> Quantity:
    """Return the tokens of first chunks: they meet an empty state.

    >>> opening(8).of(Sample(text=20), "full"), opening(8).of(Sample(text=5), "full")
    (8, 5)
    """
    return quantity(f"tokens of first chunks of {size}", lambda s: min(scanned(s), size))


def following(size: int) -> Quantity:
    """Return the tokens after first chunks."""
    return quantity(f"tokens after first chunks of {size}", lambda s: max(scanned(s) - size, 0))


def closing(size: int) -> Quantity:
    """Return the tokens of last chunks: no loss sees the state after them.

    >>> closing(8).of(Sample(text=20), "full"), closing(8).of(Sample(text=16), "full")
    (4, 8)
    """
    return quantity(f"tokens of last chunks of {size}", lambda s: scanned(s) - _before_last(s, size))


def preceding(size: int) -> Quantity:
    """Return the tokens before last chunks."""
    return quantity(f"tokens before last chunks of {size}", lambda s: _before_last(s, size))


def _before_last(sample: Sample, size: int) -> int:
    return max(chunks(scanned(sample), size) - 1, 0) * size


def lone_padding(size: int) -> Quantity:
    """Return the padding of sequences that are shorter than one chunk."""
    return quantity(f"padding of only chunks of {size}", lambda s: size - scanned(s) if 0 < scanned(s) < size else 0)


def late_padding(size: int) -> Quantity:
    """Return the padding of sequences that are longer than one chunk."""
    return quantity(f"padding of last chunks of {size}", lambda s: -scanned(s) % size if scanned(s) > size else 0)


def state_reads(name: str, flops: int, size: int, layers: Sequence[int], *, source: str, state: str, stack: str) -> Iterator[Work]:
    """Yield products with the state at the start of a chunk: before the first one it is constant and needs no gradient."""
    yield contraction(name, opening(size), flops, layers, stack=stack, reads=(source,))
    yield contraction(name, following(size), flops, layers, stack=stack, reads=(source, state))


def state_updates(name: str, flops: int, size: int, layers: Sequence[int], *, reads: tuple[str, str], stack: str) -> Iterator[Work]:
    """Yield products that add a chunk to the state: no loss sees that after the last one."""
    yield contraction(name, closing(size), flops, layers, stack=stack, reads=reads, gradient=False)
    yield contraction(name, preceding(size), flops, layers, stack=stack, reads=reads)


def delta_rule(
    heads: int,
    key_dim: int,
    value_dim: int,
    chunk: int,
    layers: Sequence[int],
    *,
    stack: str,
    by_channel: bool = False,
) -> Iterator[Work]:
    """Yield the gated delta rule by chunks of Q: for each chunk and head 2Q²(2K + V) FLOPs within it and 6QKV with the state.

    The two triangular solves of a chunk, Q²(K + V) FLOPs, are left out, as the counter of torch leaves them out; their backward
    has a product for the gradient of the system each, which the third inputs of `system` and `values` stand for.

    `by_channel` is the rule with a decay for each channel (Kimi Delta Attention): there the torch path multiplies queries with
    keys and keys with keys element by element and sums, 4Q²K FLOPs that no counter sees and that are left out; what remains
    within a chunk is 2Q²(K + 2V). The recurrence, at most 6KV a token and head, is covered by what is counted.
    """
    name, pairs, source = "linear_attention.delta", chunk_pairs(chunk), "linear_attention.conv"
    twice = (source, source)
    keys, values = 2 * heads * key_dim, 2 * heads * value_dim
    if by_channel:
        yield contraction(f"{name}.solve", pairs, keys + values, layers, stack=stack, reads=twice, least=0)
        yield contraction(f"{name}.values", pairs, values, layers, stack=stack, reads=(source, f"{name}.solve"), least=0)
    else:
        yield contraction(f"{name}.system", pairs, keys, layers, stack=stack, reads=(*twice, source), least=0)
        yield contraction(f"{name}.scores", pairs, keys, layers, stack=stack, reads=twice, least=0)
        inputs = (f"{name}.scores", source, f"{name}.system")
        yield contraction(f"{name}.values", pairs, values, layers, stack=stack, reads=inputs, least=0)
    one = keys * value_dim
    yield contraction(f"{name}.step", STEPS, 3 * one, layers, stack=stack, reads=twice)
    yield from state_updates(f"{name}.update", one, chunk, layers, reads=(source, f"{name}.values"), stack=stack)
    yield from state_reads(f"{name}.output", 2 * one, chunk, layers, source=source, state=source, stack=stack)
    padding = f"{name}.padding"
    yield contraction(padding, lone_padding(chunk), 2 * one, layers, stack=stack, reads=(source,), least=0)
    yield contraction(padding, late_padding(chunk), 2 * one, layers, stack=stack, reads=twice, least=0)
    yield contraction(padding, chunk_padding(chunk), one, layers, stack=stack, reads=twice, gradient=False, least=0)


def expanded(config: Config, width: int) -> int:
    """Return the width of a state space's channels, `mamba_expand` times that of the model; less than one is an error.

    >>> expanded(Config({"mamba_expand": 1.5}), 64)
    96
    """
    inner = int(config.number("mamba_expand", default=2) * width)
    if inner < 1:
        raise config.error(("mamba_expand",), "leaves a state space without channels")
    return inner
