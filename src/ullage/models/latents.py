"""What transformers with joint attention share: latents and prompt as two streams that meet in one attention.

Each stream has its own weights and is modulated by one vector of the sample (SD3, arXiv:2403.03206). A family yields one
forward pass of the denoiser; timesteps and guidance passes multiply it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ullage.errors import UllageError
from ullage.models.blocks import TO_QUERIES, self_attention
from ullage.models.config import Config
from ullage.models.grids import LatentGrid, feed_forward, modulation, prompt_tokens, timestep
from ullage.models.sample import ONCE, Quantity, Sample, quantity
from ullage.models.work import Work, attention, lookup, matmul

# What becomes of the prompt's stream after a stack's last layer: read on, computed but read by nothing, or not computed
Ending = Literal["used", "unused", "absent"]


def multiple(number: int, of: int) -> int:
    """Return the smallest multiple that is not below a number.

    >>> multiple(33, 32), multiple(64, 32)
    (64, 64)
    """
    return -(-number // of) * of


@dataclass(frozen=True)
class Streams:
    """The tokens of latents and prompt, as the model sees them.

    `registers` are tokens that the model itself adds to the prompt; it pads each stream to multiples of `padding`. Where the
    patch must cut the grid of latents into a `whole` number of tokens, another grid is an error; else the rest is cut off.

    >>> Streams(LatentGrid(1, 2, 2), registers=8).joint.of(Sample(latent=(1, 64, 64), prompt=77), "full")
    1109
    """

    grid: LatentGrid
    registers: int = 0
    padding: int = 1
    whole: bool = True

    @property
    def name(self) -> str:
        """What tells two of them apart."""
        more = f", {self.registers} registers" if self.registers else ""
        return self.grid.name + more + (f", padded to {self.padding}" if self.padding > 1 else "")

    @property
    def cut(self) -> str:
        """What tells two of them apart where latents are counted."""
        return f"{self.name}, exactly" if self.whole else self.name

    def latent(self, sample: Sample) -> int:
        """Return the tokens of the latent stream, reference tokens among them."""
        sides = (self.grid.frames, self.grid.rows, self.grid.columns)
        given = sample.latent if sample.latent_tokens is None else None  # a count after patching stands above the grid
        if self.whole and given and any(g % s for g, s in zip(given, sides, strict=True)):
            shown, patch = (" × ".join(str(n) for n in numbers) for numbers in (given, sides))
            raise UllageError(f"a latent of {shown} can't be cut into patches of {patch}", "give multiples of the patch: --latent T,H,W")
        return multiple(self.grid.tokens(sample), self.padding)

    def prompt(self, sample: Sample) -> int:
        """Return the tokens of the prompt's stream."""
        return multiple(prompt_tokens(sample) + self.registers, self.padding)

    @property
    def latents(self) -> Quantity:
        """The tokens of the latent stream."""
        return quantity(f"latent tokens, {self.cut}", self.latent)

    @property
    def prompts(self) -> Quantity:
        """The tokens of the prompt's stream."""
        return quantity(f"prompt tokens, {self.name}", self.prompt)

    @property
    def joint(self) -> Quantity:
        """The tokens of both in one sequence."""
        return quantity(f"joint tokens, {self.cut}", lambda s: self.latent(s) + self.prompt(s))

    @property
    def pairs(self) -> Quantity:
        """The pairs of attention over both in one sequence."""
        return quantity(f"joint pairs, {self.cut}", lambda s: (self.latent(s) + self.prompt(s)) ** 2)

    @property
    def latent_pairs(self) -> Quantity:
        """The pairs of attention among the latents alone."""
        return quantity(f"latent pairs, {self.cut}", lambda s: self.latent(s) ** 2)

    @property
    def prompt_pairs(self) -> Quantity:
        """The pairs of attention within the prompt alone."""
        return quantity(f"prompt pairs, {self.name}", lambda s: self.prompt(s) ** 2)


@dataclass(frozen=True)
class Stack:
    """A stack of blocks: its path in the checkpoint, its layers, and the heads of its attention."""

    path: str
    layers: Sequence[int]
    heads: int
    dim: int

    @property
    def width(self) -> int:
        """The width of its streams."""
        return self.heads * self.dim

    def lasting(self, ending: Ending) -> list[tuple[Sequence[int], bool]]:
        """Return the layers that compute the prompt's output, each part with whether a gradient reaches it."""
        cut = [(self.layers, True)] if ending == "used" else [(self.layers[:-1], True)]
        if ending == "unused":
            cut.append((self.layers[-1:], False))
        return [(layers, flows) for layers, flows in cut if len(layers)]


def same_width(config: Config, field: str, width: int) -> None:
    """Refuse a configuration whose `field`, the width of the prompt's stream, is not that of the latents: it could not run."""
    if config.has(field) and config.integer(field) != width:
        raise config.error((field,), f"is {config.integer(field):,}, and heads × head width are {width:,}")


def normed_prompt(module: str, rows: Quantity) -> Work:
    """Return the norm before the prompt's embedder: no FLOPs, but weights that train, so that a gradient flows through the embedder."""
    return lookup("prompt.norm", rows, module, to="normed prompt")


def vectors(width: int, module: str, *, pooled: int | None, guidance: bool, channels: int = 256) -> Iterator[Work]:
    """Yield the embedders of timestep, guidance strength and pooled prompt, which sum to the modulation vector."""
    yield from timestep(channels, width, f"{module}.timestep_embedder")
    if guidance:
        yield from timestep(channels, width, f"{module}.guidance_embedder", name="guidance")
    if pooled is not None:
        yield from timestep(pooled, width, f"{module}.text_embedder", name="prompt.pooled")


def modulations(stack: Stack, vectors: int = 1) -> Iterator[Work]:
    """Yield the shifts, scales and gates of both streams: six each, in every layer; those of the latents by `vectors` of a sample."""
    width, module = stack.width, "norm1.linear"
    yield modulation(width, 6 * width, stack.layers, name="modulation.latent", module=module, stack=stack.path, times=vectors)
    yield prompt_modulation(stack, stack.layers, 6)


def prompt_modulation(stack: Stack, layers: Sequence[int], vectors: int, module: str = "norm1_context.linear") -> Work:
    """Return the modulation of the prompt's stream in some layers."""
    width, path, name = stack.width, stack.path, "modulation.prompt"
    return matmul(name, ONCE, width, vectors * width, layers, stack=path, module=module, reads=("vector",), to="prompt")


def joint_attention(
    streams: Streams, stack: Stack, ending: Ending, *, module: str = "attn", prompt_width: int | None = None
) -> Iterator[Work]:
    """Yield attention over both streams at once: projections of each by its own weights, one softmax over all."""
    width, layers, path, values = stack.width, stack.layers, stack.path, ("attention.values",)
    narrow = prompt_width or width
    for what in "qkv":
        name = f"attention.{what}"
        yield matmul(name, streams.latents, width, width, layers, stack=path, module=f"{module}.to_{what}", to=None)
    for what in "qkv":
        name, place = f"prompt.attention.{what}", f"{module}.add_{what}_proj"
        # they stand in one tensor with the latents' own, and so share their need of a gradient
        to = f"attention.{what}"
        yield matmul(name, streams.prompts, narrow, width, layers, stack=path, module=place, reads=("prompt",), to=to)
    yield from attention(streams.pairs, stack.heads, stack.dim, layers, stack=path)
    yield matmul("attention.out", streams.latents, width, width, layers, stack=path, module=f"{module}.to_out.0", reads=values)
    for some, flows in stack.lasting(ending):
        name, place = "prompt.attention.out", f"{module}.to_add_out"
        yield matmul(name, streams.prompts, width, narrow, some, stack=path, module=place, reads=values, to="prompt", gradient=flows)


def feed_forwards(
    streams: Streams, stack: Stack, inner: int, ending: Ending, latent: str = "ff", prompt: str = "ff_context"
) -> Iterator[Work]:
    """Yield the feed-forward block of each stream."""
    width, path, name = stack.width, stack.path, "prompt.mlp"
    yield from feed_forward(width, inner, stack.layers, rows=streams.latents, stack=path, module=latent)
    for some, flows in stack.lasting(ending):
        yield from feed_forward(
            width, inner, some, rows=streams.prompts, stack=path, module=prompt, name=name, stream="prompt", gradient=flows
        )


def single_attention(
    rows: Quantity, of: Quantity, stack: Stack, *, name: str = "attention", module: str = "attn", out: bool = True, **streams: Any
) -> Iterator[Work]:
    """Yield self-attention over latents and prompt in one sequence, or `reads`; without `out` its output stays to be projected."""
    heads, modules = (stack.heads, stack.heads, stack.dim), TO_QUERIES if out else TO_QUERIES[:3]
    flows = {"reads": ("stream", "prompt"), **streams}
    yield from self_attention(
        stack.width, *heads, stack.layers, rows=rows, of=of, name=name, stack=stack.path, module=module, modules=modules, **flows
    )


def output(streams: Streams, width: int, columns: int) -> Iterator[Work]:
    """Yield the last modulation and the projection of the latents to what is predicted."""
    yield modulation(width, 2 * width, name="output.modulation", module="norm_out.linear")
    yield matmul("output.proj", streams.latents, width, columns, module="proj_out")


def fused_blocks(streams: Streams, stack: Stack, inner: int, *, vectors: int = 1) -> Iterator[Work]:
    """Yield blocks over both streams in one sequence, whose attention and feed-forward run side by side into one projection.

    They are modulated by so many `vectors` of a sample.
    """
    width, layers = stack.width, stack.layers
    yield modulation(width, 3 * width, layers, name="modulation.joint", module="norm.linear", stack=stack.path, times=vectors)
    both = ("stream", "prompt")
    yield matmul("mlp.up", streams.joint, width, inner, layers, stack=stack.path, module="proj_mlp", reads=both, to=None)
    yield from single_attention(streams.joint, streams.pairs, stack, out=False)
    made = ("attention.values", "mlp.up")
    yield matmul("fused.out", streams.joint, width + inner, width, layers, stack=stack.path, module="proj_out", reads=made)
