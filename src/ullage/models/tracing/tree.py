"""The modules of a real model, and where the paths of a formula lie in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ullage.models.work import Work


def upwards(path: str) -> Iterator[str]:
    """Yield a path and its parents, the model itself ("") last.

    >>> list(upwards("layers.3.mlp"))
    ['layers.3.mlp', 'layers.3', 'layers', '']
    """
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


class ModuleTree:
    """The modules of a model, and where a formula's paths lie in it."""

    def __init__(self, modules: Collection[str]) -> None:
        self._modules = set(modules)
        self._parents = {module.rpartition(".")[0] for module in modules if module}
        self._stacks: dict[str, str] = {}

    def leaf(self, module: str) -> bool:
        """Whether a module has none below it."""
        return module not in self._parents

    def layer(self, stack: str, layer: int) -> str:
        """Return the path of a layer, "" for what stands outside of any or has no layer of its own."""
        if not stack:
            return ""
        path = f"{self._stack(stack)}.{layer}"
        return path if path in self._modules else next(p for p in upwards(path) if p in self._modules or not p)

    def module(self, work: Work, layer: int) -> str:
        """Return the module that holds a work's weight, or the nearest one around it (fused experts, bare parameters)."""
        if not work.stack:
            return next(p for p in upwards(self._stack(work.module)) if p in self._modules or not p)
        path = ".".join(p for p in (self.layer(work.stack, layer), work.module) if p)
        return next(p for p in upwards(path) if p in self._modules or not p)

    def _stack(self, stack: str) -> str:
        """Return where a path lies in this model: a bare model lacks the prefix that its wrapped form has, and the other way round."""
        if stack not in self._stacks:
            self._stacks[stack] = stack if stack in self._modules else self._moved(stack)
        return self._stacks[stack]

    def _moved(self, stack: str) -> str:
        parts = stack.split(".")
        inner = [".".join(parts[i:]) for i in range(1, len(parts))]
        shorter = next((p for p in inner if p in self._modules), None)
        if shorter is not None:
            return shorter
        longer = [m for m in self._modules if m.endswith(f".{stack}")]
        return min(longer, key=len) if longer else stack
