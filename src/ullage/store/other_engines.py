"""Ibis's compilers for engines that are not asked, and their dialects, which Ibis loads with those of DuckDB: a tenth of a second."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_COMPILERS = "ibis.backends.sql.compilers"


def postpone_other_engines() -> None:
    """Load the package of Ibis's compilers when something of it is asked for that was not imported as a module of its own."""
    spec = None if _COMPILERS in sys.modules else find_spec(_COMPILERS)
    if spec is not None:
        parent, _, name = _COMPILERS.rpartition(".")
        module = _postponed(spec)
        sys.modules[_COMPILERS] = module
        setattr(importlib.import_module(parent), name, module)
        importlib.import_module(f"{_COMPILERS}.duckdb")


def _postponed(spec: ModuleSpec) -> ModuleType:
    module = module_from_spec(spec)

    def attribute(wanted: str) -> Any:
        del module.__getattr__
        assert spec.loader is not None
        spec.loader.exec_module(module)
        return getattr(module, wanted)

    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module
