"""The architectures that have a formula."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.models.model import MODELS, Model
from ullage.views.shown import ShownByView


@dataclass(frozen=True)
class ArchitectureList(ShownByView, view="ullage.render.architectures"):
    """The families of models, by kind and name."""

    families: tuple[Model, ...]

    @property
    def names(self) -> int:
        """By how many names configurations call them."""
        return sum(len(family.names) for family in self.families)


def architectures() -> ArchitectureList:
    """Return the families of models that have a formula."""
    families = {id(member): member for member in MODELS.values()}.values()
    return ArchitectureList(tuple(sorted(families, key=lambda family: (family.kind, family.family))))
