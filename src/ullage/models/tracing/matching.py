"""A formula's work beside a trace, product by product: by the module of a weight, and by the layer of what has no weight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ullage.models.sample import FULL
from ullage.models.tracing.counter import CONTRACTIONS, Count
from ullage.models.tracing.tree import ModuleTree, upwards
from ullage.models.tracing.trials import Trial
from ullage.models.work import Work


@dataclass(frozen=True)
class MatchedTerm:
    """One comparison: FLOPs of the terms that a formula places at `path`, and of the trace there.

    `together` are rows of one layer that only agree in sum: the formula and the code place a product in different modules.
    """

    path: str
    terms: tuple[str, ...]
    formula: int
    traced: int

    @property
    def equal(self) -> bool:
        """Whether both are the same integer."""
        return self.formula == self.traced


@dataclass
class _Cell:
    """What is compared at one path while it is collected."""

    terms: dict[str, None] = field(default_factory=dict)
    formula: int = 0
    traced: int = 0

    def row(self, path: str) -> MatchedTerm:
        return MatchedTerm(path, tuple(self.terms), self.formula, self.traced)


_Cells = dict[str, dict[str, _Cell]]  # by layer, then by path


def compared(works: Iterable[Work], trial: Trial, count: Count, modules: Collection[str]) -> list[MatchedTerm]:
    """Return the formula's terms beside the trace, one row a weight and one a layer for what has no weight.

    `modules` are the paths of all modules of the model. The sum over the rows of either side is its total.
    """
    return [row for members in _collected(works, trial, count, ModuleTree(modules)).values() for row in _settled(members)]


def compared_backward(
    works: Sequence[Work], trial: Trial, forward: Count, training: Count, modules: Collection[str], expected: Mapping[str, int]
) -> list[MatchedTerm]:
    """Return the backward pass by terms, all layers together: `expected` FLOPs by name, beside what both passes cost less the forward.

    Terms that share a module anywhere are one row.
    """
    tree = ModuleTree(modules)
    both, once = (_collected(works, trial, count, tree) for count in (training, forward))
    rows: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for scope, members in both.items():
        before = once.get(scope, {})
        apart = {path for path, cell in before.items() if cell.formula != cell.traced}
        together = tuple(dict.fromkeys(name for path in apart for name in before[path].terms))
        for path, cell in members.items():
            backward = cell.traced - (before[path].traced if path in before else 0)
            rows.setdefault(together if path in apart else tuple(cell.terms), []).append((path, backward))
    return [
        MatchedTerm(found[0][0], names, sum(expected.get(name, 0) for name in names), sum(flops for _, flops in found))
        for names, found in _joined(rows).items()
    ]


def _joined(rows: Mapping[tuple[str, ...], list[tuple[str, int]]]) -> dict[tuple[str, ...], list[tuple[str, int]]]:
    """Return the rows with those joined that share a name."""
    joined: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for names, found in rows.items():
        mine, all_names = list(found), dict.fromkeys(names)
        for other in [o for o in joined if set(o) & set(all_names)]:
            mine = joined.pop(other) + mine
            all_names = dict.fromkeys([*other, *all_names])
        joined[tuple(all_names)] = mine + joined.get(tuple(all_names), [])
    return joined


def _collected(works: Iterable[Work], trial: Trial, count: Count, tree: ModuleTree) -> _Cells:
    placed = [(work, layer, _flops(work, trial)) for work in works if work.flops for layer in work.layers]
    scopes = {tree.layer(work.stack, layer) for work, layer, _ in placed} | {""}
    cells: _Cells = defaultdict(lambda: defaultdict(_Cell))
    weightless: set[str] = set()
    for work, layer, flops in placed:
        path = tree.layer(work.stack, layer) if work.shape is None else tree.module(work, layer)
        scope = next(p for p in upwards(path) if p in scopes)
        if work.shape is None:
            weightless.add(scope)
        cell = cells[scope][path]
        cell.formula += flops
        cell.terms[work.name] = None
    claimed = {path: scope for scope, members in cells.items() for path in members}
    for (module, operator), flops in count.products.items():
        scope, path = _claim(module, operator, tree, cells, claimed, weightless)
        cells[scope][path].traced += flops
    return cells


def _flops(work: Work, trial: Trial) -> int:
    """Return what a work costs in each of its layers."""
    return work.flops * work.quantity.of(trial.sample, FULL) * trial.batch


def _claim(
    module: str, operator: str, tree: ModuleTree, cells: Mapping[str, Mapping[str, _Cell]], claimed: Mapping[str, str], weightless: set[str]
) -> tuple[str, str]:
    """Return the layer and path to which a traced product belongs: those of the nearest weight around it, else its layer."""
    path = next((p for p in upwards(module) if p in claimed), "")
    scope = claimed.get(path) if path else None
    layer = next((p for p in upwards(module) if p in cells), "")
    if scope is None:
        return layer, layer
    loose = any(word in operator for word in CONTRACTIONS) and scope in weightless
    if loose and (path != module or not tree.leaf(module)):
        return layer, layer
    return scope, path


def _settled(cells: Mapping[str, _Cell]) -> list[MatchedTerm]:
    """Return the rows of one layer; those that differ but agree in sum become one."""
    rows = [cell.row(path) for path, cell in cells.items()]
    wrong = [row for row in rows if not row.equal]
    if len(wrong) < 2 or sum(r.formula for r in wrong) != sum(r.traced for r in wrong):
        return rows
    names = dict.fromkeys(name for row in wrong for name in row.terms)
    whole = MatchedTerm(" + ".join(r.path for r in wrong), tuple(names), sum(r.formula for r in wrong), sum(r.traced for r in wrong))
    return [row for row in rows if row.equal] + [whole]


def without(count: Count, patterns: Sequence[str]) -> tuple[Count, int]:
    """Return a trace without the modules that a formula says it leaves out, and how many FLOPs those had."""
    kept = {key: flops for key, flops in count.products.items() if not any(fnmatchcase(key[0], p) for p in patterns)}
    return Count(kept), count.total - sum(kept.values())


def differences(rows: Sequence[MatchedTerm]) -> list[MatchedTerm]:
    """Return the rows that differ, the largest difference first."""
    return sorted((r for r in rows if not r.equal), key=lambda r: -abs(r.formula - r.traced))
