"""Scripts of calls and regions with known times, and what follows from them, worked out interval by interval.

A script is lines (moment, thread, deed, argument, name) for `scripted_program.c`; moments are ns. Thread 0 is the process' first one, whose
calls of MPI are the process' communication.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from tests.recorder.recorder_runs import HERE, compiled, library, run

START = 10**9  # of scripts: the recorder measures itself before
TALKS = {"barrier": "MPI_Barrier", "allreduce": "MPI_Allreduce", "test": "MPI_Test"}

Line = tuple[int, int, str, object, str]
Span = tuple[int, int]


def program():
    return compiled(HERE / "scripted_program.c", "scripted_program", ("-rdynamic",))


def ran(folder, script, *, events, step=0, code=0, **environment):
    """Run a script and return its recording."""
    return ended(folder, script, events=events, step=step, code=code, **environment)[0]


def ended(folder, script, *, events, step=0, code=0, **environment):
    """Run a script and return its recording, and what it printed."""
    text = "\n".join(" ".join(map(str, line)) for line in script) + "\n"
    given = {"ULLAGE_EVENTS": str(events), "STEP": str(step)} | environment
    (folder / "script").write_text(text)
    done = run(folder, [program(), folder / "script"], preload=[library()], **given)
    assert (done.code, done.errors) == (code, ""), done.errors
    return next(recording for recording in done.recordings if recording.path), done.output


@dataclass
class Answers:
    """Of a process in ns: `elapsed` and `communication` of it all and of each of its first thread's regions; of each call of its first
    thread how often it was made, and the longest."""

    whole: tuple[int, int] = (0, 0)
    regions: dict[str, tuple[int, int]] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    longest: dict[str, int] = field(default_factory=dict)


def total(spans: list[Span]) -> int:
    """Return how long any of some spans lasts."""
    found, until = 0, -1
    for start, end in sorted(spans):
        found += max(0, end - max(start, until))
        until = max(until, end)
    return found


def common(some: list[Span], others: list[Span]) -> list[Span]:
    """Return where spans overlap: each with each."""
    pairs = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return [(start, end) for start, end in pairs if start < end]


def answers(script, between=0):
    """Return what a script's recording must say. The recorder holds a call's thread `between` ns longer, but not into its next one."""
    end = script[-1][0]
    calls, regions = _calls(script, end), _regions(script, end)
    begin = max((b for a, b, name in calls[0] if name == "MPI_Init"), default=0)
    over = min((a for a, b, name in calls[0] if name == "MPI_Finalize"), default=end)
    seen = [(begin, over)]
    talk = []
    found = Answers()
    for number, (a, b, name) in enumerate(calls[0]):
        later = [start for start, *_ in calls[0][number + 1 :]][:1]
        if name not in ("MPI_Init", "MPI_Finalize"):
            talk.append((a, max(b, min([b + between, *later]))))
            found.count[name] += 1
            found.longest[name] = max(found.longest.get(name, 0), b - a)
    found.whole = over - begin, total(common(talk, seen))
    for name, spans in regions[0].items():
        inside = common(spans, seen)
        found.regions[name] = total(inside), total([piece for one in inside for piece in common(talk, [one])])
    return found


def off(script):
    """Return for how long the first thread was on no processor and in no call, in all of a script and in each of its regions."""
    end = script[-1][0]
    calls = _calls(script, end)[0]
    begin = max((b for a, b, name in calls if name == "MPI_Init"), default=0)
    over = min((a for a, b, name in calls if name == "MPI_Finalize"), default=end)
    spans = [(moment, moment + took) for moment, thread, deed, took, _ in script if deed == "off" and not thread]
    spans = [one for one in common(spans, [(begin, over)]) if not common([one], [(a, b) for a, b, _ in calls])]
    regions = _regions(script, end)[0].items()
    return total(spans), {name: total([piece for one in spans for piece in common(some, [one])]) for name, some in regions}


def _calls(script, last) -> dict[int, list[tuple[int, int, str]]]:
    """Return the outermost calls of each thread."""
    found, waits = {0: []}, {}
    for moment, thread, deed, argument, name in script:
        mine, depth = found.setdefault(thread, []), waits.setdefault(thread, [])
        if deed == "wait":
            depth.append((moment, name))
        elif deed == "done" and depth:
            start, what = depth.pop()
            mine.extend([] if depth else [(start, moment, what)])
        elif deed == "past" and not depth:
            mine.append((moment - argument, moment, name))
        elif deed in (*TALKS, "init", "finalize") and not depth:
            mine.append((moment, moment + argument, TALKS.get(deed, f"MPI_{deed.title()}")))
    for thread, depth in waits.items():
        found[thread].extend([(depth[0][0], last, depth[0][1])] if depth else [])
    return found


def _regions(script, last) -> dict[int, dict[str, list[Span]]]:
    found, begun, pushed = {0: {}}, {}, {}
    for moment, thread, deed, argument, name in script:
        stack = pushed.setdefault(thread, [])
        if deed == "begin":
            begun[argument] = (moment, thread, name)
        elif deed == "end" and argument in begun:
            start, who, what = begun.pop(argument)
            found.setdefault(who, {}).setdefault(what, []).append((start, moment))
        elif deed == "push":
            stack.append((moment, name))
        elif deed == "pop" and stack:
            start, what = stack.pop()
            found.setdefault(thread, {}).setdefault(what, []).append((start, moment))
    for thread, stack in pushed.items():
        for start, name in stack:
            found.setdefault(thread, {}).setdefault(name, []).append((start, last))
    for start, thread, name in begun.values():
        found.setdefault(thread, {}).setdefault(name, []).append((start, last))
    return found


class Writing:
    """A script in the making: its clock, and what is open in each thread."""

    def __init__(self, seed: int, step: int = 0, *, off: bool = False) -> None:
        self.off = off
        self.dice, self.now, self.lines = random.Random(seed), START, []
        self.open, self.pushed, self.waits, self.number, self.step = {}, {}, {}, 0, step

    def add(self, thread, deed, argument=0, name=""):
        self.lines.append((self.now, thread, deed, argument, name))

    def later(self):
        """Let time go by: often less than the recorder takes after a call."""
        self.now += self.dice.choice([0, 1, 3, self.step // 2, self.step, 10, 100, 5000, 200_000])

    def deed(self, thread):
        """Add any deed that can be done now."""
        self.later()
        opened, waits = self.open.setdefault(thread, []), self.waits.get(thread, 0)
        if self.off and self.dice.random() < 0.2:
            self.now += self.step  # the recorder is done with a call before
            took = self.dice.choice([10_000, 54_321, 1_234_567])
            self.add(thread, "off", took)
            self.now += took
            return
        what = self.dice.choice(["begin", "end", "push", "pop", "call", "call", "call", "call", "wait", "done", "past", "sleep", "flush"])
        if self.off and waits and self.dice.random() < 0.5:
            what = "done"
        if what == "begin":
            self.number += 1
            self.add(thread, "begin", self.number, self.named(thread))
            opened.append(self.number)
        elif what == "end" and opened:
            self.add(thread, "end", opened.pop(self.dice.choice([-1, -1, -1, 0])))
        elif what == "push":
            self.pushed[thread] = self.pushed.get(thread, 0) + 1
            self.add(thread, "push", 0, self.named(thread))
        elif what == "pop" and self.pushed.get(thread, 0):
            self.pushed[thread] -= 1
            self.add(thread, "pop")
        elif what == "call":
            took = self.dice.choice([0, 1, 7, 40, 900, 70_000])
            self.add(thread, self.dice.choice(list(TALKS)), took)
            self.now += took
        elif what == "wait":
            self.waits[thread] = waits + 1
            self.add(thread, "wait", 0, self.dice.choice(["MPI_Recv", "MPI_Send"]))
        elif what == "done" and waits:
            self.waits[thread] -= 1
            self.add(thread, "done")
        elif what == "past" and not waits:
            last = max((line[0] + line[3] * (line[2] in (*TALKS, "init")) for line in self.lines if line[1] == thread), default=self.now)
            self.add(thread, "past", self.now - last, "MPI_Waitall")
        elif what == "sleep" and self.dice.random() < 0.1:
            self.add(thread, "sleep", 2000)
        elif what == "flush" and self.dice.random() < 0.3:
            self.add(thread, "flush")

    def named(self, thread):
        """Return a region's name; other threads' have others."""
        return self.dice.choice(["step", "solve", "exchange", "save"]) + (f" {thread}" if thread else "")


def drawn(seed, *, step=0, deeds=300, threads=1, ending="finalize", off=False):
    """Return a script of deeds drawn by chance, which ends with MPI_Finalize, a `kill`, or `leave`: the C library's _exit. With `off` its
    threads are now and then on no processor."""
    writing = Writing(seed, step, off=off)
    writing.add(0, "push", 0, "all")
    writing.pushed[0] = 1
    writing.later()
    writing.add(0, "init", 5000)
    writing.now += 5000
    for _ in range(deeds):
        writing.deed(writing.dice.choice([0] * 3 + list(range(threads))))
    writing.later()
    for _ in range(writing.waits.get(0, 0)):
        writing.add(0, "done")
    if ending == "finalize":
        writing.add(0, "finalize", 7000)
        writing.now += 7007
        writing.add(0, "flush")
    else:
        writing.add(0, "test", 40)
        writing.now += 40
        writing.add(0, ending)
    return writing.lines
