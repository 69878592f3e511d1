"""`ullage open`: each kind of input is told by its content, under any name, and gets the report that it is for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ullage
from tests.command_line import ask
from ullage.errors import UllageError
from ullage.opening import opening_of

ROOT = Path(__file__).parents[1]
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
NEMO = "".join(
    f"[2026-03-01 10:00:{step:02}] iteration {step:>8}/ 100 | consumed samples: {step * 8} | elapsed time per iteration (ms): 2000.0 |"
    " throughput per GPU (TFLOP/s/GPU): 400.1 | learning rate: 1.0E-04 | global batch size: 8 | lm loss: 2.1E+00 |\n"
    for step in range(1, 9)
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """One of each kind, under names that say nothing."""
    folder = tmp_path_factory.mktemp("inputs")
    assert ask("simulate", "trace", "--out", folder / "run", "--ranks", 1, "--steps", 1).code == 0
    profile = folder / "run" / "training_rank0.json"
    (folder / "profile").write_bytes(profile.read_bytes())
    (folder / "scrape").write_text(
        'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-a",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 0.4\n'
        'DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 1830\n'
    )
    (folder / "model").write_text(json.dumps(LLAMA))
    (folder / "products").write_text(json.dumps([{"m": 4096, "n": 4096, "k": 4096}]))
    (folder / "code").write_text("//\n.version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n")
    (folder / "log").write_text(NEMO)
    subprocess.run(
        [sys.executable, str(ROOT / "docs" / "stall_example.py"), str(folder / "samples.parquet")], check=True, capture_output=True
    )
    assert ask("simulate", "--out", folder / "fleet", "--gpus", 8, "--hours", 0.1).code == 0
    return folder


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("profile", "trace"),
        ("scrape", "fleet"),
        ("model", "flops"),
        ("products", "waterfall"),
        ("code", "sass"),
        ("local", "fleet"),
        ("samples.parquet", "cupti stalls"),
        ("fleet/samples", "fleet"),
        ("log", "waterfall"),
    ],
)
def test_content_says_which_report_it_is_for(inputs, name, command):
    place = name if name == "local" else str(inputs / name)
    assert opening_of([place]).command == command


def test_parts_of_one_job_are_a_waterfall(inputs):
    opened = opening_of([str(inputs / name) for name in ("profile", "model")])
    assert (opened.command, opened.kinds) == ("waterfall", ("trace", "config"))
    with pytest.raises(UllageError, match="no report is of machine code of a GPU and a trace together"):
        opening_of([str(inputs / name) for name in ("profile", "code")])


def test_a_text_and_nothing_are_refused_each_with_what_to_do(tmp_path):
    text = tmp_path / "notes"
    text.write_text("dear diary\n")
    with pytest.raises(UllageError, match="no reader recognises what"):
        opening_of([str(text)])
    with pytest.raises(UllageError, match="there is no file or folder"):
        opening_of([str(tmp_path / "nowhere")])
    with pytest.raises(UllageError, match="nothing is named"):
        opening_of([])


def test_the_command_says_what_it_asks_and_answers_as_that_command_does(inputs):
    for name, command in (("profile", "trace"), ("scrape", "fleet"), ("model", "flops")):
        place = inputs / name
        opened = ask("open", place, "--json")
        assert opened.code == 0 and f"ullage {command} " in opened.err
        assert opened.json == ask(command, place, "--json").json


def test_python_opens_the_same(inputs):
    assert ullage.open(str(inputs / "scrape")).ofu == pytest.approx(0.4)
    assert ullage.open(inputs / "model", batch=2).executed == ullage.flops(str(inputs / "model"), batch=2).executed
