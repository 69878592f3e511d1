"""What somebody at a terminal has chosen to see of `ullage top`, and how each key changes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Panel = Literal["devices", "processes", "links", "history", "factors", "notes", "help"]
SORTS = ("gpu", "ofu", "mean", "util", "power", "temperature", "memory")
PROCESS_SORTS = ("gpu", "user", "pid", "memory", "sm", "cpu", "time")
LONGEST_FILTER = 60  # characters
PAGE = 10  # rows

_PANELS: dict[str, Panel] = {
    "d": "devices", "p": "processes", "l": "links", "enter": "history", "e": "factors", "n": "notes", "h": "help", "?": "help",
}  # fmt: skip
_STEPS = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "pageup": -PAGE,
    "pagedown": PAGE,
    "home": -(10**9),
    "g": -(10**9),
    "end": 10**9,
    "G": 10**9,
}
KEYS = (
    ("d, p, l", "devices; processes and users on each GPU; NVLink, PCIe, ECC and Xid"),
    ("Enter", "the last minutes of the chosen GPU"),
    ("e", "the factors whose product OFU is"),
    ("n", "notes: what is not known, and why"),
    ("t", "processes below those that started them, and back"),
    ("s, S", "sort by the next column, by the one before"),
    ("r", "reverse the order"),
    ("/", "show rows with these words alone; Enter keeps them, Esc drops them"),
    ("↑ ↓ j k, Page, Home, End", "choose a row; the list follows"),
    ("Space", "hold the screen still, and go on"),
    ("Esc, q, Ctrl-C", "back; quit"),
)


@dataclass(frozen=True)
class TopScreen:
    """A choice: which panel, sorted by what, rows with which words (`find`, while they are `typing`), the `chosen` row, `held` still."""

    panel: Panel = "devices"
    sort: str = "gpu"
    process_sort: str = "gpu"
    reverse: bool = False
    tree: bool = False
    find: str = ""
    typing: bool = False
    chosen: int = 0
    held: bool = False


def pressed(screen: TopScreen, key: str, rows: int) -> TopScreen | None:
    """Return what is to be seen after a key, where the list has so many rows; None where somebody wants to quit."""
    if screen.typing:
        return _typed(screen, key)
    if key in ("q", "Q") or (key == "escape" and screen.panel == "devices" and not screen.find):
        return None
    if key == "escape":
        return replace(screen, panel="devices", find="", chosen=screen.chosen if screen.panel == "history" else 0)
    if key in _PANELS:
        return _turned_to(screen, _PANELS[key])
    if key in _STEPS:
        return replace(screen, chosen=max(0, min(rows - 1, min(screen.chosen, rows - 1) + _STEPS[key])))
    if key in ("s", "S"):
        return _sorted_by_next(screen, 1 if key == "s" else -1)
    changes: dict[str, TopScreen] = {
        "r": replace(screen, reverse=not screen.reverse),
        "t": replace(screen, panel="processes", tree=not screen.tree or screen.panel != "processes", chosen=0),
        "/": replace(screen, typing=True),
        " ": replace(screen, held=not screen.held),
    }
    return changes.get(key, screen)


def _turned_to(screen: TopScreen, panel: Panel) -> TopScreen:
    """Return the screen with another panel; the chosen device stays chosen where devices are listed, else the first row is."""
    if panel == "history" and screen.panel not in ("devices", "links"):
        return screen
    same = {"devices", "links", "history"}
    return replace(screen, panel=panel, chosen=screen.chosen if {screen.panel, panel} <= same else 0)


def _sorted_by_next(screen: TopScreen, step: int) -> TopScreen:
    if screen.panel == "processes":
        place = (PROCESS_SORTS.index(screen.process_sort) + step) % len(PROCESS_SORTS)
        return replace(screen, process_sort=PROCESS_SORTS[place])
    return replace(screen, sort=SORTS[(SORTS.index(screen.sort) + step) % len(SORTS)])


def _typed(screen: TopScreen, key: str) -> TopScreen:
    if key == "enter":
        return replace(screen, typing=False)
    if key == "escape":
        return replace(screen, typing=False, find="")
    if key == "backspace":
        return replace(screen, find=screen.find[:-1], chosen=0)
    if len(key) == 1 and key.isprintable() and len(screen.find) < LONGEST_FILTER:
        return replace(screen, find=screen.find + key, chosen=0)
    return screen
