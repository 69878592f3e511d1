"""What does a simulated fleet hold, whose answers are known?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ullage.asking import asked, read_moment
from ullage.asking.question import Audience, Progress, RegisteredQuestion, python_function, register
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.render.simulated import SimulatedFleetFiles
    from ullage.simulate.fleet import Simulation
    from ullage.simulate.serve import Server
    from ullage.simulate.specification import Specification


def read_model_shares(texts: tuple[str, ...], flag: str, now: float) -> tuple[tuple[str, float], ...]:  # noqa: ARG001 - a TextReader
    """Read models of GPUs with their share of the hosts.

    >>> read_model_shares(("H100=0.75", "A100"), "--model", 0)
    (('H100', 0.75), ('A100', 1.0))
    """
    return tuple(_model_share(text) for text in texts)


def _model_share(text: str) -> tuple[str, float]:
    name, _, share = text.rpartition("=")
    if not name:
        return text, 1.0
    try:
        return name, float(share)
    except ValueError:
        raise UllageError(f"'{text}' is not a model with a share", "write --model 'NVIDIA H100 80GB HBM3=0.75'") from None


@dataclass(frozen=True, kw_only=True)
class SimulateQuestion:
    """A fleet with known answers: samples, job records, answer key."""

    gpus: int = asked("How many GPUs.", 64)
    hours: float = asked("How many hours.", 24.0)
    seed: int = asked("The same seed gives the same fleet, to the byte.", 0, shown="0")
    form: Literal["parquet", "exposition", "csv", "dmon", "prometheus", "acme"] = asked("Form of the samples.", "parquet", flag="--format")
    out: str = asked("Where to write.", "simulated", metavar="FOLDER", acts=True)
    force: bool = asked("Replace what an earlier run wrote there.", False, acts=True)
    models: tuple[tuple[str, float], ...] = asked(
        "GPU model and its share of the hosts. Repeatable.",
        (),
        flag="--model",
        metavar="NAME[=SHARE]",
        suggested="ullage.gpus.chip:all_names",
        read=read_model_shares,
        repeated=True,
        shown="H100 0.75, A100 0.25",
    )
    fault: tuple[str, ...] = asked("Plant this. Repeatable.", (), metavar="NAME", repeated=True, suggested="ullage.simulate.faults:FAULTS")
    faults: Literal["all", "none"] | None = asked("Plant everything, or nothing.", shown="all, unless --fault names some")
    change: tuple[str, ...] = asked(
        "Change this within the window. Repeatable.", (), metavar="NAME", repeated=True, suggested="ullage.simulate.changes:CHANGES"
    )
    changes: Literal["all", "none"] | None = asked("Change everything, or nothing.", shown="only what --change names")
    port: int | None = asked(
        "Serve expositions instead of writing files; 0 takes a free port.",
        flag="--serve",
        metavar="PORT",
        least=0,
        most=65535,
        acts=True,
    )
    outcomes: bool = asked("Job records say how runs ended and how long they waited, for goodput.", False)
    interval: float = asked("Seconds between two scrapes.", 30.0, minor=True)
    start: int | None = asked("Start of the window.", read=read_moment, shown="2026-08-10; with --serve, now", minor=True)
    counters: bool = asked("Add cumulative cycle counters (DCGM 4.6).", False, minor=True)
    summed: bool = asked("Sum the counters over the SMs instead of counting per SM.", False, minor=True)
    new_names: bool = asked("Use the metric names and units of DCGM 4.6.", False, minor=True)
    compress: bool = asked("Compress text.", False, flag="--gzip", minor=True)
    address: str = asked("Where to serve.", "127.0.0.1", minor=True, acts=True)
    speed: float = asked("How much faster than real time to serve.", 1.0, above=0, minor=True)

    def specification(self) -> Specification:
        """Return the fleet that is asked for. Raises UllageError for names that contradict one another."""
        from ullage.simulate.specification import Specification

        start = self.start
        if start is None and self.port is not None:
            start = round(time.time() * 1000)
        more: dict[str, Any] = {"start": start} if start is not None else {}
        if self.models:
            more["models"] = self.models
        return Specification(
            gpus=self.gpus,
            hours=self.hours,
            interval=self.interval,
            seed=self.seed,
            counters=self.counters,
            summed=self.summed,
            faults=self._faults(),
            changes=self._changes(),
            outcomes=self.outcomes,
            **more,
        )

    def _faults(self) -> tuple[str, ...]:
        if self.fault and self.faults == "none":
            raise UllageError("--fault names something to plant and --faults none forbids it", "leave one of them out")
        return self.fault if self.fault and self.faults is None else (self.faults or "all",)

    def _changes(self) -> tuple[str, ...]:
        if self.change and self.changes == "none":
            raise UllageError("--change names something to change and --changes none forbids it", "leave one of them out")
        return ("all",) if self.changes == "all" else self.change


def answer(question: SimulateQuestion, progress: Progress, command: str = "") -> SimulatedFleetFiles:  # noqa: ARG001 - a question's
    """Write the fleet, and return what was written. Raises UllageError where it can't be, or can't be simulated."""
    from ullage.render.simulated import SimulatedFleetFiles
    from ullage.simulate.fleet import fleet
    from ullage.simulate.write import write

    simulation = fleet(question.specification())
    flags = {"force": question.force, "new_names": question.new_names, "compress": question.compress}
    written = write(simulation, Path(question.out), question.form, progress=progress, **flags)
    return SimulatedFleetFiles(written, question.form, simulation.answers, _notes(simulation))


def _notes(simulation: Simulation) -> tuple[str, ...]:
    if not simulation.skipped:
        return ()
    return (f"no place in this fleet for {', '.join(simulation.skipped)}; more GPUs or hours make room",)


def follow(question: SimulateQuestion, audience: Audience) -> None:
    """Serve the fleet behind HTTP until Ctrl-C."""
    from ullage.simulate.fleet import fleet
    from ullage.simulate.serve import serve

    simulation = fleet(question.specification())
    for note in _notes(simulation):
        audience.remark(f"note: {note}")
    server = serve(
        simulation,
        question.port or 0,
        speed=question.speed,
        address=question.address,
        new_names=question.new_names,
    )
    try:
        _announce(simulation, server, question.address, audience)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        audience.remark("stopped")
    finally:
        server.server_close()


def _announce(simulation: Simulation, server: Server, address: str, audience: Audience) -> None:
    specification, base = simulation.specification, f"http://{address}:{server.port}"
    audience.line(f"serving {specification.gpus:,} GPUs of {specification.hosts:,} hosts at {base}/metrics")
    audience.line(f"one host: {base}/{server.hosts[0]}/metrics; Ctrl-C stops")
    audience.line(f"next: ullage fleet {base}/metrics --watch 60s")


_EXAMPLES = """
  ullage simulate                                          64 GPUs for a day into ./simulated, as Parquet
  ullage simulate --gpus 8 --hours 1 --format exposition --out scrapes
  ullage simulate --faults none --counters --out clean     cycle counters, and nothing goes wrong
  ullage simulate --fault stale --fault shared --out two   only these two
  ullage simulate --outcomes --out ended                   how runs ended, how long they waited: for goodput
  ullage simulate --changes all --out moving               GPUs that are cut, move, come and go
  ullage simulate --serve 9400                             behind HTTP, for a Prometheus to scrape
  ullage simulate --serve 0 --speed 60                     an hour in a minute, on a free port
  ullage simulate trace                                    traces of a training job, for `ullage trace`
\b
What can be planted: straggler held_idle free shared throttled power_capped application_clock
  regression latent_moe hybrid recomputation memory_bound stuck stale sentinel
  duplicated impossible percent hertz slow beating locked zero_clock gigahertz
  idle_clock tensor_above_sm faint_percent frozen_gauge stale_part stuck_part
  no_tensor constant_clock silent reordered skewed reset failing_memory
  failing_link application_xid
\b
What can change in time: mig elastic renamed reclustered handed_over percent_later
  counters_appear counters_vanish clock_follows
"""

QUESTION = register(
    RegisteredQuestion(
        name="simulate",
        asked=SimulateQuestion,
        noun="a simulated fleet",
        answer=answer,
        shown_by="ullage.render.simulated:fleet",
        examples=_EXAMPLES,
        goes_on=lambda question, _: question.port is not None,
        follow=follow,
        only_reads=False,
    )
)

simulate = python_function(QUESTION)
