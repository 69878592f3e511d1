"""What a model is: a family's function from a configuration to the work of one forward pass.

Begin here; each module of `families/` adds one family with `@model(...)`. How to add one: docs/adding-a-model.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ullage.errors import UllageError, harmless
from ullage.models.config import Config
from ullage.models.work import Work
from ullage.registry import Registry

# What a step of it is described by: tokens; tokens of two sides; images; images in text; latents and prompts; rows of features
Kind = Literal["decoder", "encoder", "encoder-decoder", "vision", "vision-language", "audio", "diffusion", "recommendation"]
Function = Callable[[Config], Iterator[Work]]


@dataclass(frozen=True)
class Model:
    """An architecture family: the names by which configs call it, and its work.

    `causal` says that attention over the text sees only what came before, so that the convention matters. `shapes` are the
    options that describe a sample ("seq", "latent", "prompt-tokens"), for help and errors; `source` says whence the formula.
    """

    family: str
    names: tuple[str, ...]
    kind: Kind
    causal: bool
    shapes: tuple[str, ...]
    source: str
    function: Function

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().split("\n", 1)[0]


MODELS: Registry[Model] = Registry("architecture", package="ullage.models.families", command="ullage flops --list")

_SHAPES: dict[str, tuple[str, ...]] = {
    "decoder": ("seq",),
    "encoder": ("seq",),
    "encoder-decoder": ("encoder-seq", "decoder-seq"),
    "vision": ("image",),
    "vision-language": ("seq", "grid"),
    "audio": ("audio-frames",),
    "diffusion": ("latent", "prompt-tokens"),
    "recommendation": (),
}


def model(
    *names: str, kind: Kind = "decoder", source: str, causal: bool | None = None, shapes: tuple[str, ...] = ()
) -> Callable[[Function], Function]:
    """Register a family's function under the names that configs use: classes (`LlamaForCausalLM`), `model_type`, pipelines.

    The function is given back as it was. It yields the `Work` of one forward pass of one step; look-ups and norms count 0.
    Raises ValueError when a name is taken.
    """

    def register(function: Function) -> Function:
        sees = kind in ("decoder", "encoder-decoder", "vision-language") if causal is None else causal
        member = Model(function.__name__, names, kind, sees, shapes or _SHAPES[kind], source, function)
        for name in names:
            MODELS.add(name, member)
        return function

    return register


def find(config: Config, kind: str | None = None) -> tuple[Model, str]:
    """Return the family of a configuration and the name under which it was found.

    Asked in this order: `kind` (the user's word), `architectures`, `_class_name`; `model_type` where no class is named. Raises
    UllageError for an unknown architecture, with the nearest known one: never a generic formula, never 0.
    """
    asked = names(config) if kind is None else [kind]
    for name in asked:
        if name in MODELS:
            return MODELS[name], name
    if not asked:
        raise UllageError(
            f"{config.place} does not say what model it is: it has no architectures, _class_name or model_type",
            "say it: --config-kind llama; `ullage flops --list` lists all",
        )
    raise unknown(asked[0], config)


def names(config: Config) -> list[str]:
    """Return the names that a configuration gives itself, the most exact first.

    `model_type` counts only where no class is named: a class that is not known may have another head.
    """
    given = config.values.get("architectures") or []
    listed = [n for n in ([given] if isinstance(given, str) else given) if isinstance(n, str)] if isinstance(given, list | str) else []
    if isinstance(config.values.get("_class_name"), str):
        listed.append(config.values["_class_name"])
    kind = config.values.get("model_type")
    return listed or ([kind] if isinstance(kind, str) and kind else [])


def unknown(name: str, config: Config) -> UllageError:
    """Return the error for an architecture that no family knows: the nearest ones, and how to go on."""
    near = difflib.get_close_matches(name.casefold(), known := {n.casefold(): n for n in MODELS}, n=2, cutoff=0.5)
    nearest = f"the nearest known: {' or '.join(known[n] for n in near)}. " if near else ""
    kind = config.values.get("model_type")
    if isinstance(kind, str) and kind in MODELS and kind != name:
        nearest += f"If it is a {kind} with its usual head: --config-kind {kind}. "
    return UllageError(
        f"no formula for the architecture '{harmless(name, 80)}' of {config.place}",
        f"{nearest}`ullage flops --list` lists all; --trace derives one; docs/adding-a-model.md adds one",
    )
