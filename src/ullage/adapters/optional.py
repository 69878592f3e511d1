"""The libraries that trainers are written with: loaded when an adapter is used, never needed by the rest."""

from __future__ import annotations

import importlib
from typing import Any

from ullage.errors import missing_extra

EXTRA = "trainers"


def library(name: str, purpose: str, extra: str = EXTRA) -> Any:
    """Return a library, or raise the error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_extra(name.partition(".")[0], extra, purpose) from error


def installed(name: str) -> Any | None:
    """Return a library, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def base(attribute: str, *names: str) -> Any:
    """Return a class to derive from, of the first library that is there; without one `object`, so that the module can be read."""
    return next((getattr(module, attribute) for name in names if (module := installed(name)) is not None), object)
