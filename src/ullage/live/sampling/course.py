"""How all devices fare while they are watched, each by itself (`watched`) and together, in bounded memory.

The sums are those of `ullage.sums.devices` for one row a device, kept while readings come in one after the other, so that
a machine that is watched and the file that is kept of it give one OFU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.gpus.mig import mig_share
from ullage.live.sampling.watched_device import REMEMBERED, Watched
from ullage.metrics.metric import ratio
from ullage.metrics.telemetry import TelemetryTree, tree
from ullage.sources.machine import Device as Key
from ullage.sources.machine import Limits

LONGEST_MS = 60_000  # the longest time that a reading stands for, where readings don't come more slowly by nature


@dataclass(frozen=True)
class Totals:
    """A machine or a set of devices together. `gpus` are whole ones' worth, a MIG instance counting its share; `known` those whose OFU is.

    `now` and `ofu` are OFU of the last readings and since the start, `ullage` how many GPUs' worth were missing since the start,
    `cost` what that costs an hour where prices are known; `exact` says that cycle counters gave every OFU.
    """

    gpus: float
    known: float
    now: float | None
    ofu: float | None
    ullage: float | None
    cost: float | None
    exact: bool
    silent: int


class Course:
    """All devices that were seen, in the order of host, number and instance.

    `interval` is the time between two readings in seconds; `model` names the GPU where the samples don't; `limits` by UUID.
    """

    def __init__(self, interval: float, model: str | None = None) -> None:
        self.interval, self.model = interval, model
        self.longest = max(LONGEST_MS, 2000 * interval)
        self.limits: dict[str, Limits] = {}
        self.start: int | None = None
        self.last = 0
        self._devices: dict[Key, Watched] = {}
        self.histories = 0  # devices of which more than OFU is remembered

    def __iter__(self) -> Iterator[Watched]:
        """Yield the devices in their order."""
        yield from sorted(self._devices.values(), key=_place)

    def __len__(self) -> int:
        return len(self._devices)

    def add(self, batches: Iterable[pa.RecordBatch | pa.Table]) -> list[Watched]:
        """Take in rows of `tables.SAMPLES`, one a device and time, and return the devices that they speak of.

        A row that is not later than its device's last is known already and is passed over. Where every device is much earlier than it
        was, the clock was set back, and time goes on from there.
        """
        told: dict[Key, Watched] = {}
        read = ((_key(row), round(row["time"].timestamp() * 1000), row) for batch in batches for row in batch.to_pylist())
        rows = sorted(read, key=lambda each: each[1])
        newest = {key: time for key, time, _ in rows if key in self._devices}
        if newest and all(time < self._devices[key].time - self.longest for key, time in newest.items()):
            self._set_back(min(newest.values()))
        for key, time, row in rows:
            device = self._devices.get(key) or self._new(key, row)
            if time <= device.time:
                continue
            self.start = time - round(self.interval * 1000) if self.start is None else self.start
            self.last = max(self.last, time)
            device.add({name: value for name, value in row.items() if value is not None}, time, self.longest, 1000 * self.interval)
            told[key] = device
        return sorted(told.values(), key=_place)

    def _set_back(self, time: int) -> None:
        """Move all that is known so that `time` follows it."""
        by = self.last + round(self.interval * 1000) - time
        self.last -= by
        self.start = None if self.start is None else self.start - by
        for device in self._devices.values():
            device.set_back(by)

    def _new(self, key: Key, row: Mapping[str, Any]) -> Watched:
        chip = _chip(row["model"] or self.model)
        device = Watched(*key, {}, chip, _share(key[1], chip), self.limits.get(key[0], Limits()))
        if len(self._devices) < self.histories:
            device.history = deque(maxlen=REMEMBERED)
        self._devices[key] = device
        return device

    def counted(self) -> list[Watched]:
        """Return the devices that count: of a GPU in MIG mode its instances, not the board as well."""
        sliced = {device.gpu for device in self if device.mig}
        return [device for device in self if device.mig or device.gpu not in sliced]

    def totals(self, prices: Mapping[str, float] | None = None) -> Totals:
        """Return all devices together; `prices` are per GPU-hour by GPU name, "" for every other."""
        devices = self.counted()
        fresh = [d for d in devices if d.ofu is not None and self.last - d.time <= 3000 * self.interval]
        known = [(d, ofu) for d in devices if (ofu := d.mean_ofu) is not None]
        weight = sum(d.share for d, _ in known)
        named = {find(name).name if name else "": price for name, price in (prices or {}).items()}
        costs = [_price(d, named, d.share * (1 - ofu)) for d, ofu in known]
        return Totals(
            gpus=sum(d.share for d in devices),
            known=weight,
            now=ratio(sum(d.share * (d.ofu or 0.0) for d in fresh), sum(d.share for d in fresh)),
            ofu=ratio(sum(d.share * ofu * d.span for d, ofu in known), sum(d.share * d.span for d, _ in known)),
            ullage=sum(d.share * (1 - ofu) for d, ofu in known) if known else None,
            cost=sum(cost for cost in costs if cost is not None) if any(cost is not None for cost in costs) else None,
            exact=bool(known) and all(d.exact for d, _ in known),
            silent=sum(d.silent or self.last - d.time > 3000 * self.interval for d in devices),
        )

    def tree(self) -> TelemetryTree:
        """Return the telemetry tree of all devices since the start: OFU and the factors whose product it is."""
        devices = self.counted()

        def gauge(name: str) -> tuple[float | None, float | None]:
            known = [(d.share * d.means[name].time, d.means[name].value or 0.0) for d in devices if d.means[name].time]
            return ratio(sum(w * v for w, v in known), sum(w for w, _ in known)), max((v for _, v in known), default=None)

        (tensor, tensor_max), (sm, sm_max), (gr, gr_max) = (gauge(name) for name in ("tensor_active", "sm_active", "gr_active"))
        ofu = self.totals().ofu
        return tree(ofu=ofu, tensor=tensor, tensor_max=tensor_max, sm=sm, sm_max=sm_max, gr=gr, gr_max=gr_max)


def one_reading_each(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches in their order, in lists in which no device speaks twice: what came late comes with what is new."""
    together: list[pa.RecordBatch] = []
    seen = set[Key]()
    for batch in batches:
        devices = {*zip(batch["gpu"].to_pylist(), batch["mig"].to_pylist(), strict=True)}
        if seen & devices:
            yield together
            together, seen = [], set()
        together.append(batch)
        seen |= devices
    yield together


def _key(row: Mapping[str, Any]) -> Key:
    return str(row["gpu"]), row["mig"]


def _price(device: Watched, prices: Mapping[str, float], gpus: float) -> float | None:
    price = prices.get(device.chip.name if device.chip else "", prices.get(""))
    return None if price is None else price * gpus


def _place(device: Watched) -> tuple[str, int, str, str]:
    row = device.row
    return str(row.get("host", "")), int(row.get("index", 0)), device.gpu, device.mig or ""


def _chip(name: str | None) -> Chip | None:
    try:
        return find(name) if name else None
    except UllageError:
        return None


def _share(mig: str | None, chip: Chip | None) -> float:
    try:
        return mig_share(mig, chip) if mig else 1.0
    except UllageError:
        return 0.0  # a slice of unknown size can't be added to others; it is shown all the same
