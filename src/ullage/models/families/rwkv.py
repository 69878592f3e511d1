"""RWKV 4: a linear recurrence for each channel and a gated MLP."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding, head
from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.sample import TEXT
from ullage.models.work import Work, matmul


@model(
    *("RwkvForCausalLM", "rwkv"),
    source="transformers 5.23, models/rwkv; arXiv:2305.13048; verified to the integer against traces",
)
def rwkv(config: Config) -> Iterator[Work]:
    """RWKV 4: projections to keys, values and receptance, the WKV recurrence, and a gated MLP; T tokens cost no T².

    A step of T tokens costs 2T[L(4hA + 2hf + h²) + Vh] FLOPs forward. The recurrence is element-wise, a few operations for
    each of the A channels and tokens, and counts 0: the state of a channel is one number.
    """
    width, layers = config.integer("hidden_size"), config.layers()
    inner, hidden = config.integer("attention_hidden_size", default=width), config.integer("intermediate_size", default=4 * width)
    place = {"layers": layers, "stack": "rwkv.blocks"}
    name = "linear_attention"
    yield embedding(module="rwkv.embeddings")
    for what, module in (("k", "key"), ("v", "value"), ("receptance", "receptance")):
        yield matmul(f"{name}.{what}", TEXT, width, inner, module=f"attention.{module}", to=None, **place)  # type: ignore[arg-type]
    made = (f"{name}.k", f"{name}.v", f"{name}.receptance")
    yield matmul(f"{name}.out", TEXT, inner, width, module="attention.output", reads=made, **place)  # type: ignore[arg-type]
    yield matmul("mlp.up", TEXT, width, hidden, module="feed_forward.key", to=None, **place)  # type: ignore[arg-type]
    yield matmul("mlp.down", TEXT, hidden, width, module="feed_forward.value", reads=("mlp.up",), **place)  # type: ignore[arg-type]
    yield matmul("mlp.receptance", TEXT, width, width, module="feed_forward.receptance", **place)  # type: ignore[arg-type]
    yield head(width, config.integer("vocab_size"), module="head")
