"""What of a PyTorch model trains: adapters, frozen weights, checkpoints, and by which name its formula is found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ullage.adapters.notes import Notes
from ullage.models.formula import Formula
from ullage.models.model import MODELS
from ullage.models.passes import Training, path
from ullage.models.work import Work

ADAPTER = ".lora_A."
WRAPPED = (".base_layer", ".original_module")  # where PEFT keeps the weight that it adapts


def bare(model: Any) -> Any:
    """Return the model inside of what trainers and PEFT wrap around it."""
    while True:
        inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        if inner is None and hasattr(model, "get_base_model"):
            inner = model.get_base_model()
        if inner is None or inner is model:
            return model
        model = inner


def architecture(model: Any) -> str | None:
    """Return the class under which the model's formula is known: its own, or one that it derives from; None leaves it to the config."""
    return next((kind.__name__ for kind in type(model).__mro__ if kind.__name__ in MODELS), None)


def training(model: Any, formula: Formula, notes: Notes) -> Training:
    """Return how a model trains: LoRA of PEFT, frozen weights, gradient checkpoints.

    What the formula can't follow (ranks that differ, adapters in some layers only) is said once.
    """
    weights = dict(_weights(model))
    ranks = {name.partition(ADAPTER)[0]: int(weight.shape[0]) for name, weight in weights.items() if ADAPTER in name and _trains(weight)}
    found = _adapted(formula, ranks, weights, notes) if ranks else Training(frozen=_frozen(formula, weights))
    return replace(found, **_checkpoints(model))


def _weights(model: Any) -> Iterator[tuple[str, Any]]:
    for name, weight in model.named_parameters(remove_duplicate=False):  # a tied head is frozen with its embedding
        for part in WRAPPED:
            name = name.replace(part, "")
        yield name, weight


def _trains(weight: Any) -> bool:
    return bool(weight.requires_grad)


def _adapted(formula: Formula, ranks: dict[str, int], weights: dict[str, Any], notes: Notes) -> Training:
    targets = set()
    counted = set()
    for work in _products(formula):
        places = [path(work, layer) for layer in work.layers]
        adapted = [place for place in places if place in ranks]
        counted.update(adapted)
        if adapted:
            targets.add(work.module)
            if len(adapted) < len(places):
                notes.say("lora layers", f"adapters of {work.module} are counted in all {len(places)} layers; {len(adapted)} have one")
    rank = max(ranks.values())
    if len(set(ranks.values())) > 1:
        notes.say("lora ranks", f"adapters have ranks from {min(ranks.values())} to {rank}; all are counted with {rank}")
    if missed := sorted(set(ranks) - counted):
        notes.say("lora", f"adapters of {missed[0]} ({len(missed)} in all) are not counted: the formula has no such weight")
    if any(_trains(weight) and ".lora_" not in name for name, weight in weights.items()):
        notes.say("lora beside", "weights beside the adapters train (modules_to_save?); they are counted as frozen")
    if not targets:
        return Training(frozen=_frozen(formula, weights))
    return Training(lora_rank=rank, lora_targets=tuple(sorted(targets)))


def _products(formula: Formula) -> Iterator[Work]:
    return (work for work in formula.works if work.module)


def _frozen(formula: Formula, weights: dict[str, Any]) -> tuple[str, ...]:
    """Return patterns of the weights that don't train; of a whole list of layers where all of it is."""
    trains: dict[str, bool] = defaultdict(bool)
    for name, weight in weights.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            trains[".".join(parts[:end])] |= _trains(weight)
    patterns = set()
    for work in _products(formula):
        places = [path(work, layer) for layer in work.layers]
        still = [place for place in places if trains.get(place) is False]
        whole = len(still) == len(places) and bool(work.stack)
        patterns.update([f"{work.stack}.*.{work.module}"] if whole else still)
    return tuple(sorted(patterns))


def _checkpoints(model: Any) -> dict[str, Any]:
    """Return whether layers are checkpoints, and of which kind: as transformers' models say it."""
    layers = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
    if not layers:
        return {}
    words = getattr(getattr(layers[0], "_gradient_checkpointing_func", None), "keywords", {})
    return {"recompute": "full", "reentrant": bool(words.get("use_reentrant", False))}
