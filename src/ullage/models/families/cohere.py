"""Command R: attention and MLP side by side, one embedding for both ends."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM
from ullage.models.model import model
from ullage.models.plans import Plan, chosen, names, planned
from ullage.models.work import Work

SIZES = (8192, 22528, 40, 64, 256000)
PLANS = (
    Plan("Cohere", "cohere", (LM, BARE), sizes=SIZES),
    Plan("Cohere2", "cohere2", (LM, BARE), {"sliding_window": 4096}, SIZES, window="typed", every=4),
)


@model(*names(PLANS), source="transformers 5.23, models/cohere, cohere2; verified to the integer against traces")
def cohere(config: Config) -> Iterator[Work]:
    """Command R and R+, Aya (Cohere); Command R7B and A, with windows in three of four layers (Cohere 2).

    The parallel block needs the same products as a sequential one.
    """
    yield from planned(config, chosen(config, PLANS))
