"""OLMo: Llama's plan with other norms; OLMo 3 has windows in three of four layers."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM
from ullage.models.model import model
from ullage.models.plans import Plan, chosen, names, planned
from ullage.models.work import Work

HEADS = (LM, CLASSIFIER, BARE)
PLANS = (
    Plan("Olmo", "olmo", HEADS, sizes=(4096, 11008, 32, 32, 50304)),
    Plan("Olmo2", "olmo2", HEADS, sizes=(4096, 11008, 32, 32, 50304)),
    Plan("Olmo3", "olmo3", HEADS, {"sliding_window": 4096}, (4096, 11008, 32, 32, 50304), window="typed", every=4),
)


@model(*names(PLANS), source="transformers 5.23, models/olmo, olmo2, olmo3; verified to the integer against traces")
def olmo(config: Config) -> Iterator[Work]:
    """OLMo 1, 2 and 3: multi-head or grouped-query attention, gated MLP; norms, clipping and their places cost nothing."""
    yield from planned(config, chosen(config, PLANS))
