"""What a model is: a family's function from a configuration to the work of one forward pass.

Start here; each module of `families/` holds the families of one kind: tables with a row a type, and functions under
`@model(...)` for what fits no table. How to add one: docs/adding-a-model.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

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
    options that describe a sample ("seq", "latent", "prompt-tokens"), for help and errors; `source` says whence the formula,
    `about` what is counted, in closed form. `left_out` are patterns of module paths of products that no sample pays for.
    """

    family: str
    names: tuple[str, ...]
    kind: Kind
    causal: bool
    shapes: tuple[str, ...]
    source: str
    function: Function
    about: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of what is said about it."""
        return self.about.strip().split("\n", 1)[0]

    @property
    def module(self) -> str:
        """The module that registered it."""
        return MODELS.module_of(self.names[0])


TRANSFORMERS = "transformers 5.24"  # with which every certificate was made
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
    *names: str,
    kind: Kind = "decoder",
    source: str,
    causal: bool | None = None,
    shapes: tuple[str, ...] = (),
    family: str = "",
    about: str = "",
    left_out: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Register a family's function under the names that configs use: classes (`LlamaForCausalLM`), `model_type`, pipelines.

    The function is given back as it was. It yields the `Work` of one forward pass of one step; look-ups and norms count 0.
    Its name and docstring are the family's unless `family` and `about` are given. Raises ValueError when a name is taken.
    """

    def register(function: Function) -> Function:
        sees = kind in ("decoder", "encoder-decoder", "vision-language") if causal is None else causal
        called, says = family or function.__name__, about or function.__doc__ or ""
        member = Model(called, names, kind, sees, shapes or _SHAPES[kind], source, function, says, left_out)
        for name in names:
            MODELS.add(name, member)
        return function

    return register


class TypeRow(Protocol):
    """A row of a table of types: the names by which configurations call the type, and its work."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that configs use for this type."""

    def works(self, config: Config) -> Iterator[Work]:
        """Yield the work of one forward pass."""


R = TypeVar("R", bound=TypeRow)


def table(family: str, about: str, source: str, *rows: TypeRow, kind: Kind = "decoder", shapes: tuple[str, ...] = ()) -> None:
    """Register a family that is a table, a row a type: a configuration's name chooses the row."""
    names = tuple(name for row in rows for name in row.names)
    registered = model(*names, kind=kind, source=source, shapes=shapes, family=family, about=about)
    registered(lambda config: chosen(config, rows).works(config))


def chosen(config: Config, rows: Sequence[R]) -> R:
    """Return the row of a configuration: by the architecture's name, else by the names that it gives itself.

    Raises UllageError where no row has such a name: none is taken for granted.
    """
    asked = [name for name in (config.architecture, *names(config)) if name]
    for name in asked:
        for row in rows:
            if name in row.names:
                return row
    raise unknown(asked[-1], config) if asked else config.missing("model_type")


def transformers_model(code: str, *names: str, **about: Any) -> Callable[[Function], Function]:
    """Register a family whose formula was read in transformers and proved on its traces: see `model`."""
    return model(*names, source=in_transformers(code), **about)


def diffusers_model(code: str, *names: str, **about: Any) -> Callable[[Function], Function]:
    """Register a denoiser whose formula was read in diffusers and proved on its traces: see `model`."""
    return model(*names, source=in_diffusers(code), **{"kind": "diffusion", **about})


def in_transformers(code: str) -> str:
    """Return the source of a formula that was read in transformers and proved on its traces.

    >>> in_transformers("models/olmo")
    'transformers 5.24, models/olmo; verified to the integer against traces'
    """
    return f"{TRANSFORMERS}, {code}; verified to the integer against traces"


def in_diffusers(code: str) -> str:
    """Return the source of a formula that was read in diffusers and proved on its traces."""
    return f"diffusers 0.42, {code}; verified to the integer against traces"


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
