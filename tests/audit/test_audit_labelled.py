"""The audit over reports whose cause is known: measured ratios of frameworks' counts over traces of the models."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from ullage.audit.mistakes.mistake import MISTAKES

ROOT = Path(__file__).parents[2]


def load():
    spec = importlib.util.spec_from_file_location("audit_labelled", ROOT / "benchmarks" / "audit_labelled.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_labelled"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


labelled = load()


@pytest.fixture(scope="module")
def scored() -> tuple[list, list, list]:
    """The answers with the tile efficiency measured, with it unknown, and with the framework named."""
    return labelled.scored()


def counts(answers) -> Counter[str]:
    return Counter(answer.outcome for answer in answers)


def by(answers, model: str, tool: str) -> list:
    found = [a for a in answers if (a.model, a.tool) == (model, tool)]
    assert found, (model, tool)
    return found


def test_no_report_that_is_right_within_the_error_of_ofu_is_accused(scored):
    for answers in scored:
        assert counts(answers)["accused"] == 0


def test_the_right_cause_is_listed_unless_it_takes_three_mistakes_or_is_not_in_the_list(scored):
    missed = [a for a in scored[0] if a.outcome == "missed"]
    assert all(len(a.causes) >= 3 or not set(a.causes) <= set(MISTAKES) for a in missed)
    assert {a.tool for a in missed} == {"verl", "Automodel"} and len(missed) == 3


@pytest.mark.parametrize(
    ("model", "tool", "cause"),
    [
        ("Qwen2.5-0.5B", "verl", "embedding_counted"),
        ("Nemotron-H-8B", "Automodel", "gate_assumed"),
        ("Nemotron-Nano-9B-v2", "Megatron-LM", "state_space_twice_hidden"),
        ("Nemotron-3-Super", "Megatron-LM without latent experts", "experts_at_full_width"),
        ("Qwen3-30B-A3B", "HF Trainer", "all_experts"),
        ("Wan2.1-T2V-14B", "VeRL-Omni's documented recipe", "latents_unpatched"),
        ("Qwen3-235B-A22B", "NeMo", "head_width_assumed"),
    ],
)
def test_a_well_known_miscount_is_named_first(scored, model, tool, cause):
    (answer,) = by(scored[0], model, tool)
    assert cause in answer.finding.explanations[0].names


def test_a_framework_that_is_named_explains_its_own_reports(scored):
    named = [a for a in scored[2] if a.outcome != "agrees"]
    assert named and all(a.outcome == "first" for a in named)


def test_the_page_says_what_the_script_counts(scored):
    page = (ROOT / "docs" / "mfu-audit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (tile efficiency measured|tile efficiency unknown|framework named)[^|]*\|(.+)\|$", page, re.M)
    told = {name: [int(cell) for cell in cells.split("|")] for name, cells in rows}
    for name, answers in zip(("tile efficiency measured", "tile efficiency unknown", "framework named"), scored, strict=True):
        found = counts(answers)
        assert told[name] == [len(answers), *(found[outcome] for outcome in labelled.OUTCOMES)], name
