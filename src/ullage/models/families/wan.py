"""Wan: self-attention over the latents, cross-attention to prompt and image, one modulation for all layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import (
    ATTENTION,
    IMAGE_CONDITION,
    Grid,
    cross_attention,
    feed_forward,
    heads_and_width,
    modulation,
    output_channels,
    solid_patch,
    text_projection,
    timestep,
)
from ullage.models.model import model
from ullage.models.sample import ONCE
from ullage.models.work import Work, attention, convolution, lookup, matmul

SOURCE = "diffusers 0.42, models/transformers/transformer_wan.py; verified to the integer against traces"


@model(
    *("WanTransformer3DModel", "WanPipeline", "WanImageToVideoPipeline", "WanVideoToVideoPipeline"),
    kind="diffusion",
    source=SOURCE,
)
def wan(config: Config) -> Iterator[Work]:
    """Wan 2.1 and 2.2, text and image to video (1.3B, 5B, 14B).

    With I latent tokens after patching (1×2×2: a quarter of frames × rows × columns), P prompt and M image tokens, a sample
    costs 2I·L(6d² + 2df) + 4P·L·d² + 4Ld(I² + IP) + 2I·d·v(C_in + C_out) + 2P(td + d²) + 2(256d + 7d²); with image weights
    also 4M·L·d² + 4Ld·IM + 2M(c² + cd). Wan 2.1 image-to-video has M = 257, its first-and-last-frame variant 514; Wan 2.2
    14B takes the image as channels and has none. The 5B model embeds a timestep per token where `expand_timesteps` of the
    pipeline's model_index.json says so; without that field one per sample is counted. Wan 2.2 14B is two models of one
    shape, of which a timestep runs one.
    """
    grid = solid_patch(config, (1, 2, 2))
    layers = config.layers("num_layers", default=40)
    width = heads_and_width(config, 40, 128)[2]
    channels = config.integer("in_channels", default=16)
    yield convolution("latent.patch", grid.latents, grid.volume, channels, width, module="patch_embedding", reads=("data",))
    yield from _conditions(config, grid, width)
    yield from _blocks(config, grid, layers, "blocks")
    yield _output(config, grid, width)


@model("WanVACETransformer3DModel", "WanVACEPipeline", kind="diffusion", source=SOURCE.replace("wan.py", "wan_vace.py"))
def wan_vace(config: Config) -> Iterator[Work]:
    """Wan VACE: Wan, and a second stack of the same blocks over the control latents, whose outputs join the main stream.

    As `wan`, with V = len(vace_layers) further blocks, 2d² × I for the first block's way in, and as much for each one's way out.
    """
    grid = solid_patch(config, (1, 2, 2))
    layers = config.layers("num_layers", default=40)
    width = heads_and_width(config, 40, 128)[2]
    hints = config.integers("vace_layers")
    if not hints or max(hints) >= len(layers):
        raise config.error(("vace_layers",), f"must name some of the {len(layers)} layers")
    control = range(len(hints))
    channels, controls = config.integer("in_channels", default=16), config.integer("vace_in_channels", default=96)
    yield convolution("latent.patch", grid.latents, grid.volume, channels, width, module="patch_embedding", reads=("data",))
    yield convolution(
        "control.patch", grid.latents, grid.volume, controls, width, module="vace_patch_embedding", reads=("data",), to="control"
    )
    yield from _conditions(config, grid, width)
    yield matmul(
        "control.in", grid.stream, width, width, control[:1], stack="vace_blocks", module="proj_in", reads=("control",), to="control"
    )
    yield from _blocks(config, grid, control, "vace_blocks", stream="control", prefix="control.")
    yield matmul("control.out", grid.stream, width, width, control, stack="vace_blocks", module="proj_out", reads=("control",))
    yield from _blocks(config, grid, layers, "blocks")
    yield _output(config, grid, width)


@model(
    *("SkyReelsV2Transformer3DModel", "SkyReelsV2Pipeline", "SkyReelsV2ImageToVideoPipeline"),
    kind="diffusion",
    source=SOURCE.replace("wan.py", "skyreels_v2.py"),
)
def skyreels(config: Config) -> Iterator[Work]:
    """SkyReels V2, text and image to video with one timestep a sample: Wan, and where it says so an embedding of the frame rate.

    Diffusion forcing, with a timestep per frame, is not covered; its pipelines are not registered.
    """
    defaults = {"num_attention_heads": 16, "ffn_dim": 8192, "num_layers": 32}
    full = config.replaced(**{k: v for k, v in defaults.items() if not config.has(k)})
    width = heads_and_width(full, 16, 128)[2]
    if config.flag("inject_sample_info"):
        yield lookup("rate.embedding", ONCE, "fps_embedding", to="rate")
        yield from timestep(
            width, width, "fps_projection.net", name="rate", outputs=6 * width, reads="rate", modules=("0.proj", "2"), to="stream"
        )
    yield from wan(full)


def _conditions(config: Config, grid: Grid, width: int) -> Iterator[Work]:
    """Yield the embedders of timestep, prompt and image, and the one modulation of the model."""
    rows = grid.stream if config.flag("expand_timesteps") else ONCE
    yield from timestep(config.integer("freq_dim", default=256), width, "condition_embedder.time_embedder", rows=rows)
    yield modulation(width, 6 * width, name="modulation.shared", module="condition_embedder.time_proj", rows=rows)
    yield from text_projection(config.integer("text_dim", default=4096), width, "condition_embedder.text_embedder")
    if config.has("image_dim"):
        inner, path = config.integer("image_dim"), "condition_embedder.image_embedder"
        yield lookup("image.norm", IMAGE_CONDITION, f"{path}.norm1", to="normed image")  # its weights need the input's gradient
        yield from timestep(
            inner, inner, f"{path}.ff.net", name="image", rows=IMAGE_CONDITION, outputs=width, reads="normed image",
            modules=("0.proj", "2"), to="image",
        )  # fmt: skip


def _blocks(config: Config, grid: Grid, layers: Sequence[int], stack: str, stream: str = "stream", prefix: str = "") -> Iterator[Work]:
    """Yield self-attention, cross-attention to the prompt (and to the image, with its own keys and values), and the MLP."""
    heads, dim, width = heads_and_width(config, 40, 128)
    rows, name = grid.stream, f"{prefix}cross_attention"
    yield from self_attention(
        width, heads, heads, dim, layers, rows=rows, of=grid.pairs, name=f"{prefix}attention", stack=stack, module="attn1",
        modules=ATTENTION, stream=stream,
    )  # fmt: skip
    image = list(_image_attention(config, grid, layers, stack, name))
    yield from cross_attention(
        width, heads, dim, layers, rows=rows, of=grid.prompt_pairs, source_width=width, name=name, stack=stack, stream=stream, beside=image
    )
    inner = config.integer("ffn_dim", default=13824)
    yield from feed_forward(width, inner, layers, rows=rows, stack=stack, module="ffn", name=f"{prefix}mlp", stream=stream)


def _image_attention(config: Config, grid: Grid, layers: Sequence[int], stack: str, name: str) -> Iterator[Work]:
    """Yield the image's keys and values and attention to them by the queries of the prompt's, where the model has them."""
    if not config.has("added_kv_proj_dim"):
        return
    heads, dim, width = heads_and_width(config, 40, 128)
    inner = config.integer("added_kv_proj_dim")
    for what in ("k", "v"):
        work, path = f"{name}.image_{what}", f"attn2.add_{what}_proj"
        yield matmul(work, IMAGE_CONDITION, inner, width, layers, stack=stack, module=path, reads=("image",), to=None)
    inputs = (f"{name}.q", f"{name}.image_k", f"{name}.image_v")
    yield from attention(grid.image_pairs, heads, dim, layers, name=f"{name}.image", stack=stack, inputs=inputs)


def _output(config: Config, grid: Grid, width: int) -> Work:
    """Return the projection of each token back to its patch."""
    channels = output_channels(config, config.integer("in_channels", default=16), 16)
    return matmul("output.proj", grid.stream, width, channels * grid.volume, module="proj_out")
