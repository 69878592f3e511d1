"""The optional libraries that know the real models, and the peace they are used in: no network, no code of others, few words."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ullage.environment import environment
from ullage.errors import missing_extra

_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DIFFUSERS_ATTN_BACKEND": "native", "HF_HUB_DISABLE_TELEMETRY": "1"}


def library(name: str) -> Any:
    """Return an optional library, or raise the error that says how to install it."""
    try:
        with _quiet(), environment(_OFFLINE):
            return importlib.import_module(name)
    except ImportError as error:
        raise missing_extra(name.partition(".")[0], "certify", "certifying a formula") from error


def installed(name: str) -> Any | None:
    """Return an optional library, or None."""
    try:
        with _quiet(), environment(_OFFLINE):
            return importlib.import_module(name)
    except ImportError:
        return None


def versions(*names: str) -> dict[str, str]:
    """Return the versions of the libraries that are there."""
    found = {name: installed(name) for name in names}
    return {name: str(module.__version__) for name, module in found.items() if module is not None}


@contextmanager
def alone() -> Iterator[None]:
    """Hold the libraries off the network, and quiet, as long as this lasts."""
    constants = sys.modules.get("huggingface_hub.constants")
    before = getattr(constants, "HF_HUB_OFFLINE", None)
    with _quiet(), environment(_OFFLINE):
        if constants is not None:
            constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]  # read once, at import: the variable alone may come too late
        try:
            yield
        finally:
            if constants is not None:
                constants.HF_HUB_OFFLINE = before  # type: ignore[attr-defined]


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)
