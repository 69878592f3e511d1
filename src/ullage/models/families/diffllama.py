"""DiffLlama: Llama with differential attention, the difference of two maps of weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER
from ullage.models.model import model
from ullage.models.plans import Plan, planned
from ullage.models.work import Work

PLAN = Plan("DiffLlama", "diffllama", (LM, CLASSIFIER, TAGGER, BARE))


@model(*PLAN.names, source="transformers 5.23, models/diffllama; verified to the integer against traces")
def diffllama(config: Config) -> Iterator[Work]:
    """DiffLlama: Llama's products, and values twice as wide.

    Each map of weights meets both halves of the values. The library calls attention once for each half and so computes the
    scores twice; the mathematics needs them once, which `least` says.
    """
    for work in planned(config, PLAN):
        if work.name == "attention.scores":
            yield replace(work, flops=2 * work.flops, least=work.flops)
        elif work.name == "attention.values":
            yield replace(work, flops=2 * work.flops)
        else:
            yield work
