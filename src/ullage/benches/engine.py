"""NVIDIA's Transformer Engine where it is installed: the modules that the Hopper paper measured."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

NAME = "transformer_engine"


def here() -> bool:
    """Return whether Transformer Engine is installed; it is not imported for that."""
    return importlib.util.find_spec(NAME) is not None


def called(torch: Any, module: Any, precision: str, *arguments: Any) -> Callable[[], Any]:
    """Return a call of one of its modules, forward only, in FP8 where that is the precision."""
    import transformer_engine.pytorch as engine
    from transformer_engine.common.recipe import DelayedScaling

    def fp8() -> AbstractContextManager[Any]:
        return engine.fp8_autocast(enabled=True, fp8_recipe=DelayedScaling()) if precision == "fp8" else nullcontext()

    def run() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = False
        with torch.no_grad(), fp8():
            return module(*arguments)

    return run
