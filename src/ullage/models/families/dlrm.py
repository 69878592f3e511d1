"""Recommendation models: DLRM, with pairwise products of its features or with a cross network (DCN v2)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import numbers
from ullage.models.sample import ONCE
from ullage.models.work import Work, contraction, lookup, matmul

MOST_LAYERS = 64
INTERACTIONS = ("original", "dcn")


@model(
    *("dlrm", "DLRM", "DLRM_DCN"),
    kind="recommendation",
    source="Naumov et al., arXiv:1906.00091; Wang et al., arXiv:2008.13535 (DCN v2); verified to the integer against traces",
)
def dlrm(config: Config) -> Iterator[Work]:
    """DLRM from a mapping: `dense_features`, `sparse_features`, `embedding_dim`, `bottom_mlp`, `top_mlp`; a sample is one row.

    The dense features go through the bottom MLP; with F embeddings of width D they make 2(F + 1)²D FLOPs of pairwise products,
    all of them as the usual batched product does, and D + F(F + 1)/2 inputs of the top MLP. Embedding look-ups cost 0. With
    `interaction_type` "dcn", `dcn_num_layers` products of rank `dcn_low_rank_dim` cross all (F + 1)D inputs instead.
    """
    sparse, width = config.integer("sparse_features"), config.integer("embedding_dim")
    bottom, top = numbers(config, "bottom_mlp"), numbers(config, "top_mlp")
    if bottom[-1] != width:
        raise config.error(("bottom_mlp",), f"ends in {bottom[-1]:,}, and must end in the embedding_dim, {width:,}")
    kind = config.word("interaction_type", default="dcn" if config.architecture == "DLRM_DCN" else "original")
    if kind not in INTERACTIONS:
        raise config.error(("interaction_type",), f"must be {' or '.join(INTERACTIONS)}")
    yield from _perceptron("bottom_mlp", [config.integer("dense_features"), *bottom], "data", "features")
    yield lookup("embedding", ONCE, "embeddings", to="features")
    features = sparse + 1
    if kind == "dcn":
        yield from _crossed(config, features * width)
        yield from _perceptron("top_mlp", [features * width, *top], "features", None)
        return
    yield contraction("interaction", ONCE, 2 * features**2 * width, reads=("features", "features"), to="features")
    yield from _perceptron("top_mlp", [width + sparse * features // 2, *top], "features", None)


def _perceptron(name: str, widths: list[int], source: str, to: str | None) -> Iterator[Work]:
    for i, (inner, outer) in enumerate(pairwise(widths)):
        last = i == len(widths) - 2
        reads = source if i == 0 else f"{name}.{i - 1}"
        yield matmul(f"{name}.{i}", ONCE, inner, outer, module=f"{name}.{i}", reads=(reads,), to=to if last else None)


def _crossed(config: Config, width: int) -> Iterator[Work]:
    """Yield the cross network: in each layer a square matrix, or two of a low rank, whose result is multiplied with the input."""
    layers = range(config.integer("dcn_num_layers", most=MOST_LAYERS))
    rank = config.optional("dcn_low_rank_dim")
    if rank is None:
        yield matmul("cross.full", ONCE, width, width, layers, stack="cross", module="full", to="features", reads=("features",))
        return
    yield matmul("cross.down", ONCE, width, rank, layers, stack="cross", module="down", reads=("features",), to=None)
    yield matmul("cross.up", ONCE, rank, width, layers, stack="cross", module="up", reads=("cross.down",), to="features")
