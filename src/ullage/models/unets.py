"""What U-shaped networks of diffusers share: residual blocks, attention over a plane, and the paths down and up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ullage.models.blocks import self_attention
from ullage.models.grids import ATTENTION, cross_attention, feed_forward, prompt_tokens
from ullage.models.planes import Plane
from ullage.models.sample import ONCE, PROMPT, Quantity, quantity
from ullage.models.work import Work, attention, convolution, matmul

BLOCKS = 64  # residual blocks or transformer layers of one stage: more is a mistake or an attack


@dataclass(frozen=True)
class Block:
    """One resolution: `layers` residual blocks of `width` channels, each with attention where the block has any.

    `heads` × `dim` is attention over the plane by itself; with `depth` it is a transformer of that many layers, which also
    attends to a prompt `source` wide (and to nothing else, if `only_cross`).
    """

    width: int
    layers: int
    heads: int = 0
    dim: int = 0
    depth: int = 0
    source: int = 0
    only_cross: bool = False

    def attend(self, plane: Plane, path: str, index: int) -> Iterator[Work]:
        """Yield the attention behind one residual block, if there is any."""
        if self.depth:
            yield from transformer(self, plane, path, index)
        elif self.heads:
            yield from image_attention(self, plane, path, index)


@dataclass(frozen=True)
class Time:
    """The width of the time embedding, 0 without, and how many numbers a channel takes from it: a shift, or shift and scale."""

    width: int = 0
    parts: int = 1


def residual(plane: Plane, before: int, width: int, path: str, index: int, time: Time) -> Iterator[Work]:
    """Yield a residual block: two 3x3 convolutions, the time embedding's projection, a 1x1 shortcut where the width changes."""
    stack, layers, rows = f"{path}.resnets", (index,), plane.positions
    made: tuple[str, ...] = ("conv.first",)
    yield convolution("conv.first", rows, 9, before, width, layers, stack=stack, module="conv1", to=None)
    if time.width:
        made = ("conv.first", "time.projection")
        columns = time.parts * width
        yield matmul(made[1], ONCE, time.width, columns, layers, stack=stack, module="time_emb_proj", reads=("time",), to=None)
    if before != width:
        yield convolution("conv.shortcut", rows, 1, before, width, layers, stack=stack, module="conv_shortcut")
    yield convolution("conv.second", rows, 9, width, width, layers, stack=stack, module="conv2", reads=made)


def image_attention(block: Block, plane: Plane, path: str, index: int) -> Iterator[Work]:
    """Yield attention of all positions of a plane to all."""
    stack, layers, inner = f"{path}.attentions", (index,), block.heads * block.dim
    for what in ("q", "k", "v"):
        yield matmul(f"attention.{what}", plane.positions, block.width, inner, layers, stack=stack, module=f"to_{what}", to=None)
    yield from attention(plane.pairs, block.heads, block.dim, layers, stack=stack)
    reads = ("attention.values",)
    yield matmul("attention.out", plane.positions, inner, block.width, layers, stack=stack, module="to_out.0", reads=reads)


def transformer(block: Block, plane: Plane, path: str, index: int) -> Iterator[Work]:
    """Yield a transformer over a plane: projections in and out, and layers of self-attention, cross-attention and a gated MLP."""
    width, rows, inner = block.width, plane.positions, block.heads * block.dim
    outer, stack = f"{path}.attentions", f"{path}.attentions.{index}.transformer_blocks"
    layers = range(block.depth)
    yield matmul("projection.in", rows, width, inner, (index,), stack=outer, module="proj_in")
    crossed = _prompt_pairs(plane)
    if block.only_cross:
        yield from cross_attention(
            inner, block.heads, block.dim, layers,
            rows=rows, of=crossed, source_width=block.source, stack=stack, module="attn1", name="attention",
        )  # fmt: skip
    else:
        yield from self_attention(
            inner, block.heads, block.heads, block.dim, layers,
            rows=rows, of=plane.pairs, stack=stack, module="attn1", modules=ATTENTION,
        )  # fmt: skip
    yield from cross_attention(
        inner, block.heads, block.dim, layers, rows=rows, source=PROMPT, of=crossed, source_width=block.source, stack=stack
    )
    yield from feed_forward(inner, 4 * inner, layers, rows=rows, activation="geglu", stack=stack)
    yield matmul("projection.out", rows, inner, width, (index,), stack=outer, module="proj_out")


def _prompt_pairs(plane: Plane) -> Quantity:
    positions = plane.positions
    return quantity(f"{positions.name} with prompt tokens", lambda s: positions.of(s, "full") * prompt_tokens(s))


def halved(plane: Plane, padding: int = 1) -> Plane:
    """Return the plane after a downsampling convolution: 3x3, stride 2; without padding, diffusers pads one edge by 1."""
    return plane.after(3, 2, 2 * padding or 1)


def down(blocks: Sequence[Block], planes: Sequence[Plane], before: int, time: Time, path: str = "") -> Iterator[Work]:
    """Yield the path down: blocks, each but the last with a downsampling convolution onto the next plane."""
    for i, block in enumerate(blocks):
        here = f"{path}down_blocks.{i}"
        for j in range(block.layers):
            yield from residual(planes[i], before if j == 0 else block.width, block.width, here, j, time)
            yield from block.attend(planes[i], here, j)
        before = block.width
        if i < len(blocks) - 1:
            stack = f"{here}.downsamplers"
            yield convolution("conv.down", planes[i + 1].positions, 9, before, before, stack=stack, module="conv")


def middle(block: Block, plane: Plane, time: Time, path: str = "") -> Iterator[Work]:
    """Yield the middle: a residual block, then attention and a residual block for each of the block's layers."""
    here = f"{path}mid_block"
    yield from residual(plane, block.width, block.width, here, 0, time)
    for j in range(block.layers):
        yield from block.attend(plane, here, j)
        yield from residual(plane, block.width, block.width, here, j + 1, time)


def up(blocks: Sequence[Block], planes: Sequence[Plane], skips: Sequence[int] | None, time: Time, path: str = "") -> Iterator[Work]:
    """Yield the path up, given as it is executed; `planes` fit the blocks, and `skips` are the channels of the blocks beside them.

    A residual block reads the stream and one plane of the path down beside it; its last one a plane of the block before that.
    """
    before = blocks[0].width
    for i, block in enumerate(blocks):
        here = f"{path}up_blocks.{i}"
        for j in range(block.layers):
            inputs = before if j == 0 else block.width
            if skips:
                inputs += skips[min(i + 1, len(skips) - 1)] if j == block.layers - 1 else block.width
            yield from residual(planes[i], inputs, block.width, here, j, time)
            yield from block.attend(planes[i], here, j)
        before = block.width
        if i < len(blocks) - 1:
            stack = f"{here}.upsamplers"
            yield convolution("conv.up", planes[i + 1].positions, 9, before, before, stack=stack, module="conv")


def entry(channels: int, plane: Plane, kernel: int, width: int, path: str = "") -> Work:
    """Return the first convolution, which reads what needs no gradient."""
    return convolution("conv.in", plane.positions, kernel**2, channels, width, module=f"{path}conv_in", reads=("data",))


def leave(channels: int, plane: Plane, kernel: int, width: int, path: str = "") -> Work:
    """Return the last convolution."""
    return convolution("conv.out", plane.positions, kernel**2, width, channels, module=f"{path}conv_out")


def same(plane: Plane, kernel: int) -> Plane:
    """Return the plane after a convolution with diffusers' padding: as large as before, where the kernel is odd."""
    return plane.after(kernel, 1, (kernel - 1) // 2 * 2)


def within(part: str, works: Iterable[Work], *, path: str = "", streams: bool = False) -> Iterator[Work]:
    """Yield the works of a part of a model, its name before theirs; its weights lie under `path`, `streams` are its own or shared."""
    kept = list(works)
    own = {work.name for work in kept} | ({"stream", "time", "prompt"} if streams else set())

    def named(name: str) -> str:
        return f"{part}.{name}" if name in own else name

    for work in kept:
        stack, module = (f"{path}{work.stack}", work.module) if work.stack else ("", f"{path}{work.module}")
        to = None if work.to is None else named(work.to)
        yield replace(work, name=named(work.name), stack=stack, module=module, reads=tuple(named(r) for r in work.reads), to=to)
