"""Simulated fleets that a service shows where there is nothing else to watch: one that lies still, and one whose time runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ullage.demo import FAULTS, demo
from ullage.service.follow import StoppedError
from ullage.service.logs import ServiceLog
from ullage.service.state import FollowedSource
from ullage.simulate import faults
from ullage.simulate.fleet import Simulation, Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.store.store import Store
from ullage.units import HOUR_MS
from ullage.views.declared import iso

GPUS, HOURS = 64, 24.0  # some seconds to simulate
TURN = 1.0  # s between two moments at which what came to pass is stored
LEAD_MS = HOUR_MS  # of the simulated time, between the first page and the regression
MANY_PARTS = 32  # of a store, before they are made one


class Demonstration:
    """Simulates a fleet into a folder that lasts as long as the service."""

    def __init__(self, folder: Path, log: ServiceLog, say: Callable[[FollowedSource], None]) -> None:
        self._folder, self._log, self._say = folder, log, say
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._simulate, name="demonstration", daemon=True)
        say(_state("a fleet is being simulated"))

    def start(self) -> None:
        """Simulate in a thread of its own."""
        self._thread.start()

    def stop(self, patience: float = 1.0) -> bool:
        """Begin nothing more, and return whether nothing is being simulated any more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(patience)
        return not self._thread.is_alive()

    def _simulate(self) -> None:
        try:
            words = self._fill()
        except StoppedError:
            return
        except Exception as error:  # whatever it is, it is no end of the service
            self._say(_state().failed(str(error), time.time()))
            self._log("failure", {"problem": repr(error)})
        else:
            self._say(_state())
            self._log("simulated", words)

    def _fill(self) -> dict[str, object]:
        """Simulate, and return words for the log."""
        demo(self._folder, gpus=GPUS, hours=HOURS, seed=0, progress=self._progress)
        return {"gpus": GPUS, "hours": HOURS}

    def _progress(self, words: str) -> None:
        if self._stopped.is_set():
            raise StoppedError
        self._say(_state(f"a fleet is being simulated: {words}"))


@dataclass(frozen=True)
class MovingPlan:
    """A simulated fleet whose time runs `speed` times as fast as ours, from an hour before a job becomes 2.5 times as slow."""

    gpus: int = GPUS
    hours: float = HOURS
    seed: int = 0
    speed: float = 120.0

    @property
    def note(self) -> str:
        """What a reader must know."""
        return f"This is a simulated fleet, whose time runs {self.speed:g} times as fast as ours."


class MovingDemonstration(Demonstration):
    """Simulates a fleet, stores what came to pass until shortly before its regression, and the rest as its time runs."""

    def __init__(self, plan: MovingPlan, folder: Path, log: ServiceLog, say: Callable[[FollowedSource], None]) -> None:
        self._plan = plan
        super().__init__(folder, log, say)

    def _fill(self) -> dict[str, object]:
        plan = self._plan
        chosen = tuple(fault for fault in FAULTS if fault in faults.FAULTS)
        simulation = simulated(Specification(gpus=plan.gpus, hours=plan.hours, seed=plan.seed, faults=chosen))
        rows = pa.Table.from_batches(simulation.batches(progress=lambda done: self._progress(f"simulating {done}"))).sort_by("time")
        jobs, store, whole = simulation.jobs(), Store.open(self._folder), 0
        for moment, part in self._parts(rows, first_moment(simulation)):
            store.add_jobs(jobs_until(jobs, moment))
            whole += store.append(part).rows_new
            if len(store.manifest().parts) > MANY_PARTS:
                store.compact()
            store.roll_up()
            self._say(_state(at=moment).read(whole, time.time()))
        return {"gpus": plan.gpus, "hours": plan.hours, "until": iso(rows["time"][-1].value)}

    def _parts(self, rows: pa.Table, first: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield moments of the simulated time, with the rows that came since the one before."""
        times = rows["time"].cast(pa.int64()).to_numpy()
        done, began = 0, time.monotonic()
        while done < len(times):
            moment = first + round((time.monotonic() - began) * 1000 * self._plan.speed)
            ready = int(np.searchsorted(times, moment, side="right"))
            if ready > done:
                yield moment, rows.slice(done, ready - done)
                done = ready
            if self._stopped.wait(TURN):
                raise StoppedError


def first_moment(simulation: Simulation) -> int:
    """Return until when (ms) a fleet is stored before its time begins to run: an hour before its regression, where it has one."""
    start, end = simulation.specification.window
    begins = [planted.start for planted in simulation.plan.of("regression")]
    return max(start + (end - start) // 100, (begins[0] if begins else (start + end) // 2) - LEAD_MS)


def jobs_until(jobs: pa.Table, moment: int) -> pa.Table:
    """Return job records as a scheduler has them at a moment (ms): of jobs that have begun, without an end that lies ahead."""
    begun = jobs.filter(pc.less_equal(jobs["start"].cast(pa.int64()), moment))
    over = pc.less_equal(begun["end"].cast(pa.int64()), moment)
    ends = pc.if_else(over, begun["end"], pa.scalar(None, begun.schema.field("end").type))
    return begun.set_column(begun.schema.get_field_index("end"), begun.schema.field("end"), ends)


def _state(preparing: str = "", at: int | None = None) -> FollowedSource:
    source = "a simulated fleet" if at is None else f"a simulated fleet, at {iso(at)[:16].replace('T', ' ')} UTC"
    return FollowedSource(source, preparing=preparing)
