"""A mark of the code that measures: it changes when a module that takes part in a measurement does, and with nothing else."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path

# The rooms that talk to a GPU. What the others make of a recording can be made again without one.
MEASURING = (
    "gpu",
    "ullage.benches",
    "ullage.cupti",
    "ullage.kernels",
    "ullage.live",
    "ullage.sources.nvml",
    "ullage.sources.rows.readings",
)
# How the runner goes about its checks, and how findings are written down: nothing that a measured number depends on.
AROUND = ("gpu.check", "gpu.timetable", "gpu.evidence", "gpu.code_mark", "ullage.benches.bench", "ullage.benches.result")
COMPILED = ("*.c", "*.h")  # sources beside a module which its package compiles


PROGRAM = "_program"  # how the modules of this folder end that a check starts by name


@lru_cache(maxsize=256)
def code_mark(module: str, package: str = "") -> str:
    """Return the mark of a module and of all modules that it imports from the rooms that measure, 16 hexadecimal digits.

    `package` is one whose members a registry finds, so that no import names them: they all take part.
    """
    digest = hashlib.sha256()
    names = {name for one in (module, *_members(package)) for name in measuring_modules(one)}
    for name in sorted(names):
        for path in _sources(name):
            digest.update(f"{name}/{path.name}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def measuring_modules(module: str) -> list[str]:
    """Return a module and all that it imports, directly or not, of the rooms that measure, sorted by name."""
    wanted, seen = [module], set[str]()
    while wanted:
        name = wanted.pop()
        if name not in seen:
            seen.add(name)
            wanted += [imported for imported in _imports(name) if imported not in AROUND and _measures(imported)]
    return sorted(seen)


def _members(package: str) -> list[str]:
    found = importlib.util.find_spec(package) if package else None
    folders = [] if found is None else found.submodule_search_locations or []
    return [f"{package}.{path.stem}" for folder in folders for path in sorted(Path(folder).glob("[!_]*.py"))]


def _measures(module: str) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in MEASURING)


@lru_cache(maxsize=4096)
def _origin(module: str) -> Path | None:
    """Return the file of a module; None for what is none, such as the name of a function, and for a package's own file."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    path = Path(found.origin) if found is not None and found.origin else None
    return None if path is None or path.name == "__init__.py" else path


def _sources(module: str) -> list[Path]:
    path = _origin(module)
    if path is None:
        return []
    return [path, *sorted(found for pattern in COMPILED for found in path.parent.glob(pattern))]


@lru_cache(maxsize=4096)
def _imports(module: str) -> tuple[str, ...]:
    """Return the modules that a module's source imports, wherever in it."""
    path = _origin(module)
    if path is None:
        return ()
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(PROGRAM):
            found.append(f"gpu.{node.value}")
    return tuple(name for name in found if _measures(name) and _origin(name) is not None)
