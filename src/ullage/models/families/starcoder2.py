"""StarCoder 2: grouped-query attention with a window, an MLP without a gate."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, Layout
from ullage.models.model import model
from ullage.models.plans import Plan, planned
from ullage.models.work import Work

PLAN = Plan(
    "Starcoder2",
    "starcoder2",
    (LM, CLASSIFIER, TAGGER, BARE),
    {"num_key_value_heads": 2},
    gated=False,
    window="all",
    layout=Layout(mlp=("mlp.c_fc", "mlp.c_proj")),
)


@model(*PLAN.names, source="transformers 5.23, models/starcoder2; verified to the integer against traces")
def starcoder2(config: Config) -> Iterator[Work]:
    """StarCoder 2 (3B, 7B, 15B): one window for all layers where the file names one, an MLP of two products."""
    yield from planned(config, PLAN)
