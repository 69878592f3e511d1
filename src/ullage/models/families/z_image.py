"""Z-Image: latents and prompt refined apart, then one sequence; gated MLPs."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.grids import Grid, modulation, timestep
from ullage.models.latents import Stack, Streams, gated_feed_forward, normed_prompt, single_attention
from ullage.models.model import model
from ullage.models.sample import PROMPT
from ullage.models.work import Work, matmul

PADDING = 32  # tokens; the model pads latents and prompt to multiples of it
VECTOR = 256  # the modulation vector is no wider
BOTH = ("stream", "prompt")


@model(
    *("ZImageTransformer2DModel", "ZImagePipeline", "ZImageImg2ImgPipeline", "ZImageInpaintPipeline"),
    *("ZImageControlNetPipeline", "ZImageControlNetInpaintPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_z_image.py; verified to the integer against traces",
)
def z_image(config: Config) -> Iterator[Work]:
    """Z-Image (base and Turbo): a single stream after two refiners; latents and prompt are padded to multiples of 32 tokens.

    With I latent and P prompt tokens so padded, T = I + P, f = 8d/3, R refiner layers and m = min(d, 256) a sample costs
    2[(4d² + 3df)(LT + RI + RP) + p²C·d(I + T) + J·d·P + (L + R)·4md + md + 1024(256 + m)] + 4d(LT² + RI² + RP²). Its
    `n_kv_heads` changes nothing: keys have as many heads as queries. Left out: the Omni pipeline, whose reference images come
    with tokens of a vision model; the ControlNet is a model of its own.
    """
    width, vector = config.integer("dim", default=3840), min(config.integer("dim", default=3840), VECTOR)
    frames, side = ((config.integers(name, least=1) or [default])[0] for name, default in (("all_f_patch_size", 1), ("all_patch_size", 2)))
    streams = Streams(Grid(frames, side, side), padding=PADDING)
    patch = streams.grid.volume * config.integer("in_channels", default=16)
    refiners = config.layers("n_refiner_layers", default=2)
    yield from timestep(256, 1024, "t_embedder", modules=("mlp.0", "mlp.2"), outputs=vector)
    yield matmul("latent.in", streams.latents, patch, width, module=f"all_x_embedder.{side}-{frames}", reads=("data",))
    yield from _blocks(config, streams, "noise_refiner", refiners)
    yield normed_prompt("cap_embedder.0", PROMPT)
    prompt = config.integer("cap_feat_dim", default=2560)
    yield matmul("prompt.in", streams.prompts, prompt, width, module="cap_embedder.1", reads=("normed prompt",), to="prompt")
    yield from _blocks(config, streams, "context_refiner", refiners)
    yield from _blocks(config, streams, "layers", config.layers("n_layers", default=30))
    final = f"all_final_layer.{side}-{frames}"
    yield modulation(vector, width, name="output.modulation", module=f"{final}.adaLN_modulation.1")
    yield matmul("output.proj", streams.joint, width, patch, module=f"{final}.linear", reads=BOTH)


def _blocks(config: Config, streams: Streams, path: str, layers: range) -> Iterator[Work]:
    """Yield the blocks of a stack: over the latents, over the prompt (unmodulated), or over both."""
    width, heads = config.integer("dim", default=3840), config.integer("n_heads", default=30)
    if width % heads:
        raise config.error(("n_heads",), f"is {heads}, and does not divide dim, {width:,}")
    stack = Stack(path, layers, heads, width // heads)
    prefix, rows, of, reads, to = {
        "noise_refiner": ("latent.", streams.latents, streams.latent_pairs, ("stream",), "stream"),
        "context_refiner": ("prompt.", streams.prompts, streams.prompt_pairs, ("prompt",), "prompt"),
        "layers": ("", streams.joint, streams.pairs, BOTH, "stream"),
    }[path]
    if to == "stream":
        name = f"modulation.{prefix.rstrip('.') or 'joint'}"
        yield modulation(min(width, VECTOR), 4 * width, layers, name=name, module="adaLN_modulation.0", stack=path)
    yield from single_attention(rows, of, stack, name=f"{prefix}attention", module="attention", reads=reads, to=to)
    modules = ("feed_forward.w1", "feed_forward.w3", "feed_forward.w2")
    inner = int(width / 3 * 8)
    yield from gated_feed_forward(stack, inner, layers, rows=rows, modules=modules, name=f"{prefix}mlp", reads=reads, to=to)
