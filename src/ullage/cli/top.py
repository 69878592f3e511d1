"""`ullage top`: the GPUs of this machine, or of any place, as they are now."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ullage.cli._exit_status import end
from ullage.cli.options import painter
from ullage.cli.sample import every_seconds
from ullage.errors import UllageError, harmless, public
from ullage.views.table import Paint, plain
from ullage.written_values import prices

if TYPE_CHECKING:
    from ullage.live.sampling.course import Course
    from ullage.problems import Problems
    from ullage.render.top import WatchedMachine


@click.command(
    "top",
    epilog="""\b
Examples:
  ullage top                                       this machine, until Ctrl-C
  ullage top --sort ofu --price H100=2.50          the emptiest first, and what they cost
  ullage top --once                                once, as text
  ullage top --json | jq .ullage_gpus              once, for programs
  ullage top --source http://node-1:9400/metrics   another machine, by its exporter
  ullage top --source http://prometheus:9090       a fleet
  ullage top --run recordings/                     the ranks of `ullage run --keep recordings/` while they run""",
)
@click.option("--every", default="2s", show_default=True, metavar="SPAN", help="Time between two readings, at least 0.1s.")
@click.option("--once", is_flag=True, help="Print once, as text; so it does where no terminal is.")
@click.option("--json", "as_json", is_flag=True, help="Print once, as JSON.")
@click.option("--source", "place", metavar="PLACE", help="Where to read, in place of this machine: what `ullage fleet` reads.")
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="In place of GPUs the ranks of a run that records into DIR: host and device trees, load balance, who is late.",
)
@click.option(
    "--sort",
    type=click.Choice(["gpu", "ofu", "mean", "util", "power", "temperature", "memory"]),
    default="gpu",
    show_default=True,
    help="By number, the emptiest first (ofu, mean), or the highest first.",
)
@click.option("--price", "price_texts", multiple=True, envvar="ULLAGE_PRICE", metavar="[GPU=]AMOUNT", help="Money per GPU-hour: 2.50.")
@click.option("--gpu", "gpus", multiple=True, metavar="I", help="Only this GPU of this machine: its number or UUID. Repeatable.")
def command(
    every: str,
    once: bool,
    as_json: bool,
    place: str | None,
    gpus: tuple[str, ...],
    price_texts: tuple[str, ...],
    sort: str,
    folder: Path | None,
) -> None:
    """Show how full each GPU is: OFU now and since the start, beside what "GPU utilization" says."""
    if folder is not None:
        if place or gpus or sort != "gpu":
            raise UllageError("--run shows the ranks of a run, not GPUs", "leave out --source, --gpu and --sort")
        from ullage.cli._top_run import show

        show(folder, every_seconds(every), once=once, as_json=as_json)
    else:
        _gpus(every, once, as_json, place, gpus, price_texts, sort)


def _gpus(every: str, once: bool, as_json: bool, place: str | None, gpus: tuple[str, ...], price_texts: tuple[str, ...], sort: str) -> None:
    from ullage.live.sampling.course import Course
    from ullage.live.sampling.places import lives
    from ullage.problems import Problems

    interval, problems = every_seconds(every), Problems()
    if gpus and place:
        raise UllageError("--gpu chooses among this machine's GPUs, and --source names another place", "give one of the two")
    once = once or as_json or not sys.stdout.isatty() or (place is not None and not lives(place))
    course = Course(min(interval, 1.0) if once and place is None else interval)
    looked = _Looked(course, problems, sort, prices(price_texts))
    with ExitStack() as stack:
        readings = _local(stack, looked, gpus) if place is None else _elsewhere(stack, looked, place)
        if once:
            course.add(next(readings, []))
        else:
            _watch(readings, looked)
    _print(looked.machine(), as_json)
    end(partial=once and not problems.complete)


class _Looked:
    """What is looked at, and how it is to be shown."""

    def __init__(self, course: Course, problems: Problems, sort: str, costs: dict[str, float]) -> None:
        self.course, self.problems, self.sort, self.costs = course, problems, sort, costs
        self.place = ""

    def machine(self) -> WatchedMachine:
        from ullage.render.top import WatchedMachine

        return WatchedMachine(self.course, self.place, self.sort, self.costs, tuple(self.problems.lines()))


def _local(stack: ExitStack, looked: _Looked, gpus: tuple[str, ...]) -> Iterator[list[Any]]:
    import socket

    from ullage.cli._ending import ended_by
    from ullage.live.sampling.sampler import Sampler

    wanted = tuple(part for text in gpus for part in text.split(","))
    sampler = Sampler(looked.course.interval, looked.problems, gpus=wanted)
    stack.enter_context(ended_by(sampler.stop))
    stack.enter_context(sampler)
    looked.course.limits = sampler.limits
    looked.place = f"{socket.gethostname()} by {' and '.join(sampler.kinds)}"
    return sampler.readings()


def _elsewhere(stack: ExitStack, looked: _Looked, place: str) -> Iterator[list[Any]]:
    from ullage.cli._ending import ended_by
    from ullage.live.sampling.places import interval, polled

    stop = threading.Event()
    stack.enter_context(ended_by(stop.set))
    looked.place = public(place)
    course, every = looked.course, looked.course.interval
    for tables in polled(place, every, looked.problems, stop):
        if tables and not len(course):
            course.interval = max(every, interval(tables[0], every))
            course.longest = max(course.longest, 2000 * course.interval)
        yield tables


def _watch(readings: Iterator[list[Any]], looked: _Looked) -> None:
    """Show every reading in place of the one before, until the end."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as shown:
        shown.update("asking the GPUs …", refresh=True)
        for batches in readings:
            looked.course.add(batches)
            shown.update(Text.from_ansi(screen(looked.machine(), console.width, painter())), refresh=True)


def screen(machine: WatchedMachine, width: int, paint: Paint = plain) -> str:
    """Return the machine as a terminal of this width shows it, in colour by a painter."""
    from ullage.render.top import view
    from ullage.views.text import text

    return text(view(machine, width), width=width, fill=True, paint=paint)


def _print(machine: WatchedMachine, as_json: bool) -> None:
    from ullage.render.top import UNSEEN, record
    from ullage.views.document import document_text

    if not len(machine.course):
        raise UllageError(f"{harmless(machine.place)}: no GPU told anything", "; ".join(machine.notes) or "was it stopped at once?")
    if as_json:
        click.echo(document_text("top", record(machine)))
    else:
        width = shutil.get_terminal_size((UNSEEN, 24)).columns if sys.stdout.isatty() else UNSEEN
        click.echo(screen(machine, width), nl=False)
