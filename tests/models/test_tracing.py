"""Certificates, derived formulas and the corrected counter: what needs no torch first, then what does, then every family."""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from tests.models.certified_configs import CONFIGS, UNPROVED
from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.model import MODELS, find
from ullage.models.sample import Sample, pairs, quantity
from ullage.models.tracing import certificate as certificates
from ullage.models.tracing import shelf
from ullage.models.tracing.certificate import Certificate, ComparedTrial, certify, config_hash, formula_hash
from ullage.models.tracing.counter import Count
from ullage.models.tracing.matching import compared, compared_backward, differences, without
from ullage.models.tracing.polynomial import Polynomial, grid, through
from ullage.models.tracing.trials import Trial, lengths, trials
from ullage.models.work import attention, convolution, matmul

TEXT = quantity("text tokens", lambda s: s.text)
LLAMA = CONFIGS["llama"][0]


def _needs(*names: str) -> None:
    for name in names:
        pytest.importorskip(name, reason=f"{name} is an optional library: pip install 'ullage[certify]'")


# Polynomials


def test_a_polynomial_is_solved_exactly_from_one_more_point_than_its_degree():
    # f(b, s) = 7 + 3bs + 5bs²/2: b at 1, 2 and s at 2, 4, 6 fix it; f(3, 10) = 7 + 90 + 750 = 847
    axes = [(1, 2), (2, 4, 6)]
    solved = through(("batch", "seq"), axes, {(b, s): 7 + 3 * b * s + 5 * b * s * s // 2 for b, s in grid(axes)})
    assert solved.coefficients == {(0, 0): 7, (1, 1): 3, (1, 2): Fraction(5, 2)}
    assert solved(3, 10) == 847
    assert str(solved) == "7 + 3·batch·seq + 5/2·batch·seq^2"


def test_a_polynomial_never_gives_a_fraction_of_a_flop():
    with pytest.raises(ValueError, match="not a number of FLOPs"):
        Polynomial(("seq",), {(2,): Fraction(1, 2)})(3)


def test_three_variables_are_solved_as_two_are():
    # an encoder of e and a decoder of d tokens: b(2e² + 3ed + d)
    axes = [(1, 2), (5, 7, 9), (4, 6, 11)]
    solved = through(("batch", "encoder", "seq"), axes, {(b, e, d): b * (2 * e * e + 3 * e * d + d) for b, e, d in grid(axes)})
    assert solved(5, 100, 30) == 5 * (2 * 100**2 + 3 * 100 * 30 + 30)


# Trials


def test_a_trial_is_longer_than_two_chunks_and_no_longer_than_the_positions():
    assert lengths(Config({"text_config": {"chunk_size": 100}})) == (9, 37, 203)
    assert lengths(Config({"max_position_embeddings": 20})) == (9, 20, 20)
    assert lengths(Config({"linear_num_value_heads": 4})) == (9, 37, 131)  # the gated delta rule's chunk of 64, twice, and 3


def test_trials_differ_in_batch_and_length():
    model, _ = find(Config(LLAMA))
    assert [(t.batch, t.sample.text) for t in trials(model, Config(LLAMA))] == [(1, 9), (2, 37), (3, 67)]
    assert trials(model, Config(LLAMA))[0].record() == {"batch": 1, "text": 9, "encoder": 9}


# Comparing

MODULES = ["", "layers", "layers.0", "layers.0.attn", "layers.0.attn.q", "layers.0.attn.out", "layers.0.mlp", "head"]
WORKS = [
    matmul("attention.q", TEXT, 4, 6, stack="layers", module="attn.q", reads=("data",)),
    *attention(pairs(), 2, 3, stack="layers", inputs=("attention.q", "data", "data")),
    matmul("attention.out", TEXT, 6, 4, stack="layers", module="attn.out", reads=("attention.values",)),
    matmul("moe.experts.up", TEXT, 4, 8, stack="layers", module="mlp.up"),  # a fused module: the nearest around it
    matmul("head", TEXT, 4, 10, module="head"),
]
# Two samples of five tokens: q 2·4·6·10 = 480, scores and values 2·2·3·25·2 = 600 each, out 480, up 2·4·8·10 = 640, head 800
TRIAL = Trial(2, Sample(text=5))
TRACED = {
    ("layers.0.attn.q", "mm"): 480,
    ("layers.0.attn", "bmm"): 1200,
    ("layers.0.attn.out", "mm"): 480,
    ("layers.0.mlp", "_grouped_mm"): 640,
    ("head", "mm"): 800,
}


def test_every_term_is_found_at_its_module_and_attention_in_its_layer():
    rows = compared(WORKS, TRIAL, Count(TRACED), MODULES)
    assert not differences(rows)
    assert sum(r.formula for r in rows) == sum(TRACED.values())
    assert {r.path: r.terms for r in rows} == {
        "layers.0.attn.q": ("attention.q",),
        "layers.0": ("attention.scores", "attention.values"),
        "layers.0.attn.out": ("attention.out",),
        "layers.0.mlp": ("moe.experts.up",),
        "head": ("head",),
    }


def test_a_bare_model_lacks_the_prefix_of_its_wrapped_form():
    works = [dataclasses.replace(w, stack="model.layers") if w.stack else w for w in WORKS]
    assert not differences(compared(works, TRIAL, Count(TRACED), MODULES))


def test_a_product_that_the_formula_lacks_is_a_difference_even_if_another_makes_up_for_it():
    rows = compared(WORKS, TRIAL, Count({**TRACED, ("head", "mm"): 700, ("layers.0.attn.q", "mm"): 580}), MODULES)
    assert [(r.path, r.formula, r.traced) for r in differences(rows)] == [("layers.0.attn.q", 480, 580), ("head", 800, 700)]


def test_products_that_formula_and_code_place_apart_within_a_layer_are_compared_together():
    # the library multiplies with q's weight in the attention module itself
    moved = {**TRACED, ("layers.0.attn.q", "mm"): 0, ("layers.0.attn", "mm"): 480}
    rows = compared(WORKS, TRIAL, Count(moved), MODULES)
    assert not differences(rows)
    assert "layers.0.attn.q + layers.0" in {r.path for r in rows}


def test_the_backward_pass_is_compared_by_terms_over_all_layers():
    both = Count({k: 3 * v for k, v in TRACED.items()} | {("layers.0.attn.q", "mm"): 960})  # the input of q needs no gradient
    expected = {
        "attention.q": 480,
        "attention.scores": 1200,
        "attention.values": 1200,
        "attention.out": 960,
        "moe.experts.up": 1280,
        "head": 1600,
    }
    assert not differences(compared_backward(WORKS, TRIAL, Count(TRACED), both, MODULES, expected))
    rows = compared_backward(WORKS, TRIAL, Count(TRACED), both, MODULES, {**expected, "head": 800})
    assert [(r.terms, r.formula, r.traced) for r in differences(rows)] == [(("head",), 800, 1600)]


def test_what_a_family_leaves_out_is_taken_from_the_trace_and_told():
    kept, left = without(Count({("a.bias_mlp.0", "mm"): 5, ("a.q", "mm"): 7}), ("*.bias_mlp.*",))
    assert (kept.total, left) == (7, 5)


# Certificates

STORED = Certificate(
    "LlamaForCausalLM",
    "llama",
    config_hash(Config(LLAMA)),
    formula_hash("ullage.models.families.dense"),
    {"torch": "2.13.0"},
    (ComparedTrial({"batch": 1, "text": 9}, 1_409_184, 1_409_184, 2_818_368, 2_818_368, 25),),
    (),
    "2026-11-21",
)


def test_a_stored_certificate_is_read_back_as_it_was(tmp_path):
    file = shelf.store(STORED, tmp_path)
    assert shelf.stored(Config(LLAMA), where=tmp_path) == STORED
    assert json.loads(file.read_text())["equal"] is True
    assert [f.name for f in tmp_path.iterdir()] == [file.name]  # no draft is left


def test_a_certificate_does_not_hold_for_another_configuration(tmp_path):
    shelf.store(STORED, tmp_path)
    assert shelf.stored(Config({**LLAMA, "hidden_size": 64}), where=tmp_path) is None
    assert shelf.stored(Config(dict(reversed(list(LLAMA.items())))), where=tmp_path) == STORED  # the order of fields is nothing


def test_a_certificate_lapses_when_the_formula_changes(tmp_path, monkeypatch):
    shelf.store(STORED, tmp_path)
    source = certificates._source
    monkeypatch.setattr(certificates, "_source", lambda name: source(name) + ("# changed" if name == "ullage.models.blocks" else ""))
    assert shelf.stored(Config(LLAMA), where=tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"family": "llama"}', "\x00", '{"compared": 3, "differences": 4}'])
def test_a_damaged_certificate_is_as_good_as_none(tmp_path, text):
    shelf.store(STORED, tmp_path).write_text(text)
    assert shelf.stored(Config(LLAMA), where=tmp_path) is None


def test_a_certificate_that_contradicts_itself_is_not_believed(tmp_path):
    file = shelf.store(STORED, tmp_path)
    values = json.loads(file.read_text())
    values["compared"][0]["traced_forward"] += 1
    file.write_text(json.dumps(values))
    assert shelf.stored(Config(LLAMA), where=tmp_path) is None


def test_certificates_lie_where_the_user_says_or_in_the_data_home(monkeypatch):
    monkeypatch.setenv("ULLAGE_CERTIFICATES", "kept/here")
    assert shelf.folder() == Path("kept/here")
    monkeypatch.delenv("ULLAGE_CERTIFICATES")
    monkeypatch.setenv("XDG_DATA_HOME", "/data/of/mine")
    assert shelf.folder() == Path("/data/of/mine/ullage/certificates")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the standard says to ignore it
    assert shelf.folder() == Path.home() / ".local/share/ullage/certificates"


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UllageError, match="can't be written"):
        shelf.store(STORED, tmp_path / "file" / "folder")


def test_a_formula_is_made_of_its_module_and_those_it_imports():
    made = certificates._made_of("ullage.models.families.dense")
    assert {"ullage.models.families.dense", "ullage.models.blocks", "ullage.models.work", "ullage.models.sample"} <= made
    assert not any(name.startswith("ullage.models.tracing") for name in made)


def test_without_the_libraries_the_error_says_what_to_install(monkeypatch):
    import importlib

    find(Config(LLAMA))  # the families are there

    def missing(name: str):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UllageError, match=r"certifying a formula needs the library 'torch'.*\n.*ullage\[certify\]"):
        certify(Config(LLAMA))


def test_every_family_has_a_configuration_to_be_certified_on_or_a_reason():
    families = {member.family for member in MODELS.values()}
    assert families - set(CONFIGS) - set(UNPROVED) == set()
    assert set(CONFIGS) - families == set()


# With torch: the counter


def test_what_the_stock_counter_misses_is_counted():
    _needs("torch")
    import torch
    from torch.nn import functional

    from ullage.models.tracing.counter import counted

    q, k = torch.zeros(2, 3, 5, 8, requires_grad=True), torch.zeros(2, 3, 7, 8)
    # scores and values: 2 · 2·3·5·7·8 each
    assert counted(lambda: functional.scaled_dot_product_attention(q, k, k)).total == 6720
    assert counted(lambda: functional.scaled_dot_product_attention(q, k, k).sum().backward()).total == 3 * 6720
    # each of 16 rows with one of the experts' 32 × 64: 2·16·32·64
    rows, experts = (torch.zeros(*s, device="meta", dtype=torch.bfloat16) for s in ((16, 32), (4, 32, 64)))
    offsets = torch.zeros(4, device="meta", dtype=torch.int32)
    assert counted(lambda: torch._grouped_mm(rows, experts, offs=offsets)).total == 65_536
    # two layers of 4 gates: 2·15·4·32·((16 + 32) + (32 + 32))
    lstm = torch.nn.LSTM(16, 32, 2, batch_first=True)
    assert counted(lambda: lstm(torch.zeros(3, 5, 16))).total == 430_080
    assert counted(lambda: torch.zeros(5, 7) @ torch.zeros(7)).total == 70


def test_the_gradient_of_a_depthwise_convolution_costs_what_its_forward_does():
    _needs("torch")
    import torch

    from ullage.models.tracing.counter import counted

    # 256 channels, each by itself, 4 taps, 67 positions, 2 samples: 2·4·256·67·2 = 274,432; backward twice that
    convolved = torch.nn.Conv1d(256, 256, 4, padding=3, groups=256)
    inputs = torch.zeros(2, 256, 64, requires_grad=True)
    count = counted(lambda: convolved(inputs).sum().backward(), convolved)
    assert count.by_operator == {"convolution": 274_432, "convolution_backward": 548_864}
    works = [convolution("conv", quantity("positions", lambda s: 67), 4, 256, 256, groups=256)]
    assert works[0].flops * 67 * 2 == 274_432


def test_a_module_that_stands_in_two_places_is_counted_where_it_is_called():
    _needs("torch")
    import torch

    from ullage.models.tracing.counter import counted

    shared = torch.nn.Linear(4, 6)
    model = torch.nn.ModuleDict({"a": torch.nn.Sequential(shared), "b": torch.nn.Sequential(shared)})
    inputs = torch.zeros(5, 4)
    count = counted(lambda: [(model["a"](inputs) + model["b"](inputs)).sum().backward(), model["b"](inputs)], model)
    # 2·5·4·6 = 240 forward; backward only the weight's gradient, in both places
    assert count.by_module == {"a.0": 480, "b.0": 720}


# With transformers: building, certifying, deriving


def test_nothing_that_a_configuration_names_is_run_or_fetched():
    _needs("torch", "transformers")
    from ullage.models.tracing.build import built

    evil = {"architectures": ["EvilForCausalLM"], "model_type": "evil", "auto_map": {"AutoModelForCausalLM": "them/evil--evil.Evil"}}
    with pytest.raises(UllageError, match="neither transformers nor diffusers has the architecture 'EvilForCausalLM'"):
        built(Config(evil))
    kernels = {"_attn_implementation": "them/kernel", "attn_implementation": "them/kernel", "auto_map": evil["auto_map"]}
    model = built(Config({**LLAMA, **kernels, "quantization_config": {"quant_method": "awq"}}))
    assert model.config._attn_implementation == "eager"
    assert not hasattr(model.config, "auto_map")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"architectures": ["pipeline"]}, "neither transformers nor diffusers"),
        ({"architectures": ["__loader__"]}, "neither transformers nor diffusers"),
        ({"hidden_size": "wide"}, "refuses the configuration"),
        ({"num_attention_heads": 0}, "refuses the configuration"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers of the configuration is 1,000,000,000"),
        ({"hidden_size": 1 << 50}, "may be 1,099,511,627,776 at most"),
    ],
)
def test_a_configuration_that_the_library_refuses_is_one_clear_error(fields, words):
    _needs("torch", "transformers")
    from ullage.models.tracing.build import built

    values = {**LLAMA, **fields}
    if fields.get("architectures"):
        values.pop("model_type")
    with pytest.raises(UllageError, match=words):
        built(Config(values))


def test_sections_without_end_are_refused():
    _needs("torch", "transformers")
    from ullage.models.tracing.build import built

    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"text_config": deep}
    with pytest.raises(UllageError, match="64 deep"):
        built(Config({**LLAMA, **deep}))


def test_llama_is_certified_forward_and_backward():
    _needs("torch", "transformers")
    told: list[str] = []
    certificate = certify(Config(LLAMA), progress=told.append, today=date(2026, 11, 21))
    assert certificate.equal
    assert certificate.date == "2026-11-21"
    # 9 tokens, by hand: 2·9·(3·(48·(4 + 2·2)·20 + 80·48 + 3·48·80) + 101·48) + 4·9²·4·20·3
    assert certificate.compared[0].forward == 2 * 9 * (3 * (48 * 8 * 20 + 80 * 48 + 3 * 48 * 80) + 101 * 48) + 4 * 81 * 80 * 3
    assert certificate.compared[0].terms == 25  # seven weights and attention in three layers, and the head
    assert told[0].startswith("tracing forward at {'batch': 1")


def test_a_wrong_formula_is_told_term_by_term(monkeypatch):
    _needs("torch", "transformers")
    model, _ = find(Config(LLAMA))
    wrong = dataclasses.replace(
        model, function=lambda c: (dataclasses.replace(w, flops=w.flops + 2) if w.name == "mlp.up" else w for w in model.function(c))
    )
    monkeypatch.setattr(wrong.function, "__module__", model.function.__module__)
    monkeypatch.setattr("ullage.models.formula.find", lambda *_: (wrong, "LlamaForCausalLM"))
    certificate = certify(Config(LLAMA))
    assert not certificate.equal
    first = certificate.differences[0]
    assert (first.path, first.terms, first.formula - first.traced) == ("model.layers.0.mlp.up_proj", ("mlp.up",), 18)
    assert str(first) == "forward at model.layers.0.mlp.up_proj (mlp.up): formula 69,138, trace 69,120"


def test_a_formula_is_derived_for_an_architecture_that_has_none():
    _needs("torch", "transformers")
    from ullage.models.tracing.derived import derive

    derived = derive(Config({**LLAMA, "max_position_embeddings": 64}))
    # per token 2·(3·(48·8·20 + 80·48 + 3·48·80) + 101·48), per pair 4·80·3
    assert derived.forward.coefficients == {(1, 1): 147_936, (1, 2): 960}
    assert derived.flops(4, 100_000) == 4 * (147_936 * 100_000 + 960 * 100_000**2)
    assert derived.backward(4, 1000) == 2 * derived.flops(4, 1000)


def test_a_model_that_pads_to_chunks_has_no_polynomial():
    _needs("torch", "transformers")
    from ullage.models.tracing.derived import derive

    with pytest.raises(UllageError, match="are not a polynomial of batch and length: at batch 3, seq 37"):
        derive(Config(CONFIGS["mamba2"][0]))


def test_a_model_without_tokens_has_no_derived_formula():
    _needs("torch", "transformers")
    from ullage.models.tracing.derived import derive

    with pytest.raises(UllageError, match="takes no tokens"):
        derive(Config(CONFIGS["resnet"][0]))


# Every family

CASES = [
    pytest.param(family, number, id=f"{family}-{number}") for family, configs in sorted(CONFIGS.items()) for number, _ in enumerate(configs)
]


@pytest.mark.full
@pytest.mark.parametrize(("family", "number"), CASES)
def test_the_formula_of_every_family_equals_the_real_model(family, number):
    _needs("torch", "transformers", "diffusers")
    config = Config(CONFIGS[family][number])
    model, _ = find(config)
    certificate = certify(config)
    assert model.family == family
    assert not [str(d) for d in certificate.differences]
    assert certificate.equal


@pytest.mark.full
@pytest.mark.parametrize("kind", ["AutoencoderKL.encode", "AutoencoderKL.decode", "AutoencoderKLWan.encode", "AutoencoderKLWan.decode"])
def test_each_half_of_an_autoencoder_equals_the_real_one(kind):
    _needs("torch", "diffusers")
    config = CONFIGS["autoencoder" if "Wan" not in kind else "video_autoencoder"][0]
    assert certify(Config(config), kind).equal
