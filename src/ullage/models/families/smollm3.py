"""SmolLM 3: Llama's plan, with positions left out of every fourth layer."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER
from ullage.models.model import model
from ullage.models.plans import FULL, SLIDING, Plan, planned
from ullage.models.work import Work

FIELDS = {"num_key_value_heads": 4, "use_sliding_window": False}
PLAN = Plan("SmolLM3", "smollm3", (LM, CLASSIFIER, TAGGER, BARE), FIELDS, (2048, 11008, 36, 16, 128256), window="typed")


@model(*PLAN.names, source="transformers 5.23, models/smollm3; verified to the integer against traces")
def smollm3(config: Config) -> Iterator[Work]:
    """SmolLM 3: grouped-query attention, gated MLP; rotary positions or none cost the same.

    With `use_sliding_window` (not as released) the layers without rotary positions have the window.
    """
    if config.flag("use_sliding_window") and config.has("sliding_window") and not config.has("layer_types"):
        layers, every = config.layers(), config.integer("no_rope_layer_interval", default=4)
        rotary = config.integers("no_rope_layers", len(layers)) or [int((i + 1) % every != 0) for i in layers]
        config = config.replaced(layer_types=[FULL if r else SLIDING for r in rotary])
    yield from planned(config, PLAN)
