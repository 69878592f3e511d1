"""Puts exact FLOPs into verl when verl imports this module: VERL_USE_EXTERNAL_MODULES=ullage.adapters.verl_plugin."""

from __future__ import annotations

import sys

from ullage.adapters.verl import install

if sys.modules.get("verl") is not None:  # verl is what imports it
    install()
