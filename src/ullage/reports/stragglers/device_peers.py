"""What each device of a job shows beside the others of its model at the same times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ullage.reports.stragglers.job_pauses import Array, Flags, middle

RESTING = 0.05  # of engine activity
EDGE = 0.1  # of engine activity in a short window: where a rest begins or ends
MOST_EDGES_OF_ONE = 2  # a rest has so many
REMEMBERED = 6  # windows (after averaging) in which the others' rests count
FEW_HOSTS = 4
FEW_DEVICES = 64
LEAST_SIBLINGS = 3


@dataclass(frozen=True)
class JobReadings:
    """What the devices of a job showed, window by window (window, device), NaN where nothing: activities, clock, replays since the last."""

    times: npt.NDArray[np.int64]
    tensor: Array
    sm: Array
    engine: Array
    clock: Array
    replays: Array
    hosts: tuple[str | None, ...]
    models: tuple[str | None, ...]


@dataclass(frozen=True)
class BesidePeers:
    """Each device beside the others of its model, as logs (window, device); the engine as a difference.

    `others_engine` is how busy the others' engines are, `others_rest` the longest rest that any of them took lately, as a share of time.
    `of_host` is the engine beside those of the others of its host, which are read at the same times; `apart` whose engine works for longer
    than those. `recurs` is who has rested more than once, not long once.
    """

    tensor: Array
    clock: Array
    busy: Array
    engine: Array
    others_engine: Array
    others_rest: Array
    of_host: Array
    apart: Flags
    recurs: Flags

    def of_devices(self, devices: npt.NDArray[np.int64]) -> BesidePeers:
        """Return what some devices show."""
        return BesidePeers(**{field.name: getattr(self, field.name)[:, devices] for field in fields(self)})


def beside_peers(readings: JobReadings, averaged: dict[str, Array], width: int) -> BesidePeers:
    """Return how each device does beside the others: `averaged` are means of the last `width` windows of the readings."""
    tensor, clock, sm, engine = (averaged[name] for name in ("tensor", "clock", "sm", "engine"))
    peers = _Peers(readings)
    log_tensor, others_engine = np.log(tensor / peers.middle(tensor)), peers.middle(engine)
    return BesidePeers(
        tensor=log_tensor,
        clock=np.log(clock / peers.middle(clock)),
        busy=np.log(sm / peers.middle(sm)) - log_tensor,
        engine=engine - others_engine,
        others_engine=others_engine,
        others_rest=1 - _lowest_of_last(peers.lowest(engine), 1 if width == 1 else REMEMBERED * width),
        of_host=peers.of_host(engine, min(LEAST_SIBLINGS, len(readings.hosts) - 1)),
        apart=peers.of_host(engine, LEAST_SIBLINGS) > RESTING,
        recurs=_rests_recur(readings.engine, peers.middle(readings.engine), width),
    )


class _Peers:
    """With whom each device is compared: devices of its model, on other hosts where there are enough, else on its own."""

    def __init__(self, readings: JobReadings) -> None:
        hosts, models = np.array(readings.hosts, object), np.array(readings.models, object)
        few = len(set(hosts)) <= FEW_HOSTS  # of many hosts one more or less moves no median
        groups: dict[tuple[str | None, str | None, int | None], list[int]] = {}
        for device, (host, model) in enumerate(zip(readings.hosts, readings.models, strict=True)):
            single = few and not np.any((models == model) & (hosts != host)) and np.count_nonzero(models == model) <= FEW_DEVICES
            key = (model, host if few else None, device if single else None)
            groups.setdefault(key, []).append(device)
        self.groups: list[tuple[list[int], npt.NDArray[np.int64]]] = []
        for (model, host, alone), members in groups.items():
            alike = models == model
            if alone is not None:
                alike[alone] = False
            elif few and np.any(alike & (hosts != host)):
                alike &= hosts != host
            self.groups.append((members, np.flatnonzero(alike)))

        self.hosts = hosts

    def of_host(self, engine: Array, least: int) -> Array:
        """Return each device's engine beside those of the others of its host, of which there must be so many."""
        beside = np.full(engine.shape, np.nan)
        for device, host in enumerate(self.hosts):
            siblings = np.flatnonzero(self.hosts == host)
            siblings = siblings[siblings != device]
            if host is not None and least <= len(siblings) <= FEW_DEVICES:
                beside[:, device] = engine[:, device] - middle(engine[:, siblings])
        return beside

    def middle(self, values: Array) -> Array:
        """Return the median of the others of each device."""
        return self._of_others(values, lambda ordered, _: middle(ordered))

    def lowest(self, values: Array) -> Array:
        """Return the lowest value of the others; of many hosts that of a quarter, which no single host is."""
        return self._of_others(values, lambda those, many: np.sort(those, axis=1)[:, those.shape[1] // 4 if many else 0])

    def _of_others(self, values: Array, measure: Callable[[Array, bool], Array]) -> Array:
        found = np.full_like(values, np.nan)
        for members, others in self.groups:
            if len(others):
                found[:, members] = measure(values[:, others], members[0] in others)[:, None]
        return found


def _lowest_of_last(values: Array, count: int) -> Array:
    """Return the lowest of the last `count` windows, those that are missing left out."""
    known = np.concatenate([np.full((count - 1, values.shape[1]), np.inf), np.where(np.isnan(values), np.inf, values)])
    return np.asarray(np.lib.stride_tricks.sliding_window_view(known, count, axis=0).min(axis=-1))


def _rests_recur(engine: Array, others: Array, width: int) -> Flags:
    """Return where a device has rested more than once, not long once: short windows in which it rests and works are the edges of rests."""
    if width == 1:
        return np.ones(engine.shape, bool)
    edges = (engine - others < -EDGE) & (engine > EDGE)
    seen = np.concatenate([np.zeros((2 * width, engine.shape[1]), int), np.cumsum(edges, axis=0, dtype=int)])
    return np.asarray(seen[2 * width :] - seen[: -2 * width] > MOST_EDGES_OF_ONE)
