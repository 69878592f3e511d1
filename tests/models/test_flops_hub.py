"""Configurations as they are released, and options as people write them: nothing is passed over in silence."""

import json

import pytest

import ullage
from ullage.errors import UllageError
from ullage.models.passes import Training
from ullage.models.reading import read_config

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 101,
}  # fmt: skip
QWEN_VL = {
    **LLAMA, "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
    "vision_config": {
        "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "in_chans": 3, "out_hidden_size": 64, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112, "fullatt_block_indexes": [1],
    },
}  # fmt: skip
FLUX = {
    "_class_name": "FluxTransformer2DModel", "attention_head_dim": 8, "in_channels": 16, "joint_attention_dim": 12,
    "num_attention_heads": 2, "num_layers": 1, "num_single_layers": 1,
    "patch_size": 1, "pooled_projection_dim": 6, "guidance_embeds": False,
}  # fmt: skip


def test_infinity_that_transformers_writes_is_read(tmp_path):
    # Mamba-2 and its hybrids are released with "time_step_limit": [0.0, Infinity], which is no strict JSON
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]}))
    assert "Infinity" in file.read_text()
    assert ullage.flops(file, seq=8).forward == ullage.flops(LLAMA, seq=8).forward


def test_a_size_that_is_infinity_is_named(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "hidden_size": float("inf")}))
    with pytest.raises(UllageError, match=r"hidden_size of .*config\.json is inf, and must be a whole number"):
        ullage.flops(file, seq=8)


def test_an_infinity_does_not_let_other_broken_files_in(tmp_path):
    file = tmp_path / "config.json"
    for text in ('{"a": Infinity', '{"a": [Infinity, NaN]}', '{"a": Infinity, "b":' + "[" * 100_000):
        file.write_text(text)
        with pytest.raises(UllageError, match="is not JSON"):
            read_config(file)


def test_an_architecture_that_is_no_list_is_read():
    assert ullage.flops({**LLAMA, "architectures": "LlamaForCausalLM"}, seq=8).forward == ullage.flops(LLAMA, seq=8).forward


def frozen(pattern):
    return ullage.flops(QWEN_VL, seq=16, grid=[(1, 4, 4)], freeze=pattern)


@pytest.mark.parametrize("pattern", ["visual.*", "model.visual.*", "visual", "vision", ("vision.*",)])
def test_a_vision_tower_is_frozen_by_each_of_its_names(pattern):
    # nothing of a frozen tower has a backward pass: its input is data
    terms = frozen(pattern).terms
    assert {t.pass_ for t in terms if t.name.startswith("vision.")} == {"forward"}
    assert {t.pass_ for t in terms if t.name == "mlp.up"} == {"forward", "dgrad", "wgrad"}


def test_a_pattern_that_means_nothing_says_where_layers_lie():
    with pytest.raises(UllageError, match="matches 'vision_tower'") as raised:
        frozen("vision_tower")
    assert "model.visual.blocks" in raised.value.hint


def test_a_precision_of_no_work_is_refused():
    with pytest.raises(UllageError, match="no weight or work of this model matches 'mlpx'"):
        ullage.flops(LLAMA, seq=8, precision={"*": "bf16", "mlpx": "fp8"})
    assert {t.precision for t in ullage.flops(LLAMA, seq=8, precision={"*": "bf16", "mlp": "fp8"}).terms} == {"bf16", "fp8"}


def test_words_of_the_python_call_are_those_of_the_command():
    def same(one, other):
        return ullage.flops(LLAMA, seq=8, **one).terms == ullage.flops(LLAMA, seq=8, **other).terms

    assert same({"recompute": "attention,mlp.up"}, {"recompute": ("attention", "mlp.up")})
    assert not same({"recompute": "attention"}, {"recompute": "full"})
    assert same({"lora_rank": 2, "lora_targets": "q_proj,v_proj"}, {"lora_rank": 2, "lora_targets": ["q_proj", "v_proj"]})
    assert same({"freeze": "model.layers.1"}, {"freeze": ["model.layers.1.*"]})
    # 4 ranks of data and 2 of tensor parallelism are 8 GPUs
    assert ullage.flops(LLAMA, seq=8, step_time=1, dp=4, tp=2).gpus == 8


def test_guidance_runs_a_diffusion_model_twice_unless_it_is_distilled():
    def runs(config, **said):
        return ullage.flops(config, latent=(4, 4), prompt_tokens=3, forward_only=True, **said).step.repeats

    assert runs(FLUX, guidance_scale=3.5) == 2
    assert runs(FLUX, guidance_scale=1.0) == 1
    assert runs(FLUX, guidance_scale=3.5, forward_passes=1) == 1
    assert runs({**FLUX, "guidance_embeds": True}, guidance_scale=3.5) == 1


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"attention": "half"}, "attention 'half' is not one of causal, full"),
        ({"backward": "thrice"}, "backward 'thrice' is not one of twice, exact"),
        ({"step_time": 0}, "--step-time 0 can't be"),
        ({"gpus": 0}, "--gpus 0 can't be"),
        ({"lora_rank": 0}, "--lora-rank 0 can't be"),
        ({"freeze_layers": -1}, "--freeze-layers -1 can't be"),
        ({"freeze_layers": 4}, "--freeze-layers 4 can't be: the model has 3 layers"),
        ({"layout": {"tq": 2}}, "a layout has no 'tq'"),
        ({"image": (448, 448)}, "--image takes H,W"),
        ({"grid": [(4, 4)]}, "--grid takes T,H,W"),
        ({"image": [(448, 448)]}, "LlamaForCausalLM does not read --image"),
        ({"latent": (4, 4)}, "LlamaForCausalLM does not read --latent"),
    ],
)
def test_what_makes_no_sense_is_refused(said, problem):
    with pytest.raises(UllageError) as raised:
        ullage.flops(LLAMA, seq=8, **said)
    assert raised.value.problem.startswith(problem)


def test_a_diffusion_model_does_not_read_a_sequence_length():
    with pytest.raises(UllageError, match="does not read --seq"):
        ullage.flops(FLUX, seq=8, latent=(4, 4), prompt_tokens=3)


def test_recompute_is_none_full_or_names():
    with pytest.raises(UllageError, match="recompute 'attention' is not known"):
        Training(recompute="attention")


def test_what_is_left_out_is_noted():
    assert "no --image or --grid was given: text alone is counted, without the vision tower" in ullage.flops(QWEN_VL, seq=8).notes
    edited = {**FLUX, "architectures": ["FluxKontextPipeline"]}
    assert "no --reference-tokens were given" in ullage.flops(edited, latent=(4, 4), prompt_tokens=3).notes[0]


def test_weights_kept_in_fp8_are_noted_beside_a_peak_of_bf16():
    kept = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    assert "--precision fp8" in ullage.flops(kept, seq=8, gpu="H100 SXM").notes[0]
    assert ullage.flops(kept, seq=8, gpu="H100 SXM", precision="fp8").notes == ()


def test_an_imitated_count_is_measured_by_the_peak_of_its_precision():
    # H100 SXM: FP8 at twice the rate of BF16
    halves = ullage.flops(LLAMA, seq=8, gpu="H100 SXM", imitate="verl")
    assert ullage.flops(LLAMA, seq=8, gpu="H100 SXM", imitate="verl", precision="fp8").peak == 2 * halves.peak


def test_a_state_space_without_channels_is_refused():
    jamba = {**LLAMA, "architectures": ["JambaForCausalLM"], "model_type": "jamba", "num_experts": 2, "num_experts_per_tok": 1}
    jamba |= {"mamba_d_state": 4, "mamba_d_conv": 4, "mamba_expand": 0.001}
    with pytest.raises(UllageError, match="mamba_expand of the configuration leaves a state space without channels"):
        ullage.flops(jamba, seq=8)
    with pytest.raises(UllageError, match="mamba_expand of the configuration is nan"):
        ullage.flops({**jamba, "mamba_expand": float("nan")}, seq=8)


def test_adapters_are_a_group_of_their_own():
    report = ullage.flops(LLAMA, seq=8, lora_rank=2, lora_targets="q_proj")
    assert {t.group for t in report.terms if ".lora_" in t.name} == {"attention.lora"}
    assert "attention.q" not in {t.group for t in report.terms}


def test_further_tokens_are_counted_when_asked_for_and_told_when_not():
    deepseek = {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 100, "hidden_size": 32,
        "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "n_shared_experts": 1,
        "n_routed_experts": 8, "kv_lora_rank": 8, "q_lora_rank": 12, "qk_rope_head_dim": 4, "v_head_dim": 6, "qk_nope_head_dim": 6,
        "num_experts_per_tok": 2, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
    }  # fmt: skip
    plain, ahead = ullage.flops(deepseek, seq=16), ullage.flops(deepseek, seq=16, mtp=True)
    assert any("--mtp" in note for note in plain.notes)
    assert {term.group for term in ahead.ledger.terms} > {term.group for term in plain.ledger.terms}
    assert ahead.forward > plain.forward
    with pytest.raises(UllageError, match="no layers that predict further tokens"):
        ullage.flops({**deepseek, "num_nextn_predict_layers": 0}, seq=16, mtp=True)
