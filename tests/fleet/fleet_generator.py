"""Random small fleets whose devices change in time, and the texts that real tools would have written of them.

    fleet = random_fleet(seed=7)           the input of `fleet_reference.reference`, with "features"
    expositions(fleet)                     {(time, cluster, host): what dcgm-exporter printed}
    sacct_text(fleet)                      what `sacct --parsable2` printed
    python fleet_generator.py 7 folder     writes all of it into a folder

A fleet is made in three steps: what is true (`Device`, `Holding`), what the scrapes saw of it
(`samples_of_device`), what the scheduler recorded (`job_records`). `fleet["features"]` names what may happen
in it, so that a comparison can do without a feature: random_fleet(seed, without={"both sources"}).
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Place = tuple[str, str]  # cluster, host
Slices = dict[int, str]  # MIG instance → profile; {}: the GPU is whole

GAP_IN_SCRAPES = 3
FEATURES = {  # what may happen → in which share of fleets; beside one of LAYOUTS and one of SOURCES
    "mig cut": 0.5,
    "mig put back": 0.5,
    "partial slices": 0.5,
    "renamed": 0.25,
    "moved": 0.25,
    "shared": 0.4,
    "counters": 0.5,
    "counter reset": 0.3,
    "late first sight": 0.3,
    "early last sight": 0.3,
    "inventory": 0.25,
    "never seen": 0.15,
    "silent": 0.5,
    "missed scrape": 0.3,
    "missing gauge": 0.25,
    "clock missing": 0.1,
    "same names without uuid": 0.25,
    "jitter": 0.2,
    "idle holders": 0.6,
    "work on free gpus": 0.2,
    "labels without user": 0.3,
    "jobs on single gpus": 0.7,
}
LAYOUTS = ("clock on parent", "clock on slices", "gauges on parent")  # of a sliced GPU: see `lay_out`
SOURCES = ("labels", "records", "both sources")  # who says which job holds a device
PROFILES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}  # same names on both models
CLOCKS = {"H100 SXM": (1200, 1980), "A100 SXM 80GB": (1065, 1410)}  # MHz, lowest and highest seen under load
MODEL_NAMES = {"H100 SXM": "NVIDIA H100 80GB HBM3", "A100 SXM 80GB": "NVIDIA A100-SXM4-80GB"}
GAUGES = ("engine_active", "sm_active", "tensor_active")
EXPOSED = (  # field, dcgm-exporter's name, type, factor, format, help; 1084 and 1086 are new in DCGM 4.6
    ("sm_clock", "DCGM_FI_DEV_SM_CLOCK", "gauge", 1e-6, "{:.0f}", "SM clock frequency (in MHz)."),
    ("busy", "DCGM_FI_DEV_GPU_UTIL", "gauge", 100, "{:.0f}", "GPU utilization (in %)."),
    (
        "engine_active",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        1,
        "{:.6f}",
        "Ratio of time the graphics engine is active.",
    ),
    (
        "sm_active",
        "DCGM_FI_PROF_SM_ACTIVE",
        "gauge",
        1,
        "{:.6f}",
        "The ratio of cycles an SM has at least 1 warp assigned.",
    ),
    (
        "tensor_active",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        1,
        "{:.6f}",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
    ),
    ("sm_cycles", "DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL", "counter", 1, "{:.0f}", "Total elapsed SM cycles."),
    (
        "tensor_cycles",
        "DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL",
        "counter",
        1,
        "{:.0f}",
        "Total cycles the MMA (tensor) pipe was active.",
    ),
)


@dataclass
class Device:
    """A physical GPU: what is true of it, whether or not anybody looks."""

    uuid: str | None
    index: int
    model: str
    phase: int  # seconds between the window's start and its first scrape
    places: list[tuple[int, Place]]  # since when it is where
    layouts: list[tuple[int, Slices]]  # since when it is cut how
    first: int  # it is seen at scrapes in [first, last)
    last: int
    silences: list[tuple[int, int]] = field(default_factory=list)
    counted: list[tuple[int, int]] = field(default_factory=list)  # when its exporter shows cycle counters
    resets: list[int] = field(default_factory=list)
    missing: list[tuple[int, int, str]] = field(default_factory=list)  # from, to, which field nobody measures
    listed: bool = False  # an inventory lists it for the whole window


@dataclass(frozen=True)
class Holding:
    """A job: who holds which devices from when to when. Instance None: the whole GPU, whatever its cut."""

    job: str
    user: str
    namespace: str
    start: int
    end: int
    devices: list[tuple[int, int | None]]  # number of the device, MIG instance
    whole_hosts: bool


def latest(changes: list[tuple[int, Any]], time: int) -> Any:
    """The value that holds at a time in a list of (since, value)."""
    return [value for since, value in changes if since <= time][-1]


def random_slices(rng: random.Random, partial: bool) -> Slices:
    """A random cut of a GPU into instances of 7 slices together, or of fewer where `partial`."""
    sizes: list[int] = []
    limit = rng.randint(1, 6) if partial else 7
    while sum(sizes) < limit:
        sizes.append(rng.choice([size for size in PROFILES if size <= limit - sum(sizes)]))
    return dict(zip(sorted(rng.sample(range(1, 15), len(sizes))), (PROFILES[size] for size in sizes), strict=True))


def random_times(rng: random.Random, start: int, end: int, grid: int, count: int) -> list[int]:
    """Different times inside a window, in order, on the grid."""
    return sorted(rng.sample(range(start + grid, end, grid), count))


def random_devices(rng: random.Random, features: set[str], start: int, end: int, grid: int, scrape: int) -> list[Device]:
    """Two to twelve GPUs on one to four hosts in two clusters."""
    count, same_names, devices = rng.randint(2, 12), "same names without uuid" in features, []
    hosts = [(cluster, f"node-{number}") for cluster in ("east", "west") for number in range(1, 3)]
    if not same_names:
        hosts = rng.sample([(cluster, f"{cluster}-{host}") for cluster, host in hosts], rng.randint(1, 4))
    model_of = {host: rng.choice(list(MODEL_NAMES)) for host in hosts}
    for number in range(count):
        host = hosts[number % len(hosts)]
        devices.append(
            Device(
                uuid=None if same_names else f"GPU-{rng.getrandbits(32):08x}-0000-4000-8000-{number:012x}",
                index=number // len(hosts),
                model=model_of[host],
                phase=0,
                places=[(0, host)],
                layouts=[(0, {})],
                first=start,
                last=end,
            )
        )
    for host in hosts:
        phase = rng.randrange(0, scrape, grid)
        for device in devices:
            device.phase = phase if device.places[0][1] == host else device.phase
    change_places(rng, features, devices, hosts, start, end, grid)
    for device in devices:
        change_device(rng, features, device, start, end, grid, scrape)
    if "never seen" in features:
        devices[-1].listed, devices[-1].last = True, start
    return devices


def change_places(
    rng: random.Random,
    features: set[str],
    devices: list[Device],
    hosts: list[Place],
    start: int,
    end: int,
    grid: int,
) -> None:
    """Renames a whole host, or moves one to the other cluster. Its GPUs keep UUID and index."""
    for feature in ("renamed", "moved"):
        if feature in features:
            cluster, host = rng.choice(hosts)
            time = rng.randrange(start, end, grid)
            other = "west" if cluster == "east" else "east"
            new = (cluster, host + "-new") if feature == "renamed" else (other, host + "-moved")
            for device in devices:
                if device.places[-1][1] == (cluster, host):
                    device.places.append((time, new))


def change_device(rng: random.Random, features: set[str], device: Device, start: int, end: int, grid: int, scrape: int) -> None:
    """Cuts, silences, life and counters of one GPU, each with some probability."""
    length = end - start
    if "mig cut" in features and rng.random() < 0.6:
        cut, change, back = random_times(rng, start, end, grid, 3)
        partial = "partial slices" in features and rng.random() < 0.7
        device.layouts.append((rng.choice([0, cut]), random_slices(rng, partial)))
        if rng.random() < 0.3:
            device.layouts.append((change, random_slices(rng, partial)))
        if "mig put back" in features and rng.random() < 0.6:
            device.layouts.append((back, {}))
    if "late first sight" in features and rng.random() < 0.4:
        device.first = start + rng.randrange(0, length // 2, grid)
    if "early last sight" in features and rng.random() < 0.4:
        device.last = end - rng.randrange(0, length // 3, grid)
    if "silent" in features and rng.random() < 0.5:
        begin = rng.randrange(start, end, grid)
        device.silences.append((begin, begin + (GAP_IN_SCRAPES + rng.randint(1, 9)) * scrape))
    if "counters" in features and device.model == "H100 SXM" and rng.random() < 0.8:  # the fields need Hopper
        begin, finish = random_times(rng, start, end, grid, 2)
        device.counted.append(rng.choice([(begin, finish), (start, finish), (begin, end), (start, end)]))
        if "counter reset" in features:
            device.resets.append(rng.randrange(start, end, grid))
    for feature, fields in (("missing gauge", (*GAUGES, "busy")), ("clock missing", ("sm_clock",))):
        for _ in range(rng.randint(0, 2) if feature in features else 0):
            begin, finish = random_times(rng, start, end, grid, 2)
            device.missing.append((begin, finish, rng.choice(fields)))
    device.listed = "inventory" in features and rng.random() < 0.6


def random_holdings(rng: random.Random, features: set[str], devices: list[Device], start: int, end: int, grid: int) -> list[Holding]:
    """Three to twelve jobs. Without "shared", two jobs overlap in time only on different devices."""
    holdings: list[Holding] = []
    for number in range(rng.randint(3, 12)):
        begin = start + rng.randrange(-600, end - start, grid)
        finish = begin + rng.randrange(60, end - start + 600, grid) // grid * grid
        whole_hosts = rng.random() < 0.4 or "jobs on single gpus" not in features
        place = latest(rng.choice(devices).places, begin)
        near = [n for n, device in enumerate(devices) if latest(device.places, begin)[0] == place[0]]  # one cluster
        chosen: list[tuple[int, int | None]] = [(n, None) for n in rng.sample(near, rng.randint(1, len(near)))]
        if whole_hosts:
            chosen = [(n, None) for n in near if latest(devices[n].places, begin) == place]
        elif rng.random() < 0.4:  # a pod that asks for one slice
            cuts = devices[chosen[0][0]].layouts
            chosen = [(chosen[0][0], rng.choice([None] if len(cuts) == 1 else [i for _, cut in cuts for i in cut]))]
        taken = {n for other in holdings if other.start < finish and begin < other.end for n, _ in other.devices}
        if "shared" not in features:
            chosen = [] if whole_hosts and any(n in taken for n, _ in chosen) else chosen
            chosen = [(n, instance) for n, instance in chosen if n not in taken]
        if chosen:
            user = rng.choice(["ada", "bob", "eve"])
            space = rng.choice(["ml", "chem"])
            holdings.append(Holding(f"{4700 + number}", user, space, begin, finish, chosen, whole_hosts))
    return holdings


def random_work(rng: random.Random, start: int, end: int, features: set[str]) -> list[tuple[int, Row]]:
    """How hard a source works, from when on: its activity and the factors below it."""
    stretches, time = [], 0
    while time < end:
        idle = "idle holders" in features and rng.random() < 0.3
        stretches.append(
            (
                time,
                {
                    "idle": idle,
                    "activity": rng.uniform(0.1, 0.9),
                    "fill": rng.uniform(0.4, 0.98),
                    "issue": rng.uniform(0.05, 0.9),
                    "counted": rng.uniform(0.02, 0.8),
                    "stray": "work on free gpus" in features and rng.random() < 0.4,
                },
            )
        )
        time = max(time, start) + rng.randint(60, 900)
    return stretches


def readings(rng: random.Random, device: Device, work: Row, held: bool, sliced: bool, clock: int) -> Row:
    """What one source reads. No activity lies between 0.5 % and 5 %: an idle threshold of 1 % is safe."""
    runs = (held and not work["idle"]) or (not held and work["stray"])
    trace = rng.choice([0.0, 0.0, 0.004])
    engine = min(0.99, max(0.05, work["activity"] * rng.uniform(0.8, 1.1))) if runs else trace
    sm = engine * work["fill"] * rng.uniform(0.9, 1.0)
    tensor = sm * work["issue"] * rng.uniform(0.9, 1.0)
    return {
        "engine_active": round(engine, 6),
        "sm_active": round(sm, 6),
        "tensor_active": round(tensor, 6),
        "sm_clock": clock * 1e6,
        "busy": None if sliced else round(engine, 2) if runs else 0.0,
        "tensor_cycles": None,
        "sm_cycles": None,
    }


class CycleCounter:
    """The two cumulative counters of one source. They run whether or not anybody reads them."""

    def __init__(self, rng: random.Random, time: int) -> None:
        self.rng, self.time = rng, time
        self.elapsed = rng.randint(10**12, 10**13)
        self.tensor = self.elapsed // 3

    def advance(self, time: int, rate: float, clock: int, resets: list[int]) -> Row:
        """Runs to a time at about this clock (MHz) and tensor share, and gives both counts."""
        for reset in resets:
            if self.time < reset <= time:
                self.time, self.elapsed, self.tensor = reset, 0, 0
        cycles = round((time - self.time) * clock * 1e6 * self.rng.uniform(0.9, 1.0))
        self.time, self.elapsed, self.tensor = time, self.elapsed + cycles, self.tensor + round(cycles * rate)
        return {"tensor_cycles": self.tensor, "sm_cycles": self.elapsed}


def scrape_times(rng: random.Random, device: Device, features: set[str], start: int, end: int, scrape: int) -> list[int]:
    """When a device is seen: in its life, outside its silences; some scrapes are late, some are missed."""
    times = range(start + device.phase, end, scrape)
    late = [time + (random.Random(time).randint(0, 2) if "jitter" in features else 0) for time in times]
    return [
        time
        for time in late
        if device.first <= time < min(device.last, end)
        and not any(begin <= time < finish for begin, finish in device.silences)
        and not ("missed scrape" in features and rng.random() < 0.05)
    ]


def samples_of_device(
    rng: random.Random,
    number: int,
    device: Device,
    holdings: list[Holding],
    features: set[str],
    layout: str,
    fleet: Row,
) -> Iterator[Row]:
    """The rows of one device: one per scrape, reading source and, where labels say so, job."""
    (start, end), labelled = fleet["window"], "records" not in features
    sources: set[int | None] = {None} | {instance for _, cut in device.layouts for instance in cut}
    work = {source: random_work(rng, start, end, features) for source in sorted(sources, key=str)}
    counters: dict[int | None, CycleCounter] = {}
    for time in scrape_times(rng, device, features, start, end, fleet["scrape"]):
        cut: Slices = latest(device.layouts, time)
        clock = rng.randint(*CLOCKS[device.model])
        rows: list[Row] = []
        for source in [*sorted(cut), None] if cut else [None]:
            held = [
                holding
                for holding in holdings
                if holding.start <= time < holding.end
                and any(n == number and instance in (None, source) for n, instance in holding.devices)
            ]
            now = latest(work[source], time)
            whole_beside_slices = bool(cut) and source is None
            row = readings(rng, device, now, bool(held) or whole_beside_slices, bool(cut), clock)
            counter = counters.setdefault(source, CycleCounter(rng, time))
            counts = counter.advance(time, now["counted"] if held and not now["idle"] else 0.0, clock, device.resets)
            row |= counts if any(begin <= time < finish for begin, finish in device.counted) else {}
            row |= {name: None for begin, finish, name in device.missing if begin <= time < finish}
            named = held if labelled and not whole_beside_slices else []
            rows += labelled_rows(row, device, time, source, cut, named, "labels without user" not in features)
        if cut:
            rows = lay_out(rows, layout)
        yield from rows


def labelled_rows(
    row: Row,
    device: Device,
    time: int,
    source: int | None,
    cut: Slices,
    held: list[Holding],
    with_user: bool,
) -> list[Row]:
    """The row with its identity, once for each job that its labels name: so dcgm-exporter repeats lines."""
    cluster, host = latest(device.places, time)
    identity = {
        "time": time,
        "cluster": cluster,
        "host": host,
        "index": device.index,
        "uuid": device.uuid,
        "model": device.model,
        "mig_instance": source,
        "mig_profile": None if source is None else cut[source],
    }
    owners: list[Row] = [
        {"job": holding.job, "user": holding.user if with_user else None, "namespace": holding.namespace} for holding in held
    ]
    return [identity | who | row for who in owners or [{"job": None, "user": None, "namespace": None}]]


def lay_out(rows: list[Row], layout: str) -> list[Row]:
    """A sliced GPU's rows, as its exporter lays them out; the parent's row comes in as the last one.

    "clock on parent" (NVIDIA's documented layout): the parent has the clock only, the slices all else.
    "clock on slices": no parent. "gauges on parent": as the first, but the parent has readings of its own,
    for the whole GPU, that must not be counted beside the slices.
    """
    *slices, parent = rows
    if layout == "clock on slices":
        return slices
    nothing: Row = dict.fromkeys((*GAUGES, "busy", "tensor_cycles", "sm_cycles"))
    parent = parent | nothing if layout == "clock on parent" else parent
    return [row | {"sm_clock": None} for row in slices] + [parent]


def job_records(holdings: list[Holding], devices: list[Device]) -> list[Row]:
    """What the scheduler recorded. A device that moved is recorded at every place it had during the job."""
    records = []
    for holding in holdings:
        gpus = set()
        for number, _ in holding.devices:
            device = devices[number]
            places = {latest(device.places, holding.start)}
            places |= {place for time, place in device.places if holding.start < time < holding.end}
            gpus |= {(*place, None if holding.whole_hosts else device.index) for place in places}
        records.append(
            {
                "job": holding.job,
                "user": holding.user,
                "start": holding.start,
                "end": holding.end,
                "gpus": sorted(gpus, key=str),
            }
        )
    return records


def random_fleet(seed: int, without: frozenset[str] | set[str] = frozenset()) -> Row:
    """A fleet in the form that the reference reads. `without` names features to leave out."""
    rng = random.Random(seed)
    features = {name for name, chance in FEATURES.items() if rng.random() < chance} - set(without)
    layout = rng.choice([name for name in LAYOUTS if name not in without])
    source = rng.choice([name for name in SOURCES if name not in without])
    features |= {layout, source}
    grid = 1 if "jitter" in features else rng.choice([1, 5, 5])
    scrape = rng.randint(10, 30) // grid * grid
    start = 1_786_000_000 // 3600 * 3600 + rng.randrange(0, 3600, grid)
    end = start + rng.randrange(600, 3601, grid)
    fleet: Row = {
        "seed": seed,
        "window": (start, end),
        "tick": grid,
        "scrape": scrape,
        "gap": GAP_IN_SCRAPES * scrape,
    }
    devices = random_devices(rng, features, start, end, grid, scrape)
    holdings = random_holdings(rng, features, devices, start, end, grid)
    samples = [
        row for number, device in enumerate(devices) for row in samples_of_device(rng, number, device, holdings, features, layout, fleet)
    ]
    of_gpus = [holding for holding in holdings if all(instance is None for _, instance in holding.devices)]
    recorded = [] if "labels" in features else job_records(of_gpus, devices)  # no scheduler's record names a slice
    inventory = [
        {
            "cluster": device.places[0][1][0],
            "host": device.places[0][1][1],
            "index": device.index,
            "uuid": device.uuid,
            "model": device.model,
            "start": start,
            "end": end,
        }
        for device in devices
        if device.listed and (device.uuid or len(device.places) == 1)
    ]
    samples.sort(key=lambda row: (row["time"], row["cluster"], row["host"], row["index"], row["mig_instance"] or 0))
    return fleet | {
        "samples": samples,
        "jobs": recorded,
        "inventory": inventory,
        "features": sorted(features),
    }


def exposition_labels(row: Row, job_label: str) -> str:
    """Labels in dcgm-exporter's order. `job_label`: "hpc_job" (Slurm map files) or "pod" (Kubernetes)."""
    labels = {
        "gpu": row["index"],
        "UUID": row["uuid"],
        "device": f"nvidia{row['index']}",
        "modelName": MODEL_NAMES[row["model"]],
        "GPU_I_PROFILE": row["mig_profile"],
        "GPU_I_ID": row["mig_instance"],
        "Hostname": row["host"],
    }
    if row["job"] is not None:
        labels |= {job_label: row["job"], "namespace": row["namespace"], "user": row["user"]}
    return ",".join(f'{name}="{value}"' for name, value in labels.items() if value is not None)


def expositions(fleet: Row, job_label: str = "hpc_job") -> dict[tuple[int, str, str], str]:
    """What each host's dcgm-exporter answered at each scrape. No exporter prints its cluster: see the key."""
    texts = {}
    for key, group in groupby(fleet["samples"], key=lambda row: (row["time"], row["cluster"], row["host"])):
        rows, lines = list(group), []
        for name, metric, kind, factor, form, documentation in EXPOSED:
            read = [row for row in rows if row[name] is not None]
            lines += [f"# HELP {metric} {documentation}", f"# TYPE {metric} {kind}"] if read else []
            lines += [f"{metric}{{{exposition_labels(row, job_label)}}} {form.format(row[name] * factor)}" for row in read]
        texts[key] = "\n".join(lines) + "\n"
    return texts


def host_list(hosts: list[str]) -> str:
    """Names as Slurm prints them: node-1 and node-2 are node-[1,2]; others stand alone."""
    folded, numbers = [], defaultdict(list)
    for host in sorted(set(hosts)):
        match = re.fullmatch(r"(.*?)(\d+)", host)
        if match:
            numbers[match[1]].append(int(match[2]))
        else:
            folded.append(host)
    for prefix, found in numbers.items():
        folded.append(f"{prefix}{found[0]}" if len(found) == 1 else f"{prefix}[{','.join(map(str, sorted(found)))}]")
    return ",".join(sorted(folded))


def sacct_says_all(fleet: Row) -> bool:
    """Whether sacct can say what the records say: it knows whole hosts, no GPU's index, one cluster a job."""
    return all(index is None for job in fleet["jobs"] for _, _, index in job["gpus"]) and all(
        len({cluster for cluster, _, _ in job["gpus"]}) == 1 for job in fleet["jobs"]
    )


def sacct_text(fleet: Row) -> str:
    """`sacct -a --parsable2 --format=JobID,User,Cluster,NodeList,AllocTRES,Start,End,State`; times are UTC.

    Each job has its step rows (.batch, .extern), which hold nothing that the job's own row does not.
    """

    def stamp(time: int) -> str:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S")

    indices = {(row["cluster"], row["host"], row["index"]) for row in [*fleet["samples"], *fleet["inventory"]]}
    lines = ["JobID|User|Cluster|NodeList|AllocTRES|Start|End|State"]
    for job in fleet["jobs"]:
        clusters = sorted({cluster for cluster, _, _ in job["gpus"]})
        for cluster in clusters:  # a job that moved clusters would be two jobs in Slurm
            held = {
                gpu
                for gpu in indices
                for place in job["gpus"]
                if place[0] == cluster and gpu[:2] == tuple(place[:2]) and place[2] in (None, gpu[2])
            }
            hosts = sorted({host for other, host, _ in job["gpus"] if other == cluster})
            nodes, span = host_list(hosts), f"{stamp(job['start'])}|{stamp(job['end'])}|COMPLETED"
            tres = f"cpu={8 * len(held)},gres/gpu={len(held)},node={len(hosts)}"
            lines += [f"{job['job']}|{job['user']}|{cluster}|{nodes}|{tres}|{span}"]
            lines += [f"{job['job']}.{step}||{cluster}|{nodes}|{tres}|{span}" for step in ("batch", "extern")]
    return "\n".join(lines) + "\n"


def write_fleet(fleet: Row, folder: Path, job_label: str = "hpc_job") -> None:
    """Writes fleet.json, jobs.sacct and one <cluster>/<host>/<time>.prom per scrape."""
    for (time, cluster, host), text in expositions(fleet, job_label).items():
        path = folder / cluster / host / f"{time}.prom"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "fleet.json").write_text(json.dumps(fleet))
    (folder / "jobs.sacct").write_text(sacct_text(fleet))


if __name__ == "__main__":
    write_fleet(random_fleet(int(sys.argv[1])), Path(sys.argv[2]))
