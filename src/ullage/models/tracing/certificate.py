"""Certificates: that a formula gave the very integers that a real model was counted at, and for which configuration and code."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.formula import Formula, compiled
from ullage.models.passes import Training
from ullage.models.sample import FULL
from ullage.models.step import Step
from ullage.models.tracing.libraries import versions
from ullage.models.tracing.matching import compared, compared_backward, differences, without
from ullage.models.tracing.runs import Progress, Tracer
from ullage.models.tracing.trials import Trial, trials

MADE_OF = ("ullage.models.work", "ullage.models.sample", "ullage.models.blocks", "ullage.models.passes")
TrialSize = int | tuple[int | tuple[int, ...], ...]  # of a sample: a number, or numbers of a grid, or of several
LIBRARIES = ("torch", "transformers", "diffusers")


@dataclass(frozen=True)
class Difference:
    """Where formula and trace part: which terms, at which module and trial, in which pass."""

    trial: Mapping[str, TrialSize]
    what: str  # "forward" or "backward"
    path: str
    terms: tuple[str, ...]
    formula: int
    traced: int

    def __str__(self) -> str:
        names = ", ".join(self.terms) or "nothing in the formula"
        return f"{self.what} at {self.path or 'the model'} ({names}): formula {self.formula:,}, trace {self.traced:,}"


@dataclass(frozen=True)
class ComparedTrial:
    """One trial: totals of both sides, how many terms were compared each by itself, and what the family says it leaves out."""

    trial: Mapping[str, TrialSize]
    forward: int
    traced_forward: int
    backward: int
    traced_backward: int
    terms: int
    left_out: int = 0


@dataclass(frozen=True)
class Certificate:
    """What was compared and came out equal, or the differences. It holds for one configuration and one text of the formula."""

    architecture: str
    family: str
    config_hash: str
    formula_hash: str
    versions: Mapping[str, str]
    compared: tuple[ComparedTrial, ...]
    differences: tuple[Difference, ...]
    date: str

    @property
    def equal(self) -> bool:
        """Whether all was equal, to the integer and term by term."""
        return bool(self.compared) and not self.differences


def certify(config: Config, kind: str | None = None, *, progress: Progress = lambda _: None, today: date | None = None) -> Certificate:
    """Return the certificate of a configuration: the formula's forward pass term by term, and its exact backward pass, against traces.

    The real model is built from the installed libraries, on the meta device where it can be. Raises UllageError for an
    unknown architecture, a library that is missing, and a model that can't be traced.
    """
    formula = compiled(config, kind)
    tried = trials(formula.model, formula.config)
    if not tried:
        raise UllageError(
            f"no library has a model to hold the formula '{formula.model.family}' against", "its source stands in `ullage flops --list`"
        )
    tracer = Tracer(formula.config, progress)
    results, found = [], []
    for trial in tried:
        one, different = _trial(formula, tracer, trial)
        results.append(one)
        found += different
    day = today or datetime.now(UTC).date()
    return Certificate(
        formula.name, formula.model.family, config_hash(config), formula_hash(formula.model.module),
        versions(*LIBRARIES), tuple(results), tuple(found), day.isoformat(),
    )  # fmt: skip


def _trial(formula: Formula, tracer: Tracer, trial: Trial) -> tuple[ComparedTrial, list[Difference]]:
    left = formula.model.left_out
    forward, small = without(tracer.forward(trial), left)
    training, _ = without(tracer.training(trial), left)
    modules = [name for name, _ in tracer.model.named_modules(remove_duplicate=False)]
    rows = compared(formula.works, trial, forward, modules)
    expected: Counter[str] = Counter()
    for term in formula.terms(Step(((trial.sample, trial.batch),), FULL), Training(backward="exact")):
        expected[term.name] += term.flops if term.pass_ in ("dgrad", "wgrad") else 0
    back = compared_backward(formula.works, trial, forward, training, modules, expected)
    one = ComparedTrial(
        trial.record(), sum(r.formula for r in rows), forward.total, expected.total(), training.total - forward.total, len(rows), small
    )
    found = [(what, row) for what, each in (("forward", rows), ("backward", back)) for row in differences(each)]
    return one, [Difference(trial.record(), what, r.path, r.terms, r.formula, r.traced) for what, r in found]


def config_hash(config: Config) -> str:
    """Return the SHA-256 of a configuration's canonical JSON: sorted fields, no spaces."""
    text = json.dumps(config.values, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)


def formula_hash(module: str) -> str:
    """Return the SHA-256 of a family's module and of every module of `ullage.models` that it is made of."""
    digest = hashlib.sha256()
    for name in sorted(_made_of(module)):
        digest.update(f"{name}\n{_source(name)}\n".encode())
    return digest.hexdigest()


def _made_of(module: str) -> set[str]:
    found: set[str] = set()
    waiting = [module, *MADE_OF]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imported(_source(name))
    return found


def _imported(source: str) -> Iterator[str]:
    """Yield the modules of `ullage.models` that a source text imports."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (n for n in names if n.startswith("ullage.models.") and _is_module(n))


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent is a module: the name is something in it
        return False


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    text = spec.loader.get_source(name) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
    return text or ""


def record(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate for JSON."""
    return {**asdict(certificate), "equal": certificate.equal}
