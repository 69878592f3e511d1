"""Counters of installed packages, in the calling convention of `ullage audit counter`; they run in the process that calls them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def verl(config: Any, seqlens: Sequence[int], images_seqlens: Sequence[int] | None = None) -> float:
    """Return the FLOPs of verl's `FlopsCounter` for a training step.

    Its module alone is loaded, with the CPU as its device: the FLOPs don't depend on it, and the package needs a cluster's
    libraries.
    """
    counter = _verl().FlopsCounter(_transformers_config(config))
    more = {"images_seqlens": list(images_seqlens)} if images_seqlens else {}
    tera, _ = counter.estimate_flops(list(seqlens), 1.0, **more)
    return float(tera) * 1e12


def hf(config: Any, seqlens: Sequence[int]) -> int:
    """Return the FLOPs of the Transformers trainer for a padded batch; the model is built without memory, on the meta device."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    architecture = getattr(transformers, config["architectures"][0], None)
    if architecture is None:
        raise ValueError(f"transformers has no {config['architectures'][0]}")
    with torch.device("meta"):
        model = architecture(_transformers_config(config))
        tokens = torch.zeros((len(seqlens), max(seqlens)), dtype=torch.long)
    trainer: Any = SimpleNamespace(model=model)
    flops: int = transformers.Trainer.floating_point_ops(trainer, {model.main_input_name: tokens})
    return flops


def _transformers_config(config: Any) -> Any:
    """Return the configuration as transformers completes it, or as it is where transformers has no such model."""
    mapping = importlib.import_module("transformers").CONFIG_MAPPING
    name = config.get("model_type")
    return mapping[name](**{k: v for k, v in config.items() if k != "model_type"}) if name in mapping else config


def _verl() -> Any:
    name = "verl.utils.flops_counter"
    if name in sys.modules:
        return sys.modules[name]
    package = importlib.util.find_spec("verl")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'verl'")
    file = Path(package.origin).parent / "utils" / "flops_counter.py"
    device: Any = ModuleType("verl.utils.device")
    device.get_torch_device = lambda: importlib.import_module("torch").cpu
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named '{name}'")
    module = importlib.util.module_from_spec(spec)
    stood = {part: sys.modules.get(part) for part in ("verl", "verl.utils", "verl.utils.device")}
    sys.modules |= {"verl": ModuleType("verl"), "verl.utils": ModuleType("verl.utils"), "verl.utils.device": device}
    try:
        spec.loader.exec_module(module)
    finally:
        for part, before in stood.items():
            if before is None:
                del sys.modules[part]
            else:
                sys.modules[part] = before
    sys.modules[name] = module
    return module
