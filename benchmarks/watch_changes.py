"""How well changes are found: python benchmarks/watch_changes.py [seeds] [--fleets SEEDS] [--peers].

Planted series first: white noise, noise with a memory, a clock's noise, a daily rhythm, each alone (everything found there is false) and
with a drop of 10, 20 or 50 % or a ramp in its middle. Told are the share of series with a false change, recall and precision of the drops,
how far from its place a drop is dated, and after how many buckets it is first found when the series comes in one by one. Beside a plain
threshold, and beside the peers' libraries (Apache Otava, river) where they are installed and `--peers` asks for them.

Then simulated fleets: false changes per 1,000 job-hours of clean ones, drops planted in running jobs, and the 2.5 × regression of the OFU
paper with the minutes of telemetry after which it is found.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import ibis
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet

from ullage.courses.changes import LEAST_CHANGE, LEAST_LENGTH, PENALTY, level_changes, noise_of
from ullage.courses.course import TimeCourse
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.watch.watch import WatchReport, watch
from ullage.simulate.fleet import Simulation, Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.simulate.schedule import slowed
from ullage.sums.windows import settle

Array = npt.NDArray[np.float64]
Finder = Callable[[Array], list[int]]  # from a series to the places of its changes
POINTS, LEVEL, SPREAD, BUCKET = 720, 0.4, 0.012, 60_000
NEAR = 15  # buckets from its place a change may be dated
MEMORY = 0.8  # of the noise of the bucket before
WAITS = (5, 6, 8, 10, 15, 20, 30, 60, 120)


def white(random: np.random.Generator) -> Array:
    """Return noise without a memory, 3 % of the level."""
    return LEVEL + SPREAD * random.standard_normal(POINTS)


def with_memory(random: np.random.Generator) -> Array:
    """Return noise of which four fifths stay from bucket to bucket."""
    steps, found, last = random.standard_normal(POINTS), np.empty(POINTS), random.standard_normal()
    for place in range(POINTS):
        last = MEMORY * last + math.sqrt(1 - MEMORY**2) * steps[place]
        found[place] = last
    return LEVEL + SPREAD * found


def clock(random: np.random.Generator) -> Array:
    """Return the mean of a sampled clock (OFU paper, IV-C: 1352 ± 32 MHz), two scrapes a bucket, whose steps beat with them."""
    hertz = np.clip(1352 + 32 * random.standard_normal((POINTS, 2)), 1201, 1558).mean(axis=1)
    beat = 0.03 * np.sin(2 * np.pi * (np.arange(POINTS) * random.uniform(0.05, 0.45) + random.random()))
    return LEVEL * hertz / 1352 * (1 + beat)


def daily(random: np.random.Generator) -> Array:
    """Return four days of a level that rises and falls by a tenth every day, in buckets of 8 minutes."""
    day = np.sin(2 * np.pi * (np.arange(POINTS) / (POINTS / 4) + random.random()))
    return LEVEL * (1 + 0.1 * day) + SPREAD * random.standard_normal(POINTS)


KINDS: dict[str, Callable[[np.random.Generator], Array]] = {"white": white, "memory": with_memory, "clock": clock, "daily": daily}


def dropped(values: Array, place: int, share: float, ramp: int = 0) -> Array:
    """Return a series that falls by a share at a place, at once or over so many buckets."""
    gone = np.clip((np.arange(len(values)) - place + 1) / (ramp + 1), 0, 1) * share
    return values * (1 - gone)


# --- who looks ---


def ours(values: Array) -> list[int]:
    """Return the places that `ullage watch` dates changes at: ruptures' search, noise learnt from the series, no pauses."""
    course = TimeCourse(1, np.arange(len(values), dtype=np.int64), values, np.ones(len(values)))
    return [change.start for change in level_changes(course)]


def ruptures_alone(values: Array) -> list[int]:
    """Return what ruptures finds with the noise of differences of neighbours alone."""
    from ruptures import KernelCPD

    steps = np.diff(values)
    noise = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2)
    scaled = ((values - values.mean()) / noise).reshape(-1, 1)
    return [int(end) for end in KernelCPD(kernel="linear", min_size=LEAST_LENGTH).fit(scaled).predict(pen=PENALTY * math.log(len(values)))][
        :-1
    ]


def otava(values: Array, most: float) -> list[int]:
    """Return what Apache Otava finds with a limit of its p-values."""
    from otava.analysis import compute_change_points

    return [int(one.index) for one in compute_change_points(values.tolist(), window_len=50, max_pvalue=most, min_magnitude=0.0)[0]]


def otava_large(values: Array) -> list[int]:
    """Return what Otava finds at 1e-5 of changes of 5 % or more, as ours asks for."""
    from otava.analysis import compute_change_points

    found = compute_change_points(values.tolist(), window_len=50, max_pvalue=1e-5, min_magnitude=LEAST_CHANGE)[0]
    return [int(one.index) for one in found]


def threshold(values: Array) -> list[int]:
    """Return where three buckets in a row first lie a tenth or more below the median of the last hour, and an hour after each."""
    found: list[int] = []
    place = 60
    while place + 3 <= len(values):
        usual = float(np.median(values[place - 60 : place]))
        if (values[place : place + 3] < 0.9 * usual).all():
            found.append(place)
            place += 60
        else:
            place += 1
    return found


def river(values: Array) -> list[int]:
    """Return where river's ADWIN sees drift."""
    from river.drift import ADWIN

    detector, found = ADWIN(), []
    for place, value in enumerate(values.tolist()):
        detector.update(value)
        if detector.drift_detected:
            found.append(place)
    return found


FINDERS: dict[str, Finder] = {"ullage watch": ours, "ruptures, plain noise": ruptures_alone, "threshold of 10 %": threshold}
PEERS: dict[str, Finder] = {
    "otava, its default": lambda values: otava(values, 0.001),
    "otava, p 1e-5": lambda values: otava(values, 1e-5),
    "otava, p 1e-5, 5 %": otava_large,
    "river ADWIN": river,
}


@dataclass
class SeriesScore:
    """What one finder did on series of one kind: false changes of clean ones, and of each drop what was found, dated and when."""

    clean: int = 0
    alarmed: int = 0
    drops: int = 0
    found: int = 0
    false: int = 0
    away: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    def line(self) -> list[str]:
        """Return the score as words of a row."""
        told = self.found + self.false
        return [
            "–" if not self.clean else f"{self.alarmed / self.clean:.1%}",
            "–" if not self.drops else f"{self.found / self.drops:.1%}",
            "–" if not told else f"{self.found / told:.1%}",
            "–" if not self.away else f"{np.median(self.away):.0f}",
            "–" if not self.waits else f"{np.median(self.waits):.0f}",
            "–" if not self.waits else f"{np.percentile(self.waits, 90):.0f}",
        ]


def series_scores(finder: Finder, kind: str, share: float, ramp: int, seeds: int, *, wait: bool) -> SeriesScore:
    """Return how a finder does on planted series of a kind; without a share they are clean."""
    score = SeriesScore()
    for seed in range(seeds):
        random = np.random.default_rng([seed, *kind.encode()])
        values, place = KINDS[kind](random), int(random.integers(240, 480))
        if not share:
            score.clean += 1
            score.alarmed += bool(finder(values))
            continue
        planted = dropped(values, place, share, ramp)
        found = finder(planted)
        near = [abs(one - place) for one in found if -NEAR <= one - place <= NEAR + ramp]
        score.drops += 1
        score.found += bool(near)
        score.false += len(found) - bool(near)
        score.away += [min(near)] if near else []
        if wait and near:
            score.waits += list(_waits(finder, planted, place + ramp, ramp))[:1]
    return score


def _waits(finder: Finder, values: Array, place: int, ramp: int) -> Iterator[int]:
    for wait in WAITS:
        if any(-NEAR - ramp <= one - place <= NEAR for one in finder(values[: place + wait])):
            yield wait


def print_series(seeds: int, finders: dict[str, Finder], *, wait: bool) -> None:
    """Print the table of planted series."""
    cases = [("clean", 0.0, 0), ("−10 %", 0.1, 0), ("−20 %", 0.2, 0), ("−50 %", 0.5, 0), ("−20 %, ramp of 60", 0.2, 60)]
    print(f"{POINTS} buckets a series, {seeds} seeds; a change counts as found within {NEAR} buckets of its place")
    print(f"{'':24}{'':8}{'':20}{'alarmed':>9}{'recall':>9}{'precision':>11}{'away':>6}{'wait':>6}{'p90':>6}")
    for kind in KINDS:
        for name, finder in finders.items():
            for words, share, ramp in cases:
                score = series_scores(finder, kind, share, ramp, seeds, wait=wait)
                row = score.line()
                print(f"{name:24}{kind:8}{words:20}{row[0]:>9}{row[1]:>9}{row[2]:>11}{row[3]:>6}{row[4]:>6}{row[5]:>6}", flush=True)
        print(flush=True)


# --- fleets ---


@dataclass
class FleetScore:
    """What was found in simulated fleets."""

    job_hours: float = 0.0
    false: list[str] = field(default_factory=list)
    due: int = 0
    found: int = 0
    beside: int = 0
    late: list[float] = field(default_factory=list)


def report_on(simulation: Simulation, until: int | None = None, least: float = 0.0) -> WatchReport:
    """Return what `ullage watch` says of a simulated fleet, up to a time (ms)."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.parquet"
        parquet.write_table(settle(pa.Table.from_batches([*simulation.batches()])), file)
        samples = ibis.duckdb.connect().read_parquet(file)
        return watch(samples, simulation.jobs(), FleetRequest(until=until), least_hours=least, least_change=LEAST_CHANGE)


def clean_fleets(seeds: Sequence[int]) -> FleetScore:
    """Return the false changes of clean fleets."""
    score = FleetScore()
    for seed in seeds:
        report = report_on(simulated(Specification(gpus=96, hours=12, interval=30, seed=seed)))
        score.job_hours += report.job_hours
        score.false += [f"{seed}: {one.scope} {one.measure} {one.where} {one.before:.3f} → {one.after:.3f}" for one in report.changes]
    return score


def with_drop(simulation: Simulation, share: float, number: int, at: int) -> str:
    """Let one job do less from a time (ms) on, under its name, and return that; its steps take longer."""
    job = simulation.records[number]
    simulation.records[number] = replace(job, end=at, mfu=None)
    simulation.records.append(replace(job, start=at, startup=0, loads=slowed(job.loads, 1 / (1 - share)), mfu=None))
    for which, gpu in enumerate(job.gpus):
        simulation.holds[int(gpu)].append((len(simulation.records) - 1, which))
    return job.name


def dropped_fleets(seeds: Sequence[int], share: float) -> FleetScore:
    """Return how a drop in one running job of each fleet is found."""
    score = FleetScore()
    for seed in seeds:
        simulation = simulated(Specification(gpus=96, hours=6, interval=30, seed=seed))
        start, end = simulation.specification.window
        at = (start + end) // 2
        whole = [n for n, job in enumerate(simulation.records) if job.start < at - 3_600_000 and job.end > at + 3_600_000 and not job.rider]
        if not whole:
            continue
        name = with_drop(simulation, share, whole[seed % len(whole)], at)
        report = report_on(simulation)
        right = [one for one in report.worse if name in one.jobs and abs(one.start - at) <= NEAR * report.bucket_ms]
        score.due += 1
        score.found += bool(right)
        score.beside += len(report.changes) - bool(right)
        if right:
            score.late += [wait for wait in (5, 6, 7, 8, 10, 15, 20, 30) if _found(simulation, name, at, wait)][:1]
    return score


def regressions(seeds: Sequence[int]) -> FleetScore:
    """Return after how many minutes of telemetry the paper's regression is found."""
    score = FleetScore()
    for seed in seeds:
        simulation = simulated(Specification(gpus=96, hours=6, interval=30, seed=seed, faults=("regression",)))
        planted = simulation.plan.of("regression")
        if not planted:
            continue
        score.due += 1
        at = planted[0].start + simulation.records[[job.name for job in simulation.records].index(planted[0].job or "")].startup
        score.late += [wait for wait in (4, 5, 6, 7, 8, 9, 10, 15) if _found(simulation, planted[0].job or "", at, wait)][:1]
        score.found += bool(_found(simulation, planted[0].job or "", at, 10))
    return score


def _found(simulation: Simulation, name: str, at: int, minutes: float) -> bool:
    report = report_on(simulation, until=at + round(60_000 * minutes))
    return any(name in one.jobs and one.start >= at - 15 * 60_000 for one in report.worse)


def print_fleets(seeds: int) -> None:
    """Print what is found in fleets."""
    clean = clean_fleets(range(seeds))
    rate = 1000 * len(clean.false) / clean.job_hours
    print(
        f"clean fleets: {len(clean.false)} false changes in {clean.job_hours:,.0f} job-hours: {rate:.2f} per 1,000",
        *clean.false,
        sep="\n  ",
    )
    found = regressions(range(seeds // 2))
    print(
        f"the paper's 2.5 × regression: found within 10 minutes of telemetry in {found.found} of {found.due}; {_times(found.late)}",
        flush=True,
    )
    for share in (0.1, 0.2, 0.5):
        score = dropped_fleets(range(seeds), share)
        precision = score.found / max(1, score.found + score.beside)
        print(
            f"a running job falls by {share:.0%}: recall {score.found} of {score.due}, precision {precision:.1%}; {_times(score.late)}",
            flush=True,
        )


def _times(late: Sequence[float]) -> str:
    return f"after {np.median(late):.0f} min (90 %: {np.percentile(late, 90):.0f})" if late else "never"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="?", type=int, default=200)
    parser.add_argument("--fleets", type=int, default=20, metavar="SEEDS")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--no-wait", action="store_true", help="do not ask after how many buckets")
    words = parser.parse_args()
    peers = {name: finder for name, finder in PEERS.items() if find_spec(name.split(",")[0].split(" ")[0])}
    if words.seeds:
        print_series(words.seeds, FINDERS | (peers if words.peers else {}), wait=not words.no_wait)
    if words.fleets:
        print_fleets(words.fleets)


if __name__ == "__main__":
    assert noise_of(np.zeros(10)) == 0
    main()
