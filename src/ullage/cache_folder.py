"""Where what is made once and used again lies: the user's cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of what Ullage keeps for itself; raises RuntimeError where a user has no home.

    >>> cache_folder({"XDG_CACHE_HOME": "/scratch/me"}).as_posix()
    '/scratch/me/ullage'
    """
    named = environment.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()) / "ullage"
