"""What a store knows of the units in which exporters write: one small file, and rows at rest put right when more is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import msgspec

from ullage.errors import UllageError, harmless
from ullage.store.manifest import Manifest, StoreFolder, StorePart
from ullage.store.parts import read_part, write_days
from ullage.sums.ratio_units import Exporter, Habit, Habits, restated

NAME = "units.json"


class _Known(msgspec.Struct, frozen=True):
    """An exporter and its habit, as the file has them."""

    exporter: Exporter
    habit: Habit


def read(folder: Path) -> dict[Exporter, Habit]:
    """Return what is known of every exporter, nothing when there is no file. Raises UllageError when it is damaged."""
    path = folder / NAME
    try:
        return {known.exporter: known.habit for known in msgspec.json.decode(path.read_bytes(), type=list[_Known])}
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise UllageError(
            f"the store's file of units {path} is damaged ({harmless(str(error))})",
            "bring it back from a backup, or remove it: the units are then found anew from what comes in",
        ) from error


def write(folder: StoreFolder, habits: Habits) -> None:
    """Replace the file in one step."""
    known = [_Known(exporter, habits[exporter]) for exporter in sorted(habits, key=str)]

    def write(file: IO[bytes]) -> None:
        file.write(msgspec.json.encode(known))

    folder.write_whole(NAME, write, "units")


def restate(folder: StoreFolder, manifest: Manifest, habits: Habits, changed: Mapping[Exporter, int], now: Callable[[], int]) -> Manifest:
    """Put rows at rest into the unit in which their exporters now turn out to write, in one commit; return the manifest after it.

    `changed` has for exporters the time (ms) from which on more is known than before. The caller holds the lock.
    """
    out: list[StorePart] = []
    new: list[StorePart] = []
    told = {exporter: habits[exporter] for exporter in changed}
    for part in (part for part in manifest.parts if part.last >= min(changed.values())):
        if (rows := restated(read_part(folder, part), told)) is not None:
            out.append(part)
            new += write_days(folder, rows)
    return folder.replace(manifest, tuple(out), tuple(new), now()) if out else manifest
