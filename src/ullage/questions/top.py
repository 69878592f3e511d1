"""How full is each GPU of this machine, or of any place, now?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

from ullage.asking import asked, read_prices
from ullage.asking.question import Audience, Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import LONGEST_INTERVAL, SHORTEST_INTERVAL, asked_headers, read_interval
from ullage.errors import UllageError, harmless, public

if TYPE_CHECKING:
    from ullage.asking.question import Keyboard
    from ullage.live.all_ranks import AllRanks
    from ullage.live.sampling.course import Course
    from ullage.live.sampling.gpu_processes import GpuProcess, ProcessFacts
    from ullage.live.sampling.sampler import Sampler
    from ullage.problems import Problems
    from ullage.render.rank_trees import WatchedRun
    from ullage.render.top import WatchedMachine
    from ullage.render.top_screen import TopScreen

REMEMBERED_DEVICES = 512  # of which more than OFU is remembered, to be drawn


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
    source: tuple[str, ...] = asked(
        "Where to read, in place of this machine: a running `ullage serve`, or what `ullage fleet` reads. Repeatable: several hosts.",
        (),
        metavar="PLACE",
        repeated=True,
    )
    headers: dict[str, str] = asked_headers(minor=False)
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
        if self.headers and not self.source:
            raise UllageError("--header is for a server, and this machine is read without one", "name the server: --source URL")
        if self.gpus and self.source:
            raise UllageError("--gpu chooses among this machine's GPUs, and --source names another place", "give one of the two")


def answer(question: TopQuestion, progress: Progress, command: str = "") -> WatchedMachine | WatchedRun:  # noqa: ARG001 - a question's
    """Return the GPUs, or the ranks of a run, as one look shows them. Raises UllageError where there is nothing to see."""
    if question.run is not None:
        ranks = _ranks(question.run)
        return _with_ranks(watched_run(ranks), ranks)
    looks = _Looks(question, min(question.every, 1.0) if not question.source else question.every)
    with ExitStack() as stack:
        for feed in looks.feeds(stack):
            looks.take(next(feed, []))
    return looks.last(complete=looks.problems.complete)


def goes_on(question: TopQuestion, audience: Audience) -> bool:
    """Return whether what is asked can be shown again and again."""
    from ullage.live.sampling.places import lives

    if question.once or audience.as_json or not audience.at_terminal:
        return False
    return not question.source or any(lives(place) for place in question.source)


def follow(question: TopQuestion, audience: Audience) -> WatchedMachine | WatchedRun:
    """Show every look in place of the one before, until somebody ends it, or the run is over; return the last."""
    if question.run is not None:
        ranks = _ranks(question.run)
        return _with_ranks(_followed_ranks(ranks, question.every, audience), ranks)
    with ExitStack() as stack:
        keyboard = stack.enter_context(audience.keyboard())
        return _Looks(question, question.every).followed(stack, audience, keyboard)


class _Looks:
    """Readings of this machine or of places, one after another, and what they come to."""

    def __init__(self, question: TopQuestion, interval: float) -> None:
        from ullage.live.sampling.course import Course
        from ullage.live.sampling.gpu_processes import ProcessFacts
        from ullage.problems import Problems

        self.question, self.place = question, ""
        self.course: Course = Course(interval)
        self.course.histories = REMEMBERED_DEVICES
        self.problems: Problems = Problems()
        self.processes: list[GpuProcess] = []
        self.screen: TopScreen | None = None
        self._facts: ProcessFacts = ProcessFacts()
        self._sampler: Sampler | None = None
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the readings; fit for a signal handler and for another thread."""
        self._stop.set()
        if self._sampler is not None:
            self._sampler.stop()

    def feeds(self, stack: ExitStack) -> list[Iterator[list[Any]]]:
        """Return the readings of each place, until somebody stops them."""
        if not self.question.source:
            return [self._local(stack)]
        self.place = ", ".join(public(place) for place in self.question.source)
        return [self._elsewhere(place) for place in self.question.source]

    def take(self, batches: list[Any]) -> None:
        """Take in a reading, and what stands beside it."""
        from ullage.live.sampling.places import interval

        if self.question.source and batches and not len(self.course):
            every = self.course.interval
            self.course.interval = max(every, interval(batches[0], every))
            self.course.longest = max(self.course.longest, 2000 * self.course.interval)
        self.course.add(batches)
        if self._sampler is not None:
            self._take_processes_and_errors(self._sampler)

    def _take_processes_and_errors(self, sampler: Sampler) -> None:
        """Take in what stands beside the readings of the devices that are shown: processes and errors, as they were told last."""
        shown = {(device.gpu, device.mig): device for device in self.course}
        processes = {key: told for key, told in sampler.device_processes.items() if key in shown or not self.question.gpus}
        self.processes = self._facts.gpu_processes({key: told.value for key, told in processes.items()}, time.monotonic())
        for key, device in shown.items():
            if (told := processes.get(key)) is not None:
                device.answer_times["processes"] = told.time
            if (errors := sampler.health.get(key)) is not None:
                device.answer_times["errors"] = errors.time
                device.row.update(errors.value)

    def followed(self, stack: ExitStack, audience: Audience, keyboard: Keyboard) -> WatchedMachine:
        """Show every look in place of the one before, as the keys say, until somebody ends it or nothing more comes; return the last."""
        from ullage.render.top import rows_to_choose_from
        from ullage.render.top_screen import TopScreen, pressed

        inbox: SimpleQueue[list[Any] | BaseException | None] = SimpleQueue()

        def end() -> None:
            self.stop()
            keyboard.wake()

        stack.enter_context(audience.ended_by(end))
        feeds = self.feeds(stack)
        stack.callback(self.stop)
        for feed in feeds:
            threading.Thread(target=_read_all, args=(feed, inbox, keyboard), daemon=True).start()
        going, self.screen = len(feeds), TopScreen(sort=self.question.sort)
        with audience.screens("asking the GPUs …") as show:
            while going and not self._stop.is_set():
                key = keyboard.wait()
                chosen = pressed(self.screen, key, rows_to_choose_from(self.machine())) if key else self.screen
                if chosen is None:
                    break
                self.screen, fresh = chosen, False
                while not inbox.empty():
                    said = inbox.get()
                    if isinstance(said, BaseException):
                        raise said
                    going -= said is None
                    fresh = True
                    self.take(said or [])
                if len(self.course) and (key or not fresh or not self.screen.held):
                    show(self.machine())
        self.screen = None
        return self.last()

    def _local(self, stack: ExitStack) -> Iterator[list[Any]]:
        import socket

        from ullage.live.sampling.sampler import Sampler

        wanted = tuple(part for text in self.question.gpus for part in text.split(","))
        sampler: Sampler = Sampler(self.course.interval, self.problems, gpus=wanted, with_processes=True)
        self._sampler = sampler
        stack.enter_context(sampler)
        self.course.limits = sampler.limits
        self.place = f"{socket.gethostname()} by {' and '.join(sampler.kinds)}"
        return sampler.readings()

    def _elsewhere(self, place: str) -> Iterator[list[Any]]:
        """Yield the readings of a place; beside others one that can't be read is counted, and asked again."""
        from ullage.live.sampling.places import lives, polled
        from ullage.sources.running_service import reader_of, running_service
        from ullage.sources.source import Options, read_samples

        alone, headers = len(self.question.source) == 1, self.question.headers
        options = Options(headers=headers) if alone else Options(headers=headers, retries=0)  # it is asked again anyway
        while True:
            try:
                read = read_samples if (service := running_service(place, options)) is None else reader_of(service)
                yield from polled(place, self.course.interval, self.problems, self._stop, options, read=read)
                return
            except UllageError as error:
                if alone:
                    raise
                self.problems.drop("readings that failed", where=f"{public(place)}: {error.problem}")
                self.problems.cut(f"{public(place)} can't be read")
                yield []
                if not lives(place) or self._stop.wait(self.course.interval):
                    return

    def machine(self, complete: bool = True) -> WatchedMachine:
        """Return what they come to."""
        from ullage.render.top import WatchedMachine

        notes = tuple(self.problems.lines())
        return WatchedMachine(
            self.course, self.place, self.question.sort, self.question.prices, notes, complete, tuple(self.processes), self.screen
        )

    def last(self, complete: bool = True) -> WatchedMachine:
        """Return what they came to. Raises UllageError where that is nothing."""
        machine = self.machine(complete)
        if not len(self.course):
            raise UllageError(f"{harmless(self.place)}: no GPU told anything", "; ".join(machine.notes) or "was it stopped at once?")
        return machine


def _read_all(feed: Iterator[list[Any]], inbox: SimpleQueue[list[Any] | BaseException | None], keyboard: Keyboard) -> None:
    """Hand on each reading of a feed, then None; what it raises is handed on, too."""
    try:
        for batches in feed:
            inbox.put(batches)
            keyboard.wake()
        inbox.put(None)
    except Exception as error:  # it is raised where the answer is made
        inbox.put(error)
    keyboard.wake()


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
    with ExitStack() as stack:
        keyboard = stack.enter_context(audience.keyboard())

        def end() -> None:
            stop.set()
            keyboard.wake()

        def look_again() -> None:
            while not stop.wait(every):
                keyboard.wake()

        stack.enter_context(audience.ended_by(end))
        stack.callback(stop.set)
        show = stack.enter_context(audience.screens("reading the recordings …"))
        threading.Thread(target=look_again, daemon=True).start()
        while True:
            show(run)
            if run.whole.over or keyboard.wait() in ("q", "Q", "escape") or stop.is_set():
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
  ullage top --source http://n1:9400/metrics --source http://n2:9400/metrics    several hosts
  ullage top --source http://prometheus:9090       a fleet
  ullage top --source http://ullage:9748           a fleet, as a running `ullage serve` sees it
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
        read_places=lambda question: [*question.source, *([] if question.run is None else [question.run])],
        goes_on=goes_on,
        follow=follow,
        only_reads=False,
        status_3="with --once or --json, only a part of the place could be read, or not all ranks of the run were seen",
    )
)

top = python_function(QUESTION)
