"""The audit of a reported MFU: each known mistake's factor, and which sets of them explain a number."""

from __future__ import annotations

import json
import math
import re
import shlex
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ullage
from ullage.asking.step import step_question
from ullage.audit.mfu import OFU_ERROR, UNLISTED, MfuFinding, audit
from ullage.audit.mistakes.mistake import MISTAKES, AuditedJob
from ullage.audit.mistakes.recount import together
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.models.config import Config
from ullage.reports.audit.audit import case_of

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

# 4 tokens, 2 layers; a layer and token: q 2·8·8 = 128, k and v 64 each, out 128, gate, up and down 256 each: 1152.
# Attention: 1 + 2 + 3 + 4 = 10 pairs at 2·2·2·4 = 32. The head 2·8·10 = 160 a token.
# Forward: 4·1152·2 + 10·32·2 + 4·160 = 9216 + 640 + 640 = 10,496. Training multiplies all of it by 3.
LLAMA = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip
# A window of 2: 1 + 2 + 2 + 2 = 7 pairs: 9216 + 448 + 640 = 10,304
WINDOWED = {**LLAMA, "model_type": "mistral", "sliding_window": 2}
# Heads of width 2: q and out 64, k and v 32; 16 a pair: 4·(192 + 768)·2 + 10·16·2 + 640 = 8,640
NARROW = {**LLAMA, "head_dim": 2}
# Attention, Mamba (inner width 3·4 = 12, not 2·8), an MLP and experts: one layer each
HYBRID = {
    "model_type": "nemotron_h", "hidden_size": 8, "vocab_size": 10, "hybrid_override_pattern": "*M-E", "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 24, "mamba_num_heads": 3, "mamba_head_dim": 4, "ssm_state_size": 2,
    "n_groups": 1, "conv_kernel": 2, "chunk_size": 2, "moe_intermediate_size": 6, "n_routed_experts": 5, "num_experts_per_tok": 2,
    "moe_shared_expert_intermediate_size": 7, "moe_latent_size": 4,
}  # fmt: skip
TWO_HEADS = {**HYBRID, "mamba_num_heads": 2}
MTP = {
    "model_type": "deepseek_v3", "hidden_size": 8, "vocab_size": 10, "num_hidden_layers": 2, "first_k_dense_replace": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 3, "kv_lora_rank": 5, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2,
    "v_head_dim": 3, "intermediate_size": 16, "moe_intermediate_size": 6, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "num_nextn_predict_layers": 1, "count_mtp": True,
}  # fmt: skip
FLUX = {
    "_class_name": "FluxTransformer2DModel", "attention_head_dim": 8, "num_attention_heads": 2, "num_layers": 1, "num_single_layers": 1,
    "in_channels": 8, "joint_attention_dim": 12, "pooled_projection_dim": 6, "guidance_embeds": True,
}  # fmt: skip
TOWER = {
    "model_type": "qwen2_5_vl_vision", "depth": 2, "hidden_size": 8, "num_heads": 2, "intermediate_size": 20, "out_hidden_size": 6,
    "in_channels": 3, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "window_size": 16, "fullatt_block_indexes": [1],
}  # fmt: skip
GRID = {"grid": [(1, 8, 8)]}
LATENT = {"latent": [8, 8], "prompt_tokens": 4}


def case(config: dict[str, Any], node: int = 8, **asked: Any) -> AuditedJob:
    return case_of(Config(config), step_question(**({} if _whole(config, asked) else {"seq": 4}), **asked), node)[0]


def test_what_the_gpus_peak_rests_on_is_a_note_of_the_case():
    def notes(gpu: str) -> list[str]:
        return case_of(Config(LLAMA), step_question(seq=4, gpu=gpu), 8)[1]

    assert find("B200").warning in notes("B200") and not any("tensor clock" in note for note in notes("H100"))


def _whole(config: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether a step needs no length of text besides what is asked."""
    return "_class_name" in config or "depth" in config or "seqlens" in asked


def factor(name: str, config: dict[str, Any], **asked: Any) -> Any:
    return MISTAKES[name].factor(case(config, **asked))


def counted(config: dict[str, Any], *, without: tuple[str, ...] = (), halved: tuple[str, ...] = (), **asked: Any) -> float:
    """Recount the training step from the ledger's terms, some left out or halved."""
    total = 0.0
    for term in ullage.flops(config, **({} if _whole(config, asked) else {"seq": 4}), **asked).terms:
        share = 0 if term.name.startswith(without or ("-",)) else 0.5 if term.name.endswith(halved or ("-",)) else 1
        total += share * term.flops
    return total


def other(config: dict[str, Any], instead: dict[str, Any], **asked: Any) -> float:
    """Recount with other fields in the configuration."""
    return counted({**config, **instead}, **asked) / counted(config, **asked)


def h100(precision: str) -> float:
    return find("H100 SXM").peak(precision)


WORKED: dict[str, list[tuple[Any, Any]]] = {
    # pairs 4·4 = 16 for 10: + 6·32·2
    "attention_full": [(factor("attention_full", LLAMA), (10_496 + 384) / 10_496)],
    "attention_forgotten": [(factor("attention_forgotten", LLAMA), (10_496 - 640) / 10_496)],
    "attention_halved": [
        (factor("attention_halved", FLUX, **LATENT), counted(FLUX, halved=("scores", "values"), **LATENT) / counted(FLUX, **LATENT)),
        (factor("attention_halved", LLAMA), None),  # it is half already
    ],
    "window_ignored": [(factor("window_ignored", WINDOWED), 10_496 / 10_304), (factor("window_ignored", LLAMA), None)],
    # 7 pairs at half: - 448/2
    "window_halved": [(factor("window_halved", WINDOWED), (10_304 - 224) / 10_304)],
    # k and v as wide as q: + 2·64·4·2
    "grouped_queries_ignored": [(factor("grouped_queries_ignored", LLAMA), (10_496 + 1024) / 10_496)],
    # width 4 for 2, which is LLAMA
    "head_width_assumed": [(factor("head_width_assumed", NARROW), 10_496 / 8_640), (factor("head_width_assumed", LLAMA), None)],
    # - one of three products: 256·4·2
    "gate_forgotten": [(factor("gate_forgotten", LLAMA), (10_496 - 2048) / 10_496)],
    # MLP 2·2·8·24, experts 2·(2·2·4·6), the shared one 2·2·8·7, half as much again, for each of 4 tokens
    "gate_assumed": [
        (factor("gate_assumed", HYBRID), 1 + 3 * 4 * (768 + 192 + 224) / 2 / counted(HYBRID)),
        (factor("gate_assumed", LLAMA), None),
    ],
    "all_experts": [
        (factor("all_experts", HYBRID), other(HYBRID, {"num_experts_per_tok": 5})),
        (factor("all_experts", LLAMA), None),
    ],
    "experts_at_full_width": [
        (factor("experts_at_full_width", HYBRID), other(HYBRID, {"moe_latent_size": None})),
        (factor("experts_at_full_width", LLAMA), None),
    ],
    # one MLP 24 wide without a gate in the place of all of the experts' layer
    "experts_as_dense": [
        (factor("experts_as_dense", HYBRID), other(HYBRID, {"hybrid_override_pattern": "*M--"})),
        (factor("experts_as_dense", LLAMA), None),
    ],
    # the first layer is dense; a hybrid's MLPs are layers by themselves
    "dense_layers_as_experts": [
        (factor("dense_layers_as_experts", MTP), other(MTP, {"first_k_dense_replace": 0})),
        (factor("dense_layers_as_experts", HYBRID), None),
        (factor("dense_layers_as_experts", LLAMA), None),
    ],
    # two products of 2·8·4 for each of 4 tokens
    "latent_projections_forgotten": [(factor("latent_projections_forgotten", HYBRID), 1 - 3 * 4 * 128 / counted(HYBRID))],
    "dense_width_for_experts": [
        (factor("dense_width_for_experts", HYBRID), other(HYBRID, {"moe_intermediate_size": 24})),
        (factor("dense_width_for_experts", LLAMA), None),
    ],
    # 2·8·5 a token
    "router_forgotten": [(factor("router_forgotten", HYBRID), 1 - 3 * 4 * 80 / counted(HYBRID))],
    "shared_expert_forgotten": [
        (factor("shared_expert_forgotten", HYBRID), other(HYBRID, {"moe_shared_expert_intermediate_size": 0})),
    ],
    "hybrid_as_dense": [
        (factor("hybrid_as_dense", HYBRID), other(HYBRID, {"hybrid_override_pattern": "*-" * 4})),
        (factor("hybrid_as_dense", LLAMA), None),
    ],
    "hybrid_as_experts": [
        (factor("hybrid_as_experts", HYBRID), other(HYBRID, {"hybrid_override_pattern": "*E" * 4})),
        (factor("hybrid_as_experts", LLAMA), None),
    ],
    # 32 for 16: the MLP's 3·256·2·4 = 6144 once more; where there are experts nobody is suspected of it
    "mlp_of_four_widths": [
        (factor("mlp_of_four_widths", LLAMA), (10_496 + 6144) / 10_496),
        (factor("mlp_of_four_widths", {**LLAMA, "model_type": "phi3", "head_dim": None}), (10_496 + 6144) / 10_496),
        (factor("mlp_of_four_widths", HYBRID), None),
    ],
    # a token and layer: q_down 2·8·3, q_up 2·3·12, kv_down 2·8·7, kv_up 2·5·14: 372; q and k 2·8·12 each, v 2·8·6: 480.
    # Three layers, the one of multi-token prediction among them
    "latent_attention_as_plain": [
        (factor("latent_attention_as_plain", MTP), 1 + 3 * 4 * 3 * (480 - 372) / counted(MTP)),
        (factor("latent_attention_as_plain", LLAMA), None),
    ],
    # two heads 4 wide make an inner width of 8, where 2h is 16: as much as heads twice as wide
    "state_space_twice_hidden": [
        (factor("state_space_twice_hidden", TWO_HEADS), other(TWO_HEADS, {"mamba_head_dim": 8})),
        (factor("state_space_twice_hidden", {**HYBRID, "mamba_num_heads": 4}), None),
    ],
    "embedding_counted": [(factor("embedding_counted", LLAMA), (10_496 + 640) / 10_496)],
    "head_forgotten": [(factor("head_forgotten", LLAMA), (10_496 - 640) / 10_496)],
    "mtp_forgotten": [(factor("mtp_forgotten", MTP), other(MTP, {"num_nextn_predict_layers": 0})), (factor("mtp_forgotten", LLAMA), None)],
    # 2·8·10 for each of 4 tokens
    "mtp_head_forgotten": [
        (factor("mtp_head_forgotten", MTP), 1 - 3 * 4 * 160 / counted(MTP)),
        (factor("mtp_head_forgotten", LLAMA), None),
    ],
    "mtp_counted": [
        (factor("mtp_counted", {**MTP, "count_mtp": False}), counted(MTP) / counted({**MTP, "count_mtp": False})),
        (factor("mtp_counted", {**MTP, "count_mtp": False, "q_lora_rank": None}), other(
            {**MTP, "count_mtp": False, "q_lora_rank": None}, {"count_mtp": True})),
        (factor("mtp_counted", MTP), None),
        (factor("mtp_counted", LLAMA), None),
    ],
    # the windowed block sees its frame, as the other one does
    "vision_windows_ignored": [
        (factor("vision_windows_ignored", TOWER, **GRID), other(TOWER, {"fullatt_block_indexes": [0, 1]}, **GRID)),
        (factor("vision_windows_ignored", LLAMA), None),
    ],
    # 64 patches are 16 tokens: 2·32·32 and 2·32·6 a token, counted four times: 3 times more
    "mergers_per_patch": [
        (factor("mergers_per_patch", TOWER, **GRID), 1 + 3 * 3 * 16 * (2048 + 384) / counted(TOWER, **GRID)),
        (factor("mergers_per_patch", LLAMA), None),
    ],
    # verl counts the embedding's 640 too, and 16/2 pairs for 10: 128 less
    "framework_formula": [
        (factor("framework_formula", LLAMA, imitate="verl"), (10_496 + 640 - 128) / 10_496),
        (factor("framework_formula", LLAMA), None),
    ],
    "sparse_peak": [(factor("sparse_peak", LLAMA), 0.5)],
    "peak_halved": [(factor("peak_halved", LLAMA), 2.0)],
    "percent_as_ratio": [(factor("percent_as_ratio", LLAMA), 100.0)],
    # whole forward pass again: 4/3; without the head (640) and each layer's down (256·4·2): 10,496 - 640 - 2048 = 7,808 more
    "recomputation_counted": [(factor("recomputation_counted", LLAMA), (1 + 7_808 / 31_488, 4 / 3))],
    "recomputation_runs": [
        (factor("recomputation_runs", LLAMA), (3 / 4, 1 / (1 + 7_808 / 31_488))),
        (factor("recomputation_runs", LLAMA, recompute="full"), None),
        (factor("recomputation_runs", LLAMA, forward_only=True), None),
    ],
    # scores are half of the 640, values the other half
    "attention_recomputed": [(factor("attention_recomputed", LLAMA), (1 / (1 + 640 / 31_488), 1 / (1 + 320 / 31_488)))],
    "adapters_as_full": [
        (factor("adapters_as_full", LLAMA, lora_rank=2), 31_488 / counted(LLAMA, lora_rank=2)),
        (factor("adapters_as_full", LLAMA), None),
    ],
    "inference_as_training": [
        (factor("inference_as_training", LLAMA, forward_only=True), 3.0),
        (factor("inference_as_training", LLAMA), None),
    ],
    "training_as_inference": [(factor("training_as_inference", LLAMA), 1 / 3)],
    # lengths 4 and 2 counted as 4 and 4
    "longest_for_all": [
        (factor("longest_for_all", LLAMA, seqlens=[4, 2]), 2 * counted(LLAMA) / counted(LLAMA, seqlens=[4, 2])),
        (factor("longest_for_all", LLAMA), None),
    ],
    # one of length 6: 21 pairs, not 10 + 3
    "packed_as_one": [
        (factor("packed_as_one", LLAMA, seqlens=[4, 2]), 1 + 3 * 8 * 32 * 2 / counted(LLAMA, seqlens=[4, 2])),
        (factor("packed_as_one", LLAMA, batch=2), None),
    ],
    "padding_counted": [(factor("padding_counted", LLAMA, seqlens=[4, 2], padded_seq=4), 62_976 / counted(LLAMA, seqlens=[4, 2]))],
    # 8 × 8 for 4 × 4 tokens
    "latents_unpatched": [
        (factor("latents_unpatched", FLUX, **LATENT), counted(FLUX, latent_tokens=64, prompt_tokens=4) / counted(FLUX, **LATENT)),
        (factor("latents_unpatched", LLAMA), None),
    ],
    "guidance_doubled": [(factor("guidance_doubled", FLUX, **LATENT), 2.0), (factor("guidance_doubled", LLAMA), None)],
    "guidance_forgotten": [(factor("guidance_forgotten", FLUX, **LATENT, forward_passes=2), 0.5)],
    "data_parallel_for_world": [(factor("data_parallel_for_world", LLAMA, layout={"dp": 4, "tp": 8}), 8.0)],
    "sequence_parallel_forgotten": [(factor("sequence_parallel_forgotten", LLAMA, layout={"dp": 2, "sp": 4}), 4.0)],
    "node_for_gpu": [(factor("node_for_gpu", LLAMA, gpus=16), 8.0), (factor("node_for_gpu", LLAMA, gpus=4), None)],
    "gpus_forgotten": [
        (factor("gpus_forgotten", LLAMA, gpus=16), 16.0),
        (factor("gpus_forgotten", LLAMA, gpus=8), None),  # that is the node
        (factor("gpus_forgotten", LLAMA), None),
    ],
    "accumulation_forgotten": [(factor("accumulation_forgotten", LLAMA, accumulation=4), 1 / 4)],
    # dense peaks of an H100 SXM double from TF32 to BF16 to FP8 and INT8; FP16 is as fast as BF16
    "peak_of_tf32": [(factor("peak_of_tf32", LLAMA, gpu="H100 SXM"), 2.0), (factor("peak_of_tf32", LLAMA), None)],
    "peak_of_fp8": [(factor("peak_of_fp8", LLAMA, gpu="H100 SXM"), 0.5), (factor("peak_of_fp8", LLAMA, gpu="A100 SXM"), None)],
}  # fmt: skip
_VISION = {"vision_forgotten", "indexer_forgotten"}  # worked below


@pytest.mark.parametrize("name", WORKED)
def test_a_mistake_multiplies_the_mfu_by_what_a_recount_gives(name):
    for found, expected in WORKED[name]:
        assert found == (None if expected is None else pytest.approx(expected, rel=1e-12)), name


def test_every_mistake_in_the_registry_is_worked():
    peaks = {name for name in MISTAKES if name.startswith("peak_of_")}
    assert set(WORKED) | _VISION | peaks == set(MISTAKES)


def test_a_peak_of_another_precision_or_gpu_is_the_ratio_of_the_peaks():
    ours = case(LLAMA, gpu="H100 SXM")
    for name, member in MISTAKES.items():
        if not name.startswith("peak_of_"):
            continue
        told = name.removeprefix("peak_of_").replace("_", " ")
        found = member.factor(ours)
        if told in find("H100 SXM").precisions:
            assert found == (None if told == "bf16" else pytest.approx(h100("bf16") / h100(told))), name
        elif found is not None:
            assert found == pytest.approx(h100("bf16") / find(told).peak("bf16")), name


def test_an_a100s_peak_for_an_h100_triples_the_number():
    # 989.4 / 312 TFLOP/s
    assert factor("peak_of_A100_SXM", LLAMA, gpu="H100 SXM") == pytest.approx(989.4 / 312, abs=2e-3)


@pytest.mark.parametrize(("name", "start"), [("vision_forgotten", "vision."), ("indexer_forgotten", "indexer.")])
def test_a_forgotten_part_is_missing_from_the_ledger(name, start):
    from tests.models.certified_configs import CONFIGS

    family = {"vision_forgotten": "qwen2_5_vl", "indexer_forgotten": "deepseek_v32"}[name]
    asked = {"grid": [(1, 4, 4)]} if name == "vision_forgotten" else {}
    for config in CONFIGS[family]:
        whole = counted(config, **asked)
        assert factor(name, config, **asked) == pytest.approx(counted(config, without=(start,), **asked) / whole, rel=1e-12)
    assert factor(name, LLAMA) is None


def test_every_mistake_can_be_asked_of_every_family():
    from tests.models.certified_configs import CONFIGS

    shapes: dict[str, dict[str, Any]] = {
        "diffusion": {"latent_tokens": 16, "prompt_tokens": 4},
        "vision": {"image": [(32, 32)]},
        "audio": {"audio_frames": 16, "seq": 4},
        "encoder-decoder": {"encoder_seq": 6, "decoder_seq": 4, "audio_frames": 16},
        "vision-language": {"seq": 4, "image": [(32, 32)], "grid": [(1, 4, 4)]},
    }
    from ullage.models.formula import compiled

    asked = 0
    for configs in CONFIGS.values():
        for config in configs:
            try:
                kind = compiled(Config(config)).model.kind
                one = case_of(Config(config), step_question(**shapes.get(kind, {"seq": 4}), gpu="H100 SXM"), 8)[0]
                truth = one.truth
            except UllageError:
                continue  # a family that wants other shapes than its kind does
            if not truth:
                continue
            asked += 1
            for effect in one.effects:
                assert 0 < effect.low <= effect.high < math.inf, (config, effect.mistake.name)
    assert asked > 80


def test_fused_projections_are_known_by_their_names():
    # phi-3 keeps q, k and v in one matrix, gate and up in another
    apart = {**LLAMA, "head_dim": None}
    fused = {**apart, "model_type": "phi3"}
    for name in ("grouped_queries_ignored", "gate_forgotten"):
        assert factor(name, fused) == pytest.approx(factor(name, apart), rel=1e-12), name


# --- which sets explain a number ---


def found(config: dict[str, Any], reported: float, ofu: float, **asked: Any) -> MfuFinding:
    told = {name: asked.pop(name) for name in ("tile_efficiency", "error", "most") if name in asked}
    return audit(case(config, **asked), reported, ofu, **told)


def names(finding: MfuFinding) -> list[tuple[str, ...]]:
    return [explanation.names for explanation in finding.explanations]


def test_an_mfu_that_ofu_allows_needs_no_explanation():
    # 0.3 · 0.90 · 0.97 = 0.262 to 0.3 · 1.03 = 0.309
    for reported in (0.263, 0.3, 0.308):
        finding = found(LLAMA, reported, 0.3)
        assert finding.agrees and not finding.flagged and finding.explanations == ()
    assert not found(LLAMA, 0.310, 0.3).agrees and not found(LLAMA, 0.261, 0.3).agrees


def test_recomputation_that_is_known_lowers_what_ofu_allows():
    # 31,488 of 31,488 + 7,808 executed FLOPs are model FLOPs: 0.801
    finding = found(LLAMA, 0.24, 0.3, recompute="full")
    assert finding.agrees
    assert finding.expected[1] == pytest.approx(0.3 * 1.03 * 31_488 / 39_296)
    # what would agree without: HFU under the name of MFU
    counted_too = found(LLAMA, 0.3, 0.3, recompute="full")
    assert names(counted_too)[0] == ("recomputation_counted",) and counted_too.flagged


def test_recomputation_that_nobody_mentions_makes_neither_number_wrong():
    finding = found(LLAMA, 0.30 * 0.97 / 1.28, 0.30, tile_efficiency=0.97)
    best = finding.explanations[0]
    assert best.names == ("recomputation_runs",) and not best.wrong and not finding.flagged
    assert best.corrected == finding.reported and best.comparable == pytest.approx(0.30 * 0.97, rel=1e-3)
    assert best.factor == pytest.approx(1 / 1.28, rel=1e-3)  # within its range, the one that fits best


def test_padding_that_runs_lowers_what_ofu_allows():
    finding = found(LLAMA, 0.3, 0.3, seqlens=[4, 1], padded_seq=4)
    assert finding.flagged and ("padding_counted",) in names(finding)


def test_ties_are_all_listed_with_what_would_decide():
    # FP8's dense peak is as high as BF16's sparse one
    finding = found(LLAMA, 0.15, 0.3, gpu="H100 SXM", tile_efficiency=1.0)
    assert {("sparse_peak",), ("peak_of_fp8",)} <= set(names(finding))
    assert names(finding)[0] == ("sparse_peak",)  # met more often
    assert all(mistake.decides for e in finding.explanations for mistake, _ in e.mistakes)


def test_two_mistakes_are_found_together_when_they_are_likely_enough():
    # counted in full, and over the sparse peak; 4096 tokens make full attention matter
    long = {**LLAMA, "vocab_size": 1000}
    both = case(long, seqlens=[64])
    factors = {e.mistake.name: e.low for e in both.effects}
    reported = 0.4 * factors["attention_full"] * factors["sparse_peak"]
    finding = audit(both, reported, 0.4, tile_efficiency=1.0, error=0.01)
    assert ("attention_full", "sparse_peak") in names(finding) or ("sparse_peak", "attention_full") in names(finding)


def test_no_set_holds_two_mistakes_about_one_thing_nor_a_set_that_is_listed():
    for reported in (0.03, 0.06, 0.1, 0.15, 0.2, 0.45, 0.6, 0.9, 1.4, 2.7):
        finding = found(HYBRID, reported, 0.3, gpu="H100 SXM", layout={"dp": 4, "tp": 4}, tile_efficiency=0.97, most=100)
        sets = [frozenset(n) for n in names(finding)]
        assert not any(one < another for one in sets for another in sets)
        for explanation in finding.explanations:
            about = [mistake.about for mistake, _ in explanation.mistakes]
            assert len(set(about)) == len(about)
            assert finding.expected[0] * 0.999 <= explanation.comparable <= finding.expected[1] * 1.001
            members = {e.mistake.name: e for e in finding.considered}
            least, most = (together(getattr(members[name], end) for name in explanation.names) for end in ("low", "high"))
            assert least * 0.999 <= explanation.factor <= most * 1.001
            assert len(explanation.mistakes) == 1 or explanation.likelihood > UNLISTED


def test_mistakes_about_different_parts_add_what_they_change():
    # no head and no attention: 10,496 - 640 - 640, and over a sparse peak half of that
    made = {e.mistake.name: e.low for e in case(LLAMA).effects}
    both = [made["head_forgotten"], made["attention_forgotten"]]
    assert together(both) == pytest.approx((10_496 - 1280) / 10_496, rel=1e-12)
    assert together([*both, made["sparse_peak"]]) == pytest.approx((10_496 - 1280) / 10_496 / 2, rel=1e-12)
    # experts of another width without a gate: a part of a part
    gated = {**MTP, "count_mtp": False}
    one = {e.mistake.name: e.low for e in case(gated).effects}
    expected = case(gated).counted(
        replace(w, flops=round(w.flops * 16 / 6)) if w.name.startswith("moe.experts") else w
        for w in case(gated).formula.works
        if not w.name.endswith(".gate")
    )
    found = together([one["dense_width_for_experts"], one["gate_forgotten"]])
    assert found == pytest.approx(expected / case(gated).truth, rel=1e-12)


def test_what_multiplies_no_part_is_a_plain_number():
    # with adapters a part's share of the step is not its share of the forward pass
    effects = {e.mistake.name: e.low for e in case(LLAMA, lora_rank=2).effects}
    assert type(effects["head_forgotten"]) is float and type(effects["sparse_peak"]) is float


def test_a_framework_that_is_named_is_suspected_first():
    # verl's (10,496 + 640 - 128) of 10,496 is 1.049
    wide = {**LLAMA, "vocab_size": 100}
    count = factor("framework_formula", wide, imitate="verl")
    finding = found(wide, 0.3 * count, 0.3, tile_efficiency=1.0, imitate="verl")
    assert names(finding)[0] == ("framework_formula",) and finding.explanations[0].corrected == pytest.approx(0.3)
    assert not any("framework_formula" in n for n in names(found(wide, 0.3 * count, 0.3, tile_efficiency=1.0)))
    # over a sparse peak as well: found with it, and never with a mistake that its own count is made of
    both = found(wide, 0.15 * count, 0.3, tile_efficiency=1.0, error=0.01, imitate="verl")
    assert {"framework_formula", "sparse_peak"} in [set(n) for n in names(both)]
    assert not any("framework_formula" in n and "embedding_counted" in n for n in names(both))


def test_a_framework_without_a_count_for_the_model_is_one_clear_error():
    with pytest.raises(UllageError, match="no count"):
        found({**HYBRID}, 0.3, 0.2, imitate="verl")
    with pytest.raises(UllageError, match="no framework is called"):
        found(LLAMA, 0.3, 0.2, imitate="verbal")


def test_windows_of_every_kind_can_be_ignored():
    from tests.models.certified_configs import CONFIGS

    config = {**CONFIGS["deepseek_v32"][0], "index_topk": 2}
    wide = {**config, "index_topk": 1000}
    assert factor("window_ignored", config) == pytest.approx(counted(wide) / counted(config), rel=1e-12)


def test_what_is_smaller_than_the_error_of_ofu_is_not_seen():
    # the router is 2·8·5 of some thousand FLOPs a token: far below 3 %
    wide = {**HYBRID, "intermediate_size": 1024}
    small = factor("router_forgotten", wide)
    assert 0.99 < small < 1
    for reported in (0.05, 0.1, 0.2, 0.5, 0.7):
        finding = audit(case(wide), reported, 0.3)
        assert not any("router_forgotten" in n for n in names(finding))
        assert "router_forgotten" in {e.mistake.name for e in finding.considered}


def test_nothing_in_the_list_is_an_answer():
    # 77 % beside 13 %: 5.9 times, which no mistake on a dense model on one GPU makes
    finding = found(LLAMA, 0.77, 0.13, gpu="A100 SXM")
    assert finding.explanations == () and finding.flagged and not finding.agrees


def test_far_fetched_sets_are_counted_and_not_listed():
    told = [found(HYBRID, 0.01 * reported, 0.3, gpu="H100 SXM", gpus=64) for reported in range(2, 99)]
    assert any(f.far_fetched and not f.explanations for f in told)
    assert all(len(e.mistakes) < 3 for f in told for e in f.explanations)  # 3 % and an unknown tile efficiency prove no triple


@pytest.mark.parametrize(
    ("reported", "ofu", "more"),
    [
        (0.0, 0.3, {}),
        (-0.1, 0.3, {}),
        (math.nan, 0.3, {}),
        (math.inf, 0.3, {}),
        (0.3, 0.0, {}),
        (0.3, 1.2, {}),
        (0.3, math.nan, {}),
        (0.3, 0.3, {"tile_efficiency": 0.0}),
        (0.3, 0.3, {"tile_efficiency": 1.01}),
        (0.3, 0.3, {"tile_efficiency": math.nan}),
        (0.3, 0.3, {"error": -0.1}),
        (0.3, 0.3, {"error": 1.0}),
        (0.3, 0.3, {"error": math.nan}),
    ],
)
def test_ratios_that_cannot_be_are_one_clear_error(reported, ofu, more):
    with pytest.raises(UllageError, match="must be"):
        found(LLAMA, reported, ofu, **more)


def test_an_exact_measurement_still_gives_an_answer():
    finding = found(LLAMA, 0.15, 0.3, tile_efficiency=1.0, error=0.0)
    assert names(finding)[0] == ("sparse_peak",)


# --- the command ---


def run(*words: str, code: int) -> str:
    outcome = CliRunner().invoke(cli, ["audit", "mfu", *words])
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit | UllageError):
        raise outcome.exception
    assert (1 if isinstance(outcome.exception, UllageError) else outcome.exit_code) == code, outcome.output
    return outcome.output if outcome.exit_code == 2 else outcome.stdout


@pytest.fixture
def tiny(tmp_path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return str(tmp_path / "config.json")


@pytest.mark.parametrize(("mfu", "ofu"), [("15", "30"), ("15%", "0.3"), ("0.15", "30 %"), (" 0.15 ", "30%")])
def test_percent_and_ratios_are_understood(tiny, mfu, ofu):
    answer = json.loads(run("--config", tiny, "--seq", "4", "--reported", mfu, "--ofu", ofu, "--json", code=3))
    assert answer["reported"] == pytest.approx(0.15) and answer["ofu"] == pytest.approx(0.3)
    assert answer["explanations"][0]["mistakes"][0]["name"] == "sparse_peak"


@pytest.mark.parametrize("word", ["nan", "inf", "many", "", "0", "-5", "1e400"])
def test_a_number_that_is_none_is_one_clear_error(tiny, word):
    run("--config", tiny, "--seq", "4", f"--reported={word}", "--ofu", "30", code=1)
    run("--config", tiny, "--seq", "4", "--reported", "30", f"--ofu={word}", code=1)


def test_the_exit_code_says_whether_the_report_is_wrong(tiny):
    words = ("--config", tiny, "--seq", "4", "--ofu", "30")
    assert run(*words, "--reported", "29", code=0).startswith("nothing to explain: reported MFU 29.00 %, OFU 30.00 %")
    assert run(*words, "--reported", "23", code=0).startswith("both may be right: ")
    assert run(*words, "--reported", "15", code=3).startswith("the reported MFU is wrong: ")
    assert run(*words, "--reported", "170", code=3).startswith("nothing in the list explains it: ")
    run("--config", tiny, "--reported", "15", code=2)
    run(*words, "--reported", "15", "--node", "0", code=1)


def test_the_list_names_every_mistake():
    assert {m["name"] for m in json.loads(run("--list", "--json", code=0))["mistakes"]} == set(MISTAKES)
    assert all(name in run("--list", code=0) for name in MISTAKES)


def test_the_answer_goes_to_a_file_of_a_known_form(tiny, tmp_path):
    words = ("--config", tiny, "--seq", "4", "--reported", "15", "--ofu", "30")
    run(*words, "--out", str(tmp_path / "a.json"), code=3)
    assert json.loads((tmp_path / "a.json").read_text())["flagged"] is True
    run(*words, "--out", str(tmp_path / "a.txt"), code=3)
    assert "the peak is the one with sparsity" in (tmp_path / "a.txt").read_text()
    run(*words, "--out", str(tmp_path / "a.docx"), code=1)


def test_the_picture_shows_the_report_ofu_and_every_explanation(tiny, tmp_path):
    words = ("--config", tiny, "--seq", "4", "--ofu", "30")
    for reported, code, shown in (
        ("15", 3, ["15.00 %", "30.00 %", "sparse_peak", "too much"]),
        ("23", 0, ["23.00 %", "recomputation_runs", "executed beside it", "MFU as reported"]),
        ("29", 0, ["29.00 %", "MFU as reported"]),
        ("2500", 3, ["2500.00 %", "MFU as reported"]),
    ):
        out = tmp_path / f"{reported}.svg"
        run(*words, "--reported", reported, "--out", str(out), code=code)
        root = ET.parse(out).getroot()
        told = "|".join("".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))
        found = [word for word in shown if word != "too much"]
        assert all(word in told for word in found), told
        widths = [float(node.get("width", 0)) for node in root.iter("{http://www.w3.org/2000/svg}rect")]
        assert min(widths) >= 0


def test_options_that_would_be_ignored_are_refused(tiny, tmp_path):
    words = ("--config", tiny, "--seq", "4", "--reported", "15", "--ofu", "30")
    assert "leave --step-time out" in run(*words, "--step-time", "2", code=2)
    assert "leave --seq out: with --fleet" in run("--fleet", str(tmp_path), "--configs", str(tmp_path), "--seq", "4", code=2)


def test_the_error_of_ofu_is_the_one_of_the_docs():
    assert OFU_ERROR == 0.03


# --- the worked examples ---

PAGE = EXAMPLES.parent / "mfu-audit.md"
BLOCKS = re.findall(r"```console\n\$ ullage (.+)\n((?:.|\n)*?)```", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("words", "shown"), BLOCKS, ids=[words.split()[3].split("/")[-1] for words, _ in BLOCKS])
def test_the_worked_examples_are_what_the_command_prints(words, shown, monkeypatch):
    monkeypatch.chdir(EXAMPLES.parents[1])
    outcome = CliRunner().invoke(cli, shlex.split(words))
    assert outcome.exit_code == (0 if shown.startswith("both may be right") else 3), outcome.output
    assert outcome.stdout.rstrip() == shown.rstrip()


def test_the_worked_examples_reproduce_the_papers_factors():
    # OFU paper, V-C: 54.27 / 18.45 and 24.51 / 15.56; VI-C: 26 becomes 33, by at most 4/3
    assert len(BLOCKS) == 3
    given = {path.stem: json.loads(path.read_text()) for path in EXAMPLES.glob("*.json")}
    ask = {"seqlens": [4096]}
    assert factor("experts_at_full_width", given["latent-moe-16b"], **ask) == pytest.approx(54.27 / 18.45, abs=0.02)
    assert factor("hybrid_as_dense", given["hybrid-8b"], **ask) == pytest.approx(24.51 / 15.56, abs=0.005)
    low, high = factor("recomputation_counted", given["world-model-8b"], **ask)
    assert low < 33 / 26 < high == pytest.approx(4 / 3)


def test_the_examples_are_as_large_as_the_page_says():
    given = {path.stem: json.loads(path.read_text()) for path in EXAMPLES.glob("*.json")}
    for name, billions in (("latent-moe-16b", 16.0), ("hybrid-8b", 8.0), ("world-model-8b", 8.0)):
        config = given[name]
        works = case(config, seqlens=[8]).formula.works
        experts = config.get("n_routed_experts", 1)
        weights = sum(
            w.shape[0] * w.shape[1] * len(w.layers) * (experts if w.name.startswith("moe.experts") else 1) for w in works if w.shape
        )
        assert (weights + config["vocab_size"] * config["hidden_size"]) / 1e9 == pytest.approx(billions, abs=0.1), name


def test_the_examples_are_the_models_of_the_simulated_jobs():
    from ullage.simulate.configs import CONFIGS

    for name, family in (("latent-moe-16b", "moe-16b-pretrain"), ("hybrid-8b", "hybrid-8b-pretrain"), ("world-model-8b", "world-model-8b")):
        assert json.loads((EXAMPLES / f"{name}.json").read_text()) == {k: v for k, v in CONFIGS[family].items() if k != "step"}
