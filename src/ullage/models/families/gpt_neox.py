"""GPT-NeoX and what was built like it: one projection to queries, keys and values, an MLP without a gate."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, Layout
from ullage.models.model import model
from ullage.models.plans import Plan, chosen, names, planned
from ullage.models.work import Work

MLP = ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
NEOX = Layout("gpt_neox.layers", "gpt_neox.embed_in", attention=("attention.query_key_value", "attention.dense"), mlp=MLP)
JAPANESE = Layout(
    "gpt_neox_japanese.layers", "gpt_neox_japanese.embed_in", attention=("attention.query_key_value", "attention.dense"), mlp=MLP
)
PERSIMMON = Layout(attention=("self_attn.query_key_value", "self_attn.dense"), mlp=MLP)
PLANS = (
    Plan("GPTNeoX", "gpt_neox", (LM, CLASSIFIER, BARE), gated=False, layout=NEOX),
    Plan("GPTNeoXJapanese", "gpt_neox_japanese", (LM, BARE), gated=False, layout=JAPANESE),
    Plan("Persimmon", "persimmon", (LM, CLASSIFIER, TAGGER, BARE), sizes=(4096, 16384, 36, 64, 262144), gated=False, layout=PERSIMMON),
)


@model(*names(PLANS), source="transformers 5.23, models/gpt_neox, gpt_neox_japanese, persimmon; verified to the integer against traces")
def gpt_neox(config: Config) -> Iterator[Work]:
    """GPT-NeoX, Pythia, Dolly, RedPajama-INCITE, Persimmon: multi-head attention; parallel blocks cost what sequential ones do."""
    plan = chosen(config, PLANS)
    if plan.kind == "gpt_neox_japanese":
        multiple = config.integer("intermediate_multiple_size", default=4)
        config = config.replaced(intermediate_size=multiple * config.integer("hidden_size"))
    yield from planned(config.replaced(num_key_value_heads=None, head_dim=None), plan)
