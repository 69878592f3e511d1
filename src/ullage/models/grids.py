"""What diffusion transformers share: the grid of latents after patching, its pairs, cross-attention, the embedders.

A family yields one forward pass of the denoiser; timesteps and guidance passes multiply it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.models.blocks import TO_QUERIES, cross_attention, mlp, self_attention
from ullage.models.config import Config
from ullage.models.sample import ONCE, PROMPT, Quantity, Sample, quantity, required
from ullage.models.work import Work, convolution, matmul

GATED = frozenset({"geglu", "swiglu"})
PLAIN = frozenset({"gelu", "gelu-approximate", "geglu-approximate", "linear-silu"})  # one projection each, whatever the name says


def prompt_tokens(sample: Sample) -> int:
    """Return the tokens that condition generation; a model that attends to them cannot do without."""
    return required("--prompt-tokens", sample.prompt, "a prompt")


def image_tokens(sample: Sample) -> int:
    """Return the tokens of the image that conditions generation; a model with weights for them cannot do without."""
    return required("--image-tokens", sample.image_tokens, "tokens of a conditioning image")


IMAGE_CONDITION = quantity("tokens of the conditioning image", image_tokens)


@dataclass(frozen=True)
class LatentGrid:
    """The latent tokens of a sample: its grid of latents, cut into patches of frames × rows × columns.

    Tokens that are given after patching are taken as they are; reference tokens join them; `extra` are tokens that the
    model itself adds to each sample. What does not fill a patch is cut off.

    >>> LatentGrid(1, 2, 2).tokens(Sample(latent=(21, 60, 104)))
    32760
    """

    frames: int
    rows: int
    columns: int
    extra: int = 0

    @property
    def volume(self) -> int:
        """The latent positions in a patch."""
        return self.frames * self.rows * self.columns

    @property
    def name(self) -> str:
        """What tells two grids apart."""
        return f"patch {self.frames}x{self.rows}x{self.columns}" + (f" and {self.extra} more" if self.extra else "")

    def patches(self, sample: Sample) -> int:
        """Return the patches of a sample, without the tokens that the model adds."""
        if sample.latent_tokens is not None:
            own = sample.latent_tokens
        else:
            frames, rows, columns = sample.latent or (0, 0, 0)
            own = (frames // self.frames) * (rows // self.rows) * (columns // self.columns)
        return required("--latent", own, "a grid of latents") + sample.reference_tokens

    def tokens(self, sample: Sample) -> int:
        """Return the tokens of the latent stream."""
        return self.patches(sample) + self.extra

    @property
    def latents(self) -> Quantity:
        """The patches."""
        return quantity(f"latent patches, patch {self.frames}x{self.rows}x{self.columns}", self.patches)

    @property
    def stream(self) -> Quantity:
        """The tokens of the latent stream."""
        return quantity(f"latent tokens, {self.name}", self.tokens)

    @property
    def pairs(self) -> Quantity:
        """The pairs of self-attention in the latent stream."""
        return quantity(f"latent pairs, {self.name}", lambda s: self.tokens(s) ** 2)

    @property
    def prompt_pairs(self) -> Quantity:
        """The pairs of cross-attention, latents to prompt."""
        return quantity(f"latent-prompt pairs, {self.name}", lambda s: self.tokens(s) * prompt_tokens(s))

    @property
    def image_pairs(self) -> Quantity:
        """The pairs of cross-attention, latents to the conditioning image."""
        return quantity(f"latent-image pairs, {self.name}", lambda s: self.tokens(s) * image_tokens(s))

    @property
    def joint(self) -> Quantity:
        """The tokens of latents and prompt in one sequence."""
        return quantity(f"joint tokens, {self.name}", lambda s: self.tokens(s) + prompt_tokens(s))

    @property
    def joint_pairs(self) -> Quantity:
        """The pairs of attention over latents and prompt in one sequence."""
        return quantity(f"joint pairs, {self.name}", lambda s: (self.tokens(s) + prompt_tokens(s)) ** 2)


def square_patch(config: Config, default: int) -> LatentGrid:
    """Return the grid of a model that names its patch by `patch_size` and, for video, `patch_size_t`."""
    side = config.integer("patch_size", default=default, most=1024)
    return LatentGrid(config.integer("patch_size_t", default=1, most=1024), side, side)


def solid_patch(config: Config, default: tuple[int, int, int] | None = None) -> LatentGrid:
    """Return the grid of a model whose `patch_size` is (frames, rows, columns)."""
    given = config.integers("patch_size", least=1)
    if given is None and default is None:
        raise config.missing("patch_size")
    sides = given or list(default or ())
    if len(sides) != 3:
        raise config.error(("patch_size",), "needs three numbers: frames, rows, columns")
    return LatentGrid(*sides)


def heads_and_width(config: Config, heads: int, dim: int) -> tuple[int, int, int]:
    """Return the heads, a head's width and their product, the width of the stream; the arguments are the class's defaults."""
    n = config.integer("num_attention_heads", default=heads)
    d = config.integer("attention_head_dim", default=dim)
    return n, d, n * d


def output_channels(config: Config, inputs: int, default: int | None = None) -> int:
    """Return the channels of the output: the field, those of the input where it is null, the class's default where it is missing."""
    missing = inputs if default is None or "out_channels" in config.values else default
    return config.integer("out_channels", default=missing)


def timestep(
    inner: int,
    width: int,
    module: str,
    *,
    name: str = "time",
    rows: Quantity = ONCE,
    outputs: int | None = None,
    reads: str = "data",
    modules: tuple[str, str] = ("linear_1", "linear_2"),
    layers: Sequence[int] = (0,),
    stack: str = "",
    to: str = "vector",
) -> Iterator[Work]:
    """Yield an embedder of two products: inner → width → `outputs` (width), once a sample unless `rows` says otherwise."""
    first, second = (f"{module}.{m}" for m in modules)
    yield matmul(f"{name}.up", rows, inner, width, layers, stack=stack, module=first, reads=(reads,), to=None)
    columns = width if outputs is None else outputs
    yield matmul(f"{name}.down", rows, width, columns, layers, stack=stack, module=second, reads=(f"{name}.up",), to=to)


def text_projection(inner: int, width: int, module: str, *, modules: tuple[str, str] = ("linear_1", "linear_2")) -> Iterator[Work]:
    """Yield the two products that bring a prompt's embeddings to the width of the stream."""
    yield from timestep(inner, width, module, name="prompt", rows=PROMPT, modules=modules, to="prompt")


def modulation(
    width: int,
    columns: int,
    layers: Sequence[int] = (0,),
    *,
    name: str,
    module: str,
    stack: str = "",
    rows: Quantity = ONCE,
    times: int = 1,
) -> Work:
    """Return the product that makes shifts, scales and gates from the modulation vector; they flow into the stream."""
    return matmul(name, rows, width, columns, layers, stack=stack, module=module, times=times, reads=("vector",))


def feed_forward(
    width: int, inner: int, layers: Sequence[int], *, activation: str = "gelu-approximate", module: str = "ff", **place: Any
) -> Iterator[Work]:
    """Yield a feed-forward block of diffusers, at the place that `mlp` is given: up (gate and up at once where it is gated) and down."""
    modules = ("net.0.proj", "net.2")
    yield from mlp(width, inner, layers, gated=activation in GATED, module=module, modules=modules, **place)


def activation(config: Config, default: str) -> str:
    """Return the activation of the feed-forward block, one that is known."""
    word = config.word("activation_fn", default=default)
    if word not in GATED | PLAIN:
        raise config.error(("activation_fn",), f"is '{word[:60]}', which is none of {', '.join(sorted(GATED | PLAIN))}")
    return word


@dataclass(frozen=True)
class Denoiser:
    """Blocks over latents, or over latents and prompt in one sequence (`joint`): what the works of their layers share, said once."""

    config: Config
    grid: LatentGrid
    layers: Sequence[int]
    heads: int
    dim: int
    joint: bool = False
    stack: str = "transformer_blocks"

    @classmethod
    def of(cls, config: Config, grid: LatentGrid, layers: int, heads: int, dim: int, joint: bool = False) -> Denoiser:
        """Return the blocks of a configuration; the numbers are the class's defaults."""
        count, width, _ = heads_and_width(config, heads, dim)
        return cls(config, grid, config.layers("num_layers", default=layers), count, width, joint)

    @property
    def width(self) -> int:
        """The width of the stream."""
        return self.heads * self.dim

    @property
    def rows(self) -> Quantity:
        """The tokens that flow through the blocks."""
        return self.grid.joint if self.joint else self.grid.stream

    def patch(self, inputs: int, module: str, volume: int | None = None) -> Work:
        """Return the patch embedding, a convolution (or a product, which costs the same)."""
        size = self.grid.volume if volume is None else volume
        return convolution("latent.patch", self.grid.latents, size, inputs, self.width, module=module, reads=("data",))

    def modulated(self, name: str, module: str, columns: int, vector: int | None = None) -> Work:
        """Return the modulation of each layer, `columns` times as wide as the stream."""
        inner = vector or self.width
        return modulation(inner, columns * self.width, self.layers, name=name, module=module, stack=self.stack)

    def self_attention(self, of: Quantity | None = None, name: str = "attention") -> Iterator[Work]:
        """Yield self-attention over the blocks' tokens."""
        pairs = of or (self.grid.joint_pairs if self.joint else self.grid.pairs)
        yield from self_attention(
            *(self.width, self.heads, self.heads, self.dim, self.layers),
            rows=self.rows,
            of=pairs,
            name=name,
            stack=self.stack,
            module="attn1",
            modules=TO_QUERIES,
        )

    def cross_attention(self, source_width: int, source: Quantity = PROMPT, key_heads: int | None = None) -> Iterator[Work]:
        """Yield cross-attention to the prompt, whose vectors are `source_width` wide."""
        yield from cross_attention(
            *(self.width, self.heads, self.dim, self.layers),
            rows=self.rows,
            source=source,
            of=self.grid.prompt_pairs,
            source_width=source_width,
            key_heads=key_heads,
            stack=self.stack,
        )

    def feed_forward(self, default: str = "", name: str = "mlp", inner: int | None = None) -> Iterator[Work]:
        """Yield the feed-forward block, four times as wide; `default` is the activation where `activation_fn` is missing."""
        kind = activation(self.config, default) if default else "gelu-approximate"
        wide = 4 * self.width if inner is None else inner
        yield from feed_forward(self.width, wide, self.layers, rows=self.rows, activation=kind, stack=self.stack, name=name)

    def output(self, columns: int, module: str = "proj_out", to: str = "stream") -> Work:
        """Return the projection of each latent token back to what it stands for."""
        return matmul("output.proj", self.grid.stream, self.width, columns, module=module, to=to)
