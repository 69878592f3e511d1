"""The ledger of a step: what is counted, in which pass, by which convention, and what is refused."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import ullage
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.formula import compiled
from ullage.models.passes import Training
from ullage.models.sample import Sample, band

TINY = {
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 10,
}
SLIDING = {"model_type": "qwen2", "num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 4}
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


def test_a_tiny_llama_is_counted_by_hand():
    # T=4, h=8, n=k=2, d=4, f=16, V=10, L=2. A layer's weights: 8·(2+2·2)·4 + 2·4·8 + 3·8·16 = 640; with the head 2·640 + 80 = 1360,
    # 2 FLOPs each a token: 10,880. Causal pairs 4·5/2 = 10: 2 layers × 10 × 4·2·4 = 640. Full: 16 pairs, 1,024.
    causal, full = ullage.flops(TINY, batch=1, seq=4), ullage.flops(TINY, batch=1, seq=4, attention="full")
    assert (causal.forward, full.forward) == (10_880 + 640, 10_880 + 1_024)
    assert (causal.backward, causal.training, causal.executed) == (23_040, 34_560, 34_560)
    assert (causal.convention, full.convention, causal.status) == ("causal", "full", "formula")


def test_llama_3_8b_is_what_a_trace_of_it_counts():
    # traced: torch 2.13, transformers 5.23, meta device; forward and forward + backward
    report = ullage.flops(LLAMA_8B, batch=1, seq=2048, attention="full")
    assert (report.forward, report.training) == (32_938_104_193_024, 98_814_312_579_072)


def test_lora_is_counted_as_traced():
    # traced with peft 0.21: rank 16 on all linears, the base frozen; gradients stop where nothing below needs them
    report = ullage.flops(LLAMA_8B, batch=1, seq=2048, attention="full", lora_rank=16)
    assert (report.forward, report.training) == (33_109_902_884_864, 68_486_743_195_648)
    assert report.counted["backward"] == "exact"


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        ({"lora_rank": 16, "lora_targets": ["q_proj", "v_proj"]}, 0.6884),  # traced, to four digits
        ({"freeze": ["embedding"], "freeze_layers": 16}, 0.6884),
    ],
)
def test_what_is_frozen_has_no_gradient_of_its_weights(asked, share):
    whole = ullage.flops(LLAMA_8B, batch=1, seq=2048, attention="full")
    part = ullage.flops(LLAMA_8B, batch=1, seq=2048, attention="full", **asked)
    assert part.training / whole.training == pytest.approx(share, abs=5e-5)


@pytest.mark.parametrize(("reentrant", "factor"), [(False, 1.2337), (True, 1.3116)])
def test_full_checkpointing_spares_the_head_and_the_last_product_of_a_layer(reentrant, factor):
    # traced: PyTorch's non-reentrant checkpoint stops early, the reentrant one does whole layers; neither touches the LM head
    report = ullage.flops(LLAMA_8B, batch=1, seq=2048, attention="full", recompute="full", reentrant=reentrant)
    assert report.executed / report.training == pytest.approx(factor, abs=5e-5)
    assert report.model_efficiency == pytest.approx(1 / factor, abs=5e-5)


def test_selective_recomputation_repeats_only_what_is_named():
    report = ullage.flops(TINY, batch=1, seq=4, recompute=["attention.scores", "attention.values"])
    assert report.executed - report.training == 640  # the two products of attention, both layers


def test_packed_sequences_do_not_see_one_another():
    packed = ullage.flops(LLAMA_8B, seqlens=[512, 1024, 512])
    apart = [ullage.flops(LLAMA_8B, batch=1, seq=s).training for s in (512, 1024, 512)]
    assert packed.training == sum(apart)
    assert packed.training < ullage.flops(LLAMA_8B, batch=1, seq=2048).training


def test_a_step_of_generation_reads_the_cache_and_has_no_backward():
    # traced: 32 sequences, one new token on 4,096 cached ones
    report = ullage.flops(LLAMA_8B, batch=32, context=4096)
    assert (report.forward, report.backward) == (549_034_393_600, 0)


def test_a_prefill_with_logits_of_the_last_token_spares_the_head():
    every, last = (ullage.flops(LLAMA_8B, batch=1, seq=8192, forward_only=True, logits=which).forward for which in ("all", "last"))
    assert every - last == 2 * 8191 * 4096 * 128256


def test_padding_is_executed_and_no_model_work():
    report, longer = ullage.flops(TINY, batch=1, seq=4, padded_seq=8), ullage.flops(TINY, batch=1, seq=8)
    assert report.training == ullage.flops(TINY, batch=1, seq=4).training
    assert report.executed == longer.training


def test_accumulation_multiplies_and_mfu_divides_by_the_world():
    one = ullage.flops(TINY, batch=2, seq=4)
    four = ullage.flops(TINY, batch=2, seq=4, accumulation=4, step_time=2.0, layout={"dp": 4, "tp": 2}, peak_tflops=1e-6)
    assert four.training == 4 * one.training
    # 8 GPUs of 1e6 FLOP/s for 2 s
    assert four.mfu == pytest.approx(four.training / (2.0 * 8 * 1e6))


def test_precisions_mix_by_the_harmonic_mean():
    report = ullage.flops(TINY, batch=1, seq=4, precision={"*": "bf16", "mlp": "fp8"}, step_time=1.0, gpu="H100 SXM")
    mlp = 3 * 2 * 4 * 2 * 3 * 8 * 16  # training × multiply-add × tokens × layers × three products of 8 × 16
    bf16 = report.training - mlp
    assert report.ledger.by_precision == {"bf16": bf16, "fp8": mlp}
    assert report.peak == pytest.approx(report.training / (bf16 / ullage.peak("H100", "bf16") + mlp / ullage.peak("H100", "fp8")))


def test_an_mfu_above_1_is_refused_with_the_likeliest_cause():
    with pytest.raises(UllageError, match="can't be") as refused:
        ullage.flops(LLAMA_8B, batch=64, seq=4096, step_time=1.0, gpu="H100 SXM")
    assert "--gpus" in refused.value.hint


def test_the_world_and_the_gpus_must_agree():
    with pytest.raises(UllageError, match="disagree"):
        ullage.flops(TINY, seq=4, gpus=256, layout={"dp": 8})


def test_an_unknown_architecture_is_an_error_with_the_nearest_and_never_zero():
    with pytest.raises(UllageError, match="no formula for the architecture 'LlammaForCausalLM'") as refused:
        ullage.flops({**TINY, "model_type": None, "architectures": ["LlammaForCausalLM"]}, seq=4)
    assert "LlamaForCausalLM" in refused.value.hint


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"hidden_size": None}, "no field hidden_size"),
        ({"hidden_size": -8}, "must lie between"),
        ({"hidden_size": "8"}, "must be a whole number"),
        ({"hidden_size": 1 << 60}, "must lie between"),
        ({"num_hidden_layers": 10**9}, "must lie between"),
        ({"num_hidden_layers": True}, "must be a whole number"),
        ({**SLIDING, "layer_types": ["full_attention"]}, "1 entries for 2 layers"),
        ({**SLIDING, "layer_types": ["what", "ever"]}, "which is none of"),
        ({"model_type": None}, "does not say what model it is"),
    ],
)
def test_a_broken_field_is_named(broken, said):
    with pytest.raises(UllageError, match=said):
        ullage.flops({**TINY, **broken}, seq=4)


@pytest.mark.parametrize("shape", [{"seq": 0}, {"batch": -1}, {"seq": 1.5}, {"seqlens": [4, -1]}, {"timesteps": 2}, {"sequence": 4}])
def test_a_shape_that_cannot_be_is_refused(shape):
    with pytest.raises(UllageError):
        ullage.flops(TINY, **shape)


@given(new=st.integers(0, 60), context=st.integers(0, 60), window=st.none() | st.integers(1, 80))
def test_the_band_is_what_counting_every_pair_gives(new, context, window):
    pairs = sum(min(context + i + 1, window or context + i + 1) for i in range(new))
    assert band(new, context, window) == pairs


@given(st.lists(st.integers(1, 5000), max_size=20), st.sampled_from([None, 64]))
def test_the_compiled_count_of_lengths_is_the_ledgers(lengths, window):
    config = {**TINY, "num_key_value_heads": 2, **({"model_type": "mistral", "sliding_window": window} if window else {})}
    count = compiled(Config(config)).per_lengths()(lengths)
    assert count == (ullage.flops(config, seqlens=lengths).training if lengths else 0)


def test_terms_add_up_to_every_total():
    report = ullage.flops(TINY, batch=3, seq=7, recompute="full", padded_seq=9)
    ledger = report.ledger
    assert ledger.executed == sum(t.flops for t in ledger.terms)
    assert ledger.training == ledger.forward + ledger.backward == sum(t.flops for t in ledger.terms if t.model)
    assert all(isinstance(t.flops, int) for t in ledger.terms)


def test_a_name_of_work_that_matches_nothing_is_refused():
    with pytest.raises(UllageError, match="no weight or work"):
        ullage.flops(TINY, seq=4, freeze=["vision"])
    with pytest.raises(UllageError, match="no weight of this model"):
        ullage.flops(TINY, seq=4, lora_rank=4, lora_targets=["query_key_value"])


def test_the_exact_backward_leaves_out_what_needs_no_gradient():
    works = compiled(Config(TINY)).works
    assert {w.reads for w in works if w.name == "embedding"} == {("data",)}
    assert ullage.flops(TINY, seq=4, backward="exact").training == ullage.flops(TINY, seq=4).training  # embeddings train


def test_per_sample_takes_any_sample():
    formula = compiled(Config(TINY))
    assert formula.per_sample(Training(forward_only=True), "causal")(Sample(text=4)) == 11_520


def write(folder: Path, name: str, values: object) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(values if isinstance(values, str) else json.dumps(values))
    return file


def test_a_folder_a_file_and_a_mapping_are_read_alike(tmp_path):
    file = write(tmp_path, "config.json", TINY)
    assert {ullage.flops(source, seq=4).forward for source in (TINY, str(file), file, tmp_path)} == {11_520}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "not an object of fields"),
        ('{"a": NaN}', "is not JSON"),
        ("\x00\x01", "is not JSON"),
    ],
)
def test_a_file_that_is_no_config_is_refused(tmp_path, text, said):
    with pytest.raises(UllageError, match=said):
        ullage.flops(write(tmp_path, "config.json", text), seq=4)


def test_a_huge_file_is_refused_unread(tmp_path):
    huge = tmp_path / "config.json"
    with huge.open("wb") as file:
        file.truncate(200 << 30)  # sparse: 200 GiB that take no room
    with pytest.raises(UllageError, match="no configuration"):
        ullage.flops(huge, seq=4)


def test_a_pipeline_that_points_outside_its_folder_is_refused(tmp_path):
    write(tmp_path, "secret/config.json", TINY)
    folder = tmp_path / "pipeline"
    write(folder, "model_index.json", {"_class_name": "FluxPipeline", "../secret": ["diffusers", "FluxTransformer2DModel"]})
    with pytest.raises(UllageError, match="outside its folder"):
        ullage.flops(folder, latent_tokens=4)
    write(folder, "model_index.json", {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"]})
    (folder / "transformer").symlink_to(tmp_path / "secret")
    with pytest.raises(UllageError, match="outside its folder"):
        ullage.flops(folder, latent_tokens=4)


def test_a_pipeline_without_a_denoiser_says_what_it_has(tmp_path):
    write(tmp_path, "model_index.json", {"_class_name": "X", "vae": ["diffusers", "AutoencoderKL"], "transformer": [None, None]})
    with pytest.raises(UllageError, match="has no transformer") as refused:
        ullage.flops(tmp_path, latent_tokens=4)
    assert "vae" in refused.value.hint


def run(*words: str):
    return CliRunner().invoke(cli, ["flops", *words])


def test_the_json_contract(tmp_path):
    file = write(tmp_path, "config.json", LLAMA_8B)
    found = run(str(file), "--batch", "8", "--seq", "2048", "--step-time", "2.0", "--gpus", "8", "--gpu", "H100 SXM", "--json")
    data = json.loads(found.stdout)
    for key in ("forward", "backward", "training", "executed", "convention", "status", "terms", "tflops_per_gpu", "mfu", "hfu", "peak"):
        assert data[key] is not None
    assert set(data["terms"][0]) >= {"name", "group", "pass", "flops"}
    assert data["training"] == sum(t["flops"] for t in data["terms"])
    # 8 sequences of 11.94 TFLOP × 8 in 2 s on 8 GPUs of 989.4 TFLOP/s
    assert data["mfu"] == pytest.approx(data["training"] / (2.0 * 8 * data["peak"]))


def test_the_command_says_the_answer_first(tmp_path):
    file = write(tmp_path, "config.json", TINY)
    found = run(str(file), "--batch", "1", "--seq", "4")
    assert found.output.splitlines()[0] == (
        "34.56 kFLOP a step: 11.52 kFLOP forward, 23.04 kFLOP backward (llama, causal attention, formula; 8.640 kFLOP a token of 4)"
    )
    assert "mlp " in found.output


@pytest.mark.parametrize("form", ["svg", "json", "txt", "html", "md", "csv"])
def test_the_report_goes_to_a_file(tmp_path, form):
    file = write(tmp_path, "config.json", TINY)
    assert run(str(file), "--seq", "4", "--out", str(tmp_path / f"a.{form}")).exit_code == 0
    assert ("mlp" if form == "csv" else "llama") in (tmp_path / f"a.{form}").read_text()


def test_another_frameworks_count_says_so():
    palm = ullage.flops(TINY, batch=1, seq=4, imitate="palm")
    assert palm.forward == 11_904
    assert palm.convention == "palm"
    assert "palm" in palm.ledger.notes[0]
