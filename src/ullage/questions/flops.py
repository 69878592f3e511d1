"""What does a model's step cost, and what is its MFU?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.step import StepDescription

if TYPE_CHECKING:
    from ullage.models.config import Config
    from ullage.reports.flops import FlopsReport, StepQuestion


@dataclass(frozen=True, kw_only=True)
class FlopsQuestion(StepDescription):
    """FLOPs of a model step, term by term; with its time, MFU and HFU.

    CONFIG is a Hugging Face config.json, a folder with one, or a diffusers folder. FLOPs are exact integers; attention is
    counted causally where it is (windows too), backward as twice the forward pass.
    """

    config: str | Mapping[str, Any] | None = asked(
        "A config.json, a folder with one, a diffusers folder; in Python a mapping, too.", argument=True, metavar="[CONFIG]"
    )
    tiles: bool = asked("The tile efficiency to expect of each matrix product, by predicted tiles (docs/gemm.md).", False)
    by: Literal["group", "name"] = asked("Rows of the table.", "group")
    tile_efficiency: float = asked("Share of executed FLOPs that tiles did not pad: for the OFU to expect.", 1.0, minor=True)
    certify: bool = asked("Trace the model at small shapes and demand integer equality; stores a certificate.", False, minor=True)
    trace: bool = asked("Derive FLOPs from traces, for an architecture without a formula.", False, minor=True)
    listed: bool = asked("List the architectures that have a formula.", False, flag="--list")


def answer(question: FlopsQuestion, progress: Progress, command: str = "") -> Any:  # noqa: ARG001 - a question's `answer`
    """Return the ledger of a step; or the architectures, a certificate, or what traces give, where that is asked for."""
    from ullage.models.reading import read_config

    if question.listed:
        from ullage.reports.architectures import architectures

        return architectures()
    if question.config is None:
        raise WrongQuestionError("name a config.json or a folder, or say --list")
    config = read_config(question.config)
    step = replace(question.question(config), tile_efficiency=question.tile_efficiency)
    return _proof(question, config, step, progress) if question.certify or question.trace else _ledger(question, config, step)


def _proof(question: FlopsQuestion, config: Config, step: StepQuestion, progress: Progress) -> Any:
    from ullage.reports.proofs import certified_formula, derived_flops

    return derived_flops(config, step, progress) if question.trace else certified_formula(config, step.kind, progress)


def _ledger(question: FlopsQuestion, config: Config, step: StepQuestion) -> FlopsReport:
    from ullage.reports.flops import flops
    from ullage.reports.gemms.ledger import expected

    report = flops(config, step)
    return replace(report, by=question.by, tiles=expected(config, step, report) if question.tiles else None)


def gate(question: FlopsQuestion, report: Any) -> bool:  # noqa: ARG001 - a question's `gate`
    """Return whether a formula and its model differ."""
    from ullage.reports.proofs import CertifiedFormula

    return isinstance(report, CertifiedFormula) and not report.equal


def shown_by(question: FlopsQuestion) -> str:
    """Return the module that describes the answer."""
    if question.listed:
        return "ullage.render.architectures"
    chosen = "derived" if question.trace else "certified" if question.certify else "flops"
    return f"ullage.render.{chosen}"


def read_places(question: FlopsQuestion) -> list[str]:
    """Return the files that are read for a question."""
    return [place for place in (question.config, question.step) if isinstance(place, str | os.PathLike)]


_EXAMPLES = """
  ullage flops config.json --batch 8 --seq 4096                     FLOPs of a training step, by group
  ullage flops Llama-3-8B/ --batch 1024 --seq 8192 --step-time 21 --gpus 256 --gpu 'H100 SXM'
                                                                    MFU and HFU
  ullage flops config.json --step step.toml                         the step as a file describes it: batch = 8
  ullage flops config.json --seqlens 512,1024,2048                  packed sequences: Σs and Σs²
  ullage flops config.json --context 4096 --batch 32                one step of generation
  ullage flops config.json --lora-rank 16 --lora-targets q_proj,v_proj --seq 2048
  ullage flops config.json --recompute full --seq 4096              executed FLOPs, for HFU
  ullage flops Wan2.1/ --latent 21,60,104 --prompt-tokens 512 --timesteps 50 --forward-passes 2 --forward-only
  ullage flops Qwen2.5-VL/ --seq 1024 --grid 1,32,32 --grid 1,64,64
  ullage flops config.json --seq 4096 --as verl                     what that framework would print
  ullage flops config.json --seq 4096 --gpu 'H100 SXM' --tiles       what tiles will pad, product by product
  ullage flops config.json --certify                                prove the formula by tracing (needs torch)
  ullage flops --list                                               the architectures
"""

QUESTION = register(
    RegisteredQuestion(
        name="flops",
        asked=FlopsQuestion,
        noun="a step",
        answer=answer,
        shown_by=shown_by,
        examples=_EXAMPLES,
        read_places=read_places,
        gate=gate,
        status_3="with --certify, the formula and the traced model differ",
    )
)

flops = python_function(QUESTION)
