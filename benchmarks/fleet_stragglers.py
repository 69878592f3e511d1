"""How well `ullage fleet` names the stragglers of simulated fleets over a whole window: those of `blind_fleets`, whose faults are known.

    python benchmarks/fleet_stragglers.py [--seeds assessment] [--count 100] [--list]

Each fleet is an hour of 48 GPUs, a scrape every 30 s. Due is each fault that counters show and that costs its job as much as a finding
must be worth. A finding is right where it is about such a job and at least half of the GPUs that it names are faulty; every other one is
false, but for those about faults that cost less. What a finding says was lost stands beside what was, where the fault was there all along.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import ullage
from blind_fleets import SEEDS, BlindFleet, PlantedFault, blind_fleet
from blind_stragglers import interval_of_share
from ullage.findings.kind import LEAST_HOURS

GPUS, SECONDS, INTERVAL = 48, 3_600.0, 30


@dataclass
class FleetStragglerScore:
    """How many faults were due and found, and how many findings were false; `ratios` are GPU-hours told over those that were lost."""

    due: int = 0
    found: int = 0
    false: int = 0
    ratios: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, fleet: BlindFleet, findings: Sequence[dict[str, Any]]) -> None:
        """Count the findings of one fleet."""
        sizes = _gpus_of_jobs(fleet)
        right = [(fault, [one for one in findings if _names(one, fault, fleet)]) for fault in fleet.faults]
        true = {id(one) for _, own in right for one in own}
        self.false += (lies := sum(id(one) not in true for one in findings))
        self.wrong += [f"seed {fleet.seed}: {lies} false"] * (lies > 0)
        for fault, own in right:
            lost = hours_lost(fault, sizes[fault.job])
            if not fault.visible or lost < LEAST_HOURS:
                continue
            self.due, self.found = self.due + 1, self.found + bool(own)
            self.ratios += [sum(one["gpu_hours"] for one in own) / lost] if own and fault.course != "intermittent" else []
            self.wrong += (
                [] if own else [f"seed {fleet.seed}: missed {fault.kind}, {fault.course}, {fault.slowdown:.2f}, {lost:.2f} GPU-hours"]
            )


def hours_lost(fault: PlantedFault, gpus: int) -> float:
    """Return the GPU-hours that a job of so many GPUs lost to a fault."""
    return (fault.end - fault.onset) / 3600 * gpus * (1 - 1 / fault.slowdown)


def _names(finding: dict[str, Any], fault: PlantedFault, fleet: BlindFleet) -> bool:
    where = finding["where"]
    if where["job"] != fault.job:
        return False
    if "gpu" in where:
        return where["gpu"] in fault.gpus
    own = {gpu for gpu, host, _ in _devices(fleet) if host == where.get("host")}
    return 2 * len(own & set(fault.gpus)) >= len(own) > 0


def _devices(fleet: BlindFleet) -> Iterator[tuple[str, str, str]]:
    table = pa.Table.from_batches([fleet.samples]).select(["gpu", "host", "job"])
    grouped = pa.table({name: table[name].cast(pa.string()) for name in table.column_names}).group_by(table.column_names).aggregate([])
    return zip(*(grouped[name].to_pylist() for name in table.column_names), strict=True)


def _gpus_of_jobs(fleet: BlindFleet) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for _, _, job in _devices(fleet):
        sizes[job] = sizes.get(job, 0) + 1
    return sizes


def findings_of(fleet: BlindFleet, folder: Path) -> list[dict[str, Any]]:
    """Return the stragglers among the findings of `ullage fleet`."""
    path = folder / "fleet.parquet"
    pq.write_table(pa.Table.from_batches([fleet.samples]), path)
    return [one for one in ullage.fleet(str(path)).json()["findings"] if one["kind"] == "straggler"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", choices=sorted(SEEDS), default="assessment")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    score, began = FleetStragglerScore(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for seed in list(SEEDS[options.seeds])[: options.count]:
            fleet = blind_fleet(seed, INTERVAL, gpus=GPUS, seconds=SECONDS)
            score.add(fleet, findings_of(fleet, Path(folder)))
    told = score.found + score.false
    for name, part, whole in (("recall", score.found, score.due), ("precision", score.found, told)):
        low, high = interval_of_share(part, whole)
        print(f"{name:10} {part:4} of {whole:4}  {part / max(1, whole):.3f} ({low:.3f} to {high:.3f})")
    if score.ratios:
        print(f"GPU-hours told over those lost: median {median(score.ratios):.2f}")
    print(f"{options.count} fleets, {time.process_time() - began:.0f} s of CPU")
    if options.list:
        print("\n".join(score.wrong))


if __name__ == "__main__":
    main()
