"""Diffusion transformers that are not MMDiTs of the first kind: each formula equals the trace of the model, to the integer."""

import json
from pathlib import Path
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.grids import LatentGrid
from ullage.models.model import MODELS, find
from ullage.models.passes import Training, booked
from ullage.models.sample import Sample
from ullage.models.work import Work

TRACED = Path(__file__).parents[3] / "shared" / "data" / "flops_traced.json"


def works(fields: dict[str, Any]) -> list[Work]:
    model, name = find(Config(fields))
    return list(model.function(Config(fields, architecture=name)))


def forward(fields: dict[str, Any], sample: Sample) -> int:
    return sum(w.flops * len(w.layers) * w.quantity.of(sample, "full") for w in works(fields))


def forward_and_backward(fields: dict[str, Any], sample: Sample) -> int:
    return sum(row.coefficient * row.quantity.of(sample, "full") for row in booked(works(fields), Training(backward="exact")))


# traced: torch 2.13, diffusers 0.42.1, meta device (Mochi on CPU with attention as two products);
# class, configuration, one sample, batch, FLOPs of forward, of forward and backward of the summed output.
# Mochi's traces hold its learned rotary frequencies, 2 × 3 × heads × dim / 2 FLOPs a token once for the batch (18 × 72 = 1296,
# 8 × 72 = 576) and as much for their gradient; rotary embeddings count 0.
# fmt: off
CASES: list[tuple[str, dict[str, Any], Sample, int, int, int]] = [
    ("WanTransformer3DModel",
     {"patch_size": [1, 2, 2], "num_attention_heads": 3, "attention_head_dim": 24, "in_channels": 5, "out_channels": 7, "text_dim":
      44, "freq_dim": 20, "ffn_dim": 52, "num_layers": 2},
     Sample(latent=(3, 4, 10), prompt=9), 2, 12_222_720, 36_375_552),
    ("WanTransformer3DModel",
     {"patch_size": [1, 2, 1], "num_attention_heads": 3, "attention_head_dim": 24, "in_channels": 5, "out_channels": 7, "text_dim":
      44, "freq_dim": 20, "ffn_dim": 52, "num_layers": 2, "image_dim": 28, "added_kv_proj_dim": 72},
     Sample(image_tokens=11, latent=(3, 4, 5), prompt=512), 1, 44_669_920, 130_719_648),
    ("WanTransformer3DModel",
     {"patch_size": [1, 2, 2], "num_attention_heads": 3, "attention_head_dim": 24, "in_channels": 5, "out_channels": 7, "text_dim":
      44, "freq_dim": 20, "ffn_dim": 52, "num_layers": 2, "expand_timesteps": True},
     Sample(latent=(3, 4, 10), prompt=9), 2, 16_599_168, 49_337_856),
    ("WanVACETransformer3DModel",
     {"patch_size": [1, 2, 2], "num_attention_heads": 3, "attention_head_dim": 24, "in_channels": 5, "out_channels": 7, "text_dim":
      44, "freq_dim": 20, "ffn_dim": 52, "num_layers": 3, "vace_layers": [0, 2], "vace_in_channels": 11},
     Sample(latent=(3, 4, 10), prompt=9), 2, 31_503_744, 93_838_464),
    ("DiTTransformer2DModel",
     {"num_attention_heads": 3, "attention_head_dim": 8, "in_channels": 5, "out_channels": 7, "num_layers": 2, "sample_size": 12,
      "patch_size": 3},
     Sample(latent=(1, 12, 12)), 3, 1_892_736, 5_463_936),
    ("DiTTransformer2DModel",
     {"num_attention_heads": 2, "attention_head_dim": 20, "in_channels": 4, "num_layers": 3, "sample_size": 16, "patch_size": 2,
      "activation_fn": "geglu"},
     Sample(latent_tokens=64), 2, 24_238_080, 72_386_560),
    ("LTXVideoTransformer3DModel",
     {"in_channels": 9, "out_channels": 11, "num_attention_heads": 3, "attention_head_dim": 8, "cross_attention_dim": 24,
      "num_layers": 2, "caption_channels": 13},
     Sample(latent=(2, 3, 5), prompt=7), 2, 2_549_280, 7_588_608),
    ("LTXImageToVideoPipeline",
     {"in_channels": 9, "out_channels": 11, "num_attention_heads": 3, "attention_head_dim": 8, "cross_attention_dim": 24,
      "num_layers": 3, "caption_channels": 13},
     Sample(latent_tokens=30, prompt=7), 2, 4_942_752, 14_056_320),
    ("CogVideoXTransformer3DModel",
     {"num_attention_heads": 3, "attention_head_dim": 16, "in_channels": 5, "out_channels": 7, "time_embed_dim": 20, "text_embed_dim":
      26, "num_layers": 2, "patch_size": 2},
     Sample(latent=(3, 6, 8), prompt=7), 2, 11_402_944, 34_031_808),
    ("CogVideoXTransformer3DModel",
     {"num_attention_heads": 3, "attention_head_dim": 16, "in_channels": 5, "out_channels": 7, "time_embed_dim": 20, "text_embed_dim":
      26, "num_layers": 3, "patch_size": 2, "patch_size_t": 2, "ofs_embed_dim": 20},
     Sample(latent=(4, 6, 8), prompt=7), 2, 12_024_000, 35_847_296),
    ("PixArtTransformer2DModel",
     {"num_attention_heads": 3, "attention_head_dim": 8, "in_channels": 5, "out_channels": 7, "num_layers": 2, "cross_attention_dim":
      24, "sample_size": 12, "patch_size": 2, "caption_channels": 13},
     Sample(latent=(1, 12, 8), prompt=7), 2, 2_074_656, 6_144_576),
    ("PixArtTransformer2DModel",
     {"num_attention_heads": 3, "attention_head_dim": 8, "in_channels": 5, "out_channels": 7, "num_layers": 3, "cross_attention_dim":
      24, "sample_size": 128, "patch_size": 2, "caption_channels": 13},
     Sample(latent=(1, 12, 8), prompt=7), 2, 3_049_248, 9_043_776),
    ("SanaTransformer2DModel",
     {"in_channels": 5, "out_channels": 7, "num_attention_heads": 3, "attention_head_dim": 8, "num_layers": 2,
      "num_cross_attention_heads": 2, "cross_attention_head_dim": 12, "cross_attention_dim": 24, "caption_channels": 13, "mlp_ratio":
      2.5, "sample_size": 12},
     Sample(latent=(1, 6, 10), prompt=7), 2, 4_818_720, 14_394_048),
    ("SanaTransformer2DModel",
     {"in_channels": 5, "out_channels": 7, "num_attention_heads": 3, "attention_head_dim": 8, "num_layers": 3,
      "num_cross_attention_heads": 2, "cross_attention_head_dim": 12, "cross_attention_dim": 24, "caption_channels": 13, "mlp_ratio":
      2.5, "sample_size": 12, "guidance_embeds": True, "patch_size": 2},
     Sample(latent=(1, 6, 10), prompt=7), 2, 1_990_656, 5_885_280),
    ("StableAudioDiTModel",
     {"sample_size": 16, "in_channels": 5, "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 4,
      "num_key_value_attention_heads": 2, "out_channels": 5, "cross_attention_dim": 14, "time_proj_dim": 18,
      "global_states_input_dim": 22, "cross_attention_input_dim": 13},
     Sample(latent=(1, 1, 16), prompt=7), 2, 2_788_988, 8_355_076),
    ("StableAudioDiTModel",
     {"sample_size": 16, "in_channels": 5, "num_layers": 3, "attention_head_dim": 8, "num_attention_heads": 4,
      "num_key_value_attention_heads": 1, "out_channels": 5, "cross_attention_dim": 14, "time_proj_dim": 18,
      "global_states_input_dim": 22, "cross_attention_input_dim": 13},
     Sample(latent_tokens=16, prompt=9), 3, 6_262_578, 18_767_718),
    ("HunyuanVideoTransformer3DModel",
     {"in_channels": 5, "out_channels": 7, "num_attention_heads": 3, "attention_head_dim": 16, "num_layers": 2, "num_single_layers":
      3, "num_refiner_layers": 2, "mlp_ratio": 3.0, "patch_size": 2, "text_embed_dim": 26, "pooled_projection_dim": 13},
     Sample(latent=(3, 4, 6), prompt=7), 2, 15_067_200, 44_942_592),
    ("HunyuanVideoTransformer3DModel",
     {"in_channels": 5, "out_channels": 7, "num_attention_heads": 3, "attention_head_dim": 16, "num_layers": 3, "num_single_layers":
      2, "num_refiner_layers": 2, "mlp_ratio": 3.0, "patch_size": 2, "text_embed_dim": 26, "pooled_projection_dim": 13,
      "image_condition_type": "token_replace", "guidance_embeds": False},
     Sample(latent=(3, 4, 6), prompt=7), 2, 15_371_328, 45_854_976),
    ("CogView3PlusTransformer2DModel",
     {"num_attention_heads": 3, "attention_head_dim": 16, "in_channels": 5, "out_channels": 7, "time_embed_dim": 20, "text_embed_dim":
      26, "num_layers": 2, "patch_size": 2, "condition_dim": 6, "sample_size": 12},
     Sample(latent=(1, 6, 8), prompt=7), 2, 4_735_040, 14_117_376),
    ("CogView4Transformer2DModel",
     {"num_attention_heads": 3, "attention_head_dim": 16, "in_channels": 5, "out_channels": 7, "time_embed_dim": 20, "text_embed_dim":
      26, "num_layers": 3, "patch_size": 2, "condition_dim": 6},
     Sample(latent=(1, 6, 8), prompt=7), 2, 7_020_992, 19_943_040),
    ("AllegroTransformer3DModel",
     {"num_attention_heads": 3, "attention_head_dim": 8, "in_channels": 5, "out_channels": 7, "num_layers": 2, "cross_attention_dim":
      24, "caption_channels": 13},
     Sample(latent=(3, 6, 8), prompt=7), 2, 3_212_832, 9_536_064),
    ("AllegroTransformer3DModel",
     {"num_attention_heads": 3, "attention_head_dim": 8, "in_channels": 5, "out_channels": 7, "num_layers": 3, "cross_attention_dim":
      24, "caption_channels": 13, "activation_fn": "geglu"},
     Sample(latent=(2, 4, 8), prompt=9), 1, 1_245_936, 3_704_544),
    ("LatteTransformer3DModel",
     {"num_attention_heads": 3, "attention_head_dim": 8, "in_channels": 5, "out_channels": 7, "num_layers": 2, "cross_attention_dim":
      24, "caption_channels": 13, "sample_size": 64, "patch_size": 2, "activation_fn": "gelu-approximate"},
     Sample(latent=(3, 6, 8), prompt=7), 2, 5_042_208, 15_024_192),
    ("LatteTransformer3DModel",
     {"num_attention_heads": 3, "attention_head_dim": 8, "in_channels": 5, "out_channels": 7, "num_layers": 1, "cross_attention_dim":
      24, "caption_channels": 13, "sample_size": 64, "patch_size": 2, "activation_fn": "geglu"},
     Sample(latent=(4, 4, 6), prompt=5), 1, 1_105_200, 3_277_152),
    ("CosmosTransformer3DModel",
     {"in_channels": 5, "out_channels": 7, "num_attention_heads": 3, "attention_head_dim": 24, "num_layers": 2, "mlp_ratio": 3.0,
      "text_embed_dim": 26, "adaln_lora_dim": 6, "patch_size": [1, 2, 2], "concat_padding_mask": False},
     Sample(latent=(3, 4, 6), prompt=7), 2, 10_064_448, 29_859_264),
    ("CosmosTransformer3DModel",
     {"in_channels": 5, "out_channels": 7, "num_attention_heads": 3, "attention_head_dim": 24, "num_layers": 3, "mlp_ratio": 3.0,
      "text_embed_dim": 26, "adaln_lora_dim": 6, "patch_size": [1, 2, 1], "concat_padding_mask": False, "extra_pos_embed_type": None},
     Sample(latent=(3, 4, 6), prompt=9), 1, 15_238_368, 45_450_720),
    ("SkyReelsV2Transformer3DModel",
     {"patch_size": [1, 2, 2], "num_attention_heads": 3, "attention_head_dim": 24, "in_channels": 5, "out_channels": 7, "text_dim":
      44, "freq_dim": 20, "ffn_dim": 52, "num_layers": 2},
     Sample(latent=(3, 4, 10), prompt=9), 2, 12_222_720, 36_375_552),
    ("SkyReelsV2Transformer3DModel",
     {"patch_size": [1, 2, 2], "num_attention_heads": 3, "attention_head_dim": 24, "in_channels": 5, "out_channels": 7, "text_dim":
      44, "freq_dim": 20, "ffn_dim": 52, "num_layers": 1, "inject_sample_info": True},
     Sample(latent=(3, 4, 10), prompt=9), 1, 3_344_832, 9_888_192),
    ("MochiTransformer3DModel",
     {"patch_size": 2, "num_attention_heads": 3, "attention_head_dim": 8, "num_layers": 3, "pooled_projection_dim": 18, "in_channels":
      5, "text_embed_dim": 16, "time_embed_dim": 10},
     Sample(latent=(3, 4, 6), prompt=7), 2, 2_280_720 - 1296, 6_779_872 - 2 * 1296),
    ("MochiTransformer3DModel",
     {"patch_size": 2, "num_attention_heads": 3, "attention_head_dim": 8, "num_layers": 1, "pooled_projection_dim": 18, "in_channels":
      5, "text_embed_dim": 16, "time_embed_dim": 10},
     Sample(latent=(2, 4, 4), prompt=5), 1, 175_808 - 576, 509_152 - 2 * 576),
]
# fmt: on


@pytest.mark.parametrize(("name", "fields", "sample", "batch", "flops", "_"), CASES)
def test_forward_equals_the_trace(name: str, fields: dict[str, Any], sample: Sample, batch: int, flops: int, _: int) -> None:
    assert batch * forward({"_class_name": name, **fields}, sample) == flops


@pytest.mark.parametrize(("name", "fields", "sample", "batch", "_", "flops"), CASES)
def test_exact_backward_equals_the_trace(name: str, fields: dict[str, Any], sample: Sample, batch: int, _: int, flops: int) -> None:
    assert batch * forward_and_backward({"_class_name": name, **fields}, sample) == flops


def test_every_family_here_has_a_case() -> None:
    here = {
        *("wan", "wan_vace", "skyreels", "dit", "ltx", "cogvideox", "cogview3", "cogview4", "pixart", "sana", "stable_audio"),
        *("hunyuan_video", "allegro", "latte", "cosmos", "mochi"),
    }
    assert {MODELS[name].family for name, *_ in CASES} == here


@pytest.mark.parametrize("case", ["wan2.1-t2v-1.3b_480p81f", "wan2.1-i2v-14b_480p81f", "ltx-video-2b_121f", "cogvideox-5b_49f"])
def test_released_models_equal_their_traces(case: str) -> None:
    if not TRACED.exists():
        pytest.skip("the traced cases are not beside this checkout")
    found = next((c for c in json.loads(TRACED.read_text())["cases"] if c["id"] == case), None)
    if found is None:
        pytest.skip(f"no traced case {case}")
    shapes, fields = found["shapes"], found["config"]
    latent = {"latent": tuple(shapes["latent"])} if "latent" in shapes else {"latent_tokens": shapes["tokens"]}
    sample = Sample(**latent, prompt=shapes["txt_tokens"], image_tokens=shapes.get("image_tokens", 0))
    assert shapes["batch"] * forward(fields, sample) == found["fwd_flops"]
    assert shapes["batch"] * forward_and_backward(fields, sample) == found["fwd_bwd_flops"]


WAN = {"_class_name": "WanTransformer3DModel"}  # all defaults: 14B, text to video
LATENT = (21, 60, 104)


def test_wan_cuts_its_latents_into_patches_of_1_2_2() -> None:
    # 21 × 60 × 104 = 131,040 latents are 32,760 tokens; counted without the patch, attention alone would be 16 times as much
    assert LatentGrid(1, 2, 2).tokens(Sample(latent=LATENT)) == 32_760
    assert forward(WAN, Sample(latent=LATENT, prompt=512)) == forward(WAN, Sample(latent_tokens=32_760, prompt=512))
    unpatched = forward({**WAN, "num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30}, Sample(latent_tokens=131_040, prompt=512))
    patched = forward({**WAN, "num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30}, Sample(latent=LATENT, prompt=512))
    assert 12 < unpatched / patched < 12.5


def test_what_does_not_fill_a_patch_is_cut_off() -> None:
    # 5 // 2 = 2 rows, 7 // 3 = 2 columns, 3 // 2 = 1 frame
    assert LatentGrid(2, 2, 3).tokens(Sample(latent=(3, 5, 7))) == 4


def test_reference_tokens_join_the_latents() -> None:
    assert LatentGrid(1, 2, 2).tokens(Sample(latent=(1, 4, 4), reference_tokens=6)) == 4 + 6


def test_pipelines_and_their_transformers_share_one_formula() -> None:
    assert MODELS["WanPipeline"] is MODELS["WanImageToVideoPipeline"] is MODELS["WanTransformer3DModel"]
    assert MODELS["HunyuanVideoPipeline"] is MODELS["HunyuanVideoTransformer3DModel"]


def test_a_timestep_per_token_costs_more_than_one_per_sample() -> None:
    # 7 d² + 256 d per token instead of per sample, for 32,760 tokens, d = 5120
    sample = Sample(latent=LATENT, prompt=512)
    more = forward({**WAN, "expand_timesteps": True}, sample) - forward(WAN, sample)
    assert more == 2 * (7 * 5120**2 + 256 * 5120) * (32_760 - 1)


def test_an_ltx_image_to_video_pipeline_gives_each_token_its_timestep() -> None:
    # 7 d² + 256 d per token, d = 2048
    sample = Sample(latent_tokens=6144, prompt=128)
    more = forward({"_class_name": "LTXImageToVideoPipeline"}, sample) - forward({"_class_name": "LTXPipeline"}, sample)
    assert more == 2 * (7 * 2048**2 + 256 * 2048) * 6143


@pytest.mark.parametrize(
    ("sample", "option"),
    [(Sample(prompt=512), "--latent"), (Sample(latent=LATENT), "--prompt-tokens"), (Sample(latent=(1, 1, 1), prompt=512), "--latent")],
)
def test_a_missing_shape_is_asked_for_by_its_option(sample: Sample, option: str) -> None:
    with pytest.raises(UllageError) as error:
        forward(WAN, sample)
    assert option in error.value.hint


def test_image_weights_ask_for_image_tokens() -> None:
    with pytest.raises(UllageError) as error:
        forward({**WAN, "image_dim": 1280, "added_kv_proj_dim": 5120}, Sample(latent=LATENT, prompt=512))
    assert "--image-tokens" in error.value.hint


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({**WAN, "patch_size": [2, 2]}, "patch_size of the configuration needs three numbers"),
        ({"_class_name": "WanVACETransformer3DModel", "vace_layers": [0, 40]}, "vace_layers of the configuration must name some"),
        ({"_class_name": "CosmosTransformer3DModel", "use_crossattn_projection": True}, "use_crossattn_projection"),
        ({"_class_name": "DiTTransformer2DModel", "activation_fn": "relu"}, "activation_fn of the configuration is 'relu'"),
        ({"_class_name": "LatteTransformer3DModel"}, "the configuration has no field patch_size"),
    ],
)
def test_a_contradictory_field_is_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UllageError) as error:
        works(fields)
    assert says in error.value.problem


def test_a_prompt_that_no_loss_sees_gets_no_gradient() -> None:
    # CogView 4 runs its MLP over the prompt once more after the last attention; nothing reads it
    fields = next(fields for name, fields, *_ in CASES if name == "CogView4Transformer2DModel")
    unread = [w for w in works({"_class_name": "CogView4Transformer2DModel", **fields}) if not w.gradient]
    assert {(w.name, tuple(w.layers)) for w in unread} == {("mlp.prompt.up", (2,)), ("mlp.prompt.down", (2,))}


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES}))
def test_works_of_one_stack_stand_together(name: str) -> None:
    # a stack is run through layer by layer; works that lay apart would be run as two stacks
    fields = next(fields for known, fields, *_ in CASES if known == name)
    stacks = [w.stack for w in works({"_class_name": name, **fields})]
    runs = [stack for i, stack in enumerate(stacks) if stack and (i == 0 or stacks[i - 1] != stack)]
    assert len(runs) == len(set(runs))


def test_output_channels_of_null_are_those_of_the_input() -> None:
    # 32,760 tokens of width 5120 to patches of 4 latents: 36 channels where the field is null, 16 where it is missing
    sample = Sample(latent=LATENT, prompt=512)
    more = forward({**WAN, "in_channels": 36, "out_channels": None}, sample) - forward({**WAN, "in_channels": 36}, sample)
    assert more == 2 * 32_760 * 5120 * 4 * (36 - 16)


def test_lora_on_the_attention_of_wan_finds_its_modules() -> None:
    # rank 4 on the queries of 40 layers, two attentions each: down 5120 × 4 and up 4 × 5120
    rows = booked(works(WAN), Training(lora_rank=4, lora_targets=("to_q",)))
    names = {r.name: r.coefficient for r in rows if ".lora_" in r.name and r.pass_ == "forward"}
    assert names == {f"{a}.q.lora_{x}": 40 * 2 * 5120 * 4 for a in ("attention", "cross_attention") for x in "ab"}
