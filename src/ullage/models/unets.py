"""U-shaped networks of diffusers: residual blocks, attention over a plane, the paths down and up; and what configurations say of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ullage.models.blocks import TO_QUERIES, cross_attention, self_attention
from ullage.models.config import Config
from ullage.models.grids import feed_forward, prompt_tokens, timestep
from ullage.models.planes import ImagePlane, numbers, per_stage, stage_head_dim
from ullage.models.sample import ONCE, PROMPT, Quantity, quantity
from ullage.models.work import Work, convolution, lookup, matmul

BLOCKS = 64  # residual blocks or transformer layers of one stage: more is a mistake or an attack


@dataclass(frozen=True)
class Resolution:
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

    def attend(self, plane: ImagePlane, path: str, index: int) -> Iterator[Work]:
        """Yield the attention behind one residual block, if there is any."""
        if self.depth:
            yield from transformer(self, plane, path, index)
        elif self.heads:
            of, stack = plane.pairs, f"{path}.attentions"
            heads = (self.heads, self.heads, self.dim)
            yield from self_attention(self.width, *heads, (index,), rows=plane.positions, of=of, stack=stack, module="", modules=TO_QUERIES)


@dataclass(frozen=True)
class Time:
    """The width of the time embedding, 0 without, and how many numbers a channel takes from it: a shift, or shift and scale."""

    width: int = 0
    parts: int = 1


def residual(plane: ImagePlane, before: int, width: int, path: str, index: int, time: Time) -> Iterator[Work]:
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


def transformer(block: Resolution, plane: ImagePlane, path: str, index: int) -> Iterator[Work]:
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
            rows=rows, of=plane.pairs, stack=stack, module="attn1", modules=TO_QUERIES,
        )  # fmt: skip
    yield from cross_attention(
        inner, block.heads, block.dim, layers, rows=rows, source=PROMPT, of=crossed, source_width=block.source, stack=stack
    )
    yield from feed_forward(inner, 4 * inner, layers, rows=rows, activation="geglu", stack=stack)
    yield matmul("projection.out", rows, inner, width, (index,), stack=outer, module="proj_out")


def _prompt_pairs(plane: ImagePlane) -> Quantity:
    positions = plane.positions
    return quantity(f"{positions.name} with prompt tokens", lambda s: positions.of(s, "full") * prompt_tokens(s))


def halved(plane: ImagePlane, padding: int = 1) -> ImagePlane:
    """Return the plane after a downsampling convolution: 3x3, stride 2; without padding, diffusers pads one edge by 1."""
    return plane.after(3, 2, 2 * padding or 1)


def down(blocks: Sequence[Resolution], planes: Sequence[ImagePlane], before: int, time: Time, path: str = "") -> Iterator[Work]:
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


def middle(block: Resolution, plane: ImagePlane, time: Time, path: str = "") -> Iterator[Work]:
    """Yield the middle: a residual block, then attention and a residual block for each of the block's layers."""
    here = f"{path}mid_block"
    yield from residual(plane, block.width, block.width, here, 0, time)
    for j in range(block.layers):
        yield from block.attend(plane, here, j)
        yield from residual(plane, block.width, block.width, here, j + 1, time)


def up(
    blocks: Sequence[Resolution], planes: Sequence[ImagePlane], skips: Sequence[int] | None, time: Time, path: str = ""
) -> Iterator[Work]:
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


def entry(channels: int, plane: ImagePlane, kernel: int, width: int, path: str = "") -> Work:
    """Return the first convolution, which reads what needs no gradient."""
    return convolution("conv.in", plane.positions, kernel**2, channels, width, module=f"{path}conv_in", reads=("data",))


def leave(channels: int, plane: ImagePlane, kernel: int, width: int, path: str = "") -> Work:
    """Return the last convolution."""
    return convolution("conv.out", plane.positions, kernel**2, width, channels, module=f"{path}conv_out")


def same(plane: ImagePlane, kernel: int) -> ImagePlane:
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


PLAIN, SELF, CROSS = "", "self", "cross"  # what stands behind a residual block: nothing, attention, a transformer that reads the prompt
KINDS = {
    **dict.fromkeys(("DownBlock2D", "UpBlock2D", "DownEncoderBlock2D", "UpDecoderBlock2D"), PLAIN),
    **dict.fromkeys(("AttnDownBlock2D", "AttnUpBlock2D", "AttnDownEncoderBlock2D", "AttnUpDecoderBlock2D"), SELF),
    **dict.fromkeys(("CrossAttnDownBlock2D", "CrossAttnUpBlock2D"), CROSS),
}
MIDDLES = {"UNetMidBlock2DCrossAttn": CROSS, "UNetMidBlock2D": PLAIN}
DOWN = ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D")


@dataclass(frozen=True)
class Stages:
    """The numbers of each resolution, from the finest to the coarsest, and what stands behind its residual blocks on the way down."""

    config: Config
    kinds: Sequence[str]
    widths: Sequence[int]
    layers: Sequence[int]
    heads: Sequence[int]  # of a transformer
    dims: Sequence[int]  # of a head of attention without a prompt
    depths: Sequence[int]
    sources: Sequence[int]
    crossed: Sequence[bool]

    def down(self) -> list[Resolution]:
        """Return the blocks of the path down."""
        return [self._block(i, kind, self.layers[i], self.depths[i], self.crossed[i]) for i, kind in enumerate(self.kinds)]

    def middle(self, kind: str, layers: int = 1) -> Resolution:
        """Return the middle block: a residual block, and as many again as it has layers."""
        return self._block(-1, kind, layers, self.depths[-1], False)

    def up(self, kinds: Sequence[str], depths: Sequence[int] | None = None) -> list[Resolution]:
        """Return the blocks of the path up as they are executed: one residual block more than beside them."""
        order = range(len(self.widths) - 1, -1, -1)
        deep = depths or [self.depths[i] for i in order]
        rows = zip(order, kinds, deep, strict=True)
        return [self._block(i, kind, self.layers[i] + 1, depth, self.crossed[i]) for i, kind, depth in rows]

    def _block(self, i: int, kind: str, layers: int, depth: int, crossed: bool) -> Resolution:
        width = self.widths[i]
        if kind == CROSS:
            dim = stage_head_dim(self.config, "attention_head_dim", width, self.heads[i])
            return Resolution(width, layers, self.heads[i], dim, depth, self.sources[i], crossed)
        if kind == SELF:
            # here the field is what it says: the width of a head
            return Resolution(width, layers, stage_head_dim(self.config, "attention_head_dim", width, self.dims[i]), self.dims[i])
        return Resolution(width, layers)


def prompted(config: Config) -> Stages:
    """Return the stages of a UNet or ControlNet that reads a prompt; the defaults are those of Stable Diffusion's class."""
    if config.flag("dual_cross_attention"):
        raise config.error(("dual_cross_attention",), "is true, and there is no formula for attention to two prompts")
    one_of(config, "attention_type", ("default",), "default")
    widths = numbers(config, "block_out_channels", (320, 640, 1280, 1280))
    count = len(widths)
    # the number of heads stands under attention_head_dim, a mistake that old checkpoints keep alive
    heads = per_stage(config, "num_attention_heads" if config.has("num_attention_heads") else "attention_head_dim", count, 8)
    return Stages(
        config,
        kinds(config, "down_block_types", DOWN, count, (PLAIN, SELF, CROSS)),
        widths,
        per_stage(config, "layers_per_block", count, 2, most=BLOCKS),
        heads,
        per_stage(config, "attention_head_dim", count, 8),
        per_stage(config, "transformer_layers_per_block", count, 1, most=BLOCKS),
        per_stage(config, "cross_attention_dim", count, 1280),
        _flags(config, "only_cross_attention", count),
    )


def unprompted(config: Config, default: tuple[int, ...], down: tuple[str, ...], layers: int, dim: int | None) -> Stages:
    """Return the stages of a network without a prompt; `dim` is the width of a head of attention, None the stage's own."""
    widths = numbers(config, "block_out_channels", default)
    count = len(widths)
    found = kinds(config, "down_block_types", down, count, (PLAIN, SELF))
    deep = [config.integer("layers_per_block", default=layers, most=BLOCKS)] * count
    dims = widths if dim is None else [dim] * count
    return Stages(config, found, widths, deep, dims, dims, [0] * count, [0] * count, [False] * count)


def kinds(config: Config, name: str, default: Sequence[str], count: int, allowed: tuple[str, ...]) -> list[str]:
    """Return what stands behind the residual blocks of each stage, from the names of its block types."""
    given = config.words(name) or list(default)
    if len(given) != count:
        raise config.error((name,), f"has {len(given)} entries for {count} block_out_channels")
    for word in given:
        if KINDS.get(word) not in allowed:
            known = ", ".join(w for w, kind in KINDS.items() if kind in allowed)
            raise config.error((name,), f"has '{word[:60]}', for which there is no formula; there is one for {known}")
    return [KINDS[word] for word in given]


def prompted_middle(config: Config, plan: Stages, plane: ImagePlane, time: Time) -> Iterator[Work]:
    """Yield the middle of a network that reads a prompt: with a transformer, or a single residual block, or nothing for null."""
    if "mid_block_type" in config.values and not config.has("mid_block_type"):
        return
    kind = MIDDLES[one_of(config, "mid_block_type", tuple(MIDDLES), "UNetMidBlock2DCrossAttn")]
    yield from middle(plan.middle(kind, 1 if kind == CROSS else 0), plane, time)


def one_of(config: Config, name: str, allowed: tuple[str, ...], default: str) -> str:
    """Return a field that is one of a few words."""
    word = config.word(name, default=default)
    if word not in allowed:
        raise config.error((name,), f"is '{word[:60]}', for which there is no formula; there is one for {', '.join(allowed)}")
    return word


def planes(config: Config, finest: ImagePlane, count: int) -> list[ImagePlane]:
    """Return the plane of each stage, each half as fine as the one before."""
    padding = config.integer("downsample_padding", default=1, least=0, most=1)
    found = [finest]
    for _ in range(count - 1):
        found.append(halved(found[-1], padding))
    return found


def time_parts(config: Config) -> int:
    """Return how many numbers a channel takes from the time embedding: a shift, or shift and scale."""
    return 2 if one_of(config, "resnet_time_scale_shift", ("default", "scale_shift"), "default") == "scale_shift" else 1


def time_works(config: Config, inner: int, width: int) -> Iterator[Work]:
    """Yield the embedding of the timestep and of what is added to it: guidance, a class, XL's pooled text and sizes."""
    reads = "data"
    if config.has("time_cond_proj_dim"):
        reads, module = "time.guidance", "time_embedding.cond_proj"
        yield matmul(reads, ONCE, config.integer("time_cond_proj_dim"), inner, module=module, reads=("data",), to=None)
    yield from timestep(inner, width, "time_embedding", reads=reads, to="time")
    kind = one_of(config, "class_embed_type", ("timestep", "identity", "projection", "simple_projection", ""), "")
    if kind == "timestep":
        yield from timestep(inner, width, "class_embedding", name="class", to="time")
    elif kind == "projection":
        yield from timestep(config.integer("projection_class_embeddings_input_dim"), width, "class_embedding", name="class", to="time")
    elif kind == "simple_projection":
        wide = config.integer("projection_class_embeddings_input_dim")
        yield matmul("class.projection", ONCE, wide, width, module="class_embedding", reads=("data",), to="time")
    elif not kind and config.has("num_class_embeds"):
        yield lookup("class.embedding", ONCE, "class_embedding", to="time")
    if one_of(config, "addition_embed_type", ("text_time", ""), "") == "text_time":
        wide = config.integer("projection_class_embeddings_input_dim")
        yield from timestep(wide, width, "add_embedding", name="addition", to="time")


def prompt_works(config: Config, width: int) -> Iterator[Work]:
    """Yield the projection of the prompt to the width that cross-attention reads, where there is one."""
    if one_of(config, "encoder_hid_dim_type", ("text_proj", ""), "") or config.has("encoder_hid_dim"):
        inner = config.integer("encoder_hid_dim")
        yield matmul("prompt.projection", PROMPT, inner, width, module="encoder_hid_proj", reads=("data",), to="prompt")


def prompted_time(config: Config, first: int) -> tuple[int, int, Time]:
    """Return what enters the time embedding and its width, and what the residual blocks see of it."""
    fourier = one_of(config, "time_embedding_type", ("positional", "fourier"), "positional") == "fourier"
    width = config.integer("time_embedding_dim", default=first * (2 if fourier else 4))
    seen = 2 * width if config.flag("class_embeddings_concat") else width
    return width if fourier else first, width, Time(seen, time_parts(config))


def _flags(config: Config, name: str, count: int) -> list[bool]:
    given = config.values.get(name)
    if not isinstance(given, list | tuple):
        return [config.flag(name)] * count
    if len(given) != count or not all(isinstance(flag, bool) for flag in given):
        raise config.error((name,), f"must be true or false, or {count} of these")
    return list(given)
