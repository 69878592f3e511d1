"""A step's matrix products: the ledger's FLOPs to the integer, their sizes on one GPU, and the tiles to expect."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ullage.asking.step import step_question
from ullage.cli import cli
from ullage.models.config import Config
from ullage.models.formula import compiled
from ullage.models.gemms import Sharding, StepGemm, gemms, is_gemm
from ullage.models.passes import Training
from ullage.models.shapes import Shapes, step
from ullage.reports.flops import flops
from ullage.reports.gemms.ledger import expected

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


def products(values: dict, sharding: Sharding | None = None, training: Training | None = None, **shapes) -> list[StepGemm]:
    formula = compiled(Config(values))
    described, _ = step(Shapes(**shapes), formula, "causal")
    return gemms(formula, described, training or Training(), None, sharding)


def one(found: list[StepGemm], name: str, pass_: str = "forward") -> StepGemm:
    (gemm,) = [g for g in found if (g.name, g.pass_) == (name, pass_)]
    return gemm


def test_a_linear_layer_is_three_products():
    # mlp.up: 512 -> 1408 over 2 x 256 tokens, 3 layers; M is the width of the result, as cuBLAS counts
    found = products(LLAMA, batch=2, seq=256)
    assert one(found, "mlp.up") == StepGemm("mlp.up", "forward", "bf16", 1408, 512, 512, 3)
    assert one(found, "mlp.up", "dgrad") == StepGemm("mlp.up", "dgrad", "bf16", 512, 512, 1408, 3)
    assert one(found, "mlp.up", "wgrad") == StepGemm("mlp.up", "wgrad", "bf16", 1408, 512, 512, 3)


@pytest.mark.parametrize("values", [LLAMA, MIXTRAL])
@pytest.mark.parametrize(
    ("asked", "sharding"),
    [({}, Sharding()), ({"recompute": "full"}, Sharding()), ({"lora_rank": 8}, Sharding()), ({}, Sharding(data=4, tensor=2, batches=2))],
)
def test_products_carry_the_flops_of_their_terms_to_the_integer(values, asked, sharding):
    # 16 x 256 tokens divide evenly by everything here, so nothing is rounded
    formula, training = compiled(Config(values)), Training(**asked)
    described, _ = step(Shapes(batch=16, seq=256), formula, "causal")
    booked = {(t.name, t.pass_): t.flops for t in formula.terms(described, training)}
    sums: dict = {}
    for gemm in gemms(formula, described, training, None, sharding):
        sums[gemm.name, gemm.pass_] = sums.get((gemm.name, gemm.pass_), 0) + gemm.flops
    assert sums == {key: count for key, count in booked.items() if not key[0].endswith((".scores", ".values"))}


def test_data_parallel_ranks_share_the_rows_and_tensor_ranks_the_weights():
    # 4096 tokens over 4 ranks and 2 micro-batches: 512 rows. Up is cut by columns (1408 / 2), down by its inner side
    found = products(LLAMA, Sharding(data=4, tensor=2, batches=2), batch=16, seq=256)
    up, down = one(found, "mlp.up"), one(found, "mlp.down")
    assert (up.m, up.n, up.k, up.count) == (704, 512, 512, 3 * 4 * 2 * 2)
    assert (down.m, down.n, down.k) == (512, 512, 704)
    assert one(found, "head").m == 500


def test_experts_are_products_of_their_own_share_of_the_tokens():
    # 1024 tokens, 2 of 8 experts each: 256 rows an expert, 8 products a layer
    gate = one(products(MIXTRAL, batch=4, seq=256), "moe.experts.gate")
    assert (gate.m, gate.n, gate.k, gate.count) == (1408, 256, 512, 3 * 8)


def test_ranks_that_share_experts_see_the_tokens_of_all_of_them():
    # 4 ranks of 256 tokens hold 2 experts each: an expert gets 4 x 256 x 2 / 8 = 256 rows; 8 products a layer over all ranks
    gate = one(products(MIXTRAL, Sharding(data=4, expert=4), batch=4, seq=256), "moe.experts.gate")
    assert (gate.n, gate.count) == (256, 3 * 8)


def test_padded_sequences_are_multiplied_as_long_as_they_are():
    assert one(products(LLAMA, seqlens=(100, 200), padded_seq=256), "mlp.up").n == 512


def test_attention_and_convolutions_are_no_products_of_a_library():
    names = {work.name for work in compiled(Config({**LLAMA, "model_type": "llama"})).works if is_gemm(work)}
    assert names == {"attention.q", "attention.k", "attention.v", "attention.out", "mlp.gate", "mlp.up", "mlp.down", "head"}


def test_expected_tiles_of_a_step():
    question = step_question(batch=8, seq=512, gpu="H100 SXM")
    config = Config(LLAMA)
    report = flops(config, question)
    tiles = expected(config, question, report)
    assert 0 < tiles.efficiency <= 1
    # by FLOPs: what is needed over what is executed, and attention's share is left out
    assert tiles.efficiency == sum(r.gemm.flops for r in tiles.rows) / sum(r.executed for r in tiles.rows)
    attention = sum(t.flops for t in report.ledger.terms if t.name in ("attention.scores", "attention.values"))
    assert tiles.share == pytest.approx(1 - attention / report.ledger.executed)


def test_each_precision_has_tiles_of_its_own():
    question = step_question(batch=8, seq=512, gpu="H100 SXM", precision={"*": "bf16", "mlp": "fp8"})
    config = Config(LLAMA)
    steps = {row.gemm.name: row.cover.tiling.k_tile for row in expected(config, question, flops(config, question)).rows}
    assert (steps["mlp.up"], steps["attention.q"]) == (128, 64)


def test_the_command_prints_terms_total_and_source(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "architectures": ["LlamaForCausalLM"]}))
    words = ["flops", str(path), "--batch", "8", "--seq", "512", "--gpu", "H100 SXM", "--tiles"]
    shown = CliRunner().invoke(cli, words, catch_exceptions=False).stdout
    assert "tile efficiency " in shown and "predicted for NVIDIA H100 80GB HBM3 by our own model" in shown
    assert "mlp.down       wgrad" in shown
    data = json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).stdout)
    assert data["tiles"]["source"] == "predicted"
    assert len(data["tiles"]["products"]) == 8 * 3
    assert data["tiles"]["tile_efficiency"] > 0.9
