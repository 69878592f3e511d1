"""The language model inside a model of vision or sound and language: found by its own name, and moved to where it lies there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import below
from ullage.models.config import Config
from ullage.models.decoders import moved
from ullage.models.model import MODELS, unknown
from ullage.models.sample import Quantity
from ullage.models.work import Work, matmul

SECTIONS = ("text_config", "llm_config", "language_config")
STACK = "model.language_model.layers"
# Text models that are known by another name elsewhere: the same layers, other positions
ALIASES = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "exaone4_5_text": "exaone4",
    "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
}


def language(config: Config, default: str, stack: str = STACK) -> Iterator[Work]:
    """Yield the works of the language model that a configuration holds, embedding and head with it.

    It lies in a section of its own, or, in older files, at the top beside the vision section. Its `model_type` says which it
    is, else the class that it names, else the `default` of the class around it. Raises UllageError for one that has no formula.
    """
    section = text(config)
    classes = section.values.get("architectures")
    asked = [section.values.get("model_type"), *(classes if isinstance(classes, list) else [])]
    names = [ALIASES.get(name, name) for name in asked if isinstance(name, str)]
    known = next((n for n in names or [ALIASES.get(default, default)] if n in MODELS and MODELS[n].kind == "decoder"), None)
    if known is None:
        raise unknown(names[0] if names else default, section)
    yield from moved(MODELS[known].function(Config(section.values, section.place, section.path, known)), stack)


def width(works: Sequence[Work]) -> int:
    """Return the width of a language model: what its head reads. Its section may leave it to the default of its class."""
    return next(work.shape[0] for work in works if work.name == "head" and work.shape)


def projector(
    rows: Quantity, widths: tuple[int, int, int], module: str, modules: tuple[str, str], *, name: str = "vision.merger",
    reads: str = "vision", to: str | None = "stream", layers: Sequence[int] = (0,), stack: str = "",
) -> Iterator[Work]:  # fmt: skip
    """Yield the two products that bring what a tower saw or heard to the width of the text: from, over and to `widths`."""
    inner, middle, outer = widths
    up, down = (below(module, path) for path in modules)
    yield matmul(f"{name}.up", rows, inner, middle, layers, stack=stack, module=up, reads=(reads,), to=None)
    yield matmul(f"{name}.down", rows, middle, outer, layers, stack=stack, module=down, reads=(f"{name}.up",), to=to)


def text(config: Config) -> Config:
    """Return the section of the language model, or the configuration itself where its fields stand at the top."""
    return config.section(*SECTIONS) if config.has(*SECTIONS) else config
