"""Diffusion transformers whose latents attend to the prompt, or stand with it in one sequence of one set of weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ullage.models.blocks import TO_QUERIES, cross_attention, self_attention
from ullage.models.config import Config
from ullage.models.grids import (
    IMAGE_CONDITION,
    Denoiser,
    LatentGrid,
    feed_forward,
    heads_and_width,
    modulation,
    output_channels,
    prompt_tokens,
    solid_patch,
    square_patch,
    text_projection,
    timestep,
)
from ullage.models.model import diffusers_model, in_diffusers, model
from ullage.models.sample import ONCE, PROMPT, Quantity, Sample, quantity, required
from ullage.models.work import Work, attention, contraction, convolution, lookup, matmul

STACK = "transformer_blocks"
EMBEDDER = "norm1.emb.timestep_embedder"


@diffusers_model("models/transformers/dit_transformer_2d.py", "DiTTransformer2DModel", "DiTPipeline", shapes=("latent",))
def dit(config: Config) -> Iterator[Work]:
    """DiT, class-conditional images: every block owns a timestep MLP, and the head runs the first block's once more.

    With I tokens after patching a sample costs 2I[12Ld² + p²d(C_in + C_out)] + 4Ld·I² + 2(L + 1)(256d + d²) + 2(6Ld² + 2d²).
    There is no prompt; a class label is looked up.
    """
    dit = Denoiser.of(config, square_patch(config, 2), 28, 16, 72)
    width, inputs = dit.width, config.integer("in_channels", default=4)
    yield dit.patch(inputs, "pos_embed.proj")
    yield lookup("class.embedding", ONCE, "norm1.emb.class_embedder.embedding_table", stack=STACK, to="vector")
    yield from timestep(256, width, EMBEDDER, layers=dit.layers, stack=STACK)
    yield dit.modulated("modulation.latent", "norm1.linear", 6)
    yield from dit.self_attention()
    yield from dit.feed_forward("gelu-approximate")
    yield from timestep(256, width, f"{STACK}.0.{EMBEDDER}", name="output.time")
    yield modulation(width, 2 * width, name="output.modulation", module="proj_out_1")
    yield dit.output(dit.grid.volume * output_channels(config, inputs), "proj_out_2")


SIDES = quantity("sides of an image", lambda _: 2)


@diffusers_model("models/transformers/pixart_transformer_2d.py", "PixArtTransformer2DModel", "PixArtAlphaPipeline", "PixArtSigmaPipeline")
def pixart(config: Config) -> Iterator[Work]:
    """PixArt alpha and sigma, text to image; alpha at 1024 pixels also embeds the resolution and the aspect ratio.

    With I latent and P prompt tokens a sample costs 2I·L·14d² + 4P·L·d·c + 4Ld(I² + IP) + 2I·p²·d(C_in + C_out)
    + 2P(td + d²) + 2(256d + 7d²), and for the size 6(256d/3 + d²/9): height, width and aspect ratio.
    """
    dit = Denoiser.of(config, square_patch(config, 2), 28, 16, 72)
    width, inputs = dit.width, config.integer("in_channels", default=4)
    yield dit.patch(inputs, "pos_embed.proj")
    yield from timestep(256, width, "adaln_single.emb.timestep_embedder")
    if config.flag("use_additional_conditions", config.integer("sample_size", default=128) == 128):
        third = width // 3
        yield from timestep(256, third, "adaln_single.emb.resolution_embedder", name="size.resolution", rows=SIDES)
        yield from timestep(256, third, "adaln_single.emb.aspect_ratio_embedder", name="size.aspect_ratio")
    yield modulation(width, 6 * width, name="modulation.shared", module="adaln_single.linear")
    if config.has("caption_channels"):
        yield from text_projection(config.integer("caption_channels"), width, "caption_projection")
    yield from dit.self_attention()
    yield from dit.cross_attention(config.integer("cross_attention_dim", default=1152))
    yield from dit.feed_forward("gelu-approximate")
    yield dit.output(dit.grid.volume * output_channels(config, inputs, 8))


@diffusers_model(
    "models/transformers/sana_transformer.py", "SanaTransformer2DModel", "SanaPipeline", "SanaSprintPipeline",
    "SanaSprintImg2ImgPipeline", "SanaPAGPipeline",
)  # fmt: skip
def sana(config: Config) -> Iterator[Work]:
    """Sana, Sana 1.5 and Sana-Sprint, text to image.

    Linear attention multiplies values, with a row of ones below them, by keys, and the result by queries: 4n(d + 1)d per
    token for n heads of width d, so nothing grows with the square of the tokens but the prompt's part. The MLP is
    a 1×1 convolution to twice its width m, a depthwise 3×3 (18 × 2m per token), a gate, and a 1×1 back.
    """
    dit = Denoiser.of(config, square_patch(config, 1), 20, 70, 32)
    width, inputs = dit.width, config.integer("in_channels", default=32)
    yield dit.patch(inputs, "patch_embed.proj")
    guided = config.flag("guidance_embeds")
    embedder = "time_embed" if guided else "time_embed.emb"
    yield from timestep(256, width, f"{embedder}.timestep_embedder")
    if guided:
        yield from timestep(256, width, f"{embedder}.guidance_embedder", name="guidance")
    yield modulation(width, 6 * width, name="modulation.shared", module="time_embed.linear")
    yield from text_projection(config.integer("caption_channels", default=2304), width, "caption_projection")
    yield from _linear_attention(dit)
    heads, dim = config.integer("num_cross_attention_heads", default=20), config.integer("cross_attention_head_dim", default=112)
    pairs, source = dit.grid.prompt_pairs, config.integer("cross_attention_dim", default=2240)
    yield from cross_attention(width, heads, dim, dit.layers, rows=dit.rows, of=pairs, source_width=source, stack=dit.stack)
    yield from _convolutions(dit.rows, width, int(config.number("mlp_ratio", default=2.5) * width), dit.layers)
    yield dit.output(dit.grid.volume * output_channels(config, inputs, 32))


def _linear_attention(dit: Denoiser) -> Iterator[Work]:
    """Yield the projections and the two products of attention without a softmax: keys × values first, then × queries."""
    grid, layers, heads, dim, width = dit.grid, dit.layers, dit.heads, dit.dim, dit.width
    for what, module in zip(("q", "k", "v"), TO_QUERIES, strict=False):
        yield matmul(f"linear_attention.{what}", grid.stream, width, width, layers, stack=STACK, module=f"attn1.{module}", to=None)
    flops = 2 * heads * (dim + 1) * dim
    made = ("linear_attention.k", "linear_attention.v")
    yield contraction("linear_attention.state", grid.stream, flops, layers, stack=STACK, reads=made)
    reads = ("linear_attention.q", "linear_attention.state")
    yield contraction("linear_attention.values", grid.stream, flops, layers, stack=STACK, reads=reads)
    values = ("linear_attention.values",)
    yield matmul("linear_attention.out", grid.stream, width, width, layers, stack=STACK, module="attn1.to_out.0", reads=values)


def _convolutions(rows: Quantity, width: int, inner: int, layers: Sequence[int]) -> Iterator[Work]:
    """Yield the gated MLP of convolutions: out, over the neighbours, back."""
    both = 2 * inner
    yield convolution("mlp.gate_up", rows, 1, width, both, layers, stack=STACK, module="ff.conv_inverted", to=None)
    yield convolution(
        "mlp.depthwise", rows, 9, both, both, layers, groups=both, stack=STACK, module="ff.conv_depth", reads=("mlp.gate_up",), to=None
    )
    yield convolution("mlp.down", rows, 1, inner, width, layers, stack=STACK, module="ff.conv_point", reads=("mlp.depthwise",))


@diffusers_model("models/transformers/transformer_allegro.py", "AllegroTransformer3DModel", "AllegroPipeline")
def allegro(config: Config) -> Iterator[Work]:
    """Allegro, text to video.

    With I latent and P prompt tokens a sample costs 2I·L·14d² + 4P·L·d·c + 4Ld(I² + IP) + 2I·p²·d(C_in + C_out)
    + 2P(td + d²) + 2(256d + 7d²).
    """
    dit = Denoiser.of(config, square_patch(config, 2), 32, 24, 96)
    width, side = dit.width, dit.grid.rows * dit.grid.columns
    yield from timestep(256, width, "adaln_single.emb.timestep_embedder")
    yield modulation(width, 6 * width, name="modulation.shared", module="adaln_single.linear")
    yield dit.patch(config.integer("in_channels", default=4), "pos_embed.proj", side)
    yield from text_projection(config.integer("caption_channels", default=4096), width, "caption_projection")
    yield from dit.self_attention()
    yield from dit.cross_attention(config.integer("cross_attention_dim", default=2304))
    yield from dit.feed_forward("gelu-approximate")
    yield dit.output(side * config.integer("out_channels", default=4))


PER_TOKEN = ("LTXImageToVideoPipeline", "LTXConditionPipeline")  # they give each token its own timestep


@diffusers_model("models/transformers/transformer_ltx.py", "LTXVideoTransformer3DModel", "LTXPipeline", *PER_TOKEN)
def ltx(config: Config) -> Iterator[Work]:
    """LTX-Video, text and image to video.

    With I latent and P prompt tokens a sample costs 2I·L·14d² + 4P·L·d·c + 4Ld(I² + IP) + 2I·d(C_in + C_out) + 2P(td + d²)
    + 2(256d + 7d²), c being the width of the prompt (= d). The last term counts per token instead of per sample in the
    image-to-video and condition pipelines, which set a timestep for each token; a bare transformer's config counts it once.
    """
    dit = Denoiser.of(config, square_patch(config, 1), 28, 32, 64)
    width, inputs = dit.width, config.integer("in_channels", default=128)
    rows = dit.rows if config.architecture in PER_TOKEN else ONCE
    yield dit.patch(inputs, "proj_in", 1)
    yield from timestep(256, width, "time_embed.emb.timestep_embedder", rows=rows)
    yield modulation(width, 6 * width, name="modulation.shared", module="time_embed.linear", rows=rows)
    yield from text_projection(config.integer("caption_channels", default=4096), width, "caption_projection")
    yield from dit.self_attention()
    yield from dit.cross_attention(config.integer("cross_attention_dim", default=2048))
    yield from dit.feed_forward("gelu-approximate")
    yield dit.output(output_channels(config, inputs, 128))


TIME = "temporal_transformer_blocks"


@diffusers_model("models/transformers/latte_transformer_3d.py", "LatteTransformer3DModel", "LattePipeline")
def latte(config: Config) -> Iterator[Work]:
    """Latte, text to video.

    With F frames of I tokens each and P prompt tokens, a layer within the frames costs 2FI·14d² + 4FP·d·c + 4dF(I² + IP), a layer
    across them 2FI·12d² + 4dI·F². The prompt's keys and values are computed for each frame anew, as the implementation does.
    """
    side = config.integer("patch_size", most=1024)
    space = Denoiser.of(config, LatentGrid(1, side, side), 1, 16, 88)
    time, grid, width, inputs = replace(space, stack=TIME), space.grid, space.width, config.integer("in_channels")
    within = quantity(f"latent pairs within frames, {grid.name}", lambda s: frames(s) * (grid.tokens(s) // frames(s)) ** 2)
    across = quantity(f"latent pairs across frames, {grid.name}", lambda s: grid.tokens(s) * frames(s))
    prompts = quantity("prompt tokens of all frames", lambda s: frames(s) * prompt_tokens(s))
    yield space.patch(inputs, "pos_embed.proj")
    yield from timestep(256, width, "adaln_single.emb.timestep_embedder")
    yield modulation(width, 6 * width, name="modulation.shared", module="adaln_single.linear")
    yield from text_projection(config.integer("caption_channels"), width, "caption_projection")
    yield from space.self_attention(within)
    yield from space.cross_attention(config.integer("cross_attention_dim"), prompts)
    yield from space.feed_forward("geglu")
    yield from time.self_attention(across, "attention.time")
    yield from time.feed_forward("geglu", "mlp.time")
    yield space.output(grid.volume * output_channels(config, inputs))


def frames(sample: Sample) -> int:
    """Return the frames of a sample's grid: attention here does not see the whole, so the number of tokens would not do."""
    return required("--latent", sample.latent and sample.latent[0], "a grid of latents (frames, rows, columns)")


@diffusers_model(
    "models/transformers/transformer_cosmos.py", "CosmosTransformer3DModel", "CosmosTextToWorldPipeline",
    "CosmosVideoToWorldPipeline", "Cosmos2TextToImagePipeline",
)  # fmt: skip
def cosmos(config: Config) -> Iterator[Work]:
    """Cosmos-Predict 1 and 2, with one timestep a sample.

    With I latent and P prompt tokens a sample costs 2I·L(6d² + 2df) + 4P·L·d·t + 4Ld(I² + IP) + 2I·v·d(C_in + C_out)
    + 2·4d² + 2[3L(da + 3ad) + da + 2ad], a being the rank of the modulation. Not covered, and refused: image context and
    projected prompts (Predict 2.5). Pipelines with a timestep per frame (Predict 2 video to world) modulate each token, which
    this does not count; they are not registered.
    """
    for field in ("img_context_dim_in", "use_crossattn_projection"):
        if config.values.get(field):
            raise config.error((field,), "is set, and no formula covers it", "--trace derives one from the model itself")
    dit = Denoiser.of(config, solid_patch(config, (1, 2, 2)), 28, 32, 128)
    width, layers = dit.width, dit.layers
    yield dit.patch(config.integer("in_channels", default=16) + config.flag("concat_padding_mask", True), "patch_embed.proj")
    yield from timestep(width, width, "time_embed.t_embedder", outputs=3 * width)
    yield lookup("time.norm", ONCE, "time_embed.norm", to="normed timestep")  # its weights need the input's gradient
    rank = config.integer("adaln_lora_dim", default=256)
    yield from _modulation("attention", width, rank, layers, dit.stack, "norm1.")
    yield from dit.self_attention()
    yield from _modulation("cross_attention", width, rank, layers, dit.stack, "norm2.")
    yield from dit.cross_attention(config.integer("text_embed_dim", default=1024))
    yield from _modulation("mlp", width, rank, layers, dit.stack, "norm3.")
    yield from dit.feed_forward(inner=int(config.number("mlp_ratio", default=4.0) * width))
    yield from _modulation("output", width, rank, range(1), "", "norm_out.", parts=2)
    yield dit.output(dit.grid.volume * config.integer("out_channels", default=16))


def _modulation(what: str, width: int, rank: int, layers: Sequence[int], stack: str, module: str, parts: int = 3) -> Iterator[Work]:
    """Yield a modulation of low rank: down from the timestep's features, up to shift, scale and gate."""
    down, up = f"modulation.{what}_down", f"modulation.{what}_up"
    yield matmul(down, ONCE, width, rank, layers, stack=stack, module=f"{module}linear_1", reads=("normed timestep",), to=None)
    yield matmul(up, ONCE, rank, parts * width, layers, stack=stack, module=f"{module}linear_2", reads=(down,))


LAYER = ("0", "2")  # an embedder is a sequence of linear, activation, linear


@diffusers_model("models/transformers/stable_audio_transformer.py", "StableAudioDiTModel", "StableAudioPipeline")
def stable_audio(config: Config) -> Iterator[Work]:
    """Stable Audio Open 1.0, text to audio: the latent grid is 1 × 1 × latents in time, and is not patched.

    The model puts one token before them; the prompt's tokens include the two for start and length that the pipeline appends.
    Cross-attention has fewer key than query heads; the MLP is gated. Fourier features of the timestep are a product of one
    column, counted and without a gradient.
    """
    dit = Denoiser.of(config, LatentGrid(1, 1, 1, extra=1), 24, 24, 64)
    width, latents = dit.width, dit.grid.latents
    source, inputs = config.integer("cross_attention_dim", default=768), config.integer("in_channels", default=64)
    text, features = config.integer("cross_attention_input_dim", default=768), config.integer("time_proj_dim", default=256)
    yield from text_projection(text, source, "cross_attention_proj", modules=LAYER)
    extent = config.integer("global_states_input_dim", default=1536)
    yield from timestep(extent, width, "global_proj", name="global", modules=LAYER, to="stream")
    yield contraction("time.fourier", ONCE, 2 * (features // 2), reads=("data",), gradient=False)
    yield from timestep(features, width, "timestep_proj", modules=LAYER, to="stream")
    yield convolution("latent.conv", latents, 1, inputs, inputs, module="preprocess_conv", reads=("data",), to="latent")
    yield matmul("latent.patch", latents, inputs, width, module="proj_in", reads=("latent",))
    yield from dit.self_attention()
    yield from dit.cross_attention(source, key_heads=config.integer("num_key_value_attention_heads", default=12))
    yield from feed_forward(width, 4 * width, dit.layers, rows=dit.rows, activation="swiglu", stack=dit.stack)
    outputs = config.integer("out_channels", default=64)
    yield dit.output(outputs, to="output")
    yield convolution("output.conv", latents, 1, outputs, outputs, module="postprocess_conv", reads=("output",), to="output")


@diffusers_model(
    "models/transformers/cogvideox_transformer_3d.py", "CogVideoXTransformer3DModel", "CogVideoXPipeline",
    "CogVideoXImageToVideoPipeline", "CogVideoXVideoToVideoPipeline", "CogVideoXFunControlPipeline",
)  # fmt: skip
def cogvideox(config: Config) -> Iterator[Work]:
    """CogVideoX 1.0 and 1.5 (2B, 5B), text and image to video.

    With I latent and P prompt tokens a sample costs 2(I + P)·L·12d² + 4Ld(I + P)² + 2I·v·d(C_in + C_out) + 2P·t·d
    + 2e(12Ld + 2d + d + e), e being the width of the timestep's embedding. The image of image-to-video comes as channels.
    """
    dit = Denoiser.of(config, square_patch(config, 2), 30, 30, 64, joint=True)
    width, vector = dit.width, config.integer("time_embed_dim", default=512)
    yield from timestep(width, vector, "time_embedding")
    offset = config.optional("ofs_embed_dim")
    if offset is not None:
        yield from timestep(offset, offset, "ofs_embedding", name="offset")
    yield dit.patch(config.integer("in_channels", default=16), "patch_embed.proj")
    text = config.integer("text_embed_dim", default=4096)
    yield matmul("prompt.proj", PROMPT, text, width, module="patch_embed.text_proj", reads=("data",))
    yield dit.modulated("modulation.attention", "norm1.linear", 6, vector)
    yield from dit.self_attention()
    yield dit.modulated("modulation.mlp", "norm2.linear", 6, vector)
    yield from dit.feed_forward("gelu-approximate")
    yield modulation(vector, 2 * width, name="output.modulation", module="norm_out.linear")
    yield dit.output(dit.grid.volume * config.integer("out_channels", default=16))


@diffusers_model("models/transformers/transformer_cogview3plus.py", "CogView3PlusTransformer2DModel", "CogView3PlusPipeline")
def cogview3(config: Config) -> Iterator[Work]:
    """CogView 3-Plus, text to image.

    With I latent and P prompt tokens a sample costs 2(I + P)·L·12d² + 4Ld(I + P)² + 2I·p²·d(C_in + C_out) + 2P·t·d
    + 2e(12Ld + 2d + d + e) + 2(6ce + e²), e being the width of the timestep's embedding, c that of a size's.
    """
    dit = Denoiser.of(config, square_patch(config, 2), 30, 64, 40, joint=True)
    yield from _before_mlp(config, dit)
    yield from dit.feed_forward()
    yield from _after_mlp(config, dit)


@diffusers_model(
    "models/transformers/transformer_cogview4.py", "CogView4Transformer2DModel", "CogView4Pipeline",
    "CogView4ControlPipeline",
)  # fmt: skip
def cogview4(config: Config) -> Iterator[Work]:
    """CogView 4, text to image: as CogView 3-Plus, but the MLP runs over latents and prompt apart, the last time for nothing."""
    dit = Denoiser.of(config, square_patch(config, 2), 30, 64, 40, joint=True)
    yield from _before_mlp(config, dit)
    yield from replace(dit, joint=False).feed_forward()
    for part, gradient in ((dit.layers[:-1], True), (dit.layers[-1:], False)):
        if part:
            yield from feed_forward(dit.width, 4 * dit.width, part, rows=PROMPT, stack=dit.stack, name="mlp.prompt", gradient=gradient)
    yield from _after_mlp(config, dit)


def _before_mlp(config: Config, dit: Denoiser) -> Iterator[Work]:
    """Yield the embedders of latents, prompt, timestep and sizes, and each block's modulation and attention."""
    vector, sizes = config.integer("time_embed_dim", default=512), config.integer("condition_dim", default=256)
    yield dit.patch(config.integer("in_channels", default=16), "patch_embed.proj")
    text = config.integer("text_embed_dim", default=4096)
    yield matmul("prompt.proj", PROMPT, text, dit.width, module="patch_embed.text_proj", reads=("data",))
    yield from timestep(dit.width, vector, "time_condition_embed.timestep_embedder")
    yield from timestep(6 * sizes, vector, "time_condition_embed.condition_embedder", name="size")
    yield dit.modulated("modulation.joint", "norm1.linear", 12, vector)
    yield from dit.self_attention()


def _after_mlp(config: Config, dit: Denoiser) -> Iterator[Work]:
    """Yield the last modulation and the projection of each latent token back to its patch."""
    vector = config.integer("time_embed_dim", default=512)
    yield modulation(vector, 2 * dit.width, name="output.modulation", module="norm_out.linear")
    yield dit.output(dit.grid.volume * config.integer("out_channels", default=16))


SOURCE = in_diffusers("models/transformers/transformer_wan.py")


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
    yield _wan_output(config, grid, width)


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
    yield _wan_output(config, grid, width)


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


def _conditions(config: Config, grid: LatentGrid, width: int) -> Iterator[Work]:
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


def _blocks(
    config: Config, grid: LatentGrid, layers: Sequence[int], stack: str, stream: str = "stream", prefix: str = ""
) -> Iterator[Work]:
    """Yield self-attention, cross-attention to the prompt (and to the image, with its own keys and values), and the MLP."""
    heads, dim, width = heads_and_width(config, 40, 128)
    rows, name = grid.stream, f"{prefix}cross_attention"
    yield from self_attention(
        width, heads, heads, dim, layers, rows=rows, of=grid.pairs, name=f"{prefix}attention", stack=stack, module="attn1",
        modules=TO_QUERIES, stream=stream,
    )  # fmt: skip
    image = list(_image_attention(config, grid, layers, stack, name))
    yield from cross_attention(
        width, heads, dim, layers, rows=rows, of=grid.prompt_pairs, source_width=width, name=name, stack=stack, stream=stream, beside=image
    )
    inner = config.integer("ffn_dim", default=13824)
    yield from feed_forward(width, inner, layers, rows=rows, stack=stack, module="ffn", name=f"{prefix}mlp", stream=stream)


def _image_attention(config: Config, grid: LatentGrid, layers: Sequence[int], stack: str, name: str) -> Iterator[Work]:
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


def _wan_output(config: Config, grid: LatentGrid, width: int) -> Work:
    """Return the projection of each token back to its patch."""
    channels = output_channels(config, config.integer("in_channels", default=16), 16)
    return matmul("output.proj", grid.stream, width, channels * grid.volume, module="proj_out")
