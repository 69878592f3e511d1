"""A registry's members stand in one order, whatever else was imported before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage.registry import Registry

MEMBER = "from colours import COLOURS\nCOLOURS.add('{0} two', 2)\nCOLOURS.add('{0} one', 1)\n"
NAMES = [f"{colour} {number}" for colour in ("blue", "green", "red") for number in ("two", "one")]


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[int]]:
    """A registry whose package has three modules of two members each; `blue` imports `red`."""
    folder = tmp_path / "colours"
    folder.mkdir()
    (folder / "__init__.py").write_text("from ullage.registry import Registry\nCOLOURS = Registry('colour', 'colours', 'none')\n")
    for name in ("red", "green"):
        (folder / f"{name}.py").write_text(MEMBER.format(name))
    (folder / "blue.py").write_text("import colours.red\n" + MEMBER.format("blue"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("colours").COLOURS
    for name in [name for name in sys.modules if name.split(".")[0] == "colours"]:
        del sys.modules[name]


@pytest.mark.parametrize("first", [None, "red", "green", "blue"])
def test_members_stand_in_the_order_of_their_modules_whichever_was_imported_first(colours: Registry[int], first: str | None) -> None:
    if first:
        importlib.import_module(f"colours.{first}")
    assert [*colours] == [name for name, _ in colours.items()] == NAMES
    assert colours.values() == [2, 1] * 3
