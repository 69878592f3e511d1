"""Library-level benches: their cases and figures without PyTorch, their arithmetic and their checks with PyTorch on the CPU."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from ullage.benches import best_gemm, engine, fp8_cast, generation, linear, llama, products, transformer_layer
from ullage.benches.bench import BENCHES, Target, cases_for
from ullage.gpus.precision import canonical
from ullage.kernels.tiling import TiledProduct
from ullage.metrics.generation import generation_bound

NAMES = ("linear", "fp8-cast", "transformer-layer", "generation", "best-gemm")
H200 = Target("sm_90a", "NVIDIA H200", memory=140 * 10**9)
TINY = llama.NetworkShape(64, 96, 4, 2, 50)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def paper():
    place = Path(__file__).parents[3] / "shared" / "seeds" / "hopper_benchmarks_paper.txt"
    if not place.exists():
        pytest.skip("the paper's text is not beside the repository")
    return place.read_text()


# --- cases ---


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_labels_of_its_layout_and_no_two_have_the_same(name):
    member = BENCHES[name]
    cases = cases_for(member, H200)
    wanted = {*member.layout.rows, *member.layout.across}
    assert cases and all(set(case.labels) == wanted for case in cases)
    assert len({tuple(case.labels.values()) for case in cases}) == len(cases)
    assert set(wanted) >= {label for figure in member.figures for label in figure.labels}


@pytest.mark.parametrize("name", NAMES)
def test_quick_cases_are_some_of_all(name):
    every = [case.labels for case in cases_for(BENCHES[name], H200)]
    quick = [case.labels for case in cases_for(BENCHES[name], H200, quick=True)]
    assert 0 < len(quick) < len(every) and all(labels in every for labels in quick)


@pytest.mark.parametrize("name", NAMES)
def test_without_fp8_tensor_cores_there_is_no_case_of_fp8(name):
    ampere = cases_for(BENCHES[name], Target("sm_80", memory=40 * 10**9))
    assert all(case.labels.get("dtype") != "fp8" and case.precision != "fp8" for case in ampere)


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_into_memory_is_left_out(name):
    assert cases_for(BENCHES[name], Target("sm_90a", memory=10**6)) == []


@pytest.mark.parametrize("name", NAMES)
def test_throughput_is_compared_with_the_peak_of_its_own_precision(name):
    for case in cases_for(BENCHES[name], H200):
        dtype = case.labels.get("dtype", "fp8")
        assert case.precision in (None, dtype) and (case.precision is None or canonical(case.precision) == dtype)
    assert all(case.precision is None for case in cases_for(BENCHES["linear"], H200) if case.labels["dtype"] == "fp32")


def test_transformer_engine_has_rows_only_where_it_is_installed(monkeypatch):
    plain = cases_for(BENCHES["linear"], H200)
    monkeypatch.setattr(engine, "here", lambda: True)
    both = cases_for(BENCHES["linear"], H200)
    assert len(both) == 2 * len(plain)
    assert {case.needs for case in both if case.labels["library"] == "te"} == {("transformer_engine",)}


def test_a_linear_layer_of_n_needs_two_n_cubed():
    # 2 × 4096³ = 137,438,953,472
    assert {case.flops for case in cases_for(BENCHES["linear"], H200) if case.labels["n"] == 4096} == {137_438_953_472}


def test_a_layer_counts_its_seven_products_and_causal_pairs():
    # Llama 2 7B: 4 × 4096² + 3 × 4096 × 11008 = 202,375,168 weights; 4 × 512 tokens; pairs 4 × 512 × 513 / 2, 4 × 4096 FLOPs each
    assert transformer_layer.flops(transformer_layer.SHAPES[4096], 4, 512) == 2 * 2048 * 202_375_168 + 4 * 131_328 * 16_384


def test_generation_reads_weights_and_half_filled_cache_each_step():
    # FP8: a byte a weight; the cache in BF16: 2 × 32 layers × 8 sequences × (128 + 64) × 4096 × 2 B = 805,306,368
    (case,) = [c for c in cases_for(BENCHES["generation"], H200) if c.labels == {"model": "llama-2-7B", "dtype": "fp8"}]
    assert case.bytes == 128 * (6_607_077_376 + 805_306_368) and case.items == 8 * 128


def test_the_bound_of_generation_is_its_batch_over_the_time_of_a_read():
    # 13.2 GB + 0.8 GB at 4.8 TB/s: 2.9 ms a step, 8 tokens each
    assert generation_bound(8, 4.8e12, 13.2e9, 0.8e9) == pytest.approx(8 / (14e9 / 4.8e12))
    assert generation_bound(8, 4.8e12, 0, 0) is None


@pytest.mark.parametrize("sms", [78, 108, 114, 128, 132, 148])
@pytest.mark.parametrize("side", [1024, 4096, 8192, 16384])
def test_shapes_of_whole_waves_fill_every_sm(sms, side):
    m, n = best_gemm.whole_waves(sms, side)
    assert m % 128 == n % 256 == 0 and (m // 128) * (n // 256) % sms == 0
    if side >= 8192:
        assert 0.75 <= m * n / side**2 <= 1.35


# --- the paper's own figures ---


def test_table_xii_is_the_papers(paper):
    table = paper[paper.index("TABLE XII") :].split("\n\n")[0]
    found, gpu = {}, ""
    names = {"4090": "NVIDIA GeForce RTX 4090", "A100": "NVIDIA A100-PCIE-40GB", "H800": "NVIDIA H800 PCIe"}
    for line in table.splitlines()[2:]:
        words = line.split()
        gpu = names.get(words[0], gpu)
        model, *values = words[words[0] in names :]
        for dtype, value in zip(("fp32", "bf16", "fp8"), values, strict=True):
            if re.fullmatch(r"[\d.]+", value):
                found[gpu, model, dtype] = float(value)
    assert len(found) == 18
    assert found == {(f.gpu, f.labels["model"], f.labels["dtype"]): f.value for f in generation.FIGURES}


def test_layers_have_the_shapes_of_the_papers_table_ii(paper):
    rows = {name: [int(n) for n in re.search(rf"^{name} ([\d ]+)$", paper, re.M)[1].split()] for name in (
        "hidden_size", "ffn_hidden_size", "num_attention_heads")}  # fmt: skip
    ours = [(shape.hidden, shape.feed_forward, shape.heads) for shape in transformer_layer.SHAPES.values()]
    assert ours == list(zip(*rows.values(), strict=True))


# --- products ---


@pytest.mark.parametrize("data", ["random", "zero"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16", "fp8"])
def test_a_product_is_right_in_every_precision(torch, precision, data):
    made = products.product(torch, TiledProduct(48, 32, 64), precision, data)
    made.run()
    assert made.wrong() is None


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_a_product_that_misses_a_step_of_k_is_wrong(torch, monkeypatch, precision):
    made = products.product(torch, TiledProduct(48, 32, 64), precision)
    whole = torch.matmul
    monkeypatch.setattr(torch, "matmul", lambda a, b, out: whole(a[:, :60], b[:60], out=out))
    assert re.fullmatch(r"an element is off by \S+, where \S+ is allowed", made.wrong())


def test_a_product_that_writes_nothing_is_wrong(torch, monkeypatch):
    made = products.product(torch, TiledProduct(32, 32, 32), "bf16")
    made.run()
    monkeypatch.setattr(torch, "matmul", lambda a, b, out: out)
    assert "nan" in made.wrong()


def test_a_wrong_last_row_is_found(torch, monkeypatch):
    made = products.product(torch, TiledProduct(64, 64, 32), "fp32")
    whole = torch.matmul

    def without_last_tile(a, b, out):
        whole(a, b, out=out)
        out[-1] += 1

    monkeypatch.setattr(torch, "matmul", without_last_tile)
    assert made.wrong()


def test_fp4_codes_are_read_low_half_first_with_their_sign(torch):
    # OCP MX: 0001 is 0.5, 0010 is 1, 1111 is −6, 1001 is −0.5
    assert products.fp4_values(torch, torch.tensor([[0x21, 0x9F]], dtype=torch.uint8)).tolist() == [[0.5, 1.0, -6.0, -0.5]]


def test_random_fp4_codes_spread_as_told(torch):
    # mean square of 0, .5, 1, 1.5, 2, 3, 4, 6: (0 + .25 + 1 + 2.25 + 4 + 9 + 16 + 36) / 8 = 8.5625
    assert products.FP4_SQUARE == 8.5625
    values = products.fp4_values(torch, torch.arange(256, dtype=torch.uint8)[None])
    assert float((values**2).mean()) == 8.5625


def test_tf32_is_allowed_for_tf32_alone(torch):
    products.product(torch, TiledProduct(16, 16, 16), "tf32").run()
    assert torch.backends.cuda.matmul.allow_tf32 is True
    products.product(torch, TiledProduct(16, 16, 16), "fp32").run()
    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_a_cast_tensor_scales_back_within_e4m3s_rounding(torch):
    values = torch.tensor([[1000.0, -3.0, 0.4, 0.0]])
    largest = products.absmax(torch, values)
    back = products.cast(torch, values, largest).float() * largest / 448
    assert float(largest) == 1000 and float(back[0, 0]) == 1000
    assert (back - values).abs().max() <= 3 / 16


# --- layers ---


@pytest.mark.parametrize("dtype", linear.TYPES)
def test_a_linear_layer_is_right_and_a_transposed_weight_is_found(torch, monkeypatch, dtype):
    made = linear._torch(64, dtype, torch, "random")
    assert made.wrong() is None
    whole = products.linear
    monkeypatch.setattr(products, "linear", lambda torch, values, weight, dtype: whole(torch, values, weight.t().contiguous(), dtype))
    assert made.wrong()


@pytest.mark.parametrize("part", fp8_cast.PARTS)
def test_every_part_of_the_fp8_layer_is_right(torch, part):
    made = fp8_cast._prepare(64, part, torch, "random")
    made.run()
    assert made.wrong() is None


def test_a_cast_by_the_wrong_scale_is_found(torch, monkeypatch):
    made = fp8_cast._prepare(64, "input cast", torch, "random")
    whole = products.cast
    monkeypatch.setattr(products, "cast", lambda torch, values, largest: whole(torch, values, largest * 1.3))
    assert made.wrong()


@pytest.mark.parametrize("dtype", linear.TYPES)
def test_a_layer_is_near_double_precision_in_every_type(torch, dtype):
    assert transformer_layer.prepared(torch, TINY, dtype, "random", 16).wrong() is None


def test_a_layer_that_sees_the_future_is_wrong(torch, monkeypatch):
    made = transformer_layer.prepared(torch, TINY, "fp32", "random", 16)
    whole = torch.nn.functional.scaled_dot_product_attention

    def open_eyed(query, key, value, is_causal=False):
        return whole(query, key, value, is_causal=is_causal and query.dtype == torch.float64)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", open_eyed)
    assert "of its norm" in made.wrong()


@pytest.mark.parametrize("dtype", generation.ALLOWED)
def test_tokens_through_the_cache_give_the_logits_of_the_whole_text(torch, dtype):
    made = generation.prepared(torch, TINY, dtype, 8, 3)
    made.run()
    assert made.wrong() is None


def test_a_cache_that_is_read_too_far_is_found(torch):
    network = llama.Network(torch, TINY, 2, 8, torch.float32, llama.multiplied(torch, "fp32"))
    assert generation.wrong_logits(torch, network, 1e-3) is None
    network.positions = network.positions * 0  # every position counts as past
    assert generation.wrong_logits(torch, network, 1e-3)


def test_a_run_generates_as_many_tokens_as_it_counts(torch):
    steps = []
    network = SimpleNamespace(begin=lambda at: steps.append(("begin", at)))
    made = generation.prepared(torch, TINY, "fp32", 8, 5)
    cells = dict(zip(made.run.__code__.co_freevars, made.run.__closure__, strict=True))
    cells["network"].cell_contents, cells["step"].cell_contents = network, lambda: steps.append("step")
    made.run()
    assert steps == [("begin", 8), *["step"] * 5]


def test_the_network_is_llama_as_transformers_has_it(torch):
    transformers = pytest.importorskip("transformers")
    network = llama.Network(torch, TINY, 1, 8, torch.float32, llama.multiplied(torch, "fp32"))
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=2, vocab_size=50,
        rms_norm_eps=llama.EPSILON, rope_theta=10000.0, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config)
    state = {"model.embed_tokens.weight": network.embedding, "model.norm.weight": network.gain, "lm_head.weight": network.head}
    for number, weights in enumerate(network.layers):
        at = f"model.layers.{number}"
        query, key, value = weights["query_key_value"].chunk(3)
        gate, up = weights["gate_up"].chunk(2)
        state |= {
            f"{at}.self_attn.q_proj.weight": query, f"{at}.self_attn.k_proj.weight": key, f"{at}.self_attn.v_proj.weight": value,
            f"{at}.self_attn.o_proj.weight": weights["output"], f"{at}.mlp.gate_proj.weight": gate, f"{at}.mlp.up_proj.weight": up,
            f"{at}.mlp.down_proj.weight": weights["down"], f"{at}.input_layernorm.weight": weights["attention_norm"],
            f"{at}.post_attention_layernorm.weight": weights["norm"],
        }  # fmt: skip
    theirs.load_state_dict(state)
    tokens = torch.randint(0, 50, (1, 6))
    with torch.no_grad():
        assert llama.distance(theirs(tokens).logits[:, -1], network.reference(tokens)) < 1e-4
