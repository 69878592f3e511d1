"""Networks over planes of positions: ResNet, ConvNeXt, Swin, the UNets and autoencoders of diffusers; and DLRM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.model import find
from ullage.models.passes import Training, booked
from ullage.models.planes import PIXELS
from ullage.models.sample import Sample
from ullage.models.work import Work

DATA = Path(__file__).parents[3] / "shared" / "data" / "flops_traced.json"
EXACT = Training(backward="exact")


def works(fields: dict[str, Any], kind: str | None = None) -> list[Work]:
    model, name = find(Config(fields), kind)
    return list(model.function(Config(fields, architecture=name)))


def forward(fields: dict[str, Any], sample: Sample, batch: int = 1, kind: str | None = None) -> int:
    return sum(w.flops * len(w.layers) * w.quantity.of(sample, "full") for w in works(fields, kind)) * batch


def step(fields: dict[str, Any], sample: Sample, batch: int = 1, training: Training = EXACT) -> int:
    return sum(row.coefficient * row.quantity.of(sample, "full") for row in booked(works(fields), training)) * batch


@dataclass(frozen=True)
class Case:
    """A tiny configuration, a sample, and what the trace counted for a batch: forward, and forward with exact backward."""

    id: str
    fields: dict[str, Any]
    sample: Sample
    batch: int
    forward: int
    step: int


def image(height: int, width: int) -> Sample:
    return Sample(pixels=((height, width),))


def grid(rows: int, columns: int, prompt: int = 0, frames: int = 1) -> Sample:
    return Sample(latent=(frames, rows, columns), prompt=prompt)


SEVEN = {"id2label": {str(i): "a" for i in range(7)}}
ODD_RESNET = {"num_channels": 5, "embedding_size": 24, "hidden_sizes": [40, 72, 104], "depths": [2, 1, 3], "layer_type": "bottleneck"}
BASIC = {"embedding_size": 24, "hidden_sizes": [24, 72, 104], "depths": [2, 3, 1], "layer_type": "basic", **SEVEN}
EARLY = {
    "embedding_size": 24,
    "hidden_sizes": [24, 72],
    "depths": [2, 3],
    "layer_type": "bottleneck",
    "downsample_in_bottleneck": True,
    "downsample_in_first_stage": True,
}
ODD_CONVNEXT = {"num_channels": 5, "hidden_sizes": [24, 40, 72], "depths": [2, 1, 3], "num_stages": 3, "patch_size": 3}
TWO_STAGES = {"hidden_sizes": [24, 72], "depths": [3, 1], "num_stages": 2, **SEVEN}
ODD_SWIN = {
    "num_channels": 5,
    "embed_dim": 24,
    "depths": [2, 1, 3],
    "num_heads": [2, 3, 6],
    "window_size": 3,
    "patch_size": 3,
    "mlp_ratio": 3.5,
    "image_size": 69,
}
PADDED_SWIN = {"embed_dim": 36, "depths": [3, 2], "num_heads": [3, 6], "window_size": 5, "image_size": 99, **SEVEN}

THIN = {
    "depth_multiplier": 0.35,
    "tf_padding": False,
    "output_stride": 16,
    "first_layer_is_expansion": False,
    "num_channels": 5,
    **SEVEN,
}
WIDE = {
    "depth_multiplier": 1.4,
    "expand_ratio": 5,
    "output_stride": 8,
    "depth_divisible_by": 6,
    "min_depth": 20,
    "finegrained_output": False,
}
ODD_SEGFORMER = {
    "num_channels": 5,
    "num_encoder_blocks": 3,
    "depths": [2, 1, 3],
    "sr_ratios": [4, 2, 1],
    "hidden_sizes": [24, 40, 72],
    "patch_sizes": [7, 5, 3],
    "strides": [4, 2, 2],
    "num_attention_heads": [1, 2, 3],
    "mlp_ratios": [4, 3, 2],
    "decoder_hidden_size": 28,
    **SEVEN,
}

# traced: torch 2.13, transformers 5.23, meta device
IMAGES = [
    Case("resnet", {"model_type": "resnet", **ODD_RESNET}, image(70, 93), 2, 55776640, 128639520),
    Case("resnet-body", {"architectures": ["ResNetModel"], **ODD_RESNET}, image(70, 93), 2, 55775808, 128637024),
    Case("resnet-basic", {"model_type": "resnet", **BASIC}, image(99, 64), 3, 268922640, 772899120),
    Case("resnet-early-stride", {"model_type": "resnet", **EARLY}, image(99, 64), 1, 12638016, 26624448),
    Case("resnet50-of-transformers", {"model_type": "resnet"}, image(224, 224), 1, 8174280704, 24286814208),
    Case("convnext", {"model_type": "convnext", **ODD_CONVNEXT}, image(70, 93), 2, 68861472, 203504256),
    Case("convnext-body", {"architectures": ["ConvNextModel"], **ODD_CONVNEXT}, image(70, 93), 2, 68860896, 203502528),
    Case("convnextv2", {"model_type": "convnextv2", **ODD_CONVNEXT}, image(70, 93), 2, 68861472, 203504256),
    Case("convnext-two-stages", {"model_type": "convnext", **TWO_STAGES}, image(99, 64), 3, 72537552, 214958448),
    Case("mobilenet", {"model_type": "mobilenet_v2"}, image(70, 93), 2, 184730880, 548507520),
    Case("mobilenet-thin", {"model_type": "mobilenet_v2", **THIN}, image(97, 64), 1, 29867648, 87345024),
    Case("mobilenet-wide", {"model_type": "mobilenet_v2", **WIDE}, image(224, 224), 1, 5992667976, 17945489880),
    Case("segformer", {"model_type": "segformer", **ODD_SEGFORMER}, image(70, 93), 2, 83492352, 240316416),
    Case(
        "segformer-classes", {"architectures": ["SegformerForImageClassification"], **ODD_SEGFORMER}, image(70, 93), 2, 77204448, 221452704
    ),
    Case("segformer-body", {"architectures": ["SegformerModel"], **ODD_SEGFORMER}, image(70, 93), 2, 77202432, 221446656),
    Case("segformer-by-default", {"model_type": "segformer"}, image(64, 96), 1, 316465152, 945782784),
    Case("swin", {"model_type": "swin", **ODD_SWIN}, image(69, 93), 2, 133754592, 398183616),
    Case("swin-padded", {"model_type": "swin", **PADDED_SWIN}, image(99, 64), 3, 243687312, 726914736),
]

CROSS, PLAIN = "CrossAttn{}Block2D", "{}Block2D"


def blocks(*kinds: str) -> dict[str, list[str]]:
    """The block types of a path down, and their mirror image on the path up."""
    return {"down_block_types": [k.format("Down") for k in kinds], "up_block_types": [k.format("Up") for k in reversed(kinds)]}


SMALL_UNET = {
    "_class_name": "UNet2DConditionModel",
    "norm_num_groups": 4,
    "block_out_channels": [24, 40, 72],
    "cross_attention_dim": 36,
    "attention_head_dim": [2, 4, 8],
    "layers_per_block": 2,
    **blocks(CROSS, CROSS, PLAIN),
}
XL_LIKE = {
    **SMALL_UNET,
    **blocks(PLAIN, CROSS, CROSS),
    "layers_per_block": [1, 2, 3],
    "transformer_layers_per_block": [1, 2, 3],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 68,
    "time_cond_proj_dim": 28,
}
UPSCALER = {
    **SMALL_UNET,
    **blocks(PLAIN, CROSS, CROSS),
    "attention_head_dim": 8,
    "only_cross_attention": [True, True, False],
    "num_class_embeds": 20,
    "resnet_time_scale_shift": "scale_shift",
    "encoder_hid_dim": 52,
    "downsample_padding": 0,
    "conv_in_kernel": 5,
    "conv_out_kernel": 1,
}
CLASSES = {
    "_class_name": "UNet2DConditionModel",
    "norm_num_groups": 4,
    "block_out_channels": [24, 40],
    "cross_attention_dim": 36,
    **blocks("Attn{}Block2D", CROSS),
    "attention_head_dim": [4, 8],
    "class_embed_type": "projection",
    "projection_class_embeddings_input_dim": 44,
    "class_embeddings_concat": True,
    "mid_block_type": "UNetMidBlock2D",
}
DDPM = {
    "_class_name": "UNet2DModel",
    "norm_num_groups": 4,
    "block_out_channels": [24, 40, 72],
    "attention_head_dim": 4,
    "down_block_types": ["DownBlock2D", "AttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D"],
}
ONE_HEAD = {
    "_class_name": "UNet2DModel",
    "norm_num_groups": 4,
    "block_out_channels": [24, 40],
    "in_channels": 5,
    "out_channels": 6,
    **blocks("Attn{}Block2D", PLAIN),
    "attention_head_dim": None,
    "layers_per_block": 1,
    "add_attention": False,
    "downsample_padding": 0,
    "time_embedding_type": "fourier",
    "resnet_time_scale_shift": "scale_shift",
}
HOLLOW = {
    "_class_name": "UNet2DModel",
    "norm_num_groups": 4,
    "block_out_channels": [24, 40],
    "attention_head_dim": 8,
    **blocks("Attn{}Block2D", PLAIN),
    "mid_block_type": None,
    "num_class_embeds": 10,
}
CONTROL = {
    "norm_num_groups": 4,
    "block_out_channels": [24, 40, 72],
    "cross_attention_dim": 36,
    "attention_head_dim": [2, 4, 8],
    "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
    "conditioning_embedding_out_channels": [5, 7, 12],
    "conditioning_channels": 2,
}
CONTROL_XL = {
    "_class_name": "ControlNetModel",
    "norm_num_groups": 4,
    "block_out_channels": [24, 40],
    "cross_attention_dim": 36,
    "attention_head_dim": [2, 4],
    "num_attention_heads": [4, 8],
    "transformer_layers_per_block": [1, 2],
    "layers_per_block": 1,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 68,
}
STEERED = {**SMALL_UNET, "architectures": ["StableDiffusionControlNetPipeline", "UNet2DConditionModel"], "controlnet": CONTROL}
VAE = {
    "norm_num_groups": 4,
    "block_out_channels": [24, 40, 72],
    "layers_per_block": 2,
    "latent_channels": 6,
    "down_block_types": ["DownEncoderBlock2D", "AttnDownEncoderBlock2D", "DownEncoderBlock2D"],
    "up_block_types": ["UpDecoderBlock2D", "AttnUpDecoderBlock2D", "UpDecoderBlock2D"],
}
BARE_VAE = {
    "norm_num_groups": 4,
    "block_out_channels": [24, 40],
    "in_channels": 5,
    "out_channels": 7,
    "mid_block_add_attention": False,
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}
WAN = {"base_dim": 6, "z_dim": 5, "dim_mult": [1, 2, 4], "num_res_blocks": 1, "temperal_downsample": [True, True]}
WAN_2_2 = {
    "base_dim": 6,
    "decoder_base_dim": 10,
    "z_dim": 5,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 2,
    "is_residual": True,
    "temperal_downsample": [False, True, True],
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
}
QWEN_VAE = {"base_dim": 6, "z_dim": 5, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 1, "temperal_downsample": [False, True, True]}


def named(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"_class_name": name, **fields}


# traced: torch 2.13, diffusers 0.42, meta device
DIFFUSION = [
    Case("unet-inpaint", {**SMALL_UNET, "in_channels": 9}, grid(18, 22, 7), 2, 679216512, 2033770752),
    Case("unet-xl-lcm-odd-grid", XL_LIKE, grid(19, 21, 11), 3, 1224095808, 3660063552),
    Case("unet-upscaler", UPSCALER, grid(20, 24, 11), 1, 273664608, 818644032),
    Case("unet-classes", CLASSES, grid(8, 12, 5), 2, 86362368, 258441216),
    Case("unet-ddpm", DDPM, grid(16, 12), 2, 193566720, 580193280),
    Case("unet-one-head", ONE_HEAD, grid(16, 12), 2, 109510656, 327684096),
    Case("unet-no-middle", HOLLOW, grid(16, 12), 2, 150451200, 450846720),
    Case("controlnet", named("ControlNetModel", CONTROL), grid(18, 22, 7), 2, 269445696, 804275136),
    Case("controlnet-xl", CONTROL_XL, grid(13, 17, 7), 2, 1056323712, 3143408640),
    Case("unet-and-controlnet", STEERED, grid(16, 12, 7), 2, 387379200, 1158492672),
    Case("vae", named("AutoencoderKL", VAE), image(45, 66), 2, 2973630528, 8913193344),
    Case("vae-encode", named("AutoencoderKL.encode", VAE), image(45, 66), 2, 1095276864, 3278132352),
    Case("vae-decode", named("AutoencoderKL.decode", VAE), grid(11, 16), 2, 1878353664, 5635035648),
    Case("bare-vae", named("AutoencoderKL", BARE_VAE), image(32, 24), 1, 159879168, 477978624),
    Case("wan-vae", named("AutoencoderKLWan", WAN), grid(3, 5, frames=3), 2, 136435140, 405106380),
    Case("wan-vae-encode", named("AutoencoderKLWan.encode", WAN), grid(3, 5, frames=3), 2, 46501200, 135304560),
    Case("wan-vae-decode", named("AutoencoderKLWan.decode", WAN), grid(3, 5, frames=3), 2, 89933940, 269797320),
    Case("wan-2.2-vae", named("AutoencoderKLWan", WAN_2_2), grid(2, 3, frames=3), 1, 503379252, 1496700828),
    Case("qwen-image-vae", named("AutoencoderKLQwenImage", QWEN_VAE), image(32, 24), 2, 68846064, 205045200),
]

TINY_DLRM = {
    "model_type": "dlrm",
    "dense_features": 5,
    "bottom_mlp": [24, 12],
    "top_mlp": [40, 8, 3],
    "embedding_dim": 12,
    "sparse_features": 7,
}
CRITEO_DLRM = {
    "model_type": "dlrm",
    "dense_features": 13,
    "bottom_mlp": [512, 256, 64],
    "top_mlp": [512, 256, 1],
    "embedding_dim": 64,
    "sparse_features": 26,
}
LOW_RANK = {**TINY_DLRM, "interaction_type": "dcn", "dcn_num_layers": 3, "dcn_low_rank_dim": 10}
FULL_RANK = {**TINY_DLRM, "interaction_type": "dcn", "dcn_num_layers": 2}

# traced: torch 2.13, meta device, a plain module of these layers
ROWS = [
    Case("dlrm", TINY_DLRM, Sample(), 3, 18720, 55440),
    Case("dlrm-criteo", CRITEO_DLRM, Sample(), 3, 3267456, 9762432),
    Case("dlrm-dcn", LOW_RANK, Sample(), 3, 62112, 185616),
    Case("dlrm-dcn-full", FULL_RANK, Sample(), 3, 138144, 413712),
]
CASES = [*IMAGES, *DIFFUSION, *ROWS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_forward_pass_is_what_the_trace_counted(case: Case) -> None:
    assert forward(case.fields, case.sample, case.batch) == case.forward


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_exact_backward_pass_is_what_the_trace_counted(case: Case) -> None:
    assert step(case.fields, case.sample, case.batch) == case.step


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_weight_has_a_path_and_no_two_share_one(case: Case) -> None:
    paths = [(w.stack, layer, w.module) for w in works(case.fields) if w.shape for layer in w.layers]
    assert len(paths) == len(set(paths))
    assert all(stack or module for stack, _, module in paths)


@pytest.mark.parametrize(("name", "sample"), [("convnext-base_b8", image(224, 224)), ("sd1.5-unet_512px", grid(64, 64, 77))])
def test_released_models_are_what_the_shared_traces_say(name: str, sample: Sample) -> None:
    if not DATA.exists():
        pytest.skip("the traced cases are not on this machine")
    case = next(c for c in json.loads(DATA.read_text())["cases"] if c["id"] == name)
    batch = case["shapes"]["batch"]
    assert forward(case["config"], sample, batch) == case["fwd_flops"]
    assert step(case["config"], sample, batch) == case["fwd_bwd_flops"]


def test_sdxl_is_what_the_trace_counted() -> None:
    fields = {
        "_class_name": "UNet2DConditionModel",
        "cross_attention_dim": 2048,
        "attention_head_dim": [5, 10, 20],
        **blocks(PLAIN, CROSS, CROSS),
        "block_out_channels": [320, 640, 1280],
        "transformer_layers_per_block": [1, 2, 10],
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "projection_class_embeddings_input_dim": 2816,
    }
    # traced: torch 2.13, diffusers 0.42, meta device; one latent of 128 × 128, 77 prompt tokens
    assert forward(fields, grid(128, 128, 77)) == 6_761_236_398_080
    assert step(fields, grid(128, 128, 77)) == 20_230_842_449_920


def test_torchvision_names_stand_for_whole_networks() -> None:
    # ResNet-50 with 1000 classes: the 2-class network above, and 998 classes × 2048 inputs × 2 more
    assert forward({"model_type": "resnet50"}, image(224, 224)) == 8174280704 + 998 * 2048 * 2
    # ResNet-18: stem 2·49·3·64·112² = 236,027,904. Stage 1, four 3x3 of 64 at 56²: 4·2·9·64²·56² = 924,844,032.
    # Stages 2-4 alike: the first 3x3 of half as many inputs, 3.5 instead of 4 at a quarter of the positions and four times the
    # channels' product (809,238,528), and a 1x1 shortcut of 2·64·128·28² = 12,845,056. Head 2·512·1000 = 1,024,000.
    assert forward({"model_type": "resnet18"}, image(224, 224)) == 236027904 + 924844032 + 3 * (809238528 + 12845056) + 1024000


def test_a_frozen_stem_and_stage_save_their_gradients() -> None:
    fields = {"model_type": "resnet", "embedding_size": 24, "hidden_sizes": [24, 72], "depths": [2, 3]}
    # traced with these parameters frozen: torch 2.13, transformers 5.23, meta device
    assert step(fields, image(96, 64), training=Training(frozen=("conv.stem",))) == 24310368
    frozen = Training(frozen=("conv.stem", "resnet.encoder.stages.0.*"))
    assert step(fields, image(96, 64), training=frozen) == 21877344


def test_training_a_controlnet_leaves_the_unets_path_down_without_gradients() -> None:
    unet = ("time_embedding.*", "conv_in", "down_blocks.*", "mid_block.*", "up_blocks.*", "conv_out")
    # traced with the UNet's parameters frozen: torch 2.13, diffusers 0.42, meta device
    assert step(STEERED, grid(16, 12, 7), 2, Training(frozen=unet)) == 807118080


def test_adapters_in_a_unets_attention_cost_what_the_trace_counted() -> None:
    lora = Training(lora_rank=4, lora_targets=("to_q", "to_k", "to_v", "to_out.0"))
    # traced with such adapters: torch 2.13, diffusers 0.42, peft, meta device; the prompt's keys need no gradient of their input
    assert step(SMALL_UNET, grid(18, 22, 7), 2, lora) == 1543057152


def test_swin_v2_leaves_out_the_position_bias_that_is_made_once_a_step() -> None:
    odd, padded = ({"model_type": "swinv2", **fields} for fields in (ODD_SWIN, PADDED_SWIN))
    # traced: torch 2.13, transformers 5.23, meta device: 134701792 for two images. The bias of a layer with h heads and
    # windows of w is 2·(2w-1)²·512·(2+h): w = 3 gives 25,600·(2+h), for two layers of 2 heads, one of 3, three of 6:
    # 25,600·(8+5+24) = 947,200, whatever the batch
    assert forward(odd, image(69, 93), 2) == 134701792 - 947200
    # w = 5: 82,944·(2+h), three layers of 3 heads and two of 6: 82,944·(15+16) = 2,571,264
    assert forward(padded, image(99, 64), 3) == 246258576 - 2571264


def test_an_autoencoder_is_its_encoder_and_its_decoder() -> None:
    parts = [forward(named(f"AutoencoderKL.{part}", VAE), image(45, 66)) for part in ("encode", "decode")]
    assert forward(named("AutoencoderKL", VAE), image(45, 66)) == sum(parts)
    # the kind given by the user's word finds the same part
    assert forward(named("AutoencoderKL", VAE), image(45, 66), kind="AutoencoderKL.decode") == parts[1]


def test_images_and_the_latents_that_they_become_cost_the_same() -> None:
    assert forward(named("AutoencoderKL", VAE), image(44, 64)) == forward(named("AutoencoderKL", VAE), grid(11, 16))
    still = named("AutoencoderKLWan", WAN_2_2)
    assert forward(still, image(32, 48)) == forward(still, grid(2, 3))


def test_several_images_of_a_sample_cost_the_sum() -> None:
    fields = {"model_type": "swin", **PADDED_SWIN}
    both = Sample(pixels=((99, 64), (40, 60)))
    assert forward(fields, both) == forward(fields, image(99, 64)) + forward(fields, image(40, 60))


def test_a_dlrm_by_hand() -> None:
    # bottom 5·24 + 24·12 = 408; 7 embeddings and the bottom make 8 features: 8²·12 = 768 products;
    # top: 12 + 28 pairs = 40 inputs, 40·40 + 40·8 + 8·3 = 1,944; 2 FLOPs each
    assert forward(TINY_DLRM, Sample()) == 2 * (408 + 768 + 1944) == 6240


def test_planes_of_one_name_are_one_plane() -> None:
    assert PIXELS.after(7, 2, 6).after(3, 2, 2).positions == PIXELS.after(7, 2, 6).after(3, 2, 2).positions
    assert PIXELS.after(7, 2, 6).positions != PIXELS.after(7, 2, 5).positions
    assert PIXELS.after(3, 1, 2) is PIXELS  # as large as before: the same positions


@pytest.mark.parametrize(
    ("fields", "sample", "says"),
    [
        ({"model_type": "resnet"}, Sample(), "--image"),
        ({"model_type": "convnext"}, image(3, 64), "too small"),
        (SMALL_UNET, Sample(prompt=7), "--latent"),
        (SMALL_UNET, grid(16, 16), "--prompt-tokens"),
        (SMALL_UNET, grid(16, 16, 7, frames=2), "2 frames"),
        (named("AutoencoderKLWan", WAN), Sample(), "--latent"),
    ],
)
def test_a_missing_or_impossible_shape_is_said(fields: dict[str, Any], sample: Sample, says: str) -> None:
    with pytest.raises(UllageError) as error:
        forward(fields, sample)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model_type": "resnet", "layer_type": "dense"}, "layer_type"),
        ({"model_type": "resnet", "depths": [2, 2]}, "hidden_sizes"),
        ({"model_type": "convnext", "depths": [3, 3, 9, 10_000_000]}, "depths"),
        ({"model_type": "swin", "num_heads": [2]}, "num_heads"),
        ({"model_type": "swin", "embed_dim": 4, "num_heads": [5, 6, 12, 24]}, "num_heads"),
        ({"model_type": "swin", "mlp_ratio": float("inf")}, "mlp_ratio"),
        ({"model_type": "mobilenet_v2", "depth_multiplier": float("nan")}, "depth_multiplier"),
        ({"model_type": "segformer", "strides": [4]}, "strides"),
        ({**SMALL_UNET, "attention_head_dim": [2, 4, 80]}, "attention_head_dim"),
        ({**SMALL_UNET, "down_block_types": ["KDownBlock2D"] * 3}, "down_block_types"),
        ({**SMALL_UNET, "up_block_types": ["UpBlock2D"]}, "up_block_types"),
        ({**SMALL_UNET, "addition_embed_type": "image"}, "addition_embed_type"),
        ({**SMALL_UNET, "dual_cross_attention": True}, "dual_cross_attention"),
        ({**SMALL_UNET, "only_cross_attention": [True]}, "only_cross_attention"),
        ({**SMALL_UNET, "layers_per_block": 100_000}, "layers_per_block"),
        ({**SMALL_UNET, "cross_attention_dim": [36]}, "cross_attention_dim"),
        ({**DDPM, "downsample_type": "resnet"}, "downsample_type"),
        ({**STEERED, "controlnet": None}, "controlnet"),
        (named("AutoencoderKLWan", {**WAN, "temperal_downsample": [True]}), "temperal_downsample"),
        (named("AutoencoderKLWan", {**WAN, "attn_scales": [0.5]}), "attn_scales"),
        ({**TINY_DLRM, "bottom_mlp": [24, 16]}, "bottom_mlp"),
        ({**TINY_DLRM, "interaction_type": "cat"}, "interaction_type"),
    ],
)
def test_a_contradictory_field_is_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UllageError) as error:
        works(fields)
    assert says in error.value.problem
