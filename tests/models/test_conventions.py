"""Other frameworks' counts: each reproduces the numbers of that framework's own tests, to the integer."""

import contextlib
import json
from pathlib import Path

import pytest

import ullage
from tests.models.certified_configs import CONFIGS
from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.conventions.convention import CONVENTIONS
from ullage.models.conventions.outline import bare
from ullage.models.conventions.parameters import tied
from ullage.models.formula import compiled
from ullage.models.sample import Sample
from ullage.models.step import Step, together

VECTORS = Path(__file__).parents[3] / "shared" / "data" / "flops_vectors.json"
LLAMA_7B = {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32}
LLAMA_7B |= {"model_type": "llama", "intermediate_size": 11008}
QWEN3_30B = {"model_type": "qwen3_moe", "hidden_size": 2048, "vocab_size": 151936, "num_hidden_layers": 48, "num_attention_heads": 32}
QWEN3_30B |= {"num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
QWEN_IMAGE = {"architectures": ["QwenImagePipeline"], "num_layers": 60, "num_attention_heads": 24, "attention_head_dim": 128}
QWEN_IMAGE |= {"in_channels": 64, "out_channels": 16, "patch_size": 2, "joint_attention_dim": 3584, "guidance_embeds": False}
# A decoder whose sizes all differ
ODD = {"vocab_size": 1003, "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 5, "num_attention_heads": 6}
ODD |= {"num_key_value_heads": 2}
EXPERTS = {"moe_intermediate_size": 72, "num_experts": 9, "num_experts_per_tok": 3, "shared_expert_intermediate_size": 31}
VISION = {"num_heads": 3, "depth": 4, "hidden_size": 48, "intermediate_size": 91, "out_hidden_size": 96, "spatial_merge_size": 2}
VISION |= {"temporal_patch_size": 2, "in_channels": 3, "patch_size": 14}
DELTA = {"linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 10, "linear_num_key_heads": 3}
DELTA |= {"linear_num_value_heads": 6, "full_attention_interval": 2, "head_dim": 24}
HUNYUAN = {"model_type": "hy_v3", "head_dim": 20, "expert_hidden_dim": 44, "num_experts": 8, "num_experts_per_tok": 2}
HUNYUAN |= {"num_shared_experts": 1}
LATENT = {"moe_intermediate_size": 33, "first_k_dense_replace": 2, "n_routed_experts": 12, "num_experts_per_tok": 3, "n_shared_experts": 2}
LATENT |= {"kv_lora_rank": 15, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10, "q_lora_rank": None}


def counted(framework, config, step):
    """What a framework's training step costs by its fields alone, also for a configuration that no family of ours takes."""
    return 3 * sum(flops for _, flops in CONVENTIONS[framework].function(bare(Config(config)), step))


def texts(lengths, patches=None):
    return Step(together(Sample(text=s, grids=((1, 1, patches[i]),) if patches else ()) for i, s in enumerate(lengths)))


def vectors(tool):
    if not VECTORS.exists():
        pytest.skip(f"{VECTORS.name} is not beside this checkout")
    found = [v for v in json.loads(VECTORS.read_text())["vectors"] if v["tool"].startswith(tool)]
    assert found
    return found


def test_every_convention_says_what_it_miscounts_and_whence_it_is():
    assert {"palm", "verl", "verl-omni", "megatron", "torchtitan", "hf", "automodel", "nemo"} <= set(CONVENTIONS)
    for counting in CONVENTIONS.values():
        assert counting.says and counting.source and not counting.says.endswith(".")


def test_verl_is_reproduced_on_its_own_tests():
    for v in vectors("verl FlopsCounter"):
        assert counted("verl", v["config"], texts(v["batch_seqlens"], v["images_seqlens"])) == v["expected_flops"], v["model_type"]


def test_automodel_is_reproduced_on_its_own_tests():
    renamed = {"llama3": "llama", "llama2": "llama", "deepseekv3_moonlight": "deepseek_v3", "nemotronh_nano_v3": "nemotron_h"}
    for v in vectors("nemo_automodel"):
        name = renamed.get(v["model_type"], v["model_type"])
        config = {"num_attention_heads": 1, **v["config"], "model_type": name}
        assert counted("automodel", config, texts([v["kwargs"]["seq_len"]] * v["kwargs"]["gbs"])) == v["expected_flops"], name


def test_nemo_is_reproduced_on_its_own_tests():
    words = {"hs": "hidden_size", "layers": "num_hidden_layers", "ffn_hs": "intermediate_size", "attention_heads": "num_attention_heads"}
    words |= {"query_groups": "num_key_value_heads", "moe_router_topk": "num_experts_per_tok", "vocab_size": "vocab_size"}
    tried = [v for v in vectors("nemo.utils") if v["model_type"] != "hyena"]  # no such architecture here
    for v in tried:
        config = {words[k]: value for k, value in v["config"].items() if k in words} | {"model_type": v["model_type"]}
        assert counted("nemo", config, texts([v["config"]["enc_seq_len"]])) == v["expected_flops"], v["model_type"]


def test_verl_omni_is_reproduced_on_its_own_tests():
    for v in vectors("DiffusionFlopsCounter"):
        formula = compiled(Config({**v["config"], "architectures": [v["model_type"]]}))
        pairs = zip(v["latent_seqlens"], v["prompt_seqlens"], strict=True)
        samples = together(Sample(latent_tokens=latent, prompt=prompt) for latent, prompt in pairs)
        step = Step(samples, "full", v["num_timesteps"] * v["num_forward_passes"])
        assert 3 * sum(f for _, f in CONVENTIONS["verl-omni"].function(formula, step)) == v["expected_flops"]


@pytest.mark.parametrize(
    ("framework", "config", "step", "flops"),
    [
        ("verl", LLAMA_7B, {"seqlens": [512, 1024, 2048]}, 149_226_491_215_872),  # verl's own test
        ("automodel", LLAMA_7B | {"num_key_value_heads": 8, "intermediate_size": 14336}, {"batch": 1, "seq": 2048}, 90_671_054_585_856),
        ("torchtitan", QWEN3_30B, {"batch": 1, "seq": 8192}, 37_578_559_488 * 8192),  # per token in torchtitan's PR 4300
        ("verl-omni", QWEN_IMAGE, {"latent_tokens": 256, "prompt_tokens": 64}, 13_318_056_050_688),
        # transformers 5.23 on the meta device: 6 × 2 × 7 tokens × num_parameters(exclude_embeddings=True) of the model below
        ("hf", LLAMA_7B, {"batch": 2, "seq": 7}, 84 * 6_607_343_616),
    ],
)
def test_the_command_gives_what_the_framework_prints(framework, config, step, flops):
    report = ullage.flops(config, imitate=framework, **step)
    assert report.training == flops
    assert report.convention == framework
    assert CONVENTIONS[framework].says in report.ledger.notes[0]


@pytest.mark.parametrize(
    ("config", "patches", "flops"),
    [
        # recorded: verl 0.9.1's FlopsCounter.estimate_flops on these configurations, sequences of 50 and 61 tokens
        (ODD | EXPERTS | {"model_type": "qwen2_moe"}, None, 438_039_936),
        ({"model_type": "qwen2_vl", "text_config": ODD, "vision_config": VISION}, [64, 36], 542_372_544),
        (
            {
                "model_type": "qwen3_vl_moe",
                "text_config": ODD | EXPERTS | {"head_dim": 20},
                "vision_config": VISION | {"deepstack_visual_indexes": [1, 2]},
            },
            [64, 36],
            651_888_144,
        ),
        (ODD | LATENT | {"model_type": "deepseek_v3"}, None, 390_510_612),
        (ODD | {"model_type": "gemma3_text", "sliding_window": 55, "head_dim": 20}, None, 443_439_216),
        ({"model_type": "qwen3_5", "text_config": ODD | DELTA}, None, 447_624_576),
        (ODD | {"model_type": "apertus"}, None, 356_308_416),
        (ODD | HUNYUAN, None, 382_099_536),
    ],
)
def test_verl_is_reproduced_on_odd_sizes(config, patches, flops):
    assert counted("verl", config, texts([50, 61], patches)) == flops


def test_a_video_is_seen_by_verl_as_its_frames():
    config = {"model_type": "qwen2_vl", "text_config": ODD, "vision_config": VISION}
    video, frames = (Step(((Sample(text=9, grids=grids), 1),)) for grids in (((3, 4, 6),), ((1, 4, 6),) * 3))
    assert counted("verl", config, video) == counted("verl", config, frames)


def test_megatron_halves_the_square_and_leaves_the_router_out():
    # T=8192, h=2048, n=32, k=4, d=128, t·e=8·768, L=48, V=151936, in FLOPs of a training step:
    # 6T[L(h·d(2n+2k) + 3h·t·e) + hV] + 6·T²·n·d·L
    tokens = 8192
    layer = 2048 * 128 * (64 + 8) + 3 * 2048 * 8 * 768
    expected = 6 * tokens * (48 * layer + 2048 * 151_936) + 6 * tokens**2 * 32 * 128 * 48
    report = ullage.flops(QWEN3_30B, batch=1, seq=tokens, imitate="megatron")
    assert report.training == expected
    assert expected / ullage.flops(QWEN3_30B, batch=1, seq=tokens).training == pytest.approx(0.997, abs=5e-4)


def test_megatron_takes_a_state_space_for_twice_the_hidden_width():
    # T=10, h=12: D = 2h = 24 where heads × width = 40. In: 2Th(2D + 2·1·16 + 5), scan 7TDN, out 2TDh; head 2ThV
    config = {"model_type": "nemotron_h", "hidden_size": 12, "vocab_size": 50, "hybrid_override_pattern": "M", "num_hidden_layers": 1}
    config |= {"mamba_num_heads": 5, "mamba_head_dim": 8, "ssm_state_size": 16, "n_groups": 1, "conv_kernel": 4, "chunk_size": 8}
    config |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 24}
    expected = 2 * 10 * 12 * (48 + 32 + 5) + 7 * 10 * 24 * 16 + 2 * 10 * 24 * 12 + 2 * 10 * 12 * 50
    assert ullage.flops(config, batch=1, seq=10, imitate="megatron", forward_only=True).forward == expected


def test_automodel_takes_what_its_table_lacks_for_an_mlp_without_a_gate():
    # keys and values are counted once, not twice: 6T[L(2h·h + h·k·d·2/2·2 + 2hf) + hV] + 6·T²·h·L, T = 7, k·d = 32
    expected = 6 * 7 * (5 * (96 * 96 * 2 + 2 * 96 * 32 + 2 * 96 * 200) + 96 * 1003) + 6 * 49 * 96 * 5
    assert counted("automodel", ODD | {"model_type": "mistral"}, texts([7])) == expected


@pytest.mark.full
def test_a_head_is_tied_to_the_embedding_where_the_library_ties_it():
    pytest.importorskip("transformers", reason="transformers is an optional library: pip install 'ullage[certify]'")
    from ullage.models.tracing.build import built

    compared = 0
    for config in (c for configs in CONFIGS.values() for c in configs if "tie_word_embeddings" not in c):
        formula = compiled(Config(config))
        writes = any(work.name == "head" and work.shape for work in formula.works)
        if not writes or formula.model.kind not in ("decoder", "encoder-decoder", "vision-language"):
            continue
        with contextlib.suppress(UllageError):  # the library has no such class
            model = built(formula.config)
            if model.get_output_embeddings() is not None:
                compared += 1
                assert tied(formula) == (model.get_output_embeddings().weight is model.get_input_embeddings().weight), formula.name
    assert compared > 100


def test_torchtitan_and_the_trainer_drop_a_tied_head():
    config = ODD | {"model_type": "qwen3", "head_dim": 20}
    for framework in ("torchtitan", "hf"):
        free, tied = (ullage.flops(config | {"tie_word_embeddings": t}, seq=7, imitate=framework).forward for t in (False, True))
        assert free - tied == 2 * 7 * 96 * 1003


@pytest.mark.parametrize(("framework", "does"), [("verl", "it prints 0"), ("torchtitan", "has no model of it"), ("nemo", "no formula")])
def test_what_a_framework_cannot_count_is_an_error(framework, does):
    with pytest.raises(UllageError, match=f"no count for 'opt'.*{does}"):
        counted(framework, ODD | {"model_type": "opt"}, texts([7]))


def test_the_trainer_counts_padding():
    plain, padded = (ullage.flops(LLAMA_7B, batch=2, seq=7, imitate="hf", **more).forward for more in ({}, {"padded_seq": 14}))
    assert padded == 2 * plain
