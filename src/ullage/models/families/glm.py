"""GLM 4: Llama's plan with gate and up in one projection."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, Layout
from ullage.models.model import model
from ullage.models.plans import Plan, chosen, names, planned
from ullage.models.work import Work

HEADS = (LM, CLASSIFIER, TAGGER, BARE)
FIELDS = {"num_key_value_heads": 2, "head_dim": 128}
LAYOUT = Layout(mlp=("mlp.gate_up_proj", "mlp.down_proj"))
PLANS = (
    Plan("Glm", "glm", HEADS, FIELDS, (4096, 13696, 40, 32, 151552), layout=LAYOUT),
    Plan("Glm4", "glm4", HEADS, FIELDS, (4096, 13696, 40, 32, 151552), layout=LAYOUT),
)


@model(*names(PLANS), source="transformers 5.23, models/glm, glm4; verified to the integer against traces")
def glm(config: Config) -> Iterator[Work]:
    """GLM 4 and GLM 4 0414 (9B, 32B), GLM-Edge: grouped-query attention, gated MLP, norms around both."""
    yield from planned(config, chosen(config, PLANS))
