"""Two runs compared: what each factor explains of the change in time adds up to it, and a gate that only passes on facts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import UllageError
from ullage.metrics.tree import bounded
from ullage.recording import Mode
from ullage.render import change as render
from ullage.render.change import record
from ullage.reports.trace.change import ChangeReport, ComparedSide, change, verdict
from ullage.reports.trace.part import RunPart, view
from ullage.totals import DeviceTotals, HostTotals
from ullage.views.text import text

MS = 10**6


@dataclass(frozen=True)
class Traced:
    """What a comparison needs of a report."""

    whole: RunPart
    regions: tuple[RunPart, ...] = ()
    mode: Mode = "talp"
    partial: bool = False


def run(
    elapsed: int, kernel: int, longest: int, active: float, *, devices: int = 2, useful: int = 40, launches: int = 1000, name: str = "run"
) -> RunPart:
    """A run of as many processes as devices, times in ms; the hosts do nothing but useful work and communication."""
    host = HostTotals(devices, elapsed * MS, useful * MS, 0, useful * MS // devices)
    device = DeviceTotals(devices, elapsed * MS, kernel * MS, 0, 0, longest * MS, longest * MS, int(active * MS), launches=launches)
    return view(name, elapsed * MS, host, device, "talp")


# 0.5 = LB 1 x CE 0.8 x OE 0.625 over 100 ms; then the same kernels in 80 ms: 0.625 = 1 x 0.8 x 0.78125
SLOW = Traced(run(100, 100, 50, 62.5))
FAST = Traced(run(80, 100, 50, 62.5))


def rows(report: ChangeReport, side: str = "device") -> ComparedSide:
    return next(s for s in report.whole.sides if s.name == side)


def explained(report: ChangeReport) -> dict[str, float | None]:
    return {row.metric: None if row.elapsed is None else round(row.elapsed / MS, 3) for row in rows(report).rows}


def test_a_faster_host_explains_all_of_a_shorter_run():
    report = change(SLOW, FAST)
    assert explained(report) == {
        "elapsed": -20.0,
        "kernel_time": 0.0,
        "launches": 0.0,
        "launch_time": 0.0,
        "devices": 0.0,
        "device_parallel_efficiency": -20.0,
        "device_load_balance": 0.0,
        "device_communication_efficiency": 0.0,
        "orchestration_efficiency": -20.0,
    }
    assert report.whole.cause.metric == "orchestration_efficiency"
    # two devices for 20 ms less
    assert next(row.resources for row in rows(report).rows if row.metric == "orchestration_efficiency") == pytest.approx(-40 * MS)


def test_more_work_is_a_row_of_its_own():
    # twice the kernels at the same efficiency take twice as long: 100 ms more, all of it kernel work; half of it (in logarithms
    # all of it) more launches, none of it longer ones
    report = change(SLOW, Traced(run(200, 200, 100, 125, launches=2000)))
    found = explained(report)
    assert (found["elapsed"], found["kernel_time"], found["launches"], found["launch_time"]) == (100.0, 100.0, 100.0, 0.0)
    assert found["device_parallel_efficiency"] == 0.0
    assert report.whole.cause.metric == "kernel_time"


def test_more_devices_shorten_the_run_and_not_the_time_they_are_held():
    # four devices for 50 ms are held as long as two for 100 ms
    report = change(SLOW, Traced(run(50, 100, 25, 31.25, devices=4)))
    found = {row.metric: row for row in rows(report).rows}
    assert (found["devices"].elapsed, found["devices"].resources) == (pytest.approx(-50 * MS), 0.0)
    assert found["elapsed"].resources == 0.0
    assert "the runs have different numbers" in report.notes[0]


def test_launches_that_cancel_with_their_length_are_no_cause():
    # twice the launches of half the length; the host lost 25 ms
    report = change(SLOW, Traced(run(125, 100, 50, 62.5, launches=2000)))
    assert explained(report)["launches"] == pytest.approx(-explained(report)["launch_time"])
    assert report.whole.cause.metric == "orchestration_efficiency"


times = st.integers(1, 10**6)


@given(st.tuples(times, times, times, times, st.integers(1, 8)), st.tuples(times, times, times, times, st.integers(1, 8)))
def test_what_the_rows_explain_adds_up_to_the_change(one, other):
    def made(kernel: int, copies: int, idle: int, launches: int, devices: int) -> Traced:
        elapsed = kernel + copies + idle
        # all but the first device work half as long
        total = kernel + (devices - 1) * (kernel // 2)
        return Traced(run(elapsed, total, kernel, kernel + copies, devices=devices, launches=launches, useful=devices))

    a, b = made(*one), made(*other)
    found = {row.metric: row for row in rows(change(a, b)).rows}
    for column in ("elapsed", "resources"):
        parts = [getattr(found[m], column) for m in ("kernel_time", "devices", "device_parallel_efficiency")]
        leaves = [getattr(found[m], column) for m in ("device_load_balance", "device_communication_efficiency", "orchestration_efficiency")]
        assert sum(parts) == pytest.approx(getattr(found["elapsed"], column), abs=1)
        assert sum(leaves) == pytest.approx(getattr(found["device_parallel_efficiency"], column), abs=1)
    assert found["elapsed"].elapsed == b.whole.elapsed - a.whole.elapsed


def test_the_hosts_side_is_explained_by_its_own_tree():
    # useful 40 of 200 ms, then of 160 ms: the same work, communication efficiency 0.2 to 0.25
    report = change(SLOW, FAST)
    found = {row.metric: row for row in rows(report, "host").rows}
    assert found["useful_time"].elapsed == 0.0
    assert found["host_communication_efficiency"].elapsed == pytest.approx(-20 * MS)


# -- what can't be told -------------------------------------------------------------------------------------------------


def doubtful(low: float, high: float) -> Traced:
    """The fast run, of which orchestration and the whole are only known within bounds."""
    bounds = {"device_parallel_efficiency": (low, high), "orchestration_efficiency": (low * 1.25, high * 1.25)}
    return Traced(replace(FAST.whole, device=bounded(FAST.whole.device, bounds)))


def test_bounds_on_both_sides_of_no_change_are_no_change_claimed():
    report = change(SLOW, doubtful(0.45, 0.7))
    row = report.whole.find("orchestration_efficiency")
    assert (row.settled, row.elapsed, report.whole.cause) == (False, None, None)
    assert "cannot tell" in str(report)


def test_bounds_on_one_side_are_a_fact_and_its_size_is_about():
    report = change(SLOW, doubtful(0.6, 0.7))
    row = report.whole.find("orchestration_efficiency")
    # 0.75 to 0.875 against 0.625
    assert (row.settled, round(row.ratio.low, 3), round(row.ratio.high, 3)) == (True, 1.2, 1.4)
    assert "≈ −20.00 ms" in str(report)


def test_kernel_work_is_as_uncertain_as_the_efficiency_it_is_part_of():
    work = change(SLOW, doubtful(0.5, 0.75)).whole.find("kernel_time")
    # 0.5 to 0.75 of two devices for 80 ms
    assert (work.b.low, work.b.high, work.settled) == (pytest.approx(80 * MS), pytest.approx(120 * MS), False)


def test_efficiencies_without_totals_are_compared_and_explain_no_time():
    bare = [Traced(replace(t.whole, elapsed=0, host_totals=None, device_totals=None)) for t in (SLOW, FAST)]
    row = change(*bare).whole.find("orchestration_efficiency")
    assert (row.ratio.value, row.elapsed) == (1.25, None)


def test_a_run_that_lost_its_devices_is_shown_without_a_ratio():
    report = change(SLOW, Traced(view("run", 100 * MS, SLOW.whole.host_totals, None, "talp")))
    row = report.whole.find("device_parallel_efficiency")
    assert (row.a.value, row.b, row.ratio) == (0.5, None, None)
    assert not verdict(report).passed


def test_two_modes_are_not_compared():
    with pytest.raises(UllageError, match="'x' is in talp mode, 'y' in ai mode"):
        change(SLOW, replace(FAST, mode="ai"), ("x", "y"))


# -- regions --------------------------------------------------------------------------------------------------------------


def test_regions_of_both_runs_are_compared_the_most_changed_first():
    a = replace(SLOW, regions=(run(10, 10, 5, 6, name="small"), run(50, 50, 25, 31, name="big"), run(5, 5, 2, 3, name="old")))
    b = replace(FAST, regions=(run(12, 10, 5, 6, name="small"), run(40, 50, 25, 31, name="big")), partial=True)
    report = change(a, b, ("a.json", "b.json"))
    assert [part.name for part in report.parts] == ["run", "big", "small"]
    assert report.notes == ("only 'a.json' has the region old", "something of 'b.json' is missing: its own report says what")
    assert verdict(report, {"speed": 0.9}).passed
    # 10 ms became 12: a speed of 0.833
    assert not verdict(report, {"speed": 0.9}, region="small").passed


# -- the gate -------------------------------------------------------------------------------------------------------------


def test_the_gate_is_for_the_devices_efficiency_unless_there_are_none():
    back = change(FAST, SLOW)
    # 0.5 over 0.625 is 0.8
    assert [(c.metric, c.passed) for c in verdict(back).checks] == [("device_parallel_efficiency", False)]
    assert verdict(back, 0.8).passed
    hosts = [Traced(replace(t.whole, device=None, device_totals=None)) for t in (FAST, SLOW)]
    assert [c.metric for c in verdict(change(*hosts)).checks] == ["host_parallel_efficiency"]


def test_the_gate_takes_any_metric_with_its_own_limit():
    found = verdict(change(FAST, SLOW), {"device_load_balance": 1.0, "speed": 0.7, "orchestration_efficiency": 0.9})
    assert [c.passed for c in found.checks] == [True, True, False]
    assert not found.passed


@pytest.mark.parametrize(("low", "high", "passed"), [(0.6, 0.7, True), (0.3, 0.45, False), (0.45, 0.55, None)])
def test_the_gate_passes_and_fails_only_on_facts(low, high, passed):
    # A is 0.5, so the limit is 0.475
    found = verdict(change(SLOW, doubtful(low, high)), 0.95)
    assert found.checks[0].passed is passed
    assert found.passed is (passed is True)


def test_from_nothing_it_can_not_get_worse():
    idle = Traced(run(100, 0, 0, 10))
    assert verdict(change(idle, SLOW)).passed


def test_the_gate_refuses_what_it_does_not_know():
    report = change(SLOW, FAST)
    with pytest.raises(UllageError, match="no metric of this comparison is called 'colour'") as error:
        verdict(report, {"colour": 0.9})
    assert "orchestration_efficiency" in error.value.hint
    with pytest.raises(UllageError, match="the limit of 'speed' is -1"):
        verdict(report, {"speed": -1})
    with pytest.raises(UllageError, match="no region of both runs is called 'epoch'"):
        verdict(report, region="epoch")


# -- what is shown --------------------------------------------------------------------------------------------------------


def test_a_comparison_as_text():
    a = replace(SLOW, regions=(run(50, 50, 25, 31.25, name="forward"),))
    b = replace(FAST, regions=(run(40, 50, 25, 31.25, name="forward\x1b[31m"), run(40, 50, 25, 31.25, name="forward")))
    report = change(a, b, ("before", "after"))
    assert text(render.view(replace(report, verdict=verdict(report)))) == WHOLE


WHOLE = """\
B 'after' takes 0.800 times as long as A 'before': 100.0 ms to 80.00 ms; orchestration efficiency (0.62 to 0.78) explains −20.00 ms

Device                                 A         B  ratio    elapsed  all devices
Elapsed time                    100.0 ms  80.00 ms  0.800  −20.00 ms    −40.00 ms
├─ Kernel work                  100.0 ms  100.0 ms  1.000          0            0
│  ├─ Launches                     1,000     1,000  1.000          0            0
│  └─ Time per launch           100.0 µs  100.0 µs  1.000          0            0
└─ Parallel efficiency              0.50      0.62  1.250  −20.00 ms    −40.00 ms
   ├─ Load balance                  1.00      1.00  1.000          0            0
   ├─ Communication efficiency      0.80      0.80  1.000          0            0
   └─ Orchestration efficiency      0.62      0.78  1.250  −20.00 ms    −40.00 ms

Host                                      A         B  ratio    elapsed  all processes
Elapsed time                       100.0 ms  80.00 ms  0.800  −20.00 ms      −40.00 ms
├─ Useful work                     40.00 ms  40.00 ms  1.000          0              0
└─ Parallel efficiency                 0.20      0.25  1.250  −20.00 ms      −40.00 ms
   ├─ MPI parallel efficiency          0.20      0.25  1.250  −20.00 ms      −40.00 ms
   │  ├─ Communication efficiency      0.20      0.25  1.250  −20.00 ms      −40.00 ms
   │  └─ Load balance                  1.00      1.00  1.000          0              0
   └─ Device offload efficiency        1.00      1.00  1.000          0              0

region          A         B  ratio  device, A  device, B  explained by
forward  50.00 ms  40.00 ms  0.800       0.50       0.62  orchestration efficiency (0.62 to 0.78)

passed: parallel efficiency (device_parallel_efficiency) is 1.250 of A's, the limit is 0.95

note: only 'after' has the region forward\\x1b[31m
"""


def test_a_comparison_as_data():
    report = change(SLOW, FAST)
    data = record(replace(report, verdict=verdict(report)))
    row = next(r for r in data["whole"]["device"] if r["metric"] == "orchestration_efficiency")
    assert data["passed"] is True
    assert (data["whole"]["elapsed_s"], data["whole"]["explained_by"]) == ({"a": 0.1, "b": 0.08}, "orchestration_efficiency")
    assert (row["a"]["value"], row["ratio"]["value"], row["settled"], row["elapsed_s"]) == (0.625, 1.25, True, pytest.approx(-0.02))
    assert next(r for r in data["whole"]["device"] if r["metric"] == "kernel_time")["a"]["value"] == pytest.approx(0.1)
