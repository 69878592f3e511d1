"""What was measured of a fleet in a window, and what of it can be believed: sums by state, verdicts on series, the rows that count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ullage.audit.trust import VERDICTS, Verdict
from ullage.errors import NoSampleError, UllageError, harmless
from ullage.reports.fleet.existence import Existence, existence, notes_of, outside
from ullage.reports.fleet.groups import Array, Mask, gpu_hours, marked_sums, state_and_gauge_sums, sums_between
from ullage.reports.fleet.prices import PriceTable
from ullage.reports.fleet.rated import Rated, losses, rate
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.series import gauge_evidence
from ullage.reports.fleet.trusted import Device, judge
from ullage.reports.fleet.where import FILTER_FIELDS, Condition, names_team, rows_that_fit, samples_that_fit, without_teams
from ullage.store.rollups import RolledSums
from ullage.sums.devices import within
from ullage.sums.grouping import collapse
from ullage.sums.spans import Span, Whose, samples_in_spans

Verdicts = Mapping[Device, Verdict]


@dataclass(frozen=True)
class JudgedFleet:
    """What was measured and what of it can be believed: rows of sums by state, which of them are `trusted`, what each step `lost` there."""

    samples: Any
    rolled: RolledSums | None
    rated: Rated
    trusted: Mask
    lost: Mapping[str, Array]
    verdicts: Verdicts
    devices: Rated
    existence: Existence
    window: tuple[int, int]
    prices: PriceTable

    @cached_property
    def good(self) -> Rated:
        """The rows that are trusted."""
        return self.rated.take(self.trusted)

    def in_columns(self, condition: Condition) -> Condition:
        """Return a condition that asks for columns of samples alone: users and namespaces for teams."""
        users, namespaces = (_names_of(self.rated)[name] for name in ("user", "namespace"))
        return without_teams(condition, users, namespaces, self.prices.team_of) if names_team(condition) else condition

    @property
    def interval_ms(self) -> int:
        """The usual time between two samples of a device (ms)."""
        return round(float(self.rated.column("span_ms").sum()) / max(1.0, float(self.rated.column("rows").sum())))

    @property
    def believed_samples(self) -> Any:
        """The samples of trusted series, without the time in which their gauges were faulty."""
        return samples_in_spans(samples_of_trusted(self.samples, self.verdicts), faults_of(self.verdicts), inside=False)


def judged_fleet(samples: Any, question: FleetRequest, notes: list[str], rolled: RolledSums | None) -> JudgedFleet:
    """Add up the samples of a window, and decide which series can be believed; notes say what lies beside."""
    samples = within(samples, question.since, question.until)
    question.progress("adding up")
    rolled = None if rolled is None else replace(rolled, rest=_cut(rolled.rest, question))
    samples, sums, gauges, found, rolled = _existing(samples, question, notes, rolled)
    if not len(sums):
        hint = "widen --since/--until, or check that the source holds the fields it needs: `ullage metrics --fields`"
        raise NoSampleError("there is no sample in the window", "; ".join([*notes[:3], hint]))
    rated = rate(sums, question.gpu)
    _note_unknown(rated, notes)
    question.progress("judging")
    # what was not sliced is no device that says anything
    devices = rate(collapse(sums.filter(pc.is_null(sums["share"])), ["gpu", "mig"]), question.gpu)
    verdicts = judge(devices, gauge_evidence(samples, gauges))
    faults = faults_of(verdicts)
    marked = marked_sums(sums, samples, faults)
    rated = rate(marked, question.gpu) if faults else replace(rated, sums=marked)
    trusted = believed_rows(rated, verdicts)
    window = _window(sums, question)
    if edges := question.price_table.edges(window):
        rated = rate(sums_between(samples, edges, faults), question.gpu)
        trusted = believed_rows(rated, verdicts)
    good = rated.take(trusted)
    lost = losses(good, np.zeros(len(good), np.int64) if question.one_job else None)
    return JudgedFleet(samples, rolled, rated, trusted, lost, verdicts, devices, found, window, question.price_table)


def part_of_fleet(whole: JudgedFleet, condition: Condition) -> JudgedFleet:
    """Return a part of a fleet, judged as the whole is: its rows are the whole's. Raises UllageError where there are none."""
    plain = whole.in_columns(condition)
    chosen = rows_that_fit(plain, whole.rated.sums)
    if not chosen.any():
        problem = f"no sample of this fleet fits --where '{harmless(str(condition), 300)}'"
        raise UllageError(problem, "see the names with --by user, host, model")
    rated = whole.rated.take(chosen)
    return replace(
        whole,
        samples=samples_that_fit(plain, whole.samples, _names_of(whole.rated)),
        rolled=None,
        rated=rated,
        trusted=whole.trusted[chosen],
        lost={name: values[chosen[whole.trusted]] for name, values in whole.lost.items()},
        verdicts=_of_rows(whole.verdicts, rated),
        devices=whole.devices.take(_have_rows(whole.devices, rated)),
        existence=Existence({}),
    )


def doubtful_series(verdicts: Verdicts) -> list[Verdict]:
    """Return the verdicts on series that are not ok, the worst first."""
    found = (one for one in verdicts.values() if one.verdict != "ok")
    return sorted(found, key=lambda one: (VERDICTS.index(one.verdict), one.gpu, one.mig or ""))


def believed_rows(rated: Rated, verdicts: Verdicts) -> Mask:
    """Return which rows count: those of trusted series, and what was not sliced of a GPU of which any series is trusted."""
    of_gpu: dict[str | None, bool] = {}
    for (gpu, _), verdict in verdicts.items():
        of_gpu[gpu] = of_gpu.get(gpu, False) or verdict.trusted
    devices, firsts = rated.alike("gpu", "mig")
    sound = []
    for gpu, mig in zip(*(rated.sums[name].take(pa.array(firsts)).to_pylist() for name in ("gpu", "mig")), strict=True):
        own = verdicts.get((gpu, mig))
        sound.append(gpu is not None and (of_gpu.get(gpu, False) if own is None else own.trusted))
    found: Mask = np.array(sound, dtype=np.bool_)[devices] & ~rated.sums["faulty"].to_numpy()
    return found


def faults_of(verdicts: Verdicts) -> Mapping[Whose, tuple[Span, ...]]:
    """Return when series that count were faulty, which does not count."""
    return {device: verdict.left_out for device, verdict in verdicts.items() if verdict.left_out}


def samples_of_trusted(samples: Any, verdicts: Verdicts) -> Any:
    """Return the samples of trusted series."""
    import ibis

    doubted: dict[str, list[str | None]] = {}
    for (gpu, mig), verdict in verdicts.items():
        if not verdict.trusted:
            doubted.setdefault(gpu, []).append(mig)
    sound = {gpu for (gpu, _), verdict in verdicts.items() if verdict.trusted}
    gone = [gpu for gpu in doubted if gpu not in sound]
    samples = samples.filter(~samples.gpu.isin(gone)) if gone else samples
    for gpu in sorted(doubted.keys() & sound):
        own = [samples.mig.isnull() if mig is None else (samples.mig == mig).fill_null(False) for mig in doubted[gpu]]
        samples = samples.filter(~((samples.gpu == gpu) & ibis.or_(*own)))
    return samples


def _cut(rest: Any, question: FleetRequest) -> Any:
    return None if rest is None else within(rest, question.since, question.until)


def _existing(
    samples: Any, question: FleetRequest, notes: list[str], rolled: RolledSums | None
) -> tuple[Any, pa.Table, pa.Table, Existence, RolledSums | None]:
    """Return the samples of the time in which their GPUs existed, their sums by state and of their gauges, when each GPU existed, and
    what is kept of their sums.

    Notes say what lay outside.
    """
    sums, gauges = state_and_gauge_sums(samples, notes, rolled)
    found = existence(sums, question.existing, _window(sums, question)) if len(sums) else Existence({})
    not_existing = outside(sums, found)
    if not not_existing:
        notes += notes_of(found, 0.0, 0.0) if question.existing else []
        return samples, sums, gauges, found, rolled
    inside = samples_in_spans(samples, not_existing)
    left, gauges = state_and_gauge_sums(inside, [])
    notes += notes_of(found, _observed(sums), _observed(left))
    return inside, left, gauges, found, None


def _window(sums: pa.Table, question: FleetRequest) -> tuple[int, int]:
    start, end = pc.min(sums["start_ms"]).as_py(), pc.max(sums["last_ms"]).as_py()
    return (int(start) if question.since is None else question.since, int(end) if question.until is None else question.until)


def _observed(sums: pa.Table) -> float:
    """Return the GPU-hours that sums speak of, before anything is known of the GPUs."""
    return gpu_hours(rate(sums))


def _names_of(rated: Rated) -> dict[str, list[str | None]]:
    return {name: pc.unique(rated.sums[name].cast(pa.string()).combine_chunks()).to_pylist() for name in FILTER_FIELDS}


def _of_rows(verdicts: Verdicts, rated: Rated) -> dict[Device, Verdict]:
    """Return the verdicts on the devices of some rows."""
    seen = set(zip(rated.words("gpu"), rated.words("mig"), strict=True))
    return {device: verdict for device, verdict in verdicts.items() if device in seen}


def _have_rows(devices: Rated, rated: Rated) -> Mask:
    """Return which devices any of some rows is of."""
    seen = set(zip(rated.words("gpu"), rated.words("mig"), strict=True))
    return np.array([device in seen for device in zip(devices.words("gpu"), devices.words("mig"), strict=True)], dtype=np.bool_)


def _note_unknown(rated: Rated, notes: list[str]) -> None:
    if not rated.unknown_models:
        return
    listed = ", ".join(f"'{harmless(name, 60)}'" if name else "no name" for name in list(rated.unknown_models)[:5])
    hint = 'name it with --gpu, or map it with ULLAGE_GPU_ALIAS="their name=our name"; `ullage gpus` lists all'
    if not rated.chips:
        raise UllageError(f"no GPU of this fleet is known: {listed}", hint)
    notes.append(f"{sum(rated.unknown_models.values()):,.1f} GPU-hours are of GPUs that are not known ({listed}) and have no OFU; {hint}")
