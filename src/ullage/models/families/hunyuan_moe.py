"""Hunyuan-A13B and Hunyuan-Large: experts and a shared MLP of one width in every layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, family
from ullage.models.mixture import Mixture, grouped_attention, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work


@model(
    *family("HunYuanMoEV1", LM, CLASSIFIER, BARE, kind="hunyuan_v1_moe"),
    source="transformers 5.23, models/hunyuan_v1_moe; verified to the integer against traces",
)
def hunyuan_moe(config: Config) -> Iterator[Work]:
    """Hunyuan-A13B: t of E experts beside a shared MLP of the same width; both numbers may differ from layer to layer.

    The width is `intermediate_size`. The transformers class knows one shared MLP and no other width for an expert; fields that
    say otherwise (`num_shared_expert`, `moe_intermediate_size`) are refused.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    _same(config, "num_shared_expert", 1, len(layers))
    _same(config, "moe_intermediate_size", inner, len(layers))
    routed = _each(config, ("num_experts", "num_local_experts"), layers)
    active = _each(config, ("moe_topk", "num_experts_per_tok"), layers)
    works = [work for members, mixture in _alike(config, inner, routed, active) for work in mixture.works(width, members)]
    yield from sparse_decoder(config, grouped_attention(config, [(None, layers)]), [], works)


def _alike(config: Config, inner: int, routed: list[int], active: list[int]) -> Iterator[tuple[list[int], Mixture]]:
    """Yield the layers that have as many experts and take as many, and their block."""
    for count, taken in dict.fromkeys(zip(routed, active, strict=True)):
        if taken > count:
            raise config.error(["moe_topk"], f"takes {taken:,} of {count:,} experts")
        members = [i for i, both in enumerate(zip(routed, active, strict=True)) if both == (count, taken)]
        yield members, Mixture(inner, count, taken, shared=inner, router="mlp.gate.wg", shared_module="mlp.shared_mlp", shared_first=True)


def _each(config: Config, names: tuple[str, ...], layers: Sequence[int]) -> list[int]:
    """Return a number for each layer, from a list or from one number for all."""
    used = next((n for n in names if config.has(n)), names[0])
    if isinstance(config.values.get(used), list):
        return config.integers(used, len(layers), least=1) or []
    return [config.integer(used)] * len(layers)


def _same(config: Config, name: str, value: int, layers: int) -> None:
    """Raise an error unless the field, a number or a list, is missing or says `value` for every layer."""
    given = config.values.get(name)
    if given is not None and given != value and given != [value] * layers:
        raise config.error([name], f"must be {value:,} in every layer: the class has no other")
