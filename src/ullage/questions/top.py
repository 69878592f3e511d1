"""How full is each GPU of this machine, or of any place, now?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ullage.asking import asked, read_prices
from ullage.asking.question import Audience, Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import LONGEST_INTERVAL, SHORTEST_INTERVAL, read_interval
from ullage.errors import UllageError, harmless, public

if TYPE_CHECKING:
    from ullage.live.all_ranks import AllRanks
    from ullage.live.sampling.course import Course
    from ullage.live.sampling.sampler import Sampler
    from ullage.problems import Problems
    from ullage.render.rank_trees import WatchedRun
    from ullage.render.top import WatchedMachine


@dataclass(frozen=True, kw_only=True)
class TopQuestion:
    """Show how full each GPU is: OFU now and since the start, beside what "GPU utilization" says."""

    every: float = asked(
        "Time between two readings, at least 0.1s.",
        2.0,
        metavar="SPAN",
        read=read_interval,
        least=SHORTEST_INTERVAL,
        most=LONGEST_INTERVAL,
        shown="2s",
    )
    once: bool = asked("Print once, as text; so it does where no terminal is.", False)
    source: str | None = asked("Where to read, in place of this machine: what `ullage fleet` reads.", metavar="PLACE")
    run: str | None = asked(
        "In place of GPUs the ranks of a run that records into DIR: host and device trees, load balance, who is late.", metavar="DIR"
    )
    sort: Literal["gpu", "ofu", "mean", "util", "power", "temperature", "memory"] = asked(
        "By number, the emptiest first (ofu, mean), or the highest first.", "gpu"
    )
    prices: dict[str, float] = asked(
        "Money per GPU-hour: 2.50.",
        {},
        flag="--price",
        metavar="[GPU=]AMOUNT",
        read=read_prices,
        env="ULLAGE_PRICE",
        repeated=True,
    )
    gpus: tuple[str, ...] = asked(
        "Only this GPU of this machine: its number or UUID. Repeatable.", (), flag="--gpu", metavar="I", repeated=True
    )

    def __post_init__(self) -> None:
        """Refuse what can't be looked at together."""
        if self.run is not None and (self.source or self.gpus or self.sort != "gpu"):
            raise UllageError("--run shows the ranks of a run, not GPUs", "leave out --source, --gpu and --sort")
        if self.gpus and self.source:
            raise UllageError("--gpu chooses among this machine's GPUs, and --source names another place", "give one of the two")


def answer(question: TopQuestion, progress: Progress, command: str = "") -> WatchedMachine | WatchedRun:  # noqa: ARG001 - a question's
    """Return the GPUs, or the ranks of a run, as one look shows them. Raises UllageError where there is nothing to see."""
    if question.run is not None:
        ranks = _ranks(question.run)
        return _with_ranks(watched_run(ranks), ranks)
    looks = _Looks(question, min(question.every, 1.0) if question.source is None else question.every)
    with ExitStack() as stack:
        looks.course.add(next(looks.readings(stack), []))
    return looks.last(complete=looks.problems.complete)


def goes_on(question: TopQuestion, audience: Audience) -> bool:
    """Return whether what is asked can be shown again and again."""
    from ullage.live.sampling.places import lives

    if question.once or audience.as_json or not audience.at_terminal:
        return False
    return question.source is None or lives(question.source)


def follow(question: TopQuestion, audience: Audience) -> WatchedMachine | WatchedRun:
    """Show every look in place of the one before, until somebody ends it, or the run is over; return the last."""
    if question.run is not None:
        ranks = _ranks(question.run)
        return _with_ranks(_followed_ranks(ranks, question.every, audience), ranks)
    looks = _Looks(question, question.every)
    with ExitStack() as stack:
        readings = looks.readings(stack, audience)
        with audience.screens("asking the GPUs …") as show:
            for batches in readings:
                looks.course.add(batches)
                show(looks.machine())
    return looks.last()


class _Looks:
    """Readings of this machine or of a place, one after another, and what they come to."""

    def __init__(self, question: TopQuestion, interval: float) -> None:
        from ullage.live.sampling.course import Course
        from ullage.problems import Problems

        self.question, self.place = question, ""
        self.course: Course = Course(interval)
        self.problems: Problems = Problems()

    def readings(self, stack: ExitStack, audience: Audience | None = None) -> Iterator[list[Any]]:
        """Return the readings; with an audience, until somebody ends them."""
        return self._local(stack, audience) if self.question.source is None else self._elsewhere(stack, audience)

    def _local(self, stack: ExitStack, audience: Audience | None) -> Iterator[list[Any]]:
        import socket

        from ullage.live.sampling.sampler import Sampler

        wanted = tuple(part for text in self.question.gpus for part in text.split(","))
        sampler: Sampler = Sampler(self.course.interval, self.problems, gpus=wanted)
        if audience is not None:
            stack.enter_context(audience.ended_by(sampler.stop))
        stack.enter_context(sampler)
        self.course.limits = sampler.limits
        self.place = f"{socket.gethostname()} by {' and '.join(sampler.kinds)}"
        return sampler.readings()

    def _elsewhere(self, stack: ExitStack, audience: Audience | None) -> Iterator[list[Any]]:
        from ullage.live.sampling.places import interval, polled

        stop, place = threading.Event(), self.question.source or ""
        if audience is not None:
            stack.enter_context(audience.ended_by(stop.set))
        self.place = public(place)
        course, every = self.course, self.course.interval
        for tables in polled(place, every, self.problems, stop):
            if tables and not len(course):
                course.interval = max(every, interval(tables[0], every))
                course.longest = max(course.longest, 2000 * course.interval)
            yield tables

    def machine(self, complete: bool = True) -> WatchedMachine:
        """Return what they come to."""
        from ullage.render.top import WatchedMachine

        notes = tuple(self.problems.lines())
        return WatchedMachine(self.course, self.place, self.question.sort, self.question.prices, notes, complete)

    def last(self, complete: bool = True) -> WatchedMachine:
        """Return what they came to. Raises UllageError where that is nothing."""
        machine = self.machine(complete)
        if not len(self.course):
            raise UllageError(f"{harmless(self.place)}: no GPU told anything", "; ".join(machine.notes) or "was it stopped at once?")
        return machine


def _ranks(folder: str) -> AllRanks:
    from ullage.live.all_ranks import AllRanks

    ranks = AllRanks(Path(folder))
    ranks.look()
    return ranks


def watched_run(ranks: AllRanks) -> WatchedRun:
    """Return what is known by the last look: of the whole, and of the last seconds."""
    from ullage.render.rank_trees import WatchedRun

    return WatchedRun(str(ranks.folder), ranks.together(), ranks.together(last=ranks.keep))


def _with_ranks(run: WatchedRun, ranks: AllRanks) -> WatchedRun:
    """Return a run that has ranks. Raises UllageError for one in whose folder nothing is recorded."""
    if not run.whole.ranks:
        problem = f"{harmless(str(ranks.folder))}: {'; '.join(run.whole.tree.notes)}"
        raise UllageError(problem, "give the folder of a run: ullage run --keep DIR")
    return run


def _followed_ranks(ranks: AllRanks, every: float, audience: Audience) -> WatchedRun:
    """Show every look in place of the one before, until the run is over or somebody ends it; return the last."""
    stop, run = threading.Event(), watched_run(ranks)
    with audience.ended_by(stop.set), audience.screens("reading the recordings …") as show:
        while True:
            show(run)
            if run.whole.over or stop.wait(every):
                return run
            try:
                ranks.look()
            except UllageError:  # the run is over, and its folder was not to be kept
                return run
            run = watched_run(ranks)


_EXAMPLES = """
  ullage top                                       this machine, until Ctrl-C
  ullage top --sort ofu --price H100=2.50          the emptiest first, and what they cost
  ullage top --once                                once, as text
  ullage top --json | jq .ullage_gpus              once, for programs
  ullage top --source http://node-1:9400/metrics   another machine, by its exporter
  ullage top --source http://prometheus:9090       a fleet
  ullage top --run recordings/                     the ranks of `ullage run --keep recordings/` while they run
"""

QUESTION: RegisteredQuestion[TopQuestion, Any] = register(
    RegisteredQuestion(
        name="top",
        asked=TopQuestion,
        noun="a look at GPUs",
        answer=answer,
        shown_by=lambda question: "ullage.render.top" if question.run is None else "ullage.render.rank_trees",
        examples=_EXAMPLES,
        read_places=lambda question: [place for place in (question.source, question.run) if place is not None],
        goes_on=goes_on,
        follow=follow,
        only_reads=False,
        status_3="with --once or --json, only a part of the place could be read, or not all ranks of the run were seen",
    )
)

top = python_function(QUESTION)
