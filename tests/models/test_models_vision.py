"""Vision towers and vision-language models against traces: every forward and exact backward pass to the integer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.models.certified_configs import CONFIGS
from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.families.vision_language import canvas
from ullage.models.formula import Formula, compiled
from ullage.models.images import Images
from ullage.models.passes import Training, booked
from ullage.models.sample import Sample

SHARED = Path(__file__).parents[3] / "shared" / "data" / "flops_traced.json"


def formula(config: dict[str, Any]) -> Formula:
    return compiled(Config(config))


def forward(config: dict[str, Any], sample: Sample, batch: int = 1, attention: str = "full") -> int:
    return batch * sum(w.flops * len(w.layers) * w.quantity.of(sample, attention) for w in formula(config).works)


def trained(config: dict[str, Any], sample: Sample, batch: int = 1) -> int:
    rows = booked(formula(config).works, Training(backward="exact"))
    return batch * sum(row.coefficient * row.quantity.of(sample, "full") for row in rows)


def counted(config: dict[str, Any], sample: Sample, name: str) -> int:
    """How often a work is done in a sample."""
    return next(work.quantity.of(sample, "full") for work in formula(config).works if work.name == name)


# fmt: off
VIT = {
    "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 52, "image_size": [24, 40],
    "patch_size": 8,
}
DINO = {"hidden_size": 20, "num_hidden_layers": 3, "num_attention_heads": 4, "mlp_ratio": 2, "patch_size": 8, "num_labels": 5}
DINO3 = {**VIT, "hidden_size": 32, "num_register_tokens": 3}
SEEN = {**VIT, "image_size": 24}
CLIP_SEEN, TEXT = {**SEEN, "projection_dim": 20}, {
    "hidden_size": 28, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 44, "vocab_size": 99,
}
WIDE, SQUARE = Sample(pixels=((24, 40),)), Sample(pixels=((24, 24),))

# (class, config, sample, forward, forward + backward) of 2 samples.
# Traced: torch 2.13, transformers 5.23, meta device, eager attention; the loss sums every output of the head.
TOWERS: list[tuple[str, dict[str, Any], Sample, int, int]] = [
    ("ViTModel", VIT, WIDE, 2355264, 6651072),
    ("ViTModel", {**VIT, "pooler_output_size": 11}, WIDE, 2351664, 6640272),
    ("ViTForImageClassification", VIT, WIDE, 2350368, 6636384),
    ("DeiTModel", VIT, WIDE, 2490912, 7058016),
    ("DeiTForImageClassification", VIT, WIDE, 2486016, 7043328),
    ("DeiTForImageClassificationWithTeacher", VIT, WIDE, 2486304, 7044192),
    ("BeitModel", VIT, WIDE, 2350080, 6635520),
    ("BeitForImageClassification", {**VIT, "use_relative_position_bias": True}, WIDE, 2350368, 6636384),
    ("Dinov2Model", DINO, WIDE, 967680, 2672640),
    ("Dinov2Model", {**DINO, "use_swiglu_ffn": True}, WIDE, 1029120, 2856960),
    ("Dinov2ForImageClassification", DINO, WIDE, 968480, 2675040),
    ("Dinov2ForImageClassification", {**DINO, "use_swiglu_ffn": True}, WIDE, 1029920, 2859360),
    ("Dinov2WithRegistersModel", DINO, WIDE, 1190400, 3340800),
    ("Dinov2WithRegistersForImageClassification", {**DINO, "use_swiglu_ffn": True}, WIDE, 1268000, 3573600),
    ("DINOv3ViTModel", DINO3, WIDE, 2338560, 6647040),
    ("DINOv3ViTModel", {**DINO3, "use_gated_mlp": True}, WIDE, 2717952, 7785216),
    ("CLIPVisionModel", CLIP_SEEN, SQUARE, 1406592, 3970944),
    ("CLIPVisionModelWithProjection", CLIP_SEEN, SQUARE, 1409472, 3979584),
    ("CLIPForImageClassification", {"vision_config": CLIP_SEEN, "num_labels": 5}, SQUARE, 1407312, 3973104),
    ("CLIPTextModel", {**TEXT, "projection_dim": 20}, Sample(text=13), 658112, 1974336),
    ("CLIPTextModelWithProjection", {**TEXT, "projection_dim": 20}, Sample(text=13), 660352, 1981056),
    ("SiglipForImageClassification", {"vision_config": SEEN}, SQUARE, 1404576, 3722400),
    ("SiglipVisionModel", SEEN, SQUARE, 1404288, 3964032),
    ("SiglipVisionModel", {**SEEN, "vision_use_head": False}, SQUARE, 1283040, 3600288),
    ("SiglipTextModel", TEXT, Sample(text=13), 661248, 1983744),
    ("Siglip2VisionModel", SEEN, Sample(grids=((1, 3, 5),)), 2401344, 6789312),
]

# Qwen's towers and models, traced on the CPU: their shapes depend on the grids
QWEN = {"depth": 3, "num_heads": 4, "patch_size": 4}
QWEN2 = {**QWEN, "embed_dim": 32, "hidden_size": 40}
QWEN25 = {**QWEN, "hidden_size": 32, "intermediate_size": 44, "out_hidden_size": 40, "window_size": 32, "fullatt_block_indexes": [1]}
QWEN3 = {**QWEN, "hidden_size": 32, "intermediate_size": 44, "out_hidden_size": 40, "deepstack_visual_indexes": [0, 2]}
WORDS = {
    "vocab_size": 131, "hidden_size": 40, "intermediate_size": 52, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
EXPERTS = {**WORDS, "head_dim": 10, "moe_intermediate_size": 20, "num_experts": 6, "num_experts_per_tok": 2}
FILM, PICTURE = Sample(grids=((1, 6, 10), (3, 4, 14))), Sample(text=22, grids=((1, 6, 10),))
QWENS: list[tuple[str, dict[str, Any], Sample, int, int]] = [
    ("Qwen2VisionTransformerPretrainedModel", QWEN2, FILM, 25657344, 75571200),
    ("Qwen2_5_VisionTransformerPretrainedModel", QWEN25, FILM, 18754560, 54862848),
    ("Qwen3VLVisionModel", QWEN3, FILM, 23205888, 68216832),
    ("Qwen2VLForConditionalGeneration", {"text_config": WORDS, "vision_config": QWEN2}, PICTURE, 8740000, 25851360),
    ("Qwen2_5_VLForConditionalGeneration", {"text_config": WORDS, "vision_config": QWEN25}, PICTURE, 7016608, 20681184),
    ("Qwen3VLForConditionalGeneration", {"text_config": {**WORDS, "head_dim": 10}, "vision_config": QWEN3}, PICTURE, 8094880, 23916000),
    ("Qwen3VLMoeForConditionalGeneration", {"text_config": EXPERTS, "vision_config": QWEN3}, PICTURE, 7936480, 23440800),
]

# Other vision-language models, traced on the CPU: (class, config, sample, batch, forward, forward + backward)
SIDE = {
    "hidden_size": 36, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 44, "image_size": 24, "patch_size": 6,
}
CLIP, SIGLIP = {**SIDE, "model_type": "clip_vision_model"}, {**SIDE, "model_type": "siglip_vision_model"}
PIXTRAL = {**SIDE, "hidden_size": 48, "model_type": "pixtral"}
TELLS = {**WORDS, "head_dim": 10}
LLAMA, MISTRAL = {**TELLS, "model_type": "llama"}, {**TELLS, "model_type": "mistral", "sliding_window": None}
ALL = {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"}
STAGES = {
    "hidden_size": 36, "num_hidden_layers": 3, "num_global_layers": 2, "attention_heads": 4, "intermediate_size": 52,
    "image_size": 24, "patch_size": 8, "vision_output_dim": 108,
}
CROSSED = {**WORDS, "num_hidden_layers": 5, "cross_attention_layers": [1, 3]}
ONE, TWO = Sample(text=29, pixels=((24, 24),)), Sample(text=29, pixels=((24, 24), (24, 24)))
SPEAKING: list[tuple[str, dict[str, Any], Sample, int, int, int]] = [
    ("LlavaForConditionalGeneration", {"text_config": LLAMA, "vision_config": CLIP}, ONE, 2, 8305184, 23364384),
    ("LlavaForConditionalGeneration",
     {"text_config": LLAMA, "vision_config": CLIP, "vision_feature_layer": [-3, 1], "vision_feature_select_strategy": "full"},
     ONE, 2, 8415264, 22392288),
    ("LlavaForConditionalGeneration", {"text_config": MISTRAL, "vision_config": SIGLIP, **ALL}, ONE, 2, 8327072, 24345312),
    ("LlavaForConditionalGeneration", {"text_config": LLAMA, "vision_config": PIXTRAL, **ALL},
     Sample(text=29, pixels=((24, 30),)), 1, 5772240, 17109360),
    ("LlavaNextForConditionalGeneration",
     {"text_config": LLAMA, "vision_config": CLIP, "image_grid_pinpoints": [[24, 48], [48, 24], [48, 48]]},
     Sample(text=80, pixels=((20, 50),)), 1, 13781696, 39018336),
    ("InternVLForConditionalGeneration", {"text_config": {**TELLS, "model_type": "qwen2"}, "vision_config": SIDE},
     ONE, 2, 8228384, 24436320),
    ("InternVLForConditionalGeneration",
     {"text_config": {**TELLS, "model_type": "qwen2"}, "vision_config": SIDE, "vision_feature_layer": -2}, ONE, 2, 8228384, 23133984),
    ("PaliGemmaForConditionalGeneration",
     {"text_config": {**TELLS, "model_type": "gemma"}, "vision_config": SIGLIP, "projection_dim": 40}, ONE, 2, 8224672, 24038112),
    ("Gemma3ForConditionalGeneration",
     {"text_config": {**TELLS, "num_hidden_layers": 7, "model_type": "gemma3_text"}, "mm_tokens_per_image": 4,
      "vision_config": {**SIGLIP, "vision_use_head": False}}, ONE, 2, 14161056, 42234336),
    ("Idefics3ForConditionalGeneration", {"text_config": LLAMA, "vision_config": SIDE}, TWO, 2, 10805152, 31917792),
    ("SmolVLMForConditionalGeneration", {"text_config": LLAMA, "vision_config": SIDE}, TWO, 2, 10805152, 31917792),
    ("Mistral3ForConditionalGeneration", {"text_config": MISTRAL, "vision_config": PIXTRAL},
     Sample(text=29, pixels=((24, 36),)), 1, 6458576, 19126896),
    # The trace has the product that makes the mask as well: 2 × 32² for the padded tokens of each of two images, in no gradient
    ("MllamaForConditionalGeneration", {"text_config": CROSSED, "vision_config": STAGES},
     Sample(text=29, pixels=((24, 48),)), 2, 16110240 - 2 * 2 * 32**2, 47824864 - 2 * 2 * 32**2),
    ("MllamaForConditionalGeneration", {"text_config": CROSSED, "vision_config": STAGES}, Sample(text=29), 2, 5257120, 15771360),
    ("Qwen2AudioForConditionalGeneration",
     {"text_config": {**TELLS, "model_type": "qwen2"}, "audio_config": {
         "num_mel_bins": 10, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 52, "d_model": 36,
         "max_source_positions": 20}}, Sample(text=29, audio=40), 2, 8286880, 24687840),
]
# fmt: on


def names(rows: list[Any]) -> list[str]:
    return [f"{row[0]}-{row[-2]}" for row in rows]


@pytest.mark.parametrize(("name", "config", "sample", "fwd", "both"), TOWERS, ids=names(TOWERS))
def test_a_tower_costs_what_its_trace_counts(name, config, sample, fwd, both):
    config = {**config, "architectures": [name]}
    assert forward(config, sample, 2) == fwd
    assert trained(config, sample, 2) == both


@pytest.mark.parametrize(("name", "config", "sample", "fwd", "both"), QWENS, ids=names(QWENS))
def test_qwens_vision_costs_what_its_trace_counts(name, config, sample, fwd, both):
    config = {**config, "architectures": [name]}
    assert forward(config, sample) == fwd
    assert trained(config, sample) == both


@pytest.mark.parametrize(("name", "config", "sample", "batch", "fwd", "both"), SPEAKING, ids=names(SPEAKING))
def test_a_vision_language_model_costs_what_its_trace_counts(name, config, sample, batch, fwd, both):
    config = {**config, "architectures": [name]}
    assert forward(config, sample, batch) == fwd
    assert trained(config, sample, batch) == both


def test_one_text_and_one_image_are_compared_as_in_the_trace():
    # Traced: torch 2.13, transformers 5.23, meta device; batch 1
    both = Sample(text=13, pixels=((24, 24),))
    clip = {"model_type": "clip", "text_config": TEXT, "vision_config": CLIP_SEEN, "projection_dim": 20}
    assert (forward(clip, both), trained(clip, both)) == (1034952, 2980440)
    siglip = {"model_type": "siglip", "text_config": {**TEXT, "projection_size": 36}, "vision_config": SEEN}
    assert (forward(siglip, both), trained(siglip, both)) == (1033288, 2975448)


@pytest.mark.skipif(not SHARED.exists(), reason="the recorded traces are not here")
def test_the_windows_of_a_recorded_qwen_tower_are_counted_to_the_integer():
    case = next(c for c in json.loads(SHARED.read_text())["cases"] if c["id"] == "qwen2.5-vl-vision-4L_img32x32")
    sample = Sample(grids=((1, 32, 32),))
    assert forward(case["config"], sample) == case["fwd_flops"]
    assert trained(case["config"], sample) == case["fwd_bwd_flops"]


def test_a_configuration_with_the_texts_fields_at_the_top_counts_the_same():
    vision = {"depth": 3, "embed_dim": 32, "hidden_size": 40, "num_heads": 4, "in_chans": 3, "patch_size": 4, "mlp_ratio": 4}
    old = {**WORDS, "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "vision_config": vision}
    assert forward(old, PICTURE) == 8740000


def test_the_merger_works_once_for_each_merged_token():
    config = {"model_type": "qwen2_vl", "text_config": WORDS, "vision_config": QWEN2}
    assert counted(config, FILM, "vision.merger.up") == (60 + 168) // 4
    assert counted(config, FILM, "vision.attention.qkv") == 60 + 168
    assert counted(config, FILM, "vision.attention.scores") == 60**2 + 3 * 56**2  # frames of a video don't see each other


def test_windows_at_the_edge_are_smaller():
    # 12 × 20 patches in windows of 8 × 8: rows 8 + 4, columns 8 + 8 + 4. (64 + 16) × (64 + 64 + 16)
    assert Images(14, 14, merge=2).window_pairs(8).of(Sample(grids=((1, 12, 20),)), "full") == 80 * 144


def test_blocks_that_a_configuration_does_not_list_are_windowed():
    config = {**QWEN25, "model_type": "qwen2_5_vl_vision"}
    scores = {
        work.quantity.of(FILM, "full"): tuple(work.layers) for work in formula(config).works if work.name == "vision.attention.scores"
    }
    # windows of 8 × 8 patches: 6 × 10 → 36 × (64 + 4), thrice 4 × 14 → 16 × (64 + 36)
    assert scores == {36 * 68 + 3 * 16 * 100: (0, 2), 60**2 + 3 * 56**2: (1,)}


def test_images_without_text_and_text_without_images_are_both_a_step():
    config = {"model_type": "qwen3_vl", "text_config": {**WORDS, "head_dim": 10}, "vision_config": QWEN3}
    alone = forward({**WORDS, "head_dim": 10, "model_type": "qwen3"}, Sample(text=22))
    assert forward(config, Sample(text=22)) == alone
    assert forward(config, PICTURE) > alone


def test_the_language_model_lies_where_the_larger_model_has_it():
    from ullage.models.passes import path

    config = {"model_type": "qwen2_5_vl", "text_config": WORDS, "vision_config": QWEN25}
    places = {work.name: path(work, work.layers[0]) for work in formula(config).works}
    assert places["attention.q"] == "model.language_model.layers.0.self_attn.q_proj"
    assert places["vision.mlp.gate"] == "model.visual.blocks.0.mlp.gate_proj"
    assert places["vision.merger.down"] == "model.visual.merger.mlp.2"
    assert places["embedding"] == "model.language_model.embed_tokens"


def test_a_frozen_tower_needs_no_gradient_and_its_merger_only_that_of_its_weights():
    works = formula({"model_type": "qwen2_vl", "text_config": WORDS, "vision_config": QWEN2}).works
    rows = booked(works, Training(frozen=("model.visual.blocks", "model.visual.patch_embed")))
    passes = {(row.name, row.pass_) for row in rows if row.group.startswith("vision") and row.pass_ != "forward"}
    assert passes == {("vision.merger.up", "wgrad"), ("vision.merger.down", "dgrad"), ("vision.merger.down", "wgrad")}


def test_pixels_become_patches_as_the_model_cuts_them():
    sizes = Sample(pixels=((97, 131),))
    assert Images(16, 16, 1).of(sizes).grids == ((1, 6, 8),)  # a convolution leaves the rest out
    assert Images(16, 16, merge=2, fit="filled").of(sizes).grids == ((1, 8, 10),)  # 97 / 32 rounded up, twice
    assert Images(16, 16, merge=2, fit="nearest").of(sizes).grids == ((1, 6, 8),)  # 97 / 32 = 3.03, 131 / 32 = 4.09


def test_an_image_may_be_given_by_its_tokens_to_a_tower_of_its_own():
    config = {**SEEN, "model_type": "vit"}
    assert forward(config, Sample(image_tokens=10)) == forward(config, SQUARE)  # 3 × 3 patches and a class token


def test_llava_next_cuts_an_image_by_the_canvas_that_fits_it():
    # 480 × 640 keeps 504 × 672 pixels' worth, all of its own, on 672 × 672, and less on the others
    assert canvas((480, 640), ((336, 672), (672, 336), (672, 672))) == (672, 672)
    assert canvas((300, 600), ((336, 672), (672, 336), (672, 672))) == (336, 672)  # all kept on two: the one with less left empty
    config = {"model_type": "llava_next", "text_config": LLAMA, "vision_config": CLIP, "image_grid_pinpoints": [[24, 48], [48, 24]]}
    assert counted(config, Sample(text=80, pixels=((20, 50),)), "vision.attention.q") == 3 * 17  # two tiles, and the whole


def test_gemma_3_lets_the_tokens_of_an_image_see_each_other():
    config = dict(SPEAKING[8][1], model_type="gemma3")
    works = formula(config).works
    pairs = next(work.quantity for work in works if work.name == "attention.scores")
    # 29 × 30 / 2 pairs, and 4 × 3 / 2 more for each image of 4 tokens
    assert pairs.of(ONE, "causal") == 435 + 6
    assert pairs.of(TWO, "causal") == 435 + 12
    assert pairs.of(ONE, "full") == 29**2


def test_llama_vision_skips_its_cross_attention_layers_without_images_and_caches_images():
    config = {"model_type": "mllama", "text_config": CROSSED, "vision_config": STAGES}
    seen = Sample(text=1, context=28, pixels=((24, 48),))
    assert counted(config, seen, "vision.patch") == counted(config, seen, "cross_attention.k") == 0
    assert counted(config, seen, "cross_attention.scores") == 2 * 10  # two tiles of 9 patches and a class token
    assert counted(config, Sample(text=29), "cross_attention.q") == 0


def test_an_audio_model_without_sound_is_its_text():
    config = dict(SPEAKING[-1][1], model_type="qwen2_audio")
    assert forward(config, Sample(text=29)) == forward({**TELLS, "model_type": "qwen2"}, Sample(text=29))
    assert counted(config, Sample(text=29, audio=41), "conv.first") == 80  # frames of two whole windows


def test_old_llava_files_leave_the_texts_widths_to_its_class():
    # Llama's class: 4,096 wide, 32 layers, 11,008 inner; the projector of a tower 1,024 wide ends at 4,096
    vision = {**CLIP, "hidden_size": 1024, "num_attention_heads": 16, "image_size": 336, "patch_size": 14}
    works = formula({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": vision}).works
    shapes = {work.name: (work.shape, len(work.layers)) for work in works}
    assert shapes["vision.merger.up"] == ((1024, 4096), 1)
    assert shapes["mlp.up"] == ((4096, 11008), 32)
    assert shapes["head"] == ((4096, 32064), 1)


def test_internvls_own_files_count_what_the_librarys_do():
    own = {
        "model_type": "internvl_chat",
        "downsample_ratio": 0.5,
        "select_layer": -1,
        "llm_config": {**TELLS, "model_type": "qwen2"},
        "vision_config": SIDE,
    }
    assert forward(own, ONE, 2) == 8228384


def test_qwen3_omni_hears_seconds_in_windows():
    # 1,050 frames are ten chunks of 100, 13 tokens each, and one of 50: halved thrice 25, 13, 7. Windows of two chunks hold 26 tokens:
    # 137 tokens are five windows and one of 7, 5 × 26² + 7² = 3,429 pairs
    assert counted(CONFIGS["qwen3_omni_moe"][0], Sample(text=200, audio=1050), "encoder.attention.scores") == 3429


def test_released_kimi_files_count_what_the_librarys_do():
    # as released the tower's widths begin with vt_; the library's own configuration is the one that is certified
    certified = CONFIGS["kimi_k25"][0]
    section, renamed = certified["vision_config"], ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    released = {f"vt_{name}" if name in renamed else name: value for name, value in section.items()}
    own = {**certified, "architectures": ["KimiK25ForConditionalGeneration"], "vision_config": released}
    assert formula(own).works == formula(certified).works


@pytest.mark.parametrize(
    ("config", "sample", "says"),
    [
        ({**SEEN, "model_type": "vit"}, Sample(), "works on images, and none are given"),
        ({**SEEN, "model_type": "vit"}, Sample(pixels=((7, 24),)), "too small for patches of 8 × 8"),
        (SPEAKING[0][1] | {"model_type": "llava"}, Sample(text=9, pixels=((48, 48),)), "images of 24 × 24 pixels, not of 48 × 48"),
        (SPEAKING[0][1] | {"model_type": "llava"}, Sample(text=9, image_tokens=16), "don't follow from its tokens"),
        ({**QWEN2, "model_type": "qwen2_vl_vision"}, Sample(grids=((1, 3, 4),)), "can't be merged 2 × 2"),
    ],
)
def test_images_that_a_model_cannot_take_are_refused(config, sample, says):
    with pytest.raises(UllageError, match=says):
        forward(config, sample)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "qwen2_vl", "text_config": WORDS}, "has no field vision_config"),
        ({**QWEN2, "mlp_ratio": float("inf"), "model_type": "qwen2_vl_vision"}, "mlp_ratio of the configuration is inf"),
        ({**QWEN2, "num_heads": 5, "model_type": "qwen2_vl_vision"}, "does not divide the width of 32"),
        ({**QWEN25, "window_size": 4, "model_type": "qwen2_5_vl_vision"}, "holds no merged patch"),
        (SPEAKING[0][1] | {"model_type": "llava", "vision_feature_layer": 9}, "the tower has 4 layers"),
        (SPEAKING[0][1] | {"model_type": "llava", "vision_config": {**SIDE, "model_type": "resnet"}}, "no formula for the tower 'resnet'"),
        (SPEAKING[0][1] | {"model_type": "llava", "text_config": {**LLAMA, "model_type": "llamas"}}, "no formula for the architecture"),
        (
            SPEAKING[4][1] | {"model_type": "llava_next", "image_grid_pinpoints": [[24, 0]]},
            "image_grid_pinpoints of the configuration needs",
        ),
        (SPEAKING[5][1] | {"model_type": "internvl", "downsample_ratio": 0.0}, "must lie between 0.01 and 1"),
    ],
)
def test_a_contradiction_in_the_configuration_is_named(config, says):
    with pytest.raises(UllageError, match=says):
        formula(config)


JOINED = ("llava_onevision", "vipllava", "aya_vision", "deepseek_vl", "lighton_ocr", "hyperclovax_vision_v2", "qwen3_5", "glm4v", "voxtral")


@pytest.mark.parametrize("config", [c for family in JOINED for c in CONFIGS[family]], ids=lambda c: c["architectures"][0])
def test_a_joined_model_without_images_or_sound_costs_what_its_text_costs(config: dict[str, Any]):
    text = config["text_config"] if config["model_type"] != "voxtral" else {"head_dim": 128, **config["text_config"]}
    for sample in (Sample(text=9), Sample(text=70), Sample(text=1, context=30)):
        assert forward(config, sample) == forward(text, sample)


def test_a_tower_and_its_way_into_the_text_by_hand():
    # Aya Vision: 56 pixels are 4 × 4 patches, 48 wide; 3 layers of 4·48² + 2·48·80 weights and 16² pairs of 2·48 multiply-adds
    config, seen = CONFIGS["aya_vision"][0], Sample(text=9, pixels=((56, 56),))
    tower = 16 * 3 * 14 * 14 * 48 + 16 * 3 * (4 * 48**2 + 2 * 48 * 80) + 3 * 16**2 * 2 * 48
    pooled = (2 + 2 * 16) * 48**2 + 16 * 2 * 48 + 2 * 48 * 80  # by one query, run and read by nothing
    way = 4 * (4 * 48 * 56 + 28 * 40)  # four tokens of 2 × 2 patches through a gated projector
    assert forward(config, seen) - forward(config, Sample(text=9)) == 2 * (tower + pooled + way)


def test_sound_is_heard_in_chunks_by_hand():
    # 37 frames are two chunks of 16 and one of 5, 8, 8 and 3 positions of 48, in pairs 9 tokens of 40
    config = CONFIGS["qwen2_5_omni"][0]
    front = 37 * 3 * 20 * 48 + 19 * 3 * 48 * 48
    layers = 2 * (19 * (4 * 48**2 + 2 * 48 * 80) + (64 + 64 + 9) * 2 * 48)
    heard = forward(config, Sample(text=12, audio=37)) - forward(config, Sample(text=12))
    assert heard == 2 * (front + layers + 9 * 48 * 40)


def test_a_field_of_the_tower_that_is_null_is_missing_and_not_the_class_default():
    config = CONFIGS["qwen2_audio"][0]
    silent = {**config, "audio_config": {**config["audio_config"], "encoder_attention_heads": None}}
    with pytest.raises(UllageError, match=r"no field audio_config\.encoder_attention_heads"):
        formula(silent)
