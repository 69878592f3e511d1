"""Phi: parallel blocks without a gate (1, 1.5, 2); Llama's plan with fused projections (3, 3.5, 4)."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, Layout
from ullage.models.model import model
from ullage.models.plans import Plan, chosen, names, planned
from ullage.models.work import Work

HEADS = (LM, CLASSIFIER, TAGGER, BARE)
PHI = Layout(attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense"), mlp=("mlp.fc1", "mlp.fc2"))
PHI3 = Layout(attention=("self_attn.qkv_proj", "self_attn.o_proj"), mlp=("mlp.gate_up_proj", "mlp.down_proj"))
PLANS = (
    Plan("Phi", "phi", HEADS, sizes=(2048, 8192, 24, 32, 51200), gated=False, layout=PHI),
    Plan("Phi3", "phi3", HEADS, sizes=(3072, 8192, 32, 32, 32064), window="all", layout=PHI3),
)


@model(*names(PLANS), source="transformers 5.23, models/phi, phi3; verified to the integer against traces")
def phi(config: Config) -> Iterator[Work]:
    """Phi 1, 1.5 and 2; Phi 3, 3.5 and 4 (dense): one window for all layers where the file names one."""
    yield from planned(config, chosen(config, PLANS))
