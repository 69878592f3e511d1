"""What the rules must record, worked out one device and one moment after another: short, slow, and without a word of PromQL."""

from __future__ import annotations

import math
from collections import defaultdict

from tests.rules.drawn_fleet import A100, H100, SCRAPE, STEP, DrawnDevice, DrawnFleet
from tests.rules.evaluation import Labels

# tensor clock, SM clock (Hz), memory clock (Hz), SMs, one direction of NVLink (B/s): figures of the makers, as `ullage gpus` has them
CHIPS = {H100: (1.83e9, 1.98e9, 2.619e9, 132, 450e9), A100: (1.41e9, 1.41e9, 1.593e9, 108, 300e9)}
RANGES = {"power": 5000.0, "clock": 5000.0, "memory_clock": 20000.0, "util": 110.0, "nvlink_tx": 1e14, "throttle": 2.0**62}
SHARES = {"3g.40gb": 3 / 7, "1g.10gb": 1 / 7, "1c.2g.20gb": 1 / 7}
LIMITS = {"thermal": 0x60, "slowdown": 0x88, "application": 0x112, "power_cap": 0x4}
Answer = dict[str, dict[Labels, float]]


def scrape_at(fleet: DrawnFleet, device: DrawnDevice, now: int) -> int | None:
    """The last scrape of a device by a moment (s), None where it failed or there was none."""
    host = device.labels["Hostname"]
    scrape = (now - fleet.phase[host] * STEP) // SCRAPE
    return scrape if 0 <= scrape < fleet.scrapes and scrape not in fleet.failed[host] else None


def readings(device: DrawnDevice, scrape: int) -> dict[str, float]:
    """What a device says that can be true."""
    found = {}
    for name, text in device.readings[scrape].items():
        value = float(text)
        if math.isfinite(value) and 0 <= value <= RANGES.get(name, 1e300 if name.endswith("cycles") else 1.1):
            found[name] = value
    for name, factor in (("clock", 1e6), ("memory_clock", 1e6), ("util", 0.01)):
        if name in found:
            found[name] *= factor
    return found


def cycles(fleet: DrawnFleet, device: DrawnDevice, scrape: int, now: int) -> tuple[float, float] | None:
    """Tensor and SM cycles a second since the scrape before in which the very same series was there, in the last two minutes."""
    host = device.labels["Hostname"]
    best: tuple[float, float] | None = None
    if "sm_cycles" not in device.readings[scrape]:
        return None
    for job in device.holders[scrape] or ("",):
        for before in range(scrape - 1, scrape - 5, -1):
            too_old = before * SCRAPE + fleet.phase[host] * STEP < now - 4 * SCRAPE
            if before < 0 or too_old or before in fleet.failed[host] or job not in (device.holders[before] or ("",)):
                continue
            seconds = (scrape - before) * SCRAPE
            grown = [float(device.readings[scrape][name]) - float(device.readings[before][name]) for name in ("tensor_cycles", "sm_cycles")]
            rates = (grown[0] / seconds, grown[1] / seconds)
            best = rates if best is None else (max(best[0], rates[0]), max(best[1], rates[1]))
            break
    return best


def expected(fleet: DrawnFleet, now: int) -> Answer:
    """Return the series that are compared, by name and labels, at a moment (s) of the rules' grid."""
    there = []
    for device in fleet.devices:
        scrape = scrape_at(fleet, device, now)
        if scrape is not None and set(device.readings[scrape]) & {"tensor", "gr", "util", "clock", "tensor_cycles"}:
            there.append((device, scrape, readings(device, scrape)))
    place = lambda device: (device.labels["Hostname"], device.labels["gpu"])  # noqa: E731
    sliced = {place(device) for device, _, _ in there if "GPU_I_ID" in device.labels}
    parents = {place(device): read for device, _, read in there if "GPU_I_ID" not in device.labels}
    taken: dict[tuple[str, str], float] = defaultdict(float)
    for device, _, _ in there:
        if "GPU_I_ID" in device.labels:
            taken[place(device)] += SHARES[device.labels["GPU_I_PROFILE"]]
    rows = []
    for device, scrape, read in there:
        model, rest = device.labels["modelName"], "GPU_I_ID" not in device.labels and place(device) in sliced
        share = SHARES[device.labels["GPU_I_PROFILE"]] if "GPU_I_ID" in device.labels else 1 - taken[place(device)]
        if share < 1e-6:
            continue
        held = device.holders[scrape]
        job = "" if not held else held[0] if len(held) == 1 else "shared"
        rate = cycles(fleet, device, scrape, now)
        tensor = rate[0] / rate[1] if rate and rate[1] else read.get("tensor")
        known = [value for value in (read.get("tensor"), read.get("sm"), read.get("gr"), read.get("util")) if value is not None]
        quiet = bool(known) and max(known) < 0.005
        owner = {"": "free" if quiet else "unknown", "shared": "shared"}.get(job, "held_idle" if quiet else "job")
        owner = "not_sliced" if rest else owner
        clock = read.get("clock")
        if clock is None and "GPU_I_ID" in device.labels and "tensor" in read:
            clock = parents.get(place(device), {}).get("clock")
        if clock == 0 and read.get("tensor", 0) > 0.005:
            clock = None
        ofu = None
        if model in CHIPS:
            tensor_clock, _, _, sms, _ = CHIPS[model]
            if rest:
                ofu = 0.0
            else:
                if rate is not None:
                    ofu = rate[0] / (tensor_clock * (sms if rate[1] > 4e9 else 1))
                    ofu = ofu if ofu <= 1.5 else None
                if ofu is None and "tensor" in read and clock is not None:
                    ofu = read["tensor"] * clock / tensor_clock
        rows.append((device, read, job, owner, share, ofu, tensor))
    return _added(rows)


def _added(rows: list) -> Answer:
    answer: Answer = defaultdict(lambda: defaultdict(float))
    job_of = lambda job: {("job_id", job)} if job else set()  # noqa: E731
    host_of = lambda device: {("host", device.labels["Hostname"])}  # noqa: E731
    most: dict[str, float] = {}
    for _, read, job, owner, _, ofu, _ in rows:
        if owner in ("job", "shared") and ofu is not None and "gr" in read:
            most[job] = max(most.get(job, 0.0), read["gr"])
    for device, read, job, owner, share, ofu, tensor in rows:
        levels = {
            "job": job_of(job),
            "host": host_of(device),
            "model": {("model", device.labels["modelName"])},
            "fleet": set(),
            "cluster": set(),
        }
        for level, labels in levels.items():

            def add(what: str, value: float, level: str = level, labels: set = labels, **more: str) -> None:
                answer[f"{level}:ullage_{what}:sum"][frozenset(labels | set(more.items()))] += value

            add("owned_gpus", share, owner=owner)
            if "power" in read:
                add("power_watts", read["power"])
            for limit, mask in LIMITS.items():
                if "throttle" in read and int(read["throttle"]) & mask:
                    if owner != "not_sliced":
                        add("limited_gpus", share, limit=limit)
                    break
            if device.labels["modelName"] in CHIPS and owner != "not_sliced":
                _, sm_clock, memory_clock, _, link = CHIPS[device.labels["modelName"]]
                roofs = {
                    "memory": read["dram"] * read["memory_clock"] / memory_clock if {"dram", "memory_clock"} <= set(read) else None,
                    "fp64": read["fp64"] * read["clock"] / sm_clock if {"fp64", "clock"} <= set(read) else None,
                    "nvlink_tx": read["nvlink_tx"] / link if "nvlink_tx" in read else None,
                }
                for roof, height in roofs.items():
                    if height is not None:
                        add("roof_gpus", share * height, roof=roof)
                        add("roof_measured_gpus", share, roof=roof)
            if ofu is None:
                continue
            add("measured_gpus", share)
            add("ofu_gpus", share * ofu)
            for step, lost in _steps(read, job, owner, ofu, tensor, most).items():
                add("loss_gpus", share * lost, step=step)
    return {name: dict(values) for name, values in answer.items()}


def _steps(read: dict[str, float], job: str, owner: str, ofu: float, tensor: float | None, most: dict[str, float]) -> dict[str, float]:
    if owner in ("free", "not_sliced"):
        return {"not_allocated": 1 - ofu}
    if owner == "held_idle":
        return {"held_idle": 1 - ofu}
    assert tensor is not None
    lost = {"clock": tensor - ofu}
    if "gr" not in read and "sm" in read:
        return {**lost, "load_balance_x_activity_x_sm_fill": 1 - read["sm"], "tensor_issue": read["sm"] - tensor}
    if "gr" not in read:
        return {**lost, "load_balance_x_activity_x_sm_fill_x_tensor_issue": 1 - tensor}
    gr = read["gr"]
    if owner == "unknown":
        lost |= {"activity": 1 - gr}
    elif most[job] > 0:
        lost |= {"load_balance": 1 - gr / most[job], "activity": gr / most[job] * (1 - most[job])}
    else:
        lost |= {"load_balance": 0.0, "activity": 1.0}
    if "sm" in read:
        return {**lost, "sm_fill": gr - read["sm"], "tensor_issue": read["sm"] - tensor}
    return {**lost, "sm_fill_x_tensor_issue": gr - tensor}
