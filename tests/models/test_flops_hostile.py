"""Hostile configurations: whatever is in a field, the answer is a ledger or one clear error, soon."""

from __future__ import annotations

import json
import random

import pytest

import ullage
from tests.models.certified_configs import CONFIGS
from ullage.errors import UllageError

WORDS = {"seq": 7, "grid": [(1, 4, 4)], "prompt_tokens": 6, "latent_tokens": 16}
NASTY = [
    None,
    0,
    -1,
    1,
    3,
    7,
    1 << 62,
    1.5,
    float("nan"),
    float("inf"),
    True,
    "64",
    "\x1b[31m",
    "../../etc/passwd",
    [],
    [0],
    [-1, "x"],
    {},
    {"a": {}},
]
CASES = [(name, index, config) for name, configs in CONFIGS.items() for index, config in enumerate(configs)]


def answered(config: object) -> None:
    """Ask with every kind of shape; only a ledger or the one error may come of it."""
    for words in (WORDS, {"seq": 7}, {"latent": [1, 8, 8], "prompt_tokens": 6}):
        try:
            report = ullage.flops(config, **words)
        except UllageError as error:
            assert len(str(error)) < 2000
            assert str(error).isprintable() or "\n" in str(error)
        else:
            assert isinstance(report.forward, int)
            assert report.forward >= 0
            assert report.training <= report.executed


@pytest.mark.parametrize(("name", "index", "config"), CASES, ids=[f"{n}-{i}" for n, i, _ in CASES])
def test_a_field_that_is_missing_or_nasty_is_an_error_or_a_ledger(name, index, config):
    draw = random.Random(f"{name}-{index}")
    answered(config)
    fields = [f for f in config if f not in ("architectures", "_class_name", "model_type")]
    for field in draw.sample(fields, min(len(fields), 2)):
        answered({k: v for k, v in config.items() if k != field})
        for value in draw.sample(NASTY, 2):
            answered({**config, field: value})


@pytest.mark.full
@pytest.mark.parametrize(("name", "index", "config"), CASES, ids=[f"{n}-{i}" for n, i, _ in CASES])
def test_every_field_missing_and_every_nasty_value_in_it(name, index, config):
    for field in config:
        answered({k: v for k, v in config.items() if k != field})
        for value in NASTY:
            answered({**config, field: value})


def test_a_config_that_holds_itself_is_an_error():
    config = {"model_type": "llava"}
    config["text_config"] = config
    with pytest.raises(UllageError):
        ullage.flops(config, seq=4)


def test_depth_that_a_parser_cannot_follow_is_an_error(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"a":' * 50_000 + "1" + "}" * 50_000)
    with pytest.raises(UllageError):
        ullage.flops(file, seq=4)


def test_nothing_of_a_config_is_executed(tmp_path):
    spy = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(spy)!r}).touch()"
    config = {
        "model_type": "llama", "hidden_size": code, "auto_map": {"AutoConfig": f"evil--{code}"}, "trust_remote_code": True,
        "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "configuration_evil.py").write_text(code)
    with pytest.raises(UllageError):
        ullage.flops(tmp_path, seq=4)
    assert not spy.exists()
