"""Whether a test breaks where the code is changed by one sign: python tools/mutants.py [--minutes 10] [--each 40] [--seed 0] [NAME…]

Small changes (a number by one, < for <=, + for -, and for or, a `not` more or less) are drawn from each module of src/ullage/sums and
src/ullage/metrics and from src/ullage/audit/trust.py, or from the modules whose name contains NAME: --each of a module by --seed, in
turn. Each meets the tests that run the changed statement, the quick ones first, until one fails; as many tests are asked as take
--patience seconds of the processor with nothing changed. A change that makes a test run ten times as long is stopped: it may be a loop
without an end, but no test said so. Such are counted apart, as are those that take five minutes by the clock. Which tests are asked is
noted once with nothing changed, in the folder .mutants, among the module's own doctests and the files that tools/mutants_tests.json
lists for it. Nothing else is written. tools/warm_tests.py says how tests meet a change without a new Python.

No change: annotations, and what only guards (assertions, `strict=` of zip, `frozen=` of a dataclass, which arguments have to be named).
tools/mutants_equivalent.json lists changes that were read and judged to change no answer, each with the reason; they are counted apart. The
exit status is 1 where fewer than --least of 100 others were noticed.

The changes are Cosmic Ray's, the lines that a test reaches are Coverage's (pip install cosmic-ray coverage).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import itertools
import json
import math
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TextIO

from warm_tests import Asked, Bare, Changed, Collected, Outcome, Reached, with_collected

ROOT = Path(__file__).parents[1]
SOURCE, TESTS, NOTED = ROOT / "src", ROOT / "tests", ROOT / ".mutants"
LISTED, EQUIVALENT = ROOT / "tools" / "mutants_tests.json", ROOT / "tools" / "mutants_equivalent.json"
COMPUTE = ("ullage.sums", "ullage.metrics", "ullage.audit.trust")
# Modules whose own tests are to be enough by themselves: a threshold that only a whole report shows is hard to find again
OWN_TESTS = {"ullage.audit.trust": ("test_thresholds.py",)}
OPERATORS = re.compile(
    r"core/(NumberReplacer|AddNot|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceBreakWithContinue"
    r"|ReplaceContinueWithBreak|ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Eq_NotEq|NotEq_Eq|Lt_Gt|Gt_Lt|Is_IsNot|IsNot_Is)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Div|BitAnd_BitOr|Mod_Add)|ReplaceUnaryOperator_(Delete_Not|Delete_USub|Delete_Invert))"
)
GUARDS = {"strict", "frozen", "slots"}  # keywords that refuse wrong input and compute nothing
NOTICED, PASSED, STOPPED, SAME = "noticed", "not noticed", "stopped", "equivalent"


@dataclass(frozen=True)
class Mutant:
    """A change of a module: at which line, which one, the line before and after it, and the module's text with it."""

    module: str
    line: int
    change: str
    was: str
    becomes: str
    text: str


@dataclass(frozen=True)
class Result:
    """What became of a change: how many tests it met, which one noticed it, and the processor's seconds."""

    module: str
    line: int
    change: str
    was: str
    becomes: str
    result: str
    tests: int
    by: str
    seconds: float


def main() -> int:
    """Draw changes, test each until the time is over, and print what no test noticed and how many were noticed of each module."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--each", type=int, default=40, help="How many changes of a module are drawn.")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--patience", type=float, default=30, help="How many CPU seconds of tests one change meets.")
    options.add_argument("--least", type=float, default=90, help="Of 100 changes, how many tests must notice.")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options.add_argument("--log", type=Path, help="Write each result as a line of JSON.")
    options.add_argument("--again", type=Path, metavar="LOG", help="Try only what this log has not as noticed; count the rest as it says.")
    options.add_argument("--anew", action="store_true", help="Import everything anew for each change, which is slower.")
    options.add_argument("--list", action="store_true", help="Write tools/mutants_tests.json: which files test a module.")
    asked = options.parse_args()
    try:
        import cosmic_ray  # noqa: F401
    except ImportError:
        print("tools/mutants.py needs Cosmic Ray: pip install cosmic-ray", file=sys.stderr)
        return 2
    names = chosen(asked.names)
    if asked.list:
        return write_list(names)
    until = time.monotonic() + 60 * asked.minutes
    drawn = mutants(names, asked.seed, asked.each)
    noticed = kept(asked.again) if asked.again else []
    places = {(one.module, one.line, one.was, one.becomes) for one in noticed}
    with asked.log.open("w") if asked.log else contextlib.nullcontext() as log:
        results = tested([one for one in drawn if (one.module, one.line, one.was, one.becomes) not in places], until, asked, log)
    places &= {(one.module, one.line, one.was, one.becomes) for one in drawn}
    results += [one for one in noticed if (one.module, one.line, one.was, one.becomes) in places]
    print("\n".join(table(results)))
    counts = Counter(one.result for one in results)
    return 0 if counts[NOTICED] >= asked.least / 100 * (counts[NOTICED] + counts[PASSED]) else 1


def kept(log: Path) -> list[Result]:
    """Return what was noticed according to a log."""
    found = [Result(**json.loads(line)) for line in log.read_text().splitlines()]
    return [one for one in found if one.result == NOTICED]


def chosen(names: Sequence[str]) -> list[str]:
    """Return the modules that compute, or those whose name contains one of `names`."""
    every = [module for module in modules() if not module.endswith("__init__")]
    return [module for module in every if (any(name in module for name in names) if names else module.startswith(COMPUTE))]


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package and its file."""
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in sorted(SOURCE.rglob("*.py"))}


def mutants(among: Sequence[str], seed: int, each: int) -> list[Mutant]:
    """Return up to so many changes of each of these modules, drawn by the seed, none twice: the first of each, the second of each, …"""
    of_module = [itertools.islice(_changes(module, random.Random(f"{seed} {module}")), each) for module in among]
    turns = itertools.zip_longest(*of_module)
    return [one for turn in turns for one in turn if one is not None]


def _changes(module: str, rng: random.Random) -> Iterator[Mutant]:
    import cosmic_ray.plugins as plugins
    from cosmic_ray.mutating import mutate_code

    before = modules()[module].read_text()
    places = list(_places(module))
    rng.shuffle(places)
    seen = {_computing(before)}
    for operator, occurrence, line in places:
        text = mutate_code(before, plugins.get_operator(operator)(), occurrence)
        with contextlib.suppress(SyntaxError):
            if text is not None and (computing := _computing(text)) not in seen:
                seen.add(computing)
                lines = zip(before.splitlines(), text.splitlines(), strict=False)
                was, becomes = next((old.strip(), new.strip()) for old, new in lines if old != new)
                yield Mutant(module, line, operator.removeprefix("core/"), was, becomes, text)


def _computing(text: str) -> str:
    """Return the syntax tree of a text less its annotations and what only guards."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [one for one in node.keywords if one.arg not in GUARDS]
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant("")
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.arguments):  # which of them have to be named
            node.args, node.posonlyargs, node.kwonlyargs = [*node.posonlyargs, *node.args, *node.kwonlyargs], [], []
            node.defaults, node.kw_defaults = [*node.defaults, *(one for one in node.kw_defaults if one is not None)], []
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not isinstance(one, ast.Assert)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _places(module: str) -> Iterator[tuple[str, int, int]]:
    """Yield (operator, occurrence, line) of every change of a module."""
    import cosmic_ray.plugins as plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    nodes = list(ast_nodes(get_ast(modules()[module].read_text())))
    for operator in filter(OPERATORS.fullmatch, sorted(plugins.operator_names())):
        found = plugins.get_operator(operator)()
        lines = [start[0] for node in nodes for start, _ in found.mutation_positions(node)]
        yield from ((operator, occurrence, line) for occurrence, line in enumerate(lines))


def tested(drawn: Sequence[Mutant], until: float, asked: argparse.Namespace, log: TextIO | None = None) -> list[Result]:
    """Return what became of each change that there was time for, and print those that were not noticed as they come."""
    if not drawn:
        return []
    among = sorted({one.module for one in drawn})
    files = sorted({file for module in among for file in tests_of(module)})
    bare = [Bare(ROOT) for _ in range(asked.workers)]
    results: list[Result] = []

    def work(collected: Collected) -> None:
        told(f"{len(collected.items):,} tests of {len(files)} files are collected", until)
        reached = reached_by_test(collected, among, until)
        results.extend(_by_workers(Warm(collected, reached, bare, asked.patience, asked.anew), drawn, until, log))

    status = with_collected(ROOT, files, [str(modules()[name]) for name in chosen([])], work)
    for one in bare:
        one.close()
    if status not in (0, 1):
        raise SystemExit(f"pytest could not collect the tests (status {status}): run it on {' '.join(files[:3])} …")
    return results


def told(what: str, until: float) -> None:
    """Print on stderr what is done, and the minutes left."""
    print(f"({what}; {max(until - time.monotonic(), 0) / 60:.1f} min are left)", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Warm:
    """What changes meet: the collected tests, what each reached, a bare process for each worker, and how much to ask of them."""

    collected: Collected
    reached: Mapping[str, Reached]
    bare: Sequence[Bare]
    patience: float
    anew: bool


def _by_workers(warm: Warm, drawn: Sequence[Mutant], until: float, log: TextIO | None) -> list[Result]:
    equivalent = {(one["module"], one["was"], one["becomes"]) for one in json.loads(EQUIVALENT.read_text())}
    reading, writing = os.pipe()
    children = []
    for number in range(len(warm.bare)):
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            with contextlib.suppress(BaseException), os.fdopen(writing, "w", buffering=1) as replies:
                warm.collected.worker = number
                trial = Trial(warm, number)
                for one in drawn[number :: len(warm.bare)]:
                    if time.monotonic() >= until:
                        break
                    result = (
                        Result(*_head(one), SAME, 0, "", 0.0) if (one.module, one.was, one.becomes) in equivalent else trial.result(one)
                    )
                    replies.write(json.dumps(asdict(result)) + "\n")
            os._exit(0)
        children.append(pid)
    os.close(writing)
    results = []
    with os.fdopen(reading) as replies:
        for line in replies:
            results.append(Result(**json.loads(line)))
            if log:
                log.write(line)
                log.flush()
            _tell(results, until)
    for pid in children:
        os.waitpid(pid, 0)
    return results


def _head(one: Mutant) -> tuple[str, int, str, str, str]:
    return one.module, one.line, one.change, one.was, one.becomes


def _tell(results: Sequence[Result], until: float) -> None:
    last = results[-1]
    if last.result in (PASSED, STOPPED):
        place = f"{modules()[last.module].relative_to(ROOT)}:{last.line}"
        print(f"{last.result} by {last.tests} tests: {place}: {last.change}: {last.was} -> {last.becomes}", flush=True)
    if len(results) % 50 == 0:
        counts = Counter(one.result for one in results)
        told(f"{counts[NOTICED]:,} of {counts[NOTICED] + counts[PASSED]:,} noticed", until)


class Trial:
    """Tests that changes meet one after another; a test that noticed one change is asked earlier about the next."""

    def __init__(self, warm: Warm, number: int) -> None:
        self.collected, self.reached, self.bare = warm.collected, warm.reached, warm.bare[number]
        self.patience, self.anew = warm.patience, warm.anew
        self.noticed: Counter[tuple[str, str]] = Counter()
        self._by_line: dict[str, dict[int, set[str]]] = {}

    def result(self, one: Mutant) -> Result:
        """Return what became of a change."""
        path = modules()[one.module]
        changed = Changed(str(path), path.read_text(), one.text)
        lines = statement(one.module, one.line)
        early = bool(lines & self.collected.collecting[str(path)])
        asked = self._asked(one, lines, early)
        outcome: Outcome | None = Outcome()
        if asked:
            outcome = None if early or self.anew else self.collected.outcome(changed, asked)
            outcome = outcome or self.bare.outcome(changed, asked)
        assert outcome is not None
        result = STOPPED if outcome.stopped else NOTICED if outcome.failed else PASSED
        if result == NOTICED:
            self.noticed[one.module, outcome.failed] += 1
        return Result(*_head(one), result, len(asked), outcome.failed if outcome.ended else "the clock", round(outcome.seconds, 3))

    def _asked(self, one: Mutant, lines: set[int], early: bool) -> list[Asked]:
        """Return the tests that run the changed statement, the likeliest and quickest first.

        Where it runs at import, those that run a function which uses a name that it defines, then all others of the module.
        """
        first = self._tests(one.module, users(one.module, one.line) if early else lines)
        more = self._tests(one.module, None) - first if early else set()
        order = [test for tests in (first, more) for test in self._in_turn(one.module, tests)]
        return within_patience([Asked(test, self.reached[test].seconds) for test in order], self.patience)

    def _in_turn(self, module: str, tests: set[str]) -> list[str]:
        """Return the likeliest and quickest first, but two sets of a test's parameters before the third of any: more say the same."""
        ranked, seen = sorted(tests, key=lambda test: self._rank(module, test)), Counter[str]()
        turns = []
        for test in ranked:
            turns.append((seen[test.partition("[")[0]] // 2, len(turns), test))
            seen[test.partition("[")[0]] += 1
        return [test for _, _, test in sorted(turns)]

    def _rank(self, module: str, test: str) -> tuple[float, str]:
        return self.reached[test].seconds / (1 + self.noticed[module, test]), test

    def _tests(self, module: str, lines: set[int] | None) -> set[str]:
        if module not in self._by_line:
            by_line: dict[int, set[str]] = defaultdict(set)
            path, own = str(modules()[module]), tests_of(module)
            for test, reached in self.reached.items():
                if reached.passed and (module not in OWN_TESTS or test.partition("::")[0] in own):
                    for line in reached.lines.get(path, ()):
                        by_line[line].add(test)
            self._by_line[module] = by_line
        by_line = self._by_line[module]
        return set().union(*(by_line.get(line, set()) for line in (by_line if lines is None else lines)))


def within_patience(tests: Sequence[Asked], patience: float) -> list[Asked]:
    """Return the tests for which there is time, in their order: one that takes too long keeps no quick one behind it from being asked.

    >>> [one.test for one in within_patience([Asked("a", 1), Asked("slow", 8), Asked("b", 2), Asked("c", 8), Asked("d", 1)], 12)]
    ['a', 'slow', 'b', 'd']
    """
    found: list[Asked] = []
    spent = 0.0
    for one in tests:
        if spent + one.seconds <= patience:
            spent += one.seconds
            found.append(one)
    return found


def reached_by_test(collected: Collected, among: Sequence[str], until: float = math.inf) -> dict[str, Reached]:
    """Return what each collected test does with nothing changed, noted in an earlier run where neither test nor module changed since."""
    found: dict[str, Reached] = {}
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in collected.items:
        by_file[test.partition("::")[0]].append(test)
    for file, tests in by_file.items():
        noted = NOTED / (file.replace("/", ".") + ".json")
        before = json.loads(noted.read_text()) if noted.exists() else {"of": {}, "tests": {}}
        of = {str(path.relative_to(ROOT)): _digest(path) for path in [ROOT / file, *map(Path, collected.traced)]}
        wanted = [file, *(str(modules()[name].relative_to(ROOT)) for name in among)]
        if all(before["of"].get(path) == of[path] for path in wanted) and set(tests) <= set(before["tests"]):
            found |= {test: Reached(**before["tests"][test]) for test in tests}
            continue
        fresh = {test: collected.reached(test) for test in tests}
        found |= fresh
        NOTED.mkdir(exist_ok=True)
        noted.write_text(json.dumps({"of": of, "tests": {test: asdict(one) for test, one in fresh.items()}}))
        told(f"noted {len(tests):,} tests of {file}, {sum(one.seconds for one in fresh.values()):.1f} s", until)
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@cache
def _statements(module: str) -> list[tuple[int, int]]:
    """Return the first and last line of each statement, or of its head where it has a body; functions whole, too."""
    ranges = []
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.stmt):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            inner = body[0].pattern.lineno if body and isinstance(body[0], ast.match_case) else body[0].lineno if body else 0
            ranges.append((first, max(inner - 1, node.lineno) if body else node.end_lineno or first))
            if isinstance(node, ast.FunctionDef):
                ranges.append((first, node.end_lineno or first))
    return ranges


def statement(module: str, line: int) -> set[int]:
    """Return the lines of the smallest statement around a line."""
    around = [(last - first, first, last) for first, last in _statements(module) if first <= line <= last]
    _, first, last = min(around, default=(0, line, line))
    return set(range(first, last + 1))


@cache
def users(module: str, line: int) -> set[int]:
    """Return the lines of the functions that use a name which the statement at this line defines: constants, defaults, fields."""
    tree = ast.parse(modules()[module].read_text())
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            if first <= line <= (node.end_lineno or 0):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
                names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
                names |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            inside = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} | {
                one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)
            }
            if names & (inside | {node.name}):
                lines |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines


def table(results: Sequence[Result]) -> list[str]:
    """Return a table of each module's changes: how many it has, were tried, stopped and noticed, and the share with its 95 % interval."""
    lines = ["| module | changes | tried | equivalent | stopped | noticed | share of the others |", "|---|---:|---:|---:|---:|---:|---|"]
    every, weighted, weight = Counter[str](), 0.0, 0
    for module in sorted({one.module for one in results}):
        counts = Counter(one.result for one in results if one.module == module)
        every += counts
        possible = sum(1 for _ in _places(module))
        lines.append(_row(module.removeprefix("ullage."), possible, counts))
        if counts[NOTICED] + counts[PASSED]:
            weighted += possible * counts[NOTICED] / (counts[NOTICED] + counts[PASSED])
            weight += possible
    lines.append(_row("all", weight, every))
    note = f"Each module weighed by its changes: {100 * weighted / weight:.1f} %." if weight else "Nothing was tried."
    by = Counter(one.by for one in results if one.result == STOPPED)
    limits = " and ".join(f"{count} by {limit}" for limit, count in sorted(by.items()))
    return [*lines, "", note + (f" Stopped, and neither noticed nor not: {limits}." if by else "")]


def _row(name: str, possible: int, counts: Counter[str]) -> str:
    noticed, others = counts[NOTICED], counts[NOTICED] + counts[PASSED]
    low, high = interval(noticed, others)
    share = f"{100 * noticed / others:.0f} % [{100 * low:.0f}, {100 * high:.0f}]" if others else "–"
    return f"| {name} | {possible:,} | {sum(counts.values()):,} | {counts[SAME]} | {counts[STOPPED]} | {noticed:,} | {share} |"


def interval(part: int, whole: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share.

    >>> [round(bound, 3) for bound in interval(36, 40)]
    [0.769, 0.96]
    """
    if not whole:
        return 0.0, 1.0
    z, share = 1.96, part / whole
    middle = (share + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z * math.sqrt(share * (1 - share) / whole + z * z / (4 * whole * whole)) / (1 + z * z / whole)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def tests_of(module: str) -> list[str]:
    """Return the module itself, for its doctests, and the files that test it: those of the list, or whatever imports it."""
    listed = json.loads(LISTED.read_text()) if LISTED.exists() else {}
    if module in OWN_TESTS or module not in listed:
        return near(module) + far(module)
    return [str(modules()[module].relative_to(ROOT)), *listed[module]]


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
    tests = sorted(TESTS.rglob("test_*.py"), key=lambda path: (path.stem[5:] not in stems, path.stat().st_size))
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
    places = [ROOT / f"{name.replace('.', '/')}.py" for name in found if path.is_relative_to(TESTS) and name.startswith("tests.")]
    helpers = [place for place in places if place.exists()]
    return frozenset(found.union(*(_imported(helper) for helper in helpers)))


def write_list(among: Sequence[str]) -> int:
    """Run every test that imports one of these modules or a user of it, and list for each module the files that test it best."""
    files = sorted({file for module in among for file in near(module) + far(module)})
    listed: dict[str, list[str]] = json.loads(LISTED.read_text()) if LISTED.exists() else {}

    def work(collected: Collected) -> None:
        reached = reached_by_test(collected, among)
        for module in among:
            if module not in OWN_TESTS:
                listed[module] = best(module, reached)
        LISTED.write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n")

    return with_collected(ROOT, files, [str(modules()[name]) for name in chosen([])], work)


def best(module: str, reached: Mapping[str, Reached], files_per_line: int = 3) -> list[str]:
    """Return files of tests, until each line that any reaches is reached by three: of most new lines a second first."""
    path = str(modules()[module])
    seconds: Counter[str] = Counter()
    lines: dict[str, set[int]] = defaultdict(set)
    for test, one in reached.items():
        file = test.partition("::")[0]
        if one.passed and file.startswith("tests/") and one.lines.get(path):
            seconds[file] += one.seconds  # type: ignore[assignment]
            lines[file] |= set(one.lines[path])
    wanted = Counter({line: files_per_line for found in lines.values() for line in found})
    chosen: list[str] = []
    while lines:
        gain, file = max((sum(1 for line in lines[file] if wanted[line] > 0) / (1 + seconds[file]), file) for file in lines)
        if not gain:
            break
        wanted.subtract(lines.pop(file))
        chosen.append(file)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
