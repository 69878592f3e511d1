"""Tests that are collected once and run many times, each time in a forked process in which one module is changed.

Importing the project and collecting its tests takes longer than most tests do. So one process collects them, notes which lines of a module
each test reaches, and forks for each change; in the fork the functions of the module get the changed code. A change of what runs while
tests are collected (a constant, a default, a decorator) would come too late there: for such, `Bare` is a process that has imported the
libraries and nothing of the project, and its fork imports everything with the changed text.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.machinery
import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST = 300.0  # seconds by the clock of all tests of one change: what waits so long is told apart, for a slow machine is no proof
CPU_LIMIT = "the processor's time"  # what stopped a fork that used all of its seconds of the processor
ALLOWED, ALWAYS = 10.0, 3.0  # times the seconds of the processor that a test took unchanged, and more seconds: a loop that no longer ends
NOTED = 1.5  # processor's seconds for which the lines of a test are noted; one that takes longer counts as `SLOW` seconds
SLOW = 8.0
SEEDS = 30  # of a test with more parameters the first are asked: to note what 2,000 seeds reach takes longer than it is worth
MEMORY = 8 << 30  # bytes more than the process had: a change can ask for any number of rows
LIBRARIES = (
    "numpy",
    "pyarrow.parquet",
    "pyarrow.compute",
    "pyarrow.dataset",
    "duckdb",
    "ibis.backends.duckdb",
    "msgspec",
    "rich",
    "click",
    "hypothesis",
)
# rewritten assertions are read from the file itself; what a test prints is of no use here
PYTEST = (
    "--assert=plain",
    "--capture=sys",
    "-qq",
    "--no-header",
    "--no-summary",
    "-m",
    "not full",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-W",
    "ignore",
)


@dataclass(frozen=True)
class Changed:
    """A module's file, its text, and the changed text."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Asked:
    """A test to run, and the processor's seconds that it took with nothing changed."""

    test: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """Which test failed, if one did; whether the tests ended within the time of the clock; the processor's seconds that they took."""

    failed: str = ""
    ended: bool = True
    seconds: float = 0.0

    @property
    def stopped(self) -> bool:
        """Whether a limit ended the tests, of the clock or of the processor's time, and not a test that failed."""
        return not self.ended or self.failed == CPU_LIMIT


@dataclass(frozen=True)
class Reached:
    """What a test did with nothing changed: whether it passed, the processor's seconds, and the lines of each file that it ran."""

    passed: bool
    seconds: float
    lines: dict[str, list[int]] = field(default_factory=dict)


def forked(work: Callable[[], Any], wall: float = LONGEST) -> tuple[Any, int, float]:
    """Return what `work` returns in a forked process, its exit status (or -1: it did not end), and the processor's seconds it took."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _work_and_exit(work, writing)
    os.close(writing)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    answer, until = b"", time.monotonic() + wall
    try:
        while not answer.endswith(b"\n") and select.select([reading], [], [], max(until - time.monotonic(), 0))[0]:
            block = os.read(reading, 1 << 16)
            answer += block
            if not block:
                break
        over = not answer.endswith(b"\n") and time.monotonic() >= until
        if answer.endswith(b"\n") or not over:
            _, status, used = os.wait4(pid, 0)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # and what a test started and left
    if over:
        _, status, used = os.wait4(pid, 0)
    return json.loads(answer) if answer.endswith(b"\n") else None, -1 if over else status, used.ru_utime + used.ru_stime


def _work_and_exit(work: Callable[[], Any], writing: int) -> None:
    status = 70
    with contextlib.suppress(BaseException):
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
        left = memoryview(json.dumps(work()).encode() + b"\n")
        while left:
            left = left[os.write(writing, left) :]
        status = 0
    os._exit(status)


def outcome(told: Any, status: int, seconds: float) -> Outcome:
    """Return the outcome of tests in a fork that told the test that failed; a fork that broke off was noticed, too."""
    if status == -1:
        return Outcome(ended=False, seconds=seconds)
    if told is None:
        endless = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        return Outcome(CPU_LIMIT if endless else f"the process (status {status})", seconds=seconds)
    return Outcome(str(told), seconds=seconds)


def allow(seconds: float) -> None:
    """Let this process take so many times the seconds from now, and no longer."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime + ALWAYS + ALLOWED * seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


class Bare:
    """A process that has imported the libraries and nothing of the project: each fork of it imports the project with the changed text."""

    def __init__(self, root: Path) -> None:
        for name in LIBRARIES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        self._folder = tempfile.mkdtemp(prefix="ullage-mutants-")
        ours, its = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ours[1])
            os.close(its[0])
            _serve(root, self._folder, ours[0], its[1])
        os.close(ours[0])
        os.close(its[1])
        self._to, self._of = os.fdopen(ours[1], "w"), os.fdopen(its[0])

    def outcome(self, changed: Changed, asked: Sequence[Asked]) -> Outcome:
        """Return the outcome of these tests, in this order, in a fork that imports the changed text."""
        job = {"path": changed.path, "text": changed.after, "asked": [(one.test, one.seconds) for one in asked]}
        self._to.write(json.dumps(job) + "\n")
        self._to.flush()
        return outcome(*json.loads(self._of.readline()))

    def close(self) -> None:
        """End the process."""
        self._to.close()
        os.waitpid(self.pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)


def _serve(root: Path, folder: str, jobs: int, answers: int) -> None:
    with contextlib.suppress(BaseException), os.fdopen(jobs) as lines, os.fdopen(answers, "w") as replies:
        for line in lines:
            job = json.loads(line)
            asked = [Asked(*one) for one in job["asked"]]
            replies.write(json.dumps(forked(functools.partial(imported_anew, root, folder, job["path"], job["text"], asked))) + "\n")
            replies.flush()
    os._exit(0)


def imported_anew(root: Path, folder: str, path: str, text: str, asked: Sequence[Asked]) -> str:
    """Import the project with the text in place of the file's, run the tests in their order, and return which failed first, or ""."""
    import pytest

    loader = importlib.machinery.SourceFileLoader
    read, dated = loader.get_data, loader.path_stats

    def changed(self: importlib.machinery.SourceFileLoader, file: str) -> bytes:
        return text.encode() if file == path else read(self, file)

    def undated(self: importlib.machinery.SourceFileLoader, file: str) -> Mapping[str, Any]:
        if file == path:
            raise OSError("what was compiled before is not asked")
        return dated(self, file)

    loader.get_data, loader.path_stats = changed, undated  # type: ignore[method-assign, assignment]
    allow(60.0)
    order = {one.test: one for one in asked}
    failed: list[str] = []

    class InOrder:
        def pytest_runtestloop(self, session: Any) -> bool:
            items = {item.nodeid: item for item in session.items}
            missing = [test for test in order if test not in items]
            failed.extend(missing[:1] or _first_failure(session, [items[test] for test in order], order))
            return True

    status = pytest.main([*PYTEST, f"--rootdir={root}", f"--basetemp={folder}/tests", *order], plugins=[InOrder(), Unshrunk()])
    return failed[0] if failed else "" if status in (0, 1) else f"the collection (status {int(status)})"


def _first_failure(session: Any, items: Sequence[Any], asked: Mapping[str, Asked]) -> list[str]:
    """Run the items, each no longer than it may, until one fails; return its name."""
    failures: list[str] = []

    class Listener:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failures.append(report.nodeid)

    session.config.pluginmanager.register(Listener())
    for place, item in enumerate(items):
        allow(asked[item.nodeid].seconds)
        following = items[place + 1] if place + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures:
            break
    return failures[:1]


class Unshrunk:
    """A plugin: Hypothesis draws the same examples each time, keeps none and does not look for the smallest that fails."""

    def pytest_configure(self) -> None:
        """Load the settings after those of conftest.py."""
        with contextlib.suppress(ImportError):
            from hypothesis import Phase, settings

            settings.register_profile("changed", deadline=None, database=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
            settings.load_profile("changed")


class Collected:
    """Tests that pytest collected in this process, the lines that ran meanwhile, and the functions of the traced files."""

    def __init__(self, session: Any, collecting: Mapping[str, set[int]], traced: Iterable[str]) -> None:
        self.session, self.collecting, self.traced, self.worker = session, collecting, frozenset(traced), 0
        drawn = Counter[str]()
        self.items = {}
        for item in session.items:
            drawn[item.nodeid.partition("[")[0]] += 1
            if drawn[item.nodeid.partition("[")[0]] <= SEEDS:
                self.items[item.nodeid] = item
        self._functions: dict[str, list[types.FunctionType]] = {path: [] for path in self.traced}
        gc.unfreeze()  # what tests/conftest.py has frozen is in no list of objects, and every function is among it
        for one in gc.get_objects():
            if type(one) is types.FunctionType and one.__code__.co_filename in self.traced:
                self._functions[one.__code__.co_filename].append(one)
        gc.collect()
        gc.freeze()  # forks share what they do not touch

    def reached(self, test: str) -> Reached:
        """Run a test with nothing changed, in a fork; return what it did."""
        told, status, seconds = forked(functools.partial(self._traced, self.items[test]))
        if status or told is None:
            return Reached(False, seconds)
        return Reached(told["passed"], SLOW if told["slow"] else seconds, told["lines"])

    def _traced(self, item: Any) -> dict[str, Any]:
        self._own_folder()
        failed, slow = [], False
        signal.signal(signal.SIGPROF, signal.default_int_handler)
        with tracing(self.traced) as lines:
            signal.setitimer(signal.ITIMER_PROF, NOTED)
            try:
                failed = _first_failure(self.session, [item], {item.nodeid: Asked(item.nodeid, LONGEST)})
            except KeyboardInterrupt:
                slow = True
            signal.setitimer(signal.ITIMER_PROF, 0)
        return {"passed": not failed, "slow": slow, "lines": {path: sorted(numbers) for path, numbers in lines.items() if numbers}}

    def outcome(self, changed: Changed, asked: Sequence[Asked]) -> Outcome | None:
        """Return the outcome of these tests, in this order, in a fork with changed functions; None where functions are not all of it."""
        codes = changed_codes(changed)
        if codes is None:
            return None
        return outcome(*forked(functools.partial(self._swapped, changed.path, codes, asked)))

    def _swapped(self, path: str, codes: Mapping[Any, types.CodeType], asked: Sequence[Asked]) -> str:
        self._own_folder()
        for function in self._functions[path]:
            function.__code__ = codes.get(_place(function.__code__), function.__code__)
        failed = _first_failure(self.session, [self.items[one.test] for one in asked], {one.test: one for one in asked})
        return failed[0] if failed else ""

    def _own_folder(self) -> None:
        factory = self.session.config._tmp_path_factory
        factory._given_basetemp, factory._basetemp = factory._given_basetemp.with_name(f"worker{self.worker}"), None


def changed_codes(changed: Changed) -> dict[Any, types.CodeType] | None:
    """Return the changed code of each function that differs, by its place; None where a changed function cannot be told by its place."""
    before, after = (compile(text, changed.path, "exec", dont_inherit=True) for text in (changed.before, changed.after))
    pairs = list(_pairs(before, after))
    if any(old is None or new is None or _place(old) != _place(new) or old.co_freevars != new.co_freevars for old, new in pairs):
        return None
    # a comprehension is a part of the function around it
    pairs = [(old, new) for old, new in pairs if old.co_name not in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")]
    places = [_place(old) for old, _ in pairs]
    different = {_place(old): new for old, new in pairs if old != new}
    return different if all(places.count(place) == 1 for place in different) else None


def _pairs(before: types.CodeType | None, after: types.CodeType | None) -> Iterable[tuple[types.CodeType | None, types.CodeType | None]]:
    yield before, after
    if before is None or after is None:
        return
    inner = [[one for one in code.co_consts if isinstance(one, types.CodeType)] for code in (before, after)]
    for number in range(max(map(len, inner))):
        old, new = (codes[number] if number < len(codes) else None for codes in inner)
        yield from _pairs(old, new)


def _place(code: types.CodeType) -> tuple[str, int, int | None]:
    """Return what tells the codes of a file apart: name, first line and, for lambdas of one line, where their last word begins."""
    columns = [start for _, _, start, _ in code.co_positions() if start is not None]
    return code.co_qualname, code.co_firstlineno, max(columns) if code.co_name == "<lambda>" and columns else None


@contextlib.contextmanager
def tracing(files: frozenset[str]) -> Any:
    """Give the lines of each of the files that run meanwhile, in every thread; they are there in the end."""
    import coverage

    lines: dict[str, set[int]] = {path: set() for path in files}
    noted = coverage.Coverage(data_file=None, config_file=False, include=sorted(files), messages=False)
    noted.start()
    try:
        yield lines
    finally:
        noted.stop()
        data = noted.get_data()
        for path in files:
            lines[path] |= set(data.lines(path) or ())


def with_collected(root: Path, files: Sequence[str], traced: Iterable[str], work: Callable[[Collected], None]) -> int:
    """Collect the tests of these files and give them to `work`; return pytest's exit status."""
    import pytest

    watched, collecting = frozenset(traced), contextlib.ExitStack()

    class Worker:
        def pytest_runtestloop(self, session: Any) -> bool:
            collecting.close()
            work(Collected(session, lines, watched))
            return True

    with tempfile.TemporaryDirectory(prefix="ullage-mutants-", ignore_cleanup_errors=True) as folder, collecting:
        lines = collecting.enter_context(tracing(watched))
        return int(pytest.main([*PYTEST, f"--rootdir={root}", f"--basetemp={folder}/tests", *files], plugins=[Worker(), Unshrunk()]))
