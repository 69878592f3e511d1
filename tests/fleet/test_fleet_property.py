"""Fleets whose devices change in time: our sums against a reference that walks tick by tick and imports nothing of ours.

The reference (`fleet_reference.py`) takes a sample to speak for the time after it, ours for the time before it, as averages do that an
exporter reads at the end of a window. So time runs backwards between the two: the fleet is turned round, its counters too.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest

from tests.fleet.fleet_generator import MODEL_NAMES, expositions, random_fleet
from tests.fleet.fleet_reference import COUNTERS, STEPS, parts_of, totals
from tests.fleet.fleet_reference import busiest as busiest_of
from tests.seeds import some
from ullage.intake import opened
from ullage.metrics.telemetry import LABELS
from ullage.render import fleet_document as as_json
from ullage.reports.fleet.course import course_of, course_width
from ullage.reports.fleet.existence import existence
from ullage.reports.fleet.fleet import _ledger
from ullage.reports.fleet.fleet import fleet as fleet_report
from ullage.reports.fleet.groups import counted_hours, exact_share, groups_of, state_sums
from ullage.reports.fleet.prices import PriceTable, row_prices
from ullage.reports.fleet.rated import losses, rate, weighted_mean
from ullage.reports.fleet.request import FleetRequest
from ullage.store.store import Store
from ullage.sums.devices import within
from ullage.sums.windows import settle
from ullage.tables import samples as as_samples

WITHOUT = {"records", "both sources", "inventory", "never seen"}  # what joins at intake, and what no sample shows
HOUR = 3600
GAUGES = {
    "engine_active": "gr_active",
    "sm_active": "sm_active",
    "tensor_active": "tensor_active",
    "busy": "gpu_util",
    "sm_clock": "sm_clock",
}
KEYS = ("job", "user", "namespace", "host", "cluster", "model")
NAMES = {step: name for name, step in zip(LABELS, STEPS, strict=True)}
SMS = {"H100 SXM": 132, "A100 SXM 80GB": 108}
TOP = 2**50  # counters are turned round by it; a float holds it exactly


def unpriced(rated):
    """The prices of a fleet of which none is known."""
    return row_prices(rated, PriceTable())


def rounded(fleet):
    """The fleet as samples at rest hold it: gauges have 24 bits."""
    for row in fleet["samples"]:
        for name in GAUGES:
            if row[name] is not None:
                row[name] = float(np.float32(row[name]))
    return fleet


def mirror(fleet):
    """A moment about which time is turned round, so that hours stay hours (s)."""
    return -(-fleet["window"][1] // HOUR) * HOUR + 1_000 * HOUR


def turned(fleet):
    """The fleet's rows with time turned round: what rose falls, and what was read at the start of a span is read at its end."""
    axis = 2 * mirror(fleet)
    rows = [row | {"time": axis - row["time"]} for row in fleet["samples"]]
    for row in rows:
        row |= {name: TOP - int(row[name]) for name in COUNTERS if row[name] is not None}
    return sorted(rows, key=lambda row: (row["time"], row["cluster"], row["host"]))


def unsettled(rows):
    """The rows as our table of samples."""
    columns = {"time": [row["time"] * 1000 for row in rows]}
    columns |= {ours: np.array([np.nan if row[name] is None else row[name] for row in rows]) for name, ours in GAUGES.items()}
    columns |= {name: pa.array([row[name] for row in rows], pa.int64()) for name in COUNTERS}
    columns |= {name: [row[name] for row in rows] for name in ("cluster", "host", "job", "user", "namespace")}
    columns["model"] = [MODEL_NAMES[row["model"]] for row in rows]
    columns["gpu"] = [row["uuid"] or f"{row['cluster']}/{row['host']}/{row['index']}" for row in rows]
    columns["mig"] = [None if row["mig_instance"] is None else f"{row['mig_profile']}/{row['mig_instance']}" for row in rows]
    columns["index"] = pa.array([row["index"] for row in rows], pa.int16())
    return pa.Table.from_batches([as_samples(columns)])


def settled(fleet, order=None):
    """The fleet's samples at rest."""
    rows = turned(fleet)
    return settle(unsettled(rows if order is None else [rows[n] for n in order]), gap_ms=fleet["gap"] * 1000)


def as_reference(fleet, table):
    """Samples at rest as an Ibis table, the first of each device standing for what the reference says."""
    import ibis

    return ibis.memtable(first_stands(table, fleet["scrape"] * 1000, fleet["gap"] * 1000))


def first_stands(table, scrape_ms, gap_ms):
    """What the first sample of a device stands for is a guess, ours by its median interval.

    Here it is as in the reference: the time since its GPU was read before (in another cut), and one scrape for a GPU's first.
    """
    gpus = table["gpu"].to_pylist()
    device = [f"{gpu}/{mig}" for gpu, mig in zip(gpus, table["mig"].to_pylist(), strict=True)]
    times = table["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    readings = {}
    for gpu, time in zip(gpus, times, strict=True):
        readings.setdefault(gpu, set()).add(time)
    span = table["span_ms"].to_numpy().copy()
    for row in range(len(device)):
        if row == 0 or device[row] != device[row - 1]:
            before = [time for time in readings[gpus[row]] if time < times[row]]
            span[row] = min(times[row] - max(before) if before else scrape_ms, gap_ms)
    place = table.schema.get_field_index("span_ms")
    return table.set_column(place, table.schema.field(place), pa.array(span, pa.int32()))


def ours(fleet, samples):
    """Our answers: the fleet's figures, and each key's groups."""
    since, until = ((2 * mirror(fleet) - moment) * 1000 for moment in reversed(fleet["window"]))
    samples = within(samples, since, until)
    rated = rate(state_sums(samples, []))
    lost, every = losses(rated), np.ones(len(rated), np.bool_)
    found = {by: groups_of(rated, every, lost, by, unpriced(rated)) for by in KEYS}
    hourly = rate(state_sums(samples, [], bucket_ms=HOUR * 1000))
    found["hour"] = groups_of(hourly, np.ones(len(hourly), np.bool_), losses(hourly), "bucket", unpriced(hourly))
    whole = {
        "ofu": weighted_mean(rated.ofu_part, rated.ofu_time, rated.weight),
        "known": counted_hours(rated),
        "exact": exact_share(rated),
        "ledger": _ledger(rated, existence(rated.sums)),
        "losses": {name: float(np.nansum(values)) / 3_600_000 for name, values in lost.items()},
    }
    return whole, found


def steps_of(found):
    """Losses by the reference's steps: a merged step is booked at the first that it stands for."""
    added = dict.fromkeys(STEPS, 0.0)
    for name, lost in found.items():
        added[next(step for step in STEPS if NAMES[step] == name.split("_x_")[0])] += lost
    return added


def label(key, name, several, cluster):
    if name is None:
        return f"no {key}"
    name = MODEL_NAMES.get(name, name).replace("+", ",")
    return f"{cluster}/{name}" if name in several else name


def close(found, expected, what):
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), what


def compare(seed):
    fleet = fleet_of(seed)
    if fleet["samples"]:
        agree(seed, fleet, as_reference(fleet, settled(fleet)))


def fleet_of(seed, without=frozenset()):
    return rounded(random_fleet(seed, without=WITHOUT | set(without)))


def agree(seed, fleet, samples):
    """Our answers over these samples are the reference's over the fleet."""
    whole, groups = ours(fleet, samples)
    parts = parts_of(fleet)
    top = busiest_of(parts)
    theirs = totals(parts, top)
    close(whole["ofu"] or 0.0, theirs["ofu"] or 0.0, (seed, "ofu"))
    close(whole["known"], theirs["known_seconds"] / HOUR, (seed, "known"))
    close(whole["exact"], theirs["exact_share"] or 0.0, (seed, "exact"))
    owners = {name.replace(" ", "_"): time / HOUR for name, time in theirs["owners"].items()}
    close(whole["ledger"], owners | {"total": theirs["gpu_seconds"] / HOUR}, (seed, "ledger"))
    close(sum(whole["losses"].values()), whole["known"] * (1 - (whole["ofu"] or 0.0)), (seed, "losses add up"))
    if "missing gauge" not in fleet["features"]:
        found, expected = steps_of(whole["losses"]), {step: lost / HOUR for step, lost in theirs["losses"].items()}
        if contradicts(parts) and any("_x_" in name and lost for name, lost in whole["losses"].items()):
            found, expected = one_step(found), one_step(expected)
        close(found, expected, (seed, "losses"))
    compare_groups(seed, fleet, groups, parts, top)


def contradicts(parts):
    """Whether some holder's gauges read zero all the time while cycles show tensor work: we take no step from such gauges, the
    reference every one."""
    worked = {}
    for part in parts:
        seen = worked.setdefault((part.cluster, part.host, part.device, part.job, part.user, part.namespace, part.owner), [0.0, 0.0, 0.0])
        for place, level in enumerate((part.tensor, part.activity, part.sm)):
            seen[place] += level or 0.0
    return any(tensor > 0 and not (activity and sm) for tensor, activity, sm in worked.values())


def one_step(losses):
    """Losses with all that lies between a device's activity and its tensor pipes as one."""
    inside = ("activity", "SM fill", "tensor issue")
    return {step: lost for step, lost in losses.items() if step not in inside} | {"inside": sum(losses[step] for step in inside)}


def same(found, expected, what):
    """Two answers of ours are one, to rounding."""
    for name, value in expected[0].items():
        close(found[0][name] or 0.0, value or 0.0, (what, name))
    for key, groups in expected[1].items():
        assert {group.key for group in groups} == {group.key for group in found[1][key]}, (what, key)
        others = {group.key: group for group in found[1][key]}
        for group in groups:
            other = others[group.key]
            assert (other.method, other.gpus) == (group.method, group.gpus), (what, key, group.key)
            for name in ("ofu", "gpu_hours", "counted_hours", "exact_share"):
                close(getattr(other, name) or 0.0, getattr(group, name) or 0.0, (what, key, group.key, name))


def compare_groups(seed, fleet, groups, parts, top):
    axis = 2 * mirror(fleet)
    for key in (*KEYS, "hour"):
        seen = {}
        for part in parts:
            name = getattr(part, key)
            if name is not None and key in ("job", "user", "namespace", "host"):
                seen.setdefault(name.replace("+", ","), set()).add(part.cluster)
        several = {name for name, clusters in seen.items() if len(clusters) > 1}
        split = {}
        for part in told(parts):
            name = getattr(part, key)
            where = str(axis // HOUR - 1 - name) if key == "hour" else label(key, name, several, part.cluster)
            split.setdefault(where, []).append(part)
        found = {group.key: group for group in groups[key]}
        if key == "hour":
            found = {str(int(np.datetime64(name.replace(" ", "T")).astype("datetime64[h]").astype(int))): g for name, g in found.items()}
        assert set(found) == set(split), (seed, key)
        for name, own in split.items():
            expected, group = totals(own, top), found[name]
            close(group.gpu_hours, expected["gpu_seconds"] / HOUR, (seed, key, name, "hours"))
            close(group.counted_hours, expected["known_seconds"] / HOUR, (seed, key, name, "known"))
            close(group.ofu or 0.0, expected["ofu"] or 0.0, (seed, key, name, "ofu"))
            close(group.exact_share, expected["exact_share"] or 0.0, (seed, key, name, "exact share"))
            close(group.ullage or 0.0, sum(expected["losses"].values()) / HOUR, (seed, key, name, "ullage"))


@pytest.mark.parametrize("seed", some(range(60), 4))
def test_sums_over_spans_are_what_a_walk_second_by_second_finds(seed):
    compare(seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(20))
def test_two_thousand_fleets(block):
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        compare(seed)


@pytest.mark.parametrize("seed", some(range(200, 220), 1))
def test_a_store_gives_the_same_answers_as_the_table_that_was_put_into_it(seed, tmp_path):
    import ibis

    fleet = fleet_of(seed)
    store = Store.open(tmp_path / "store", create=True)
    store.append(unsettled(turned(fleet)), gap_ms=fleet["gap"] * 1000)
    same(ours(fleet, store.samples()), ours(fleet, ibis.memtable(settled(fleet))), seed)


@pytest.mark.parametrize("seed", some(range(300, 320), 2))
def test_expositions_that_are_read_give_what_a_walk_second_by_second_finds(seed, tmp_path):
    # no exporter prints its cluster: a label has it, as a server that scrapes several clusters adds
    fleet = fleet_of(seed)
    rows = turned(fleet)
    for (time, cluster, host), text in expositions(fleet | {"samples": rows}).items():
        path = tmp_path / cluster / host / f"{time}.prom"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{gpu=", f'{{cluster="{cluster}",gpu='))
    with opened([str(tmp_path)], gap_ms=fleet["gap"] * 1000) as taken:
        agree(seed, fleet, as_reference(fleet, taken.samples.to_pyarrow()))


# --- what must not change an answer ---


def moment_inside(fleet):
    """A third of the way through the fleet's window, as our side sees it (ms), on no edge of anything."""
    start, end = ((2 * mirror(fleet) - moment) * 1000 for moment in reversed(fleet["window"]))
    return start, start + (end - start) // 3 + 517, end


@pytest.mark.parametrize("seed", some(range(400, 412), 2))
def test_the_parts_of_a_window_add_up_to_the_whole(seed):
    # nobody knows which part a silence that reaches over the cut belongs to, and a job that moves is named by its clusters: none here
    fleet = fleet_of(seed, without={"silent", "missed scrape", "moved"})
    samples = as_reference(fleet, settled(fleet))
    start, cut, end = moment_inside(fleet)
    whole, *parts = (quantities(samples, since, until) for since, until in ((start, end), (start, cut), (cut, end)))
    assert set().union(*parts) <= set(whole)
    for name, value in whole.items():
        close(sum(part.get(name, 0.0) for part in parts), value, (seed, name))


def quantities(samples, since, until):
    """What adds up over time: by owner, by step, by job and host."""
    rated = rate(state_sums(within(samples, since, until), []))
    lost, every = losses(rated), np.ones(len(rated), np.bool_)
    found = {("ledger", owner): hours for owner, hours in _ledger(rated, existence(rated.sums)).items()}
    found |= {("losses", step): float(np.nansum(lost[step])) / 3_600_000 for step in ("not_allocated", "held_idle")}
    found["known"] = counted_hours(rated)
    found["work"] = float(np.nansum(rated.ofu_part * rated.weight)) / 3_600_000
    for by in ("job", "host"):
        for group in groups_of(rated, every, lost, by, unpriced(rated)):
            found[by, group.key, "hours"] = group.gpu_hours
            found[by, group.key, "ullage"] = group.ullage or 0.0
    return found


@pytest.mark.parametrize("seed", some(range(420, 428), 1))
def test_unrelated_jobs_elsewhere_change_no_row_of_a_job(seed):
    fleet, other = fleet_of(seed), fleet_of(seed + 1000)
    shift = fleet["window"][0] - other["window"][0]
    for row in other["samples"]:
        row["time"] += shift // HOUR * HOUR
        row["uuid"] = f"other-{row['uuid'] or row['host']}-{row['index']}"
        row |= {"cluster": "south", "host": f"south-{row['host']}", "job": row["job"] and f"south-{row['job']}"}
    alone, both = settled(fleet), settled(fleet | {"samples": [*fleet["samples"], *other["samples"]]})
    before, after = ({group.key: group for group in job_groups(table)} for table in (alone, both))
    for key in before.keys() - {"no job"}:
        assert after[key].gpus == before[key].gpus
        close([after[key].gpu_hours, after[key].ofu or 0.0], [before[key].gpu_hours, before[key].ofu or 0.0], (seed, key))
        factors = [[(factor.name, factor.value) for factor in found[key].tree.factors] for found in (before, after)]
        assert [name for name, _ in factors[0]] == [name for name, _ in factors[1]]
        close([value for _, value in factors[1]], [value for _, value in factors[0]], (seed, key, "factors"))


def job_groups(table):
    import ibis

    rated = rate(state_sums(ibis.memtable(table), []))
    return groups_of(rated, np.ones(len(rated), np.bool_), losses(rated), "job", unpriced(rated))


@pytest.mark.parametrize("seed", some(range(440, 446), 1))
def test_asking_twice_in_whatever_order_samples_arrived_gives_the_same_answer(seed):
    import ibis

    fleet = fleet_of(seed)
    order = np.random.default_rng(seed).permutation(len(fleet["samples"])).tolist()
    tables = (settled(fleet), settled(fleet), settled(fleet, order))
    answers = [json.dumps(as_json.record(fleet_report(ibis.memtable(table), None, FleetRequest(by="job")))) for table in tables]
    assert answers[1:] == answers[:1] * 2


@pytest.mark.parametrize("seed", some(range(470, 482), 2))
def test_the_course_over_time_adds_up_to_the_headline(seed):
    import ibis

    report = fleet_report(ibis.memtable(settled(fleet_of(seed))), None, FleetRequest(by="job"))
    hours = [point.gpu_hours for point in report.course]
    close(sum(hours), report.trusted_share * report.gpu_hours, seed)
    if report.counted_hours == pytest.approx(sum(hours), rel=1e-12):  # OFU is known of all of it
        close(sum(point.gpu_hours * point.ofu for point in report.course), report.counted_hours * (report.ofu or 0.0), seed)


# --- counters of which an exporter adds up all SMs from some time on ---


def summed_from(fleet, rng):
    """The fleet as the walk sees it, and the rows as exporters write them that count cycles per SM first, and summed over SMs after.

    A new exporter counts from 0: what passed between its first reading and the old one's last is not known.
    """
    axis, rows = 2 * mirror(fleet), turned(fleet)
    times = sorted(row["time"] for row in rows)
    since = {host: times[int(rng.integers(len(times)))] for host in sorted({(row["cluster"], row["host"]) for row in rows})}
    later = [row for row in rows if row["time"] >= since[row["cluster"], row["host"]]]
    least = {}
    for row, name in itertools.product(later, COUNTERS):
        if row[name] is not None:
            least[source(row), name] = min(row[name], least.get((source(row), name), row[name]))
    for row in later:
        slices = 7 if row["mig_instance"] is None else int(row["mig_profile"].split("g.")[0])
        scale = SMS[row["model"]] * slices
        row |= {name: (row[name] - least[source(row), name]) * scale // 7 for name in COUNTERS if row[name] is not None}
    broken = [row | {} for row in fleet["samples"]]
    for row in broken:
        if axis - row["time"] < since[row["cluster"], row["host"]]:
            row |= {name: row[name] - TOP for name in COUNTERS if row[name] is not None}
    return fleet | {"samples": broken}, rows


def source(row):
    """What counts: a GPU or an instance, wherever it is."""
    return row["uuid"] or (row["cluster"], row["host"], row["index"]), row["mig_instance"], row["mig_profile"]


def compare_summed(seed):
    fleet = fleet_of(seed)
    if fleet["samples"]:
        broken, rows = summed_from(fleet, np.random.default_rng(seed))
        agree(seed, broken, as_reference(fleet, settle(unsettled(rows), gap_ms=fleet["gap"] * 1000)))
        compare_course(seed, broken, rows)


@pytest.mark.parametrize("seed", some(range(600, 612), 2))
def test_cycles_count_alike_per_sm_and_summed_over_sms_also_where_that_changes(seed):
    compare_summed(seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_two_hundred_fleets_whose_counters_change_what_they_add_up(block):
    for seed in range(7000 + 20 * block, 7020 + 20 * block):
        compare_summed(seed)


# --- the course over time ---


def told(parts):
    """The parts of which anybody told anything; the others are in the ledger alone."""
    return [
        p for p in parts if not (p.owner == "unknown" and p.ofu is None and not p.tensor and p.device[-1] != "rest" and len(p.device) == 1)
    ]


def compare_course(seed, fleet, rows):
    """The course over time is what the walk finds in each of its buckets."""
    since, until = ((2 * mirror(fleet) - moment) * 1000 for moment in reversed(fleet["window"]))
    samples = within(as_reference(fleet, settle(unsettled(rows), gap_ms=fleet["gap"] * 1000)), since, until)
    course = {point.time: point for point in course_of(samples, (since, until), {})}
    bucket = course_width((since, until)) // 1000
    start, end = fleet["window"]
    for first in range(start // bucket * bucket, end, bucket):
        parts = told(parts_of(fleet | {"window": (max(first, start), min(first + bucket, end))}))
        point = course.pop((2 * mirror(fleet) - first - bucket) * 1000, None)
        assert (point is None) == (not parts), (seed, first)
        if point is not None:
            expected = totals(parts, busiest_of(parts))
            close(point.gpu_hours, expected["gpu_seconds"] / HOUR, (seed, first, "hours"))
            close(point.ofu or 0.0, expected["ofu"] or 0.0, (seed, first, "ofu"))
            assert (point.ofu is None) == (expected["ofu"] is None), (seed, first)
    assert not course, seed


@pytest.mark.parametrize("seed", range(500, 506))
def test_each_point_of_the_course_is_what_a_walk_second_by_second_finds(seed):
    fleet = fleet_of(seed)
    compare_course(seed, fleet, turned(fleet))


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_the_course_of_two_hundred_fleets(block):
    for seed in range(5000 + 20 * block, 5020 + 20 * block):
        if (fleet := fleet_of(seed))["samples"]:
            compare_course(seed, fleet, turned(fleet))


@pytest.mark.parametrize("seed", some(range(450, 456), 1))
def test_the_order_in_which_samples_arrive_changes_no_sum(seed):
    import ibis

    fleet = fleet_of(seed)
    order = np.random.default_rng(seed).permutation(len(fleet["samples"])).tolist()
    same(ours(fleet, ibis.memtable(settled(fleet, order))), ours(fleet, ibis.memtable(settled(fleet))), seed)
