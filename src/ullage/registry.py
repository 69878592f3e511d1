"""A registry reads its folder: a new member is a new file, with no list to extend."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from typing import Generic, TypeVar

from ullage.errors import UllageError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Members by name, found by importing every module of a package once, on first use.

    A member that needs several files is a folder, and its file of the folder's name registers it (`traces/kineto/kineto.py`).
    `noun` and `command` shape the error for an unknown name: "no metric is called …; `ullage metrics` lists all".
    A second member under one name is refused. With `folders` every file of a folder is a member.

    >>> colours = Registry[int]("colour", package="", command="ullage colours")
    >>> colours.add("red", 1); colours["red"]
    1
    """

    def __init__(self, noun: str, package: str, command: str, *, folders: bool = False) -> None:
        self.noun, self.package, self.command, self.folders = noun, package, command, folders
        self._members: dict[str, T] = {}
        self._modules: dict[str, str] = {}  # by name, the module that registered it
        self._loaded = not package

    def add(self, name: str, member: T) -> None:
        """Register `member` under `name`; raises ValueError when the name is taken (a mistake of ours, not the user's)."""
        if name in self._members:
            raise ValueError(f"two {self.noun}s are called '{name}'")
        self._members[name] = member
        self._modules[name] = _module_being_imported()

    def module_of(self, name: str) -> str:
        """Return the module that registered a member under this name."""
        return self._modules[name]

    def load(self) -> None:
        """Import every module of the registry's package, so that each registers what it holds."""
        if self._loaded:
            return
        self._loaded = True  # a member may ask while it is being imported
        try:
            self._import_modules(self.package)
        except BaseException:
            self._loaded = False
            raise
        # in the order of the modules' names, whichever of them something else imported before
        self._members = {name: self._members[name] for name in sorted(self._members, key=self._modules.__getitem__)}

    def _import_modules(self, package: str) -> None:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            name = f"{package}.{module.name}"
            found = importlib.import_module(name)
            if module.ispkg and self.folders:
                self._import_modules(name)
            elif module.ispkg and any(inner.name == module.name for inner in pkgutil.iter_modules(found.__path__)):
                importlib.import_module(f"{name}.{module.name}")

    def __getitem__(self, name: str) -> T:
        self.load()
        if name not in self._members:
            raise UllageError(f"no {self.noun} is called '{name}'", did_you_mean(name, self._members, self.command))
        return self._members[name]

    def __contains__(self, name: object) -> bool:
        self.load()
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        self.load()
        return iter(self._members)

    def __len__(self) -> int:
        self.load()
        return len(self._members)

    def items(self) -> list[tuple[str, T]]:
        """Return (name, member) pairs in the order of their modules' names, and within a module in that of registration."""
        self.load()
        return list(self._members.items())

    def values(self) -> list[T]:
        """Return the members in the order of `items`."""
        self.load()
        return list(self._members.values())


def _module_being_imported() -> str:
    """Return the name of the module whose import is under way, the innermost where several are; "" outside of any."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back  # type: ignore[assignment]
    return str(frame.f_globals["__name__"]) if frame is not None else ""
