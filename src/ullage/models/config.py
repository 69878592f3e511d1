"""A model's configuration, read field by field; what is missing or contradictory is said with the field and the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ullage.errors import UllageError, harmless

MOST = 1 << 40  # no width, vocabulary or number of experts is larger: a larger one is a mistake or an attack
MOST_LAYERS = 10_000
_MISSING: Any = object()


@dataclass(frozen=True)
class Config:
    """The fields of a model and where they stand: `place` is the file, `path` the section ("text_config.").

    `architecture` is the name under which the family was found; a family asks it for its head. Nothing of a configuration is
    ever executed.
    """

    values: Mapping[str, Any]
    place: str = "the configuration"
    path: str = ""
    architecture: str = ""

    def has(self, *names: str) -> bool:
        """Return whether one of the fields is there and not null."""
        return any(self.values.get(name) is not None for name in names)

    def integer(self, *names: str, default: int | None = _MISSING, least: int = 1, most: int = MOST) -> int:
        """Return the first of the fields that is there, as an integer in [least, most]; null counts as missing.

        Raises UllageError that names the field and the file, for a wrong type or size, and when it is missing without a default.
        """
        value = self._first(names, default)
        if value is None and default is None:
            raise self.missing(*names)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(names, f"is {harmless(repr(value), 60)}, and must be a whole number")
        if not least <= value <= most:
            raise self.error(names, f"is {value:,}, and must lie between {least:,} and {most:,}")
        return value

    def optional(self, *names: str, least: int = 1) -> int | None:
        """Return an integer field, or None when it is missing or null."""
        return self.integer(*names, least=least) if self.has(*names) else None

    def layers(self, *names: str, default: int = _MISSING) -> range:
        """Return the layer numbers 0, 1, … of a stack (`num_hidden_layers` by default)."""
        return range(self.integer(*(names or ("num_hidden_layers", "n_layer", "num_layers")), default=default, least=0, most=MOST_LAYERS))

    def number(self, *names: str, default: float = _MISSING) -> float:
        """Return a field as a float."""
        value = self._first(names, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(names, f"is {harmless(repr(value), 60)}, and must be a number")
        if not -MOST <= value <= MOST:  # NaN too
            raise self.error(names, f"is {harmless(repr(value), 60)}, and must be a number of a sensible size")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a field that is true or false; null counts as missing."""
        value = self._first((name,), default)
        if not isinstance(value, bool):
            raise self.error((name,), f"is {harmless(repr(value), 60)}, and must be true or false")
        return value

    def word(self, *names: str, default: str = _MISSING) -> str:
        """Return a field that is a word."""
        value = self._first(names, default)
        if not isinstance(value, str):
            raise self.error(names, f"is {harmless(repr(value), 60)}, and must be a word")
        return value

    def words(self, name: str, count: int | None = None, known: Iterable[str] = ()) -> list[str] | None:
        """Return a list of words (a layer each, `count` of them), or None when it is missing; unknown words are an error."""
        values = self._list(name, count)
        allowed = set(known)
        for value in values or ():
            if not isinstance(value, str) or (allowed and value not in allowed):
                raise self.error((name,), f"has {harmless(repr(value), 60)}, which is none of {', '.join(sorted(allowed)) or 'words'}")
        return values

    def integers(self, name: str, count: int | None = None, least: int = 0) -> list[int] | None:
        """Return a list of integers, or None when it is missing."""
        values = self._list(name, count)
        for value in values or ():
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
                raise self.error((name,), f"has {harmless(repr(value), 60)}, and needs whole numbers from {least:,}")
        return values

    def section(self, *names: str, optional: bool = False) -> Config:
        """Return a part of the configuration (`text_config`, `vision_config`); with `optional` an empty one when it is missing."""
        value = self._first(names, {} if optional else _MISSING)
        if not isinstance(value, Mapping):
            raise self.error(names, "must be a section of fields")
        used = next((n for n in names if self.has(n)), names[0])
        return Config(value, self.place, f"{self.path}{used}.", self.architecture)

    def replaced(self, **fields: Any) -> Config:
        """Return the same configuration with other values; None takes a field away."""
        values = {k: v for k, v in {**self.values, **fields}.items() if v is not None}
        return Config(values, self.place, self.path, self.architecture)

    def error(self, names: Iterable[str], says: str, hint: str = "") -> UllageError:
        """Return the error for a field: "num_hidden_layers of config.json is …"."""
        used = next((n for n in names if self.has(n)), next(iter(names)))
        return UllageError(f"{self.path}{used} of {self.place} {says}", hint or "correct the field; nothing is guessed")

    def missing(self, *names: str) -> UllageError:
        """Return the error for a field that is not there."""
        others = f" (nor {', '.join(names[1:])})" if len(names) > 1 else ""
        return UllageError(f"{self.place} has no field {self.path}{names[0]}{others}", "add it; nothing is guessed")

    def _first(self, names: Iterable[str], default: Any) -> Any:
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        if default is _MISSING:
            raise self.missing(*names)
        return default

    def _list(self, name: str, count: int | None) -> list[Any] | None:
        if not self.has(name):
            return None
        value = self.values[name]
        if not isinstance(value, list | tuple):
            raise self.error((name,), "must be a list")
        if len(value) > MOST_LAYERS:
            raise self.error((name,), f"has {len(value):,} entries, and may have {MOST_LAYERS:,}")
        if count is not None and len(value) != count:
            raise self.error((name,), f"has {len(value)} entries for {count} layers")
        return list(value)
