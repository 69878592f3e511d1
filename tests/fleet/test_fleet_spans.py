"""What changes in time is booked where and when it was: a fleet's answer over GPUs that are sliced, moved, counted and held in turn."""

from __future__ import annotations

import pytest

from tests.conftest import T0
from tests.fleet.test_fleet_report import A100, HOUR, busy, idle, jobs
from ullage.render.fleet import view
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.units import DAY_MS
from ullage.views.text import text as as_text

HALF = HOUR // 2
CLOCK = 1830e6  # the H100's tensor clock: there, OFU is tensor activity
A100_CLOCK = 1410e6


def full(**row):
    """A sample at the tensor clock, whose OFU is its tensor activity."""
    return busy(sm_clock=CLOCK) | row


def hours(report):
    return {name: time for name, time in report.ledger.items() if time > 1e-9 and name != "total"}


def losses_of(report):
    return {factor.name: lost for factor, lost in report.tree.losses(report.counted_hours) if abs(lost) > 1e-9}


def test_a_gpu_that_was_sliced_later_counts_whole_before(settled):
    # 1.5 h whole at 0.4, then 0.5 h as 3 + 4 sevenths at 0.2 each: (1.5 x 0.4 + 0.5 x 0.2) / 2 h = 0.35
    rows = [full(gpu="g", job="first", tensor_active=0.4, span_ms=HALF, time=T0 + n * HALF) for n in (1, 2, 3)]
    rows += [
        full(gpu="g", mig=mig, job="second", tensor_active=0.2, gpu_util=None, span_ms=HALF, time=T0 + 4 * HALF)
        for mig in ("3g.40gb/1", "4g.40gb/2")
    ]
    report = fleet(settled(rows), None, FleetRequest())
    assert report.gpu_hours == pytest.approx(2)
    assert report.ofu == pytest.approx(0.35)
    assert {group.key: (round(group.gpu_hours, 9), round(group.ofu, 6)) for group in report.groups} == {
        "first": (1.5, 0.4),
        "second": (0.5, 0.2),
    }


@pytest.mark.parametrize("layout", ["clock on the instance", "clock on its GPU alone"])
def test_one_instance_of_seven_is_a_seventh_of_the_silicon_and_the_whole_gpu_is_paid(settled, layout):
    # 2 h of one of seven slices at 0.40: 0.40 / 7 = 0.0571 of the GPU; six sevenths of 2 h were never sliced; 2 h x 7 = 14
    own = A100_CLOCK if layout == "clock on the instance" else None
    nothing = dict.fromkeys(("tensor_active", "sm_active", "gr_active", "gpu_util"))
    rows = []
    for n in (1, 2):
        when = {"gpu": "g", "model": A100, "time": T0 + n * HOUR}
        rows.append(busy(mig="1g.10gb/7", job="1", tensor_active=0.4, gpu_util=None, sm_clock=own, **when))
        if own is None:  # NVIDIA's documented output: the GPU has the clock, its instances all else
            rows.append(busy(**nothing, sm_clock=A100_CLOCK, **when))
    report = fleet(settled(rows), None, FleetRequest(prices={"": 7.0}))
    assert report.ofu == pytest.approx(0.4 / 7, rel=1e-6)
    assert report.money.cost == pytest.approx(14)
    assert hours(report) == pytest.approx({"job": 2 / 7, "not_sliced": 12 / 7})
    assert losses_of(report)["not_allocated"] == pytest.approx(12 / 7)
    assert {group.key: round(group.ofu, 6) for group in report.groups if group.key == "1"} == {"1": 0.4}


def test_counters_on_a_part_of_the_time_make_a_mixed_answer(settled):
    # three hours counted at 0.1 and one hour by gauges at 0.9: 0.75 x 0.1 + 0.25 x 0.9 = 0.300
    counted = {"tensor_cycles_delta": int(0.1 * CLOCK * 3600), "sm_cycles_delta": int(CLOCK * 3600), "tensor_active": 0.9, "sm_active": 0.9}
    rows = [full(gpu="g", job="1", gr_active=0.9, **counted, time=T0 + n * HOUR) for n in (1, 2, 3)]
    rows.append(full(gpu="g", job="1", gr_active=0.9, sm_active=0.9, tensor_active=0.9, time=T0 + 4 * HOUR))
    report = fleet(settled(rows), None, FleetRequest())
    assert (report.ofu, report.exact_share, report.method) == (pytest.approx(0.3), pytest.approx(0.75), "mixed")
    assert report.tree.ofu == pytest.approx(report.ofu)
    # the product of the factors is the headline: both are of the same sums
    left = 1.0
    for factor in report.tree.factors:
        left *= factor.value
    assert left == pytest.approx(0.3)
    assert (report.groups[0].method, report.groups[0].exact_share) == ("mixed", pytest.approx(0.75))


def test_one_busy_gpu_of_another_job_leaves_every_other_job_as_it_was(settled):
    # 8 jobs of 8 GPUs, each GPU active half of the time: balance 1, activity 0.5, whatever one more job does
    rows = [full(gpu=f"g{n}", job=f"j{n // 8}", gr_active=0.5, sm_active=0.4, tensor_active=0.2) for n in range(64)]
    alone = fleet(settled(rows), None, FleetRequest())
    other = full(gpu="busy", job="other", gr_active=1.0, sm_active=1.0, tensor_active=1.0)
    both = fleet(settled([*rows, other]), None, FleetRequest())
    before, after = ({group.key: group.tree for group in report.groups} for report in (alone, both))
    assert {key: tree for key, tree in after.items() if key != "other"} == before
    assert {(tree.factor("load_balance"), tree.factor("activity")) for tree in before.values()} == {(1.0, 0.5)}
    # 64 h x 0.5 are lost to activity, with the busy GPU and without
    assert losses_of(alone) == pytest.approx(losses_of(both))
    assert losses_of(both)["activity"] == pytest.approx(32, rel=1e-6)


def test_a_gpu_that_moved_books_its_hours_where_it_was(settled):
    # an hour on n1, then two on n2
    rows = [full(gpu="g", job="1", host=host, time=T0 + n * HOUR) for n, host in ((1, "n1"), (2, "n2"), (3, "n2"))]
    report = fleet(settled(rows), None, FleetRequest(by="host"))
    assert {group.key: group.gpu_hours for group in report.groups} == pytest.approx({"n1": 1.0, "n2": 2.0})


@pytest.mark.parametrize(("by", "name"), [("host", "n1"), ("job", "7")])
def test_one_name_in_two_clusters_is_two_groups(settled, by, name):
    rows = [
        full(gpu=cluster, cluster=cluster, host="n1", job="7", tensor_active=level) for cluster, level in (("east", 0.2), ("west", 0.6))
    ]
    report = fleet(settled(rows), None, FleetRequest(by=by))
    assert {group.key: round(group.ofu, 6) for group in report.groups} == {f"east/{name}": 0.2, f"west/{name}": 0.6}
    # each job has its own busiest GPU: none of the two is out of balance
    assert {group.tree.factor("load_balance") for group in report.groups} == {1.0}


def test_a_gpu_exists_from_its_first_to_its_last_sight(settled):
    # 20 GPUs, rented one after the other for six minutes each: two hours of GPUs, and nothing unknown
    minutes = HOUR // 60
    rows = [full(gpu=f"spot-{n}", job="1", span_ms=6 * minutes, time=T0 + (n + 1) * 6 * minutes) for n in range(20)]
    report = fleet(settled(rows), None, FleetRequest())
    assert hours(report) == pytest.approx({"job": 2.0})
    # a GPU that is silent for an hour between two sights existed in that hour
    gap = [full(gpu="g", job="1", time=T0 + HOUR), full(gpu="g", job="1", time=T0 + 3 * HOUR)]
    assert hours(fleet(settled(gap), None, FleetRequest())) == pytest.approx({"job": 2.0, "unknown": 1.0})


@pytest.mark.parametrize(("days", "named"), [(300.0, True), (-300.0, True), (1.0, False), (1.1, True)])
def test_a_host_whose_clock_is_days_off_is_named(settled, days, named):
    rows = [full(gpu=f"g{n}", host=f"n{n}", job="1") for n in range(3)]
    rows.append(full(gpu="late", host="adrift", job="1", time=T0 + HOUR + int(days * DAY_MS)))
    notes = [note for note in fleet(settled(rows), None, FleetRequest()).notes if "adrift" in note]
    assert len(notes) == int(named)
    if named:
        assert f"{abs(days):,.1f} days {'later' if days > 0 else 'earlier'}" in notes[0]


def test_the_ullage_of_a_group_counts_trusted_hours_alone(settled):
    # one GPU at 0.4, one whose gauges are stuck at zero: an hour is trusted, 0.6 of it is short of full
    stuck = [idle(gpu="stuck", job="1", gpu_util=1.0, span_ms=HOUR // 4, time=T0 + n * HOUR // 4) for n in (1, 2, 3, 4)]
    report = fleet(settled([full(gpu="g", job="1"), *stuck]), None, FleetRequest())
    assert report.trusted_share == pytest.approx(0.5)
    assert report.groups[0].ullage == pytest.approx(0.6)
    assert report.ullage == pytest.approx(report.groups[0].ullage)


@pytest.mark.parametrize("bad", [1, 7])
def test_a_bad_instance_takes_none_of_its_neighbours_out(settled, bad):
    # seven instances of one GPU, some of them with gauges stuck at zero for the hour
    quarters = [{"span_ms": HOUR // 4, "time": T0 + n * HOUR // 4} for n in (1, 2, 3, 4)]
    rows = [
        (idle(gpu_util=1.0, **when) if instance < bad else full(tensor_active=0.5, **when)) | {"gpu": "g", "mig": f"1g.10gb/{instance}"}
        for instance in range(7)
        for when in quarters
    ]
    rows = [row | {"job": str(number // 4)} for number, row in enumerate(rows)]
    report = fleet(settled(rows), None, FleetRequest(by="job"))
    assert report.trusted_share == pytest.approx((7 - bad) / 7)
    assert {group.key: group.ofu for group in report.groups if group.ofu is not None} == pytest.approx({str(n): 0.5 for n in range(bad, 7)})
    assert [verdict.mig for verdict in report.doubtful_series if not verdict.trusted] == [f"1g.10gb/{n}" for n in range(bad)]
    assert all(point.ofu == pytest.approx(0.5) for point in report.course) and (report.course != []) == (bad < 7)


def test_the_faulty_part_of_an_instance_is_left_out_of_no_other(settled):
    # seven instances over five hours; the gauges of one are stuck at zero in the second: 34 of 35 instance-hours count
    quarters = [{"span_ms": HOUR // 4, "time": T0 + n * HOUR // 4} for n in range(1, 21)]
    rows = [
        (idle(gpu_util=1.0, **when) if instance == 3 and 4 <= number < 8 else full(tensor_active=0.5, **when))
        | {"gpu": "g", "mig": f"1g.10gb/{instance}", "job": str(instance)}
        for instance in range(7)
        for number, when in enumerate(quarters)
    ]
    report = fleet(settled(rows), None, FleetRequest(by="job"))
    assert {group.ofu for group in report.groups} == {0.5}
    assert report.trusted_share == pytest.approx(34 / 35)
    assert [(verdict.mig, len(verdict.left_out)) for verdict in report.doubtful_series if verdict.left_out] == [("1g.10gb/3", 1)]
    assert {point.ofu for point in report.course} == {0.5}
    assert sum(point.gpu_hours for point in report.course) == pytest.approx(34 / 7, rel=1e-6)


def test_table_three_sizes_a_job_by_its_record(settled):
    # two GPUs were seen of a job that holds 16; of the other two that nobody recorded, two slices of one are one GPU
    rows = [full(gpu=f"g{n}", job="big") for n in range(2)] + [
        full(gpu="h", mig=f"3g.40gb/{n}", job="small", gpu_util=None) for n in (1, 2)
    ]
    report = fleet(settled(rows), jobs({"job": "big", "gpus": 16, "mfu": 0.3}, {"job": "small", "mfu": 0.3}), FleetRequest())
    assert report.agreement is not None
    assert [(row.gpus, row.jobs) for row in report.agreement.rows] == [(1, 1), (16, 1)]
    assert "±" not in as_text(view(report))  # one job has no spread
