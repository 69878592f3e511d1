"""Transformers with joint attention: Qwen-Image, Stable Diffusion 3, Flux, AuraFlow, Z-Image, and their ControlNets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.grids import LatentGrid
from ullage.models.latents import Streams
from ullage.models.model import MODELS, find
from ullage.models.passes import Training, booked
from ullage.models.sample import Sample

DATA = Path(__file__).parents[3] / "shared" / "data" / "flops_traced.json"

QWEN = {
    "patch_size": 2, "in_channels": 12, "out_channels": 3, "num_layers": 3, "attention_head_dim": 16, "num_attention_heads": 5,
    "joint_attention_dim": 56,
}  # fmt: skip
SD3 = {
    "patch_size": 2, "in_channels": 5, "out_channels": 3, "num_layers": 4, "attention_head_dim": 16, "num_attention_heads": 3,
    "joint_attention_dim": 40, "caption_projection_dim": 48, "pooled_projection_dim": 28,
}  # fmt: skip
FLUX = {
    "patch_size": 1, "in_channels": 20, "num_layers": 3, "num_single_layers": 2, "attention_head_dim": 16, "num_attention_heads": 5,
    "joint_attention_dim": 44, "pooled_projection_dim": 28,
}  # fmt: skip
FLUX2 = {
    "patch_size": 1, "in_channels": 20, "num_layers": 3, "num_single_layers": 2, "attention_head_dim": 16, "num_attention_heads": 5,
    "joint_attention_dim": 44, "timestep_guidance_channels": 24,
}  # fmt: skip
AURA = {
    "patch_size": 2, "in_channels": 5, "out_channels": 3, "num_mmdit_layers": 2, "num_single_dit_layers": 3, "attention_head_dim": 16,
    "num_attention_heads": 3, "joint_attention_dim": 40, "caption_projection_dim": 48,
}  # fmt: skip
Z = {
    "all_patch_size": [2],
    "all_f_patch_size": [1],
    "in_channels": 5,
    "dim": 96,
    "n_layers": 3,
    "n_refiner_layers": 2,
    "n_heads": 3,
    "cap_feat_dim": 40,
}

# traced: torch 2.13, diffusers 0.42.1, meta device; the configurations above with these changes, forward and forward with backward
TRACED: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], int, int, int]] = [
    ("QwenImageTransformer2DModel", QWEN, {}, {"latent_tokens": 60, "prompt": 7}, 2, 72_032_640, 212_560_000),
    (
        "QwenImageTransformer2DModel",
        QWEN,
        {"num_layers": 2},
        {"latent_tokens": 24, "reference_tokens": 36, "prompt": 9},
        1,
        24_941_440,
        72_594_560,
    ),
    (
        "QwenImageTransformer2DModel",
        QWEN,
        {"num_layers": 2, "out_channels": None, "zero_cond_t": True},
        {"latent_tokens": 24, "reference_tokens": 36, "prompt": 9},
        3,
        76_483_200,
        222_637_440,
    ),
    (
        "QwenImageControlNetModel",
        QWEN,
        {"num_layers": 2, "extra_condition_channels": 5},
        {"latent_tokens": 60, "prompt": 7},
        2,
        51_386_880,
        150_296_320,
    ),
    ("SD3Transformer2DModel", SD3, {}, {"latent": (1, 8, 12), "prompt": 7}, 2, 15_307_008, 45_720_576),
    (
        "SD3Transformer2DModel",
        SD3,
        {"num_layers": 3, "dual_attention_layers": [0, 1]},
        {"latent": (1, 12, 10), "prompt": 5},
        3,
        24_264_000,
        72_479_808,
    ),
    (
        "SD3Transformer2DModel",
        SD3,
        {"dual_attention_layers": [0, 1, 2, 3]},
        {"latent": (1, 12, 10), "prompt": 5},
        1,
        11_793_024,
        35_275_008,
    ),
    (
        "SD3ControlNetModel",
        SD3,
        {"num_layers": 2, "extra_conditioning_channels": 1},
        {"latent": (1, 8, 12), "prompt": 7},
        2,
        8_587_776,
        24_291_072,
    ),
    (
        "SD3ControlNetModel",
        SD3,
        {"num_layers": 3, "joint_attention_dim": None, "use_pos_embed": False},
        {"latent": (1, 8, 12), "prompt": 7},
        2,
        9_620_736,
        28_715_520,
    ),
    (
        "SD3ControlNetModel",
        SD3,
        {"num_layers": 3, "dual_attention_layers": [1]},
        {"latent": (1, 8, 12), "prompt": 7},
        2,
        13_832_064,
        40_042_368,
    ),
    ("FluxTransformer2DModel", FLUX, {}, {"latent_tokens": 60, "prompt": 7}, 2, 119_411_840, 357_662_080),
    (
        "FluxTransformer2DModel",
        FLUX,
        {"num_layers": 2, "num_single_layers": 3, "guidance_embeds": True, "out_channels": 5},
        {"latent_tokens": 24, "prompt": 9},
        3,
        83_455_680,
        249_687_360,
    ),
    ("FluxTransformer2DModel", FLUX, {"num_single_layers": 0}, {"latent_tokens": 24, "prompt": 9}, 3, 51_078_720, 146_458_560),
    (
        "FluxControlNetModel",
        FLUX,
        {"num_layers": 2, "num_single_layers": 3, "guidance_embeds": True},
        {"latent_tokens": 60, "prompt": 7},
        2,
        126_917_760,
        379_713_920,
    ),
    (
        "FluxControlNetModel",
        FLUX,
        {"num_layers": 2, "num_single_layers": 0},
        {"latent_tokens": 60, "prompt": 7},
        2,
        51_605_760,
        150_634_240,
    ),
    (
        "FluxControlNetModel",
        FLUX,
        {"num_layers": 2, "num_single_layers": 1, "num_mode": 4},
        {"latent_tokens": 60, "prompt": 7},
        2,
        77_854_720,
        232_606_720,
    ),
    (
        "FluxControlNetModel",
        FLUX,
        {"patch_size": 2, "num_layers": 2, "num_single_layers": 0, "conditioning_embedding_channels": 5},
        {"latent_tokens": 60, "prompt": 7},
        2,
        311_082_240,
        902_905_600,
    ),
    ("Flux2Transformer2DModel", FLUX2, {}, {"latent_tokens": 60, "prompt": 7}, 2, 127_221_120, 381_165_440),
    (
        "Flux2Transformer2DModel",
        FLUX2,
        {"num_single_layers": 3, "guidance_embeds": False, "mlp_ratio": 2.5, "out_channels": 6},
        {"latent_tokens": 24, "prompt": 9},
        1,
        31_633_920,
        94_757_760,
    ),
    ("Flux2Transformer2DModel", FLUX2, {"num_single_layers": 0}, {"latent_tokens": 24, "prompt": 9}, 1, 17_986_880, 53_736_000),
    ("AuraFlowTransformer2DModel", AURA, {}, {"latent": (1, 8, 12), "prompt": 7}, 2, 39_527_808, 118_388_352),
    (
        "AuraFlowTransformer2DModel",
        AURA,
        {"num_single_dit_layers": 0, "attention_head_dim": 32, "caption_projection_dim": 96},
        {"latent": (1, 8, 10), "prompt": 5},
        1,
        16_142_592,
        43_950_336,
    ),
    ("ZImageTransformer2DModel", Z, {}, {"latent": (1, 8, 12), "prompt": 7}, 2, 157_585_408, 471_461_888),
    (
        "ZImageTransformer2DModel",
        Z,
        {"dim": 72, "n_refiner_layers": 1, "n_heads": 2},
        {"latent": (1, 16, 20), "prompt": 40},
        1,
        107_532_416,
        321_796_480,
    ),
    ("ZImageTransformer2DModel", Z, {"dim": 288}, {"latent": (1, 16, 20), "prompt": 40}, 1, 1_720_238_080, 5_159_084_032),
]


def works(config: dict[str, Any]) -> list[Any]:
    model, name = find(Config(config))
    return list(model.function(Config(config, architecture=name)))


def forward(config: dict[str, Any], sample: Sample, batch: int = 1) -> int:
    return sum(w.flops * len(w.layers) * w.quantity.of(sample, "full") for w in works(config)) * batch


def trained(config: dict[str, Any], sample: Sample, batch: int = 1, **training: Any) -> int:
    rows = booked(works(config), Training(backward="exact", **training))
    return sum(r.coefficient * r.quantity.of(sample, "full") for r in rows) * batch


@pytest.mark.parametrize(("name", "base", "changes", "shapes", "batch", "once", "both"), TRACED)
def test_small_models_cost_what_their_trace_counts(name, base, changes, shapes, batch, once, both):
    config, sample = {**base, **changes, "_class_name": name}, Sample(**shapes)
    assert (forward(config, sample, batch), trained(config, sample, batch)) == (once, both)


@pytest.mark.parametrize(
    "case",
    [
        "qwen-image_b1_img4096_txt256",
        "qwen-image_b1_img8528_txt512",
        "flux.1-dev_b4_img1024_txt256",
        "sd3.5-large_1024px",
        "z-image_latent64x64",
    ],
)
def test_released_models_cost_what_their_trace_counts(case):
    if not DATA.exists():
        pytest.skip("the shared traces are not beside this checkout")
    traced = next((c for c in json.loads(DATA.read_text())["cases"] if c["id"] == case), None)
    if traced is None:
        pytest.skip(f"the shared traces hold no {case}")
    shapes = traced["shapes"]
    latent = (1, *shapes["latent"]) if "latent" in shapes else None
    # the record of Z-Image does not tell its prompt: its bmm of 15,360 × (30(1024 + p)² + 2·1024² + 2p²) FLOPs does, p = 128
    sample = Sample(latent=latent, latent_tokens=shapes.get("img_tokens"), prompt=shapes.get("txt_tokens", 128))
    config, batch = traced["config"], shapes["batch"]
    assert (forward(config, sample, batch), trained(config, sample, batch)) == (traced["fwd_flops"], traced["fwd_bwd_flops"])


def test_qwen_image_is_its_closed_form():
    # 2[12Ld²(I + P) + CdI + JdP + 4C'dI + 12Ld² + 256d + 3d²] + 4Ld(I + P)², by hand with L = 3, d = 80, I = 60, P = 7
    d, i, p = 80, 60, 7
    dense = 36 * d * d * (i + p) + 12 * d * i + 56 * d * p + 12 * d * i + 36 * d * d + 256 * d + 3 * d * d
    assert forward({**QWEN, "_class_name": "QwenImagePipeline"}, Sample(latent_tokens=i, prompt=p)) == 2 * dense + 12 * d * (i + p) ** 2


# traced: torch 2.13, diffusers 0.42.1, peft 0.21, meta device, batch 2, rank 3; forward with backward
ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")


@pytest.mark.parametrize(
    ("name", "base", "changes", "shapes", "targets", "flops"),
    [
        ("QwenImageTransformer2DModel", QWEN, {}, {"latent_tokens": 60, "prompt": 7}, ATTENTION, 148_464_000),
        ("QwenImageTransformer2DModel", QWEN, {}, {"latent_tokens": 60, "prompt": 7}, ("add_k_proj",), 141_730_880),
        ("FluxTransformer2DModel", FLUX, {}, {"latent_tokens": 60, "prompt": 7}, ATTENTION, 252_581_760),
        ("FluxTransformer2DModel", FLUX, {}, {"latent_tokens": 60, "prompt": 7}, ("net.0.proj",), 234_800_000),
        ("SD3Transformer2DModel", SD3, {"dual_attention_layers": [0, 1]}, {"latent": (1, 8, 12), "prompt": 7}, ATTENTION, 36_755_712),
        ("SD3Transformer2DModel", SD3, {"dual_attention_layers": [0, 1]}, {"latent": (1, 8, 12), "prompt": 7}, ("add_k_proj",), 33_908_160),
    ],
)
def test_adapters_cost_what_their_trace_counts(name, base, changes, shapes, targets, flops):
    config = {**base, **changes, "_class_name": name}
    assert trained(config, Sample(**shapes), 2, lora_rank=3, lora_targets=targets) == flops


@pytest.mark.parametrize(
    ("name", "config", "latent", "tokens"),
    [
        ("QwenImagePipeline", QWEN, (1, 128, 128), 4096),  # 128/2 × 128/2
        ("FluxPipeline", FLUX, (1, 128, 128), 4096),  # patch_size 1 after the pipeline has packed 2×2
        ("Flux2Pipeline", FLUX2, (1, 128, 96), 3072),
        ("StableDiffusion3Pipeline", SD3, (1, 128, 128), 4096),
        ("AuraFlowPipeline", AURA, (1, 128, 128), 4096),
        ("ZImagePipeline", Z, (1, 128, 128), 4096),
        ("ZImagePipeline", Z, (1, 20, 20), 128),  # 100, padded to a multiple of 32
    ],
)
def test_latents_are_patched_as_the_model_does(name, config, latent, tokens):
    embedder = next(w for w in works({**config, "_class_name": name}) if w.group == "latent")
    assert embedder.quantity.of(Sample(latent=latent, prompt=5), "full") == tokens


@pytest.mark.parametrize("name", ["QwenImageEditPipeline", "QwenImageEditPlusPipeline", "FluxKontextPipeline", "Flux2Pipeline"])
def test_reference_latents_join_the_latent_stream(name):
    config = {**(QWEN if name.startswith("Qwen") else FLUX2 if "2" in name else FLUX), "_class_name": name}
    joined = forward(config, Sample(latent_tokens=24, reference_tokens=36, prompt=7))
    assert joined == forward(config, Sample(latent_tokens=60, prompt=7)) > forward(config, Sample(latent_tokens=24, prompt=7))


@pytest.mark.parametrize(
    "name",
    [
        "QwenImageImg2ImgPipeline", "QwenImageInpaintPipeline", "QwenImageControlNetPipeline", "StableDiffusion3Img2ImgPipeline",
        "StableDiffusion3InpaintPipeline", "StableDiffusion3ControlNetPipeline", "FluxImg2ImgPipeline", "FluxInpaintPipeline",
        "FluxFillPipeline", "FluxControlPipeline", "FluxControlNetPipeline", "ZImageImg2ImgPipeline",
    ],
)  # fmt: skip
def test_pipelines_that_do_not_lengthen_the_sequence_are_their_transformer(name):
    plain = {"Qwen": "QwenImagePipeline", "Stab": "StableDiffusion3Pipeline", "Flux": "FluxPipeline", "ZIma": "ZImagePipeline"}[name[:4]]
    assert MODELS[name] is MODELS[plain]


def test_a_latent_that_patches_do_not_divide_is_refused():
    with pytest.raises(UllageError, match="a latent of 1 × 65 × 64 can't be cut into patches of 1 × 2 × 2"):
        Streams(LatentGrid(1, 2, 2)).latent(Sample(latent=(1, 65, 64), prompt=7))


@pytest.mark.parametrize(("sample", "option"), [(Sample(prompt=7), "--latent"), (Sample(latent=(1, 64, 64)), "--prompt-tokens")])
def test_a_missing_stream_is_asked_for(sample, option):
    with pytest.raises(UllageError) as error:
        forward({**SD3, "_class_name": "StableDiffusion3Pipeline"}, sample)
    assert option in error.value.hint


def test_a_prompt_of_another_width_than_the_latents_is_refused():
    with pytest.raises(UllageError, match="caption_projection_dim of the configuration is 50, and heads × head width are 48"):
        works({**SD3, "caption_projection_dim": 50, "_class_name": "SD3Transformer2DModel"})


def test_the_last_prompt_block_of_qwen_image_gets_no_gradient():
    # nothing reads the prompt's stream after the last block: its output and MLP, 9d² a token, have no backward; d = 80, P = 7
    config, sample = {**QWEN, "_class_name": "QwenImagePipeline"}, Sample(latent_tokens=60, prompt=7)
    once = forward(config, sample)
    # and no gradient flows into the latents (C·d·I) and the timestep's sinusoids (256d)
    assert 3 * once - trained(config, sample) == 2 * (2 * 9 * 80 * 80 * 7 + 12 * 80 * 60 + 256 * 80)
