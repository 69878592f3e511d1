"""How well `ullage watch` finds the slow GPUs of simulated fleets, whose faults are known: those of `blind_fleets`.

    python benchmarks/blind_stragglers.py                              # 300 fleets of the 30 s feed and 300 of the 1 s feed: eight minutes
    python benchmarks/blind_stragglers.py --count 20 --json numbers.json
    python benchmarks/blind_stragglers.py --seeds development --feed 30

Each fleet is written to a Parquet file and given to `ullage.watch`, as on the command line. What comes out is compared with what was
planted:

- a report is right where it is about the faulty job, while the fault is there, and at least half of the GPUs that it names are faulty;
  every other report is a false alarm, also one about the faulty job that blames a healthy GPU.
- a fault is found by its first right report. Its delay is counted in scrapes of the faulty GPUs that came after the onset, up to and with
  the one at which it was found, and in seconds. A fault that is missed is also not found in time.
- network cards leave no trace in GPU counters, and what makes no step 8 % longer is harmless: nobody is asked to find them, they stand
  in rows of their own; to blame a healthy GPU for them is false.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ullage
from blind_fleets import EPOCH_MS, SEEDS, BlindFleet, PlantedFault, blind_fleet
from straggler_oracle import finds_in_time

FEEDS = {30: {"gpus": 48, "seconds": 3_600.0}, 1: {"gpus": 24, "seconds": 600.0}}
SCRAPES, SECONDS = 2, 15.0  # within which a fault must be found in a feed of 30 s and in one of 1 s
DAY_OF_500_GPUS = 500 * 86_400


@dataclass(frozen=True)
class ReportedStraggler:
    """One straggler as `ullage watch` told it: of which job, which GPUs, found when (seconds since the fleet's start)."""

    job: str
    gpus: tuple[str, ...]
    found: float


@dataclass(frozen=True)
class FaultDetection:
    """A planted fault and whether it was found: its delay in scrapes and in seconds, nothing where it was missed.

    `oracle` says whether one that knows the fault's kind, GPUs and time finds it in time (`straggler_oracle`).
    """

    fault: PlantedFault
    scrapes: int | None
    seconds: float | None
    oracle: bool

    def in_time(self, interval: int) -> bool:
        """Return whether it was found in time in a feed of this interval."""
        if self.seconds is None or self.scrapes is None:
            return False
        return self.scrapes <= SCRAPES if interval > 1 else self.seconds <= SECONDS


@dataclass
class FeedCounts:
    """The counts of one feed's fleets."""

    interval: int
    fleets: int = 0
    gpu_seconds: float = 0
    faults: list[FaultDetection] = field(default_factory=list)
    false_alarms: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)

    def add(self, fleet: BlindFleet, reports: Sequence[ReportedStraggler]) -> None:
        self.fleets += 1
        self.gpu_seconds += fleet.gpu_seconds
        right: dict[int, ReportedStraggler] = {}
        for report in sorted(reports, key=lambda one: one.found):
            number = next((n for n, fault in enumerate(fleet.faults) if is_right(report, fault, self.interval)), None)
            if number is None:
                self.false_alarms.append((fleet.seed, report.job, _blamed_for(fleet, report)))
            else:
                right.setdefault(number, report)
        for number, fault in enumerate(fleet.faults):
            self.faults.append(_detection(fleet, fault, right.get(number)))

    @property
    def visible(self) -> list[FaultDetection]:
        return [one for one in self.faults if one.fault.visible]


def is_right(report: ReportedStraggler, fault: PlantedFault, interval: int) -> bool:
    """Return whether a report names this fault while it is there; a scrape later than its end still shows it."""
    named = set(report.gpus)
    return (
        report.job == fault.job
        and 2 * len(named & set(fault.gpus)) >= len(named)
        and fault.first - interval <= report.found <= fault.last + max(30, 2 * interval)
    )


def _blamed_for(fleet: BlindFleet, report: ReportedStraggler) -> tuple[str, ...]:
    """Return what may have caused a false alarm: the job's look-alikes, and a fault of which somebody else was accused."""
    looks = fleet.look_alikes[report.job]
    blamed = tuple(f"wrong GPU of: {fault.kind}" for fault in fleet.faults if fault.job == report.job and report.found >= fault.onset)
    return (*looks, *blamed)


def _detection(fleet: BlindFleet, fault: PlantedFault, report: ReportedStraggler | None) -> FaultDetection:
    limits = (SCRAPES, 0.0) if fleet.interval > 1 else (0, SECONDS)
    oracle = fault.visible and finds_in_time(fleet, fault, *limits)
    if report is None:
        return FaultDetection(fault, None, None, oracle)
    times = fleet.scrapes[fault.gpus[0]]
    passed = int(np.count_nonzero((times > fault.onset) & (times <= report.found)))
    return FaultDetection(fault, passed, report.found - fault.onset, oracle)


def reports_of(fleet: BlindFleet, folder: Path) -> list[ReportedStraggler]:
    """Return the stragglers that `ullage watch` tells of a fleet."""
    path = folder / "fleet.parquet"
    pq.write_table(pa.Table.from_batches([fleet.samples]), path)
    answer = ullage.watch(str(path), least=1e9).json()
    places = {}
    for gpu, host, index in _identities(fleet):
        places[(host, index)] = places[gpu] = gpu
    return [
        ReportedStraggler(
            one["job"], tuple(places[gpu if gpu in places else (one["host"], gpu)] for gpu in one["gpus"]), _seconds(one["found"])
        )
        for one in answer["stragglers"]
    ]


def _identities(fleet: BlindFleet) -> Iterable[tuple[str, str, int]]:
    table = pa.Table.from_batches([fleet.samples]).select(["gpu", "host", "index"])
    table = pa.table({name: table[name].cast(pa.string() if name != "index" else pa.int64()) for name in table.column_names})
    grouped = table.group_by(["gpu", "host", "index"]).aggregate([])
    return zip(*(grouped[name].to_pylist() for name in ("gpu", "host", "index")), strict=True)


def _seconds(word: str) -> float:
    return float(np.datetime64(word.removesuffix("Z").replace("+00:00", ""), "ms").astype(np.int64) - EPOCH_MS) / 1000


def interval_of_share(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    if not trials:
        return 0.0, 1.0
    z, share = 1.96, successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


def highest_rate(events: int, exposure: float) -> float:
    """Return the 95 % upper bound of a Poisson rate (one-sided): chi-squared by Wilson and Hilferty, 3.0 for no event."""
    degrees = 2 * (events + 1)
    value = degrees * (1 - 2 / (9 * degrees) + 1.645 * math.sqrt(2 / (9 * degrees))) ** 3
    return value / 2 / exposure


def summary(counts: FeedCounts) -> dict[str, Any]:
    """Return the figures of a feed, with their counts and 95 % intervals."""
    visible = counts.visible
    found = [one for one in visible if one.seconds is not None]
    in_time = [one for one in found if one.in_time(counts.interval)]
    shown = [one for one in visible if one.oracle]
    shown_in_time = sum(one.in_time(counts.interval) for one in shown)
    hidden_found = sum(one.seconds is not None for one in counts.faults if not one.fault.visible)
    alarms = len(counts.false_alarms)
    precision = len(found) / max(1, len(found) + alarms)
    recall = len(found) / max(1, len(visible))
    days = counts.gpu_seconds / DAY_OF_500_GPUS
    delays = sorted(one.seconds for one in found)
    kinds = sorted({one.fault.kind for one in counts.faults}) + sorted({one.fault.course for one in counts.faults})
    rows = {}
    for kind in kinds:
        own = [one for one in counts.faults if kind in (one.fault.kind, one.fault.course) and (one.fault.visible or kind == one.fault.kind)]
        rows[kind] = (sum(one.seconds is not None for one in own), sum(one in in_time for one in own), len(own))
    return {
        "feed_seconds": counts.interval, "fleets": counts.fleets, "days_of_500_gpus": days, "faults": len(visible),
        "found": len(found), "false_alarms": alarms,
        "precision": precision, "precision_interval": interval_of_share(len(found), len(found) + alarms),
        "recall": recall, "recall_interval": interval_of_share(len(found), len(visible)),
        "f1": 2 * precision * recall / max(1e-9, precision + recall),
        "in_time": len(in_time), "in_time_of_all": len(in_time) / max(1, len(visible)),
        "in_time_of_all_interval": interval_of_share(len(in_time), len(visible)),
        "in_time_of_found": len(in_time) / max(1, len(found)),
        "in_time_of_found_interval": interval_of_share(len(in_time), len(found)),
        "oracle_in_time": len(shown), "in_time_of_oracle": shown_in_time / max(1, len(shown)),
        "in_time_of_oracle_interval": interval_of_share(shown_in_time, len(shown)),
        "median_delay_seconds": delays[len(delays) // 2] if delays else None,
        "delay_90_seconds": delays[math.ceil(0.9 * len(delays)) - 1] if delays else None,
        "false_alarms_a_day": alarms / days, "false_alarms_a_day_at_most": highest_rate(alarms, days),
        "by_kind": rows, "hidden_found": hidden_found,
        "false_alarms_by_look": dict(Counter("+".join(why) or "nothing" for _, _, why in counts.false_alarms).most_common()),
        "false_alarms_of_longer_sequences_alone": sum(set(why) <= {"longer sequences", "unequal sequences", "long shard"} and bool(why)
                                                      for _, _, why in counts.false_alarms),
    }  # fmt: skip


def print_summary(figures: dict[str, Any]) -> None:
    """Print a feed's figures for people."""
    share = lambda name: f"{figures[name]:.3f} ({figures[name + '_interval'][0]:.3f} to {figures[name + '_interval'][1]:.3f})"  # noqa: E731
    print(f"\nfeed of {figures['feed_seconds']} s: {figures['fleets']} fleets, {figures['days_of_500_gpus']:.2f} days of 500 GPUs")
    print(f"  faults that counters show      {figures['faults']}, found {figures['found']}, false alarms {figures['false_alarms']}")
    print(f"  precision                      {share('precision')}      goal 0.904")
    print(f"  recall                         {share('recall')}")
    print(f"  F1                             {figures['f1']:.3f}                       goal 0.893")
    limit = f"{SCRAPES} scrapes" if figures["feed_seconds"] > 1 else f"{SECONDS:.0f} s"
    print(f"  found within {limit:<17} {share('in_time_of_all')}      of all; goal 0.9")
    print(f"                                 {share('in_time_of_found')}      of those found")
    bound = f"of the {figures['oracle_in_time']} that an oracle finds in time"
    print(f"                                 {share('in_time_of_oracle')}      {bound}")
    if (median := figures["median_delay_seconds"]) is not None:
        print(f"  delay                          median {median:.0f} s, 90 % within {figures['delay_90_seconds']:.0f} s")
    rate = f"{figures['false_alarms_a_day']:.2f} (at most {figures['false_alarms_a_day_at_most']:.2f})"
    print(f"  false alarms a day, 500 GPUs   {rate}      goal 0.84")
    print(f"  of longer sequences alone      {figures['false_alarms_of_longer_sequences_alone']}      goal 0")
    print("  kind or course      found  in time  planted")
    for kind, (found, in_time, planted) in figures["by_kind"].items():
        print(f"  {kind:<18} {found:>6} {in_time:>8} {planted:>8}")
    for why, count in figures["false_alarms_by_look"].items():
        print(f"  {count} false: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", choices=sorted(SEEDS), default="assessment")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--feed", type=int, choices=sorted(FEEDS), action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    everything = []
    for interval in options.feed or list(FEEDS):
        counts, began = FeedCounts(interval), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            for seed in list(SEEDS[options.seeds])[: options.count]:
                fleet = blind_fleet(seed, interval, **FEEDS[interval])
                counts.add(fleet, reports_of(fleet, Path(folder)))
        everything.append(summary(counts))
        print_summary(everything[-1])
        print(f"  {time.process_time() - began:.0f} s of CPU", flush=True)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
