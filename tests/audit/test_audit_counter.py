"""The audit of a FLOPs function: errors are named by feature, and foreign code can't break it."""

import json
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ullage.audit.counter import CounterAnswer, asked, compared
from ullage.audit.counter_call import answer, fields, number
from ullage.audit.counter_cases import EXAMPLES, Example
from ullage.audit.mistakes.mistake import MISTAKES
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.formula import compiled
from ullage.models.step import Step
from ullage.render import counter as render
from ullage.reports.audit.counter import audit_counter
from ullage.views.text import text

COUNTER = '''
import os, time

def dense(config, seqlens):
    """2VhT too much, s²/2 pairs."""
    print("a counter may print")
    h, n, k = config["hidden_size"], config.num_attention_heads, config.num_key_value_heads
    d = getattr(config, "head_dim", h // n)
    weights = config.num_hidden_layers * (h * d * (2 * n + 2 * k) + 3 * h * config.intermediate_size) + 2 * h * config.vocab_size
    return 6 * (weights * sum(seqlens) + n * d * config.num_hidden_layers * sum(s * s for s in seqlens))

def nothing(config, seqlens):
    return None

def vast(config, seqlens):
    return 10**400

def zero(config, seqlens):
    return 0

def stuck(config, seqlens):
    if seqlens[0] == 4096:
        time.sleep(60)
    return 1

def gone(config, seqlens):
    if seqlens[0] == 4096:
        os._exit(9)
    return 1

def images(config, seqlens, images_seqlens=()):
    return sum(images_seqlens) or 1
'''
LLAMA = tuple(e for e in EXAMPLES if e.name.startswith("Llama"))  # 4096, 8192 and packed tokens


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    (tmp_path / "mytrainer.py").write_text(COUNTER)
    monkeypatch.chdir(tmp_path)


def training(example, attention=None):
    formula = compiled(Config(example.config))
    return 3 * formula.forward(Step(example.samples, attention or formula.attention))


def factor(name, example):
    from ullage.audit.mistakes.mistake import AuditedJob

    formula = compiled(Config(example.config))
    return MISTAKES[name].factor(AuditedJob(formula, Step(example.samples, formula.attention)))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.feature)
def test_every_case_has_an_answer_and_both_conventions_are_right(example):
    for attention in (None, "full"):
        row = compared(example, CounterAnswer(training(example, attention)))
        assert row.agrees and not row.explained
    assert example.config["architectures"]


def test_every_feature_is_tried_once():
    assert len({e.feature for e in EXAMPLES}) == len(EXAMPLES) >= 20


@pytest.mark.parametrize(
    ("feature", "mistakes"),
    [
        ("tied head", ["embedding_counted"]),
        ("many routed experts", ["router_forgotten"]),
        ("shared expert", ["shared_expert_forgotten", "embedding_counted"]),
        ("latent experts", ["experts_at_full_width"]),
        ("hybrid with Mamba 2", ["state_space_twice_hidden"]),
    ],
)
def test_a_known_mistake_is_named_by_its_factor(feature, mistakes):
    example = next(e for e in EXAMPLES if e.feature == feature)
    wrong = training(example) * (1 + sum(factor(name, example) - 1 for name in mistakes))
    row = compared(example, CounterAnswer(wrong))
    assert sorted(m.name for m in row.explained) == sorted(mistakes)
    assert row.exact


def test_what_no_mistake_makes_is_said_so():
    row = compared(LLAMA[0], CounterAnswer(training(LLAMA[0]) * 7.77))
    assert not row.agrees and not row.explained
    assert row.ratio == pytest.approx(7.77)


def test_a_counter_of_ones_own_is_called_in_another_process(trainer):
    report = audit_counter("mytrainer:dense", examples=LLAMA, timeout=30)
    # the head is counted twice: 6·T·V·h more, and s²/2 for s(s+1)/2 pairs less, far below a thousandth
    for row in report.rows:
        h, vocabulary = row.example.config["hidden_size"], row.example.config["vocab_size"]
        assert row.ratio == pytest.approx(1 + 6 * sum(row.example.seqlens) * vocabulary * h / row.causal, rel=1e-3)
        assert [m.name for m in row.explained] == ["embedding_counted"]
    assert "dense" not in sys.modules


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("nothing", "ValueError: returned None"),
        ("vast", "ValueError: returned an integer of 1,329 bits"),
        ("zero", "says 0"),
        ("stuck", "took more than"),
        ("gone", "ended its process (exit code 9)"),
    ],
)
def test_what_goes_wrong_in_foreign_code_is_one_row(trainer, function, says):
    report = audit_counter(f"mytrainer:{function}", examples=LLAMA[:2], timeout=2)
    assert says in str(report)
    assert len(report.rows) == 2
    if function in ("stuck", "gone"):  # only the first case breaks; the next is asked in a new process
        assert report.rows[1].told.flops == 1


def test_images_go_to_the_parameter_that_is_named_for_them(trainer):
    example = next(e for e in EXAMPLES if e.patches)
    _, told = asked("mytrainer:images", [example], 30)
    assert told[0].flops == 64 * 64 + 32 * 48


@pytest.mark.parametrize("target", ["mytrainer:absent", "absent:flops", "mytrainer", "mytrainer:os"])
def test_a_function_that_is_not_there_is_an_error(trainer, target):
    with pytest.raises(UllageError, match="can't be loaded"):
        audit_counter(target, examples=LLAMA[:1], timeout=10)


@pytest.mark.parametrize("value", [None, True, "7", float("nan"), float("inf"), [1], object()])
def test_what_is_no_number_is_refused(value):
    with pytest.raises((ValueError, TypeError)):
        number(value)


def test_a_configuration_is_a_mapping_and_a_namespace():
    config = fields({"hidden_size": 8, "text_config": {"vocab_size": 10}})
    assert (config["hidden_size"], config.text_config.vocab_size, getattr(config, "head_dim", 7)) == (8, 10, 7)
    case = {"config": {"a": 1}, "seqlens": [3], "patches": [], "prompts": []}
    assert answer(lambda config, seqlens: config.b, case) == {"failed": "AttributeError: the configuration has no 'b'"}


def test_the_command_prints_a_row_a_feature(trainer):
    result = CliRunner().invoke(cli, ["audit", "counter", "mytrainer:zero", "--json"])
    record = json.loads(result.output)
    assert result.exit_code == 3
    assert (record["cases"], record["right"], record["without_a_number"]) == (len(EXAMPLES), 0, len(EXAMPLES))
    assert [row["feature"] for row in record["rows"]] == [e.feature for e in EXAMPLES]


def test_the_text_is_verdict_table_and_notes():
    example = Example("grouped queries", "a Llama", LLAMA[1].config, (8192,))
    right = compared(example, CounterAnswer(training(example)))
    twice = compared(example, CounterAnswer(training(example) * factor("embedding_counted", example)))
    report = SimpleNamespace(
        target="t", version="mine 1.0", rows=(right, twice, compared(example, CounterAnswer(None, "KeyError: 'x'"))), right=1, silent=1
    )
    lines = text(render.view(report)).split("\n")
    assert lines[0] == "mine 1.0 is right on 1 of 3 cases; the others are 1.061 to 1.061 of the truth, 1 got no number"
    assert [" ".join(line.split()) for line in lines[2:6]] == [
        "feature model causal full what it does",
        "grouped queries a Llama 1.0000 0.8888 right",
        "grouped queries a Llama 1.0612 0.9432 embedding_counted",
        "grouped queries a Llama – – KeyError: 'x'",
    ]
