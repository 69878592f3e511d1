"""Whether a test breaks where the code is changed by one sign: python tools/mutants.py [--minutes 10] [--seed 0] [NAME…]

Small changes (a number by one, < for <=, + for -, and for or, a `not` more or less) are drawn from src/ullage/sums, src/ullage/metrics and
src/ullage/audit/trust.py, or from the modules whose name contains NAME. For each, the doctests of the module and the tests that import it
run in a process of its own that reads the changed text instead of the file; what they let pass meets the tests of whoever imports the
module. Modules of `OWN_TESTS` meet those tests alone. Nothing is written. A change that no test noticed is printed; the exit status is 1
where fewer than --least of 100 were noticed.

The changes are Cosmic Ray's (pip install cosmic-ray).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.machinery
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src", ROOT / "tests"
COMPUTE = ("ullage.sums", "ullage.metrics", "ullage.audit.trust")
# Modules whose own tests are to be enough by themselves: a threshold that only a whole report shows is hard to find again
OWN_TESTS = {"ullage.audit.trust": ("test_thresholds.py",)}
OPERATORS = re.compile(
    r"core/(NumberReplacer|AddNot|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceBreakWithContinue"
    r"|ReplaceContinueWithBreak|ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Eq_NotEq|NotEq_Eq|Lt_Gt|Gt_Lt|Is_IsNot|IsNot_Is)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Div|BitAnd_BitOr|Mod_Add)|ReplaceUnaryOperator_(Delete_Not|Delete_USub|Delete_Invert))"
)
LONGEST = 300  # seconds of the tests of one change; what takes longer is told apart, for a slow machine is no proof
NOTICED, PASSED, UNENDED = "noticed", "not noticed", "not ended"


@dataclass(frozen=True)
class Mutant:
    """A change of a module: at which line, which one, and the module's text with it."""

    module: str
    line: int
    change: str
    text: str


def main() -> int:
    """Draw changes until the time is over, test each, and print what no test noticed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--least", type=float, default=90, help="Of 100 changes, how many tests must notice.")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.one:
        return under_test(json.load(sys.stdin))
    try:
        drawn = mutants(chosen(asked.names), random.Random(asked.seed))
    except ImportError:
        print("tools/mutants.py needs Cosmic Ray: pip install cosmic-ray", file=sys.stderr)
        return 2
    counts = tested(drawn, time.monotonic() + 60 * asked.minutes, asked.workers)
    total = counts[NOTICED] + counts[PASSED]
    share = 100 * counts[NOTICED] / total if total else 0.0
    beside = f"; {counts[UNENDED]:,} more did not end within {LONGEST} s" if counts[UNENDED] else ""
    print(f"{counts[NOTICED]:,} of {total:,} changes were noticed: {share:.0f} %{beside}")
    return 0 if share >= asked.least else 1


def chosen(names: Sequence[str]) -> list[str]:
    """Return the modules that compute, or those whose name contains one of `names`."""
    every = [module for module in modules() if not module.endswith("__init__")]
    return [module for module in every if (any(name in module for name in names) if names else module.startswith(COMPUTE))]


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package and its file."""
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in sorted(SOURCE.rglob("*.py"))}


def mutants(among: Sequence[str], rng: random.Random) -> Iterator[Mutant]:
    """Yield changes of these modules in a drawn order, none twice."""
    import cosmic_ray.plugins as plugins
    from cosmic_ray.mutating import mutate_code

    places = [(module, *place) for module in among for place in _places(module)]
    rng.shuffle(places)
    for module, operator, occurrence, line in places:
        text = mutate_code(modules()[module].read_text(), plugins.get_operator(operator)(), occurrence)
        with contextlib.suppress(SyntaxError):
            if text is not None and ast.dump(ast.parse(text)) != ast.dump(ast.parse(modules()[module].read_text())):
                yield Mutant(module, line, operator.removeprefix("core/"), text)


def _places(module: str) -> Iterator[tuple[str, int, int]]:
    """Yield (operator, occurrence, line) of every change of a module."""
    import cosmic_ray.plugins as plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    nodes = list(ast_nodes(get_ast(modules()[module].read_text())))
    for operator in filter(OPERATORS.fullmatch, sorted(plugins.operator_names())):
        found = plugins.get_operator(operator)()
        lines = [start[0] for node in nodes for start, _ in found.mutation_positions(node)]
        yield from ((operator, occurrence, line) for occurrence, line in enumerate(lines))


def tested(drawn: Iterator[Mutant], until: float, workers: int) -> Counter[str]:
    """Return how many changes were noticed and how many were not, and print the latter as they come."""
    counts, turn = Counter[str](), threading.Lock()

    def work() -> None:
        while True:
            with turn:
                mutant = next(drawn, None) if time.monotonic() < until else None
            if mutant is None:
                return
            result = _result(mutant, near(mutant.module))
            result = _result(mutant, far(mutant.module)) if result == PASSED and far(mutant.module) else result
            with turn:
                counts[result] += 1
                _tell(mutant, result, counts)

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return counts


def _tell(mutant: Mutant, result: str, counts: Counter[str]) -> None:
    if result != NOTICED:
        print(f"{result}: {modules()[mutant.module].relative_to(ROOT)}:{mutant.line}: {mutant.change}: {_changed(mutant)}", flush=True)
    elif counts.total() % 20 == 0:
        print(f"({counts[NOTICED]:,} of {counts.total():,} noticed)", file=sys.stderr, flush=True)


def _changed(mutant: Mutant) -> str:
    """Return the first line that a change made different."""
    before, after = modules()[mutant.module].read_text().splitlines(), mutant.text.splitlines()
    return next((new.strip() for old, new in zip(before, after, strict=False) if old != new), "")


def near(module: str) -> list[str]:
    """Return the module's own doctests and the tests that import it, or those that are to be enough."""
    if module in OWN_TESTS:
        return [str(modules()[module].relative_to(ROOT)), *(f"tests/{name}" for name in OWN_TESTS[module])]
    return [str(modules()[module].relative_to(ROOT)), *_tests_of({module})]


def far(module: str) -> list[str]:
    """Return the tests of whoever imports the module, less those that import it themselves; none where its own are to be enough."""
    if module in OWN_TESTS:
        return []
    users = {other for other in modules() if module in imports(other)}
    return [test for test in _tests_of(users) if test not in near(module)]


def _tests_of(names: set[str]) -> list[str]:
    stems = {name.rpartition(".")[2] for name in names}
    tests = sorted(TESTS.glob("test_*.py"), key=lambda path: (path.stem[5:] not in stems, path.stat().st_size))
    return [str(path.relative_to(ROOT)) for path in tests if names & _imported(path)]


@cache
def imports(module: str) -> frozenset[str]:
    """Return the modules that a module imports."""
    return _imported(modules()[module])


@cache
def _imported(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, its test helpers' too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    helpers = [TESTS / f"{name}.py" for name in found if path.parent == TESTS and (TESTS / f"{name}.py").exists()]
    return frozenset(found.union(*(_imported(helper) for helper in helpers)))


def _result(mutant: Mutant, tests: Sequence[str]) -> str:
    asked = json.dumps({"module": mutant.module, "text": mutant.text, "tests": tests})
    command = [sys.executable, __file__, "--one"]
    environment = os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(command, input=asked.encode(), cwd=ROOT, env=environment, capture_output=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return UNENDED
    return NOTICED if ended.returncode else PASSED


def under_test(asked: dict[str, object]) -> int:
    """Run tests against the changed text of a module; return pytest's exit status."""
    import pytest

    path, text, tests = str(modules()[str(asked["module"])]), str(asked["text"]), list(asked["tests"])  # type: ignore[call-overload]
    loader = importlib.machinery.SourceFileLoader
    read, dated = loader.get_data, loader.path_stats

    def changed(self: importlib.machinery.SourceFileLoader, file: str) -> bytes:
        return text.encode() if file == path else read(self, file)

    def undated(self: importlib.machinery.SourceFileLoader, file: str) -> Mapping[str, Any]:
        if file == path:
            raise OSError("what was compiled before is not asked")
        return dated(self, file)

    loader.get_data, loader.path_stats = changed, undated  # type: ignore[method-assign, assignment]
    # rewritten assertions are read from the file itself
    how = ["--assert=plain", "-x", "-q", "-m", "not full", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
    return int(pytest.main([*how, *tests]))


if __name__ == "__main__":
    sys.exit(main())
