"""Formulas against traces that nobody here wrote: every case of the recorded set, to the integer, forward and backward."""

import json
from pathlib import Path

import pytest

import ullage

TRACED = Path(__file__).parents[3] / "shared" / "data" / "flops_traced.json"
CASES = json.loads(TRACED.read_text())["cases"] if TRACED.exists() else []

# What a trace's own description leaves out
SAID = {"llama3-8b-lora-r16-all_b1_s2048": {"lora_rank": 16}, "z-image_latent64x64": {"prompt_tokens": 128}}


def asked(case):
    """Return the words of `ullage.flops` for a case's shapes."""
    shapes = case["shapes"]
    words = {"batch": shapes.get("batch", 1), **SAID.get(case["id"], {})}
    if "seq" in shapes:
        words["seq"] = shapes["seq"]
    if "enc_seq" in shapes:
        words |= {"encoder_seq": shapes["enc_seq"], "decoder_seq": shapes["dec_seq"]}
    if "kv_len" in shapes:
        words["context"] = shapes["kv_len"] - shapes["q_len"]
    if "txt_tokens" in shapes:
        words["prompt_tokens"] = shapes["txt_tokens"]
    if "latent" in shapes:
        words["latent"] = shapes["latent"]
    elif "txt_tokens" in shapes:
        words["latent_tokens"] = shapes.get("img_tokens", shapes.get("tokens"))
    if "image_tokens" in shapes:
        words["image_tokens"] = shapes["image_tokens"]
    if "txt" in shapes:
        words |= {"seq": shapes["txt"], "image_tokens": shapes["img_tokens"]}
    if "image" in shapes:
        words["image"] = [tuple(shapes["image"])]
    if "grid_thw" in shapes:
        words["grid"] = [tuple(grid) for grid in shapes["grid_thw"]]
    return words


@pytest.mark.skipif(not CASES, reason="the recorded traces are not here")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_formula_is_what_a_trace_counts(case):
    report = ullage.flops(case["config"], attention="full", backward="exact", **asked(case))
    assert report.forward == case["fwd_flops"]
    if case.get("fwd_bwd_flops"):
        assert report.training == case["fwd_bwd_flops"]


@pytest.mark.skipif(not CASES, reason="the recorded traces are not here")
def test_what_the_trace_left_open_is_small_and_said():
    scans = [case for case in CASES if case["family"].startswith(("nemotron_h", "zamba2", "qwen3_next", "minimax"))]
    for case in scans:
        report = ullage.flops(case["config"], attention="full", **asked(case))
        assert 0 < report.uncertainty < 0.02
