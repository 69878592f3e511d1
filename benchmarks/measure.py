"""What every benchmark shares: figures beside a peer's, medians, and questions asked in processes of their own."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"  # what is made once and kept; not in git
LONG = 5.0  # seconds: what takes longer is asked three times, everything else five times


@dataclass(frozen=True)
class Figure:
    """One measured number, beside what peers need for the same, and beside what we promised.

    What is counted per second or in "times" is better when larger, everything else when smaller.
    """

    what: str
    ours: float
    unit: str
    beside: Mapping[str, float] = field(default_factory=dict)
    target: float | None = None

    @property
    def ratios(self) -> dict[str, float]:
        """How many times better than each peer."""
        return {peer: self.ours / theirs if self._more_is_better else theirs / self.ours for peer, theirs in self.beside.items()}

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None where nothing was promised."""
        if self.target is None:
            return None
        return self.ours >= self.target if self._more_is_better else self.ours <= self.target

    @property
    def _more_is_better(self) -> bool:
        return self.unit.endswith("/s") or self.unit == "times"

    def line(self) -> str:
        """Return one line for a person: ours, each peer's with the ratio, the target."""
        words = [f"{self.what}: {amount(self.ours)} {self.unit}"]
        if self.beside:
            words.append(", ".join(f"{peer} {amount(self.beside[peer])} ({amount(ratio)} times)" for peer, ratio in self.ratios.items()))
        if self.target is not None:
            words.append(f"target {amount(self.target)} {'met' if self.met else 'MISSED'}")
        return "; ".join(words)


class Figures:
    """The figures of one benchmark: printed as they come, kept in a file when asked for."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._found = file, list[Figure]()

    def add(self, *figures: Figure) -> None:
        """Print and keep some figures."""
        for figure in figures:
            print(figure.line(), flush=True)
            self._found.append(figure)
        if self._file is not None:
            self._file.write_text(json.dumps([asdict(f) | {"ratios": f.ratios, "met": f.met} for f in self._found], indent=1))


def parser(text: str | None) -> argparse.ArgumentParser:
    """Return the options that every benchmark has: --quick and --json."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="small, to see that it runs; its numbers mean little")
    made.add_argument("--json", type=Path, metavar="FILE", help="keep the numbers")
    return made


def amount(value: float) -> str:
    """Return a number with three digits that count.

    >>> amount(1234567), amount(12.34), amount(0.04567)
    ('1,230,000', '12.3', '0.0457')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


@dataclass(frozen=True)
class Run:
    """One question asked in a process of its own: its answer, seconds for the question, for the process, peak bytes."""

    answer: Any
    seconds: float
    process: float
    peak: float


def fresh(script: str, *words: str, quick: bool = False) -> Run:
    """Ask `script words…` repeatedly, each time in a new process; return the median of each number and the last answer.

    The script prints one line of JSON: {"answer": …, "seconds": …}.
    """
    runs = [_once(script, *words)]
    wanted = 1 if quick else 3 if runs[0].process > LONG else 5
    runs += [_once(script, *words) for _ in range(wanted - 1)]
    middle = {name: statistics.median(getattr(run, name) for run in runs) for name in ("seconds", "process", "peak")}
    return Run(runs[-1].answer, **middle)


def _once(script: str, *words: str) -> Run:
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, script, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)  # unlike RUSAGE_CHILDREN this is of this child alone
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join([script, *words])} failed with {process.returncode}")
    told = json.loads(said.splitlines()[-1])
    return Run(told["answer"], told["seconds"], time.perf_counter() - begin, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """Return the median of the seconds that `work` takes in this process."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows in columns, the first to the left and the others to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = [
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))] for row in (head, *rows)
    ]
    return "\n".join("  ".join(line).rstrip() for line in lines)
