"""What the configurations of diffusers' U-shaped networks say: the stages, the time embedding and what joins it, the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ullage.models.config import Config
from ullage.models.grids import timestep
from ullage.models.planes import Plane, numbers, per_stage, stage_head_dim
from ullage.models.sample import ONCE, PROMPT
from ullage.models.unets import BLOCKS, Block, Time, halved, middle
from ullage.models.work import Work, lookup, matmul

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

    def down(self) -> list[Block]:
        """Return the blocks of the path down."""
        return [self._block(i, kind, self.layers[i], self.depths[i], self.crossed[i]) for i, kind in enumerate(self.kinds)]

    def middle(self, kind: str, layers: int = 1) -> Block:
        """Return the middle block: a residual block, and as many again as it has layers."""
        return self._block(-1, kind, layers, self.depths[-1], False)

    def up(self, kinds: Sequence[str], depths: Sequence[int] | None = None) -> list[Block]:
        """Return the blocks of the path up as they are executed: one residual block more than beside them."""
        order = range(len(self.widths) - 1, -1, -1)
        deep = depths or [self.depths[i] for i in order]
        rows = zip(order, kinds, deep, strict=True)
        return [self._block(i, kind, self.layers[i] + 1, depth, self.crossed[i]) for i, kind, depth in rows]

    def _block(self, i: int, kind: str, layers: int, depth: int, crossed: bool) -> Block:
        width = self.widths[i]
        if kind == CROSS:
            dim = stage_head_dim(self.config, "attention_head_dim", width, self.heads[i])
            return Block(width, layers, self.heads[i], dim, depth, self.sources[i], crossed)
        if kind == SELF:
            # here the field is what it says: the width of a head
            return Block(width, layers, stage_head_dim(self.config, "attention_head_dim", width, self.dims[i]), self.dims[i])
        return Block(width, layers)


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


def prompted_middle(config: Config, plan: Stages, plane: Plane, time: Time) -> Iterator[Work]:
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


def planes(config: Config, finest: Plane, count: int) -> list[Plane]:
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
