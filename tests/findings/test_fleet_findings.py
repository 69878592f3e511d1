"""Findings of a fleet, kind by kind, on evidence made by hand: what is found, what it is worth, and thresholds on both sides."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from tests.conftest import T0
from ullage.alerts.problem import STRAGGLER_ADVICE, STRAGGLES
from ullage.audit.trust import UNTRUSTED, Verdict
from ullage.findings.fleet import (
    faulty_series,
    held_idle,
    lost_hours,
    low_sm_fill,
    not_allocated,
    power_capped,
    reported_mfu,
    sick_gpu,
    slower_than_its_kind,
    throttled,
)
from ullage.findings.fleet.throttled import OPERATORS
from ullage.findings.fleet_evidence import (
    DeviceOfJob,
    FleetEvidence,
    FreeHours,
    JobEvidence,
    LimitedClock,
    QueueWaits,
    SeenStraggler,
    SickGpu,
)
from ullage.findings.kind import FLEET_KINDS, LEAST_SHARE, fleet_findings, ranked
from ullage.reports.fleet.job_runs import LOST
from ullage.views.findings import MOST, finding_record, sections_of
from ullage.views.html import html
from ullage.views.markdown import markdown
from ullage.views.notebook import notebook
from ullage.views.text import text
from ullage.views.view import Column, Finding, FindingPlace, Headline, Section, Table, View


def load(name: str) -> ModuleType:
    """Return a script of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "benchmarks" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def device(number: int = 0, **more: Any) -> DeviceOfJob:
    """Return a device that works for ten hours at half of its SMs and a fifth of its peak."""
    values: dict[str, Any] = {"host": f"node-{number // 8}", "index": number % 8, "mig": None, "model": "H100", "held": 10.0, "idle": 0.0}
    values |= {"counted": 10.0, "kept": 2.0, "tensor": 2.5, "engine": 0.8, "sm": 0.5, "cost": 20.0}
    return DeviceOfJob(gpu=f"GPU-{number}", **values | more)


def job(*devices: DeviceOfJob, **more: Any) -> JobEvidence:
    values: dict[str, Any] = {"job": "1", "cluster": "east", "user": "ann", "namespace": None, "name": "llama", "state": None}
    return JobEvidence(devices=devices, **values | more)


def of(*jobs: JobEvidence, hours: float = 84.0, free: tuple[FreeHours, ...] = ()) -> list[Finding]:
    return fleet_findings(FleetEvidence(hours, 100.0, jobs, free))


def kinds(*jobs: JobEvidence, free: tuple[FreeHours, ...] = ()) -> list[str]:
    return [finding.kind for finding in of(*jobs, free=free)]


def facts(finding: Finding) -> dict[str, Any]:
    return {fact.name: fact.value for fact in finding.evidence}


def test_a_healthy_fleet_has_no_findings() -> None:
    assert of(job(*(device(n, sm=0.5 + 0.01 * (n % 3)) for n in range(16)))) == []
    assert fleet_findings(FleetEvidence(1.0, 0.0, ())) == []


def test_a_job_that_holds_gpus_on_which_nothing_runs() -> None:
    (found,) = of(job(*(device(n, idle=10.0) for n in range(4))))
    assert (found.kind, found.owner, found.gpu_hours, found.money, found.confidence) == ("held_idle", "ann", 40.0, 80.0, "high")
    assert str(found.where) == "job 1 (llama), node-0" and found.advice.startswith("ask ann whether the job is still needed")
    assert (found.weekly_gpu_hours, found.weekly_money) == (80.0, 160.0)  # half a week
    assert facts(found) == {"idle": 40.0, "idle share": 1.0, "GPUs that idle": 4, "GPUs of the job": 4}


def test_one_gpu_of_a_job_that_was_never_used_is_named() -> None:
    (found,) = of(job(device(0), device(1), device(2, idle=10.0, counted=0.0, kept=0.0), user=None))
    assert str(found.where) == "job 1 (llama), node-0 GPU 2" and "some were never used" in found.advice
    assert (found.owner, found.gpu_hours) == ("unknown", 10.0)


@pytest.mark.parametrize(
    ("held", "idle", "found"),
    [(100.0, 10.0, True), (100.0, 9.9, False), (1.0, held_idle.LEAST_HOURS, True), (1.0, held_idle.LEAST_HOURS - 0.01, False)],
)
def test_idle_time_counts_from_a_quarter_of_an_hour_and_a_tenth_of_the_time(held: float, idle: float, found: bool) -> None:
    assert kinds(job(device(held=held, idle=idle))) == (["held_idle"] if found else [])


@pytest.mark.parametrize(("free", "found"), [(5.0, True), (4.9, False)])
def test_free_time_counts_from_a_twentieth_of_a_cluster(free: float, found: bool) -> None:
    hosts = (FreeHours("east", "a", 50.0, free, 0.0, 2 * free), FreeHours("east", "b", 50.0, 0.0, 0.0, 0.0))
    assert kinds(job(device()), free=hosts) == (["not_allocated"] if found else [])


def test_free_time_is_told_by_cluster_with_what_is_not_sliced() -> None:
    hosts = (FreeHours("east", "a", 50.0, 30.0, 0.0, 60.0), FreeHours("east", "b", 50.0, 20.0, 0.0, 40.0))
    sliced = (FreeHours("west", "c", 50.0, 1.0, 9.0, None),)
    east, west = of(job(device()), free=hosts + sliced)
    assert (str(east.where), east.gpu_hours, east.money, facts(east)["hosts that are mostly free"]) == ("cluster east", 50.0, 100.0, 1)
    assert east.confidence == "high" and "drained" in east.advice
    assert (str(west.where), west.gpu_hours, west.money, facts(west)["not sliced"]) == ("node c".replace("node ", ""), 10.0, None, 9.0)
    assert "sliced" in west.advice


def test_where_nobody_names_a_job_free_time_is_doubtful() -> None:
    (found,) = of(free=(FreeHours(None, "a", 50.0, 30.0, 0.0),))
    assert found.confidence == "low" and "--jobs" in found.advice


def slow(*numbers: int, **more: Any) -> SeenStraggler:
    """A straggler that the others of its job waited for in a quarter of their time, from a minute after the start to the last sample."""
    devices = tuple((f"node-{number // 8}", f"GPU-{number}", None) for number in numbers)
    values = {"cluster": "east", "job": "1", "start": T0 + 60_000, "found": T0 + 120_000, "sign": "busy", "longer": 1.5, "waited": 0.25}
    return SeenStraggler(devices=devices, **values | more)


def test_a_straggler_costs_what_the_others_of_its_job_waited_for_it() -> None:
    (found,) = of(job(*(device(n) for n in range(7)), device(7, sm=0.8), stragglers=(slow(7),)))
    assert (found.kind, str(found.where), found.confidence) == ("straggler", "job 1 (llama), node-0 GPU 7", "high")
    assert (found.gpu_hours, found.money) == (0.25 * 70, 0.25 * 70 * 2)  # seven others, ten hours each, at 2 an hour
    assert facts(found) == {
        "seen by": "SM activity (computes for longer)",
        "times as long as its peers": 1.5,
        "since": "2026-08-10 00:01 UTC",
        "until": "the last sample",
        "busy": 0.8,
        "its peers": 0.5,
        "clock beside theirs": 1.0,
    }
    assert found.owner == "ann" and "ullage bench" in found.advice


def test_a_job_in_which_none_was_seen_has_no_straggler() -> None:
    assert of(job(*(device(n) for n in range(7)), device(7, sm=0.8))) == []


@pytest.mark.parametrize(("longer", "peers", "confidence"), [(STRAGGLES, 7, "high"), (STRAGGLES - 0.01, 7, "medium"), (2.0, 1, "medium")])
def test_a_straggler_is_sure_where_it_is_slow_and_is_not_one_of_two(longer: float, peers: int, confidence: str) -> None:
    (found,) = of(job(*(device(n) for n in range(peers)), device(7), stragglers=(slow(7, longer=longer),)))
    assert found.confidence == confidence


@pytest.mark.parametrize(("sign", "owner"), [("clock", OPERATORS), ("link", OPERATORS), ("busy", "ann"), ("late", "ann")])
def test_what_no_program_does_is_the_operators(sign: str, owner: str) -> None:
    (found,) = of(job(device(0), device(1), stragglers=(slow(1, sign=sign),)))
    assert (found.owner, found.advice) == (owner, STRAGGLER_ADVICE[sign])


def test_times_at_which_one_gpu_was_slow_are_one_finding_with_the_sign_that_cost_most() -> None:
    first, then = slow(7, end=T0 + 600_000, waited=0.1), slow(7, start=T0 + 3_600_000, end=T0 + 7_200_000, sign="clock", waited=0.2)
    (found,) = of(job(*(device(n) for n in range(8)), stragglers=(first, then)))
    assert found.gpu_hours == pytest.approx(0.3 * 70)
    told = facts(found)
    assert (told["since"], told["until"], told["seen by"]) == ("2026-08-10 00:01 UTC", "2026-08-10 02:00 UTC", "SM clock (lower clock)")


def test_a_slow_host_is_one_finding_however_many_of_its_gpus_were_seen_at_a_time() -> None:
    times = (slow(*range(8), sign="clock", waited=0.2), slow(*range(7), sign="clock", waited=0.05))
    (found,) = of(job(*(device(n) for n in range(24)), stragglers=times))
    assert str(found.where) == "job 1 (llama), node-0" and found.gpu_hours == pytest.approx(0.25 * 160)


def test_of_a_job_that_is_slow_as_a_whole_nobody_waits() -> None:
    assert of(job(device(0), device(1), stragglers=(slow(0, 1),))) == []


def test_devices_that_the_report_leaves_out_are_no_finding() -> None:
    assert of(job(device(0), device(1), stragglers=(slow(5),))) == []


def test_a_gpu_hour_counts_for_one_finding_only(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = job(*(device(n, idle=4.0) for n in range(4)))

    def lost(fleet: FleetEvidence) -> list[Finding]:
        return [Finding(FindingPlace("east", job="1"), "ann", 30.0, "low", (), "", 60.0)]

    from ullage.findings.kind import fleet_kind

    FLEET_KINDS.load()
    monkeypatch.setattr(FLEET_KINDS, "_members", dict(FLEET_KINDS._members))
    fleet_kind("of_a_whole_job", "all of it", part="the job", without=("*",))(lost)
    found = {one.kind: one for one in of(idle)}
    assert found["held_idle"].gpu_hours == 16.0
    assert (found["of_a_whole_job"].gpu_hours, found["of_a_whole_job"].money) == (14.0, pytest.approx(28.0))
    assert "of_a_whole_job" not in {one.kind for one in of(job(*(device(n, idle=8.0) for n in range(4))))}


def test_what_is_worth_little_is_left_out_and_the_rest_is_ranked() -> None:
    assert LEAST_SHARE * 100_000 == 100
    small = job(device(idle=5.0))
    assert fleet_findings(FleetEvidence(10.0, 100_000.0, (small,))) == []
    assert len(fleet_findings(FleetEvidence(10.0, 5_000.0, (small,)))) == 1
    found = of(*(job(device(n, idle=1.0 + n), job=str(n)) for n in range(5)))
    assert [one.where.job for one in found] == ["4", "3", "2", "1", "0"]
    assert ranked([]) == []


def test_a_window_of_minutes_says_nothing_of_a_week() -> None:
    (found,) = of(job(device(idle=9.0)), hours=0.5)
    assert found.weekly_gpu_hours is None and found.weekly_money is None
    assert finding_record(found)["gpu_hours_a_week"] is None


def test_every_form_shows_the_same_seven_and_counts_the_rest() -> None:
    found = of(*(job(device(n, idle=1.0 + n / 8), job=f"4{n}", user="b<ob>\x1b[31m") for n in range(MOST + 2)))
    made = View("fleet", "Fleet report", Headline("OFU 20 %"), findings=found)
    assert sections_of(replace(made, findings=())) == ()
    forms = [text(made), html(made), markdown(made), notebook(made)]
    for form in forms:
        assert [n for n in range(MOST + 2) if f"job 4{n} " in form.replace("\\", "")] == [*range(2, MOST + 2)]
        rest = "--json has them all" if form in (forms[0], forms[2]) else "the JSON form has them all"  # no option for who reads a page
        assert f"… 2 more; {rest}" in form.replace("\\", "") and "\x1b" not in form and "<ob>" not in (form if form is not forms[0] else "")


def test_all_findings_are_a_table_for_what_reads_tables() -> None:
    found = of(*(job(device(n, idle=1.0 + n / 8), job=f"4{n}", user="=b<ob>\x1b[31m") for n in range(MOST + 2)))
    sections = [Section("groups", "Groups", [Table("groups", [Column("job")], [["40"]])])]
    made = View("fleet", "Fleet report", Headline("OFU 20 %"), sections=sections, findings=found)
    assert [*made.tables] == ["groups", "findings"] and [*replace(made, findings=()).tables] == ["groups"]
    table = pa.table(made.tables["findings"])
    assert table["job"].to_pylist() == [f"4{n}" for n in reversed(range(MOST + 2))] and "mig" not in table.column_names
    assert table["GPU-hours"].to_pylist() == [one.gpu_hours for one in found] and table["kind"].to_pylist() == ["held_idle"] * (MOST + 2)
    written = html(made.alone("findings"))
    assert written.count("<tr>") == MOST + 3 and "<ob>" not in written and "\x1b" not in written
    assert "\x1b" not in str(made.tables["findings"])


def test_json_has_the_keys_of_a_finding() -> None:
    (found,) = of(job(*(device(n, idle=10.0) for n in range(4))))
    record = finding_record(found)
    assert {"kind", "where", "owner", "gpu_hours", "money", "confidence", "evidence", "advice"} <= set(record)
    assert record["where"] == {"cluster": "east", "job": "1", "job_name": "llama", "host": "node-0"}
    assert record["evidence"][0] == {"name": "idle", "value": 40.0, "unit": "GPU-hours"}


@pytest.mark.parametrize(
    ("more", "found", "word"),
    [
        ({"xids": (48,)}, "medium", "reset the GPU"),
        ({"xids": (94,), "errors": {"ecc_uncorrected": 1.0}}, "high", "reset the GPU"),
        ({"xids": (79,)}, "medium", "dcgmi diag"),
        ({"xids": (64,)}, "medium", "replaced"),
        ({"errors": {"remap_failed": 9.0}}, "high", "replaced"),
        ({"errors": {"nvlink_recoveries": 1.0}}, "medium", "NVLink"),
        ({"errors": {"nvlink_replays": float(sick_gpu.LEAST_REPLAYS)}}, "medium", "NVLink"),
        ({"errors": {"nvlink_replays": sick_gpu.LEAST_REPLAYS - 1.0}}, None, ""),
        ({"xids": (13, 31, 43)}, None, ""),
        ({"xids": (31, 74)}, "medium", "NVLink"),
    ],
)
def test_a_gpu_is_sick_by_errors_that_no_program_causes(more: dict[str, Any], found: str | None, word: str) -> None:
    evidence = FleetEvidence(84.0, 1e6, (), sick=(SickGpu("east", "node-1", "GPU-3", 3, 0.5, jobs=("1", "2"), **more),))
    findings = fleet_findings(evidence)  # half an hour of a million counts, too
    assert [one.confidence for one in findings] == ([found] if found else [])
    for one in findings:
        assert (str(one.where), one.owner, one.gpu_hours) == ("node-1 GPU 3", "the operators of the hosts", 0.5) and word in one.advice
        assert facts(one)["jobs on it since"] == 2


def test_every_kind_says_which_part_of_the_ullage_it_speaks_of() -> None:
    assert all(kind.part and kind.title for kind in FLEET_KINDS.values())
    assert not_allocated.LEAST_SHARE == 0.05


def small_kernels(fill: float, **more: Any) -> DeviceOfJob:
    return device(engine=0.8, sm=0.8 * fill, kept=0.8, tensor=1.0, lost={"sm_fill": 8.0 * (1 - fill), "clock": 0.2}, **more)


@pytest.mark.parametrize(("fill", "found"), [(low_sm_fill.MOST_FILL, True), (low_sm_fill.MOST_FILL + 0.001, False)])
def test_a_job_of_whose_sms_half_are_empty_while_it_is_busy(fill: float, found: bool) -> None:
    assert kinds(job(small_kernels(fill))) == (["low_sm_fill"] if found else [])


def test_low_sm_fill_is_worth_what_the_chain_loses_there_and_the_advice_follows_the_evidence() -> None:
    (alone,) = of(job(small_kernels(0.25)))
    assert (alone.gpu_hours, alone.money, alone.confidence) == (6.0, 12.0, "medium") and "larger batches" in alone.advice
    (rests,) = of(job(device(engine=0.4, sm=0.1, lost={"sm_fill": 3.0})))
    assert "share a GPU" in rests.advice
    (several,) = of(job(small_kernels(0.25), replace(small_kernels(0.25), gpu="GPU-1", index=1)))
    assert "collectives" in several.advice and several.gpu_hours == 12.0
    assert of(job(device(engine=None, sm=0.1))) == [] and of(job(device(held=0.9, counted=0.9, engine=0.8, sm=0.1))) == []


def test_a_job_that_memory_binds_is_named_with_what_is_left_to_its_roof() -> None:
    (found,) = of(job(small_kernels(0.25, idle=0.8), bound="memory", memory=0.75))
    # 9.2 hours at work x 0.25, at 2 each
    assert (found.kind, found.owner) == ("memory_bound", "ann")
    assert (found.gpu_hours, found.money) == (pytest.approx(2.3), pytest.approx(4.6))
    assert found.confidence == "medium" and found.advice.startswith("its low OFU is no fault")
    assert facts(found) == {"bandwidth of reachable": 0.75, "OFU": pytest.approx(0.08), "GPUs": 1}  # 0.8 of 10 hours
    close, further = (of(job(device(), bound="memory", memory=height, memory_measured=True))[0] for height in (0.8, 0.79))
    assert "near the memory's peak" in close.advice and "fused kernels" in further.advice and close.confidence == "high"


@pytest.mark.parametrize(("bound", "found"), [("memory", ["memory_bound"]), (None, ["low_sm_fill"]), ("network", ["low_sm_fill"])])
def test_a_job_that_memory_binds_is_not_called_bad_for_its_empty_sms(bound: str | None, found: list[str]) -> None:
    assert kinds(job(small_kernels(0.25), bound=bound, memory=0.6)) == found


def test_a_job_that_memory_binds_is_not_slower_than_its_kind_by_its_ofu() -> None:
    assert [one.kind for one in kind_of_three(1.0, bound="memory", memory=0.6)] == ["memory_bound"]
    assert of(job(device(held=0.99, counted=0.99), bound="memory", memory=0.6)) == []  # it has just begun


def test_what_gpus_wait_for_a_straggler_is_no_way_to_the_memorys_roof() -> None:
    waiting = [device(n, engine=1.0, sm=0.3, kept=1.0) for n in range(8)]
    found = {one.kind: one for one in of(job(*waiting, bound="memory", memory=0.6, stragglers=(slow(7),)))}
    assert found["memory_bound"].gpu_hours == pytest.approx(80 * 0.4 - found["straggler"].gpu_hours)


def limited(number: int = 0, clock: float = 0.5, share: float = 0.5, cause: str = "thermal", **more: Any) -> DeviceOfJob:
    """A GPU at 10 hours' work with 4 hours of tensor activity, at 0.8 of the tensor clock but for a share of it under a cause."""
    under = LimitedClock(10 * share, 4 * share, 4 * share * clock)
    return device(number, tensor=4.0, kept=under.kept + 0.8 * (4 - under.tensor), limits={cause: under}, **more)


def likes(*numbers: int) -> list[DeviceOfJob]:
    return [device(number, tensor=4.0, kept=3.2) for number in numbers]


@pytest.mark.parametrize(
    ("cause", "owner", "confidence", "word"),
    [
        ("thermal", "the operators of the hosts", "high", "cooling"),
        ("slowdown", "the operators of the hosts", "high", "power supply"),
        ("application", "the operators of the hosts, or ann", "medium", "nvidia-smi -rgc"),
    ],
)
def test_a_gpu_whose_clock_something_lowers(cause: str, owner: str, confidence: str, word: str) -> None:
    (found,) = of(job(limited(cause=cause), *likes(1, 2)))
    assert (found.kind, str(found.where), found.owner, found.confidence) == ("throttled", "job 1 (llama), node-0 GPU 0", owner, confidence)
    assert found.gpu_hours == pytest.approx(2 * (0.8 - 0.5)) and found.money == pytest.approx(1.2) and word in found.advice
    assert facts(found)["of the time at work"] == 0.5 and facts(found)["clock beside others"] == pytest.approx(0.5 / 0.8)


@pytest.mark.parametrize(("share", "found"), [(throttled.LEAST_SHARE, ["throttled"]), (throttled.LEAST_SHARE - 0.001, [])])
def test_a_clock_that_is_lowered_counts_from_a_twentieth_of_the_time(share: float, found: list[str]) -> None:
    assert kinds(job(limited(share=share, clock=0.1), *(limited(n, share=share, clock=0.1) for n in range(3, 9)), *likes(1, 2))) == found


@pytest.mark.parametrize(
    ("clock", "found"), [(0.8 * throttled.MOST_OF_OTHERS - 1e-9, ["throttled"]), (0.8 * throttled.MOST_OF_OTHERS + 1e-9, [])]
)
def test_a_clock_that_is_as_high_as_others_is_not_lowered(clock: float, found: list[str]) -> None:
    assert kinds(job(*(limited(n, clock=clock, share=1.0) for n in range(4)), job="2"), job(*likes(4, 5))) == found


@pytest.mark.parametrize(("clock", "found"), [(0.8 * throttled.CAPPED - 1e-9, ["throttled"]), (0.8 * throttled.CAPPED + 1e-9, [])])
def test_a_power_cap_is_judged_by_the_others_of_the_job_that_are_capped(clock: float, found: list[str]) -> None:
    others = [limited(n, clock=0.8, share=1.0, cause="power_cap") for n in range(1, 4)]
    assert kinds(job(limited(clock=clock, share=1.0, cause="power_cap"), *others)) == found
    assert kinds(job(limited(clock=clock, share=1.0, cause="power_cap"), others[0])) == []  # of two nobody can say which one is limited
    assert kinds(job(*(limited(n, clock=clock, share=1.0, cause="power_cap") for n in range(4)))) == []  # a cap that all have


def capped(number: int = 0, clock: float = 0.5, share: float = 1.0, power: float = 350.0, **more: Any) -> DeviceOfJob:
    return limited(number, clock=clock, share=share, cause="power_cap", power=power, model=H100, **more)


H100 = "NVIDIA H100 80GB HBM3"  # 700 W, as its maker states


def test_a_job_all_of_whose_gpus_are_capped_is_held_against_what_their_maker_states() -> None:
    (found,) = of(job(*(capped(n) for n in range(4)), job="2"), *others_of_the_model())
    assert (found.kind, found.where.job, found.owner) == ("power_capped", "2", "the operators of the hosts")
    # 4 GPUs x 4 hours of tensor activity at 0.5 of the tensor clock, where the others' is 0.8; each hour costs 2
    assert found.gpu_hours == pytest.approx(16 * 0.3) and found.money == pytest.approx(9.6) and found.confidence == "medium"
    assert facts(found) == {
        "cap at most": 350, "stated by the maker": 700, "of the time at work": 1, "clock beside others": pytest.approx(0.625), "GPUs": 4,
    }  # fmt: skip


def others_of_the_model() -> list[JobEvidence]:
    return [job(device(number, tensor=4.0, kept=3.2, model=H100, power=700.0), job=str(number), name=None) for number in (4, 5)]


def test_with_fewer_than_two_other_jobs_nobody_knows_what_clock_is_usual() -> None:
    first, second = others_of_the_model()
    assert "power_capped" not in kinds(job(capped(), job="2"), first)
    assert "power_capped" in kinds(job(capped(), job="2"), first, second)


@pytest.mark.parametrize(("more", "found"), [(-1e-9, True), (1e-9, False)])
def test_a_cap_that_leaves_the_clock_as_high_as_others_is_no_finding(more: float, found: bool) -> None:
    clock = 0.8 * power_capped.MOST_OF_OTHERS + more
    assert ("power_capped" in kinds(job(capped(clock=clock), job="2"), *others_of_the_model())) == found


@pytest.mark.parametrize(
    ("power", "share", "found"),
    [
        (700 * power_capped.MOST_OF_STATED, 1.0, True),
        (700 * power_capped.MOST_OF_STATED + 0.1, 1.0, False),
        (350.0, 350 / 630 + 1e-6, True),  # all that it drew in the time under the cap: 630 W there
        (350.0, 350 / 630 - 1e-4, False),  # it may have drawn more than that while capped
        (350.0, 0.05, False),
    ],
)
def test_a_cap_counts_where_it_can_not_be_the_makers(power: float, share: float, found: bool) -> None:
    assert ("power_capped" in kinds(job(capped(power=power, share=share), job="2"), *others_of_the_model())) == found


def test_a_job_of_which_one_gpu_is_not_capped_or_not_known_is_not_said_to_be() -> None:
    for other in (device(1, tensor=4.0, kept=3.2, model=H100), capped(1, power=700.0), capped(1, mig="1g.10gb/7")):
        assert "power_capped" not in kinds(job(capped(), other, job="2"), *others_of_the_model())
    assert "power_capped" not in kinds(
        job(limited(share=1.0, cause="power_cap", power=350.0, model="nobody's"), job="2"), *others_of_the_model()
    )


def test_where_all_gpus_are_slowed_the_tensor_clock_stands_for_that_of_others() -> None:
    (found,) = of(job(*(limited(n, share=1.0) for n in range(2))))
    assert found.gpu_hours == pytest.approx(2 * 4 * 0.5) and found.confidence == "low"
    assert of(job(limited(clock=0.0, share=0.0), *likes(1, 2))) == []


def test_a_job_slowed_by_heat_is_slower_than_its_kind_only_by_the_rest() -> None:
    jobs = [job(device(n, tensor=4.0, kept=3.2), job=str(n)) for n in (1, 2)]
    found = {one.kind: one.gpu_hours for one in of(*jobs, job(limited(3, share=1.0, clock=0.4), job="3"))}
    assert found == {"throttled": pytest.approx(1.6), "slower_than_its_kind": pytest.approx(10 * 0.5 - 1.6)}


def test_what_waits_for_a_straggler_is_no_low_sm_fill_again() -> None:
    waiting = [device(n, engine=1.0, sm=0.3, kept=1.0, lost={"sm_fill": 7.0}) for n in range(7)]
    last = device(7, engine=1.0, sm=0.6, kept=1.0, lost={"sm_fill": 4.0})
    found = {one.kind: one for one in of(job(*waiting, last, stragglers=(slow(7, waited=0.3),)))}
    assert found["straggler"].gpu_hours == pytest.approx(0.3 * 70)
    assert found["low_sm_fill"].gpu_hours == pytest.approx(53.0 - 21.0)


@pytest.mark.parametrize(("mfu", "found"), [(0.2501, True), (0.2499, False), (0.1639, True), (0.1641, False), (None, False)])
def test_an_mfu_further_from_ofu_than_samples_and_padding_explain(mfu: float | None, found: bool) -> None:
    assert (reported_mfu.MOST_RATIO, reported_mfu.LEAST_RATIO) == (1.25, 0.82)
    assert kinds(job(device(), reported_mfu=mfu)) == (["reported_mfu"] if found else [])


def test_an_mfu_is_beside_the_time_for_which_the_job_held_its_gpus() -> None:
    (found,) = of(job(device(), device(1), device(2), device(3), reported_mfu=0.588))
    assert found.gpu_hours == pytest.approx(0.388 * 40) and facts(found)["MFU over OFU"] == pytest.approx(2.94)
    assert "not executed" in found.advice and "recomputation" in of(job(device(), reported_mfu=0.15))[0].advice
    assert "half" in of(job(device(), reported_mfu=0.1))[0].advice
    assert kinds(job(device(held=20.0, idle=1.9), reported_mfu=0.19)) == [] == kinds(job(device(held=0.4, counted=0.4), reported_mfu=0.9))


def kind_of_three(kept: float, **more: Any) -> list[Finding]:
    jobs = [job(device(n, kept=2.0 + n / 10, lost={"activity": 5.0}), job=str(n)) for n in (1, 2)]
    return of(*jobs, job(device(3, kept=kept, lost={"activity": 8.0}), job="3", **more))


@pytest.mark.parametrize(("kept", "found"), [(2.1 * slower_than_its_kind.MOST_OF_THE_SLOWEST - 1e-9, True), (2.1 * 0.751, False)])
def test_a_job_slower_than_every_other_of_its_kind(kept: float, found: bool) -> None:
    assert [one.where.job for one in kind_of_three(kept)] == (["3"] if found else [])


def test_a_slower_job_tells_which_step_fell_and_jobs_of_another_kind_are_not_compared() -> None:
    (found,) = kind_of_three(1.0)
    assert found.gpu_hours == pytest.approx(10 * (1 - 1.0 / 2.15)) and "input pipeline" in found.advice
    assert facts(found)["activity beside theirs"] == pytest.approx(0.2 / 0.5)
    assert kind_of_three(1.0, user="bob") == [] == kind_of_three(1.0, name=None) == kind_of_three(1.0, cluster="west")
    assert of(job(device(1), job="1"), job(device(2, kept=0.5), job="2")) == []  # of two nobody can say which is wrong


def beside_earlier(kept: float, *earlier: JobEvidence, **more: Any) -> list[Finding]:
    now = job(device(3, kept=kept, lost={"activity": 8.0}), job="9", **more)
    return fleet_findings(FleetEvidence(84.0, 100.0, (now,), earlier=earlier))


EARLIER = tuple(job(device(n, kept=2.0 + n / 10, lost={"activity": 5.0}), job=str(n)) for n in (1, 2))


@pytest.mark.parametrize(("kept", "found"), [(2.1 * slower_than_its_kind.MOST_OF_THE_SLOWEST - 1e-9, True), (2.1 * 0.751, False)])
def test_a_job_slower_than_every_earlier_one_of_its_kind(kept: float, found: bool) -> None:
    assert [one.kind for one in beside_earlier(kept, *EARLIER)] == (["slower_than_before"] if found else [])


def test_a_job_that_got_slower_says_beside_what_and_how_sure_that_is() -> None:
    (found,) = beside_earlier(1.0, *EARLIER)
    assert found.gpu_hours == pytest.approx(10 * (1 - 1.0 / 2.15)) and found.confidence == "medium"
    assert facts(found)["OFU before"] == pytest.approx(0.215) and facts(found)["activity beside theirs"] == pytest.approx(0.2 / 0.5)
    assert "see what changed since then" in found.advice and "those of the earlier ones" in found.advice
    assert [one.confidence for one in beside_earlier(1.0, EARLIER[0])] == ["low"]  # one earlier job may have been the exception
    for more in ({"user": "bob"}, {"name": None}, {"cluster": "west"}):
        assert beside_earlier(1.0, *EARLIER, **more) == []
    assert beside_earlier(1.0, *(replace(one, bound="memory") for one in EARLIER)) == [] == beside_earlier(1.0)
    assert [one.kind for one in beside_earlier(1.0, *EARLIER, bound="memory", memory=0.6)] == ["memory_bound"]


def test_hours_of_a_job_slower_than_before_and_than_its_kind_count_once() -> None:
    jobs = tuple(job(device(n, kept=kept), job=str(n)) for n, kept in ((1, 2.0), (2, 2.0), (3, 0.5)))
    found = fleet_findings(FleetEvidence(84.0, 100.0, jobs, earlier=EARLIER))
    assert sum(one.gpu_hours for one in found) == pytest.approx(10 * (1 - 0.5 / 2.15))


@pytest.mark.parametrize(
    ("ending", "owner", "advice"),
    [
        ("failed", "ann", "job's log"),
        ("out of memory", "ann", "micro-batch"),
        ("node failed", "the operators of the hosts", "kernel's log"),
        ("restarted", "the scheduler, the operators", "requeues"),
    ],
)
def test_hours_of_runs_that_were_lost(ending: str, owner: str, advice: str) -> None:
    (found,) = of(job(device(), lost_runs={ending: 10.0}))
    assert (found.kind, found.gpu_hours, found.confidence, found.owner) == ("lost_hours", 10.0, "low", owner)
    assert facts(found) == {ending: 10.0} and advice in found.advice


def test_of_several_endings_the_one_that_cost_most_says_whose_it_is() -> None:
    (found,) = of(job(device(), lost_runs={"failed": 2.0, "node failed": 3.0}))
    assert (found.gpu_hours, found.owner) == (5.0, "the operators of the hosts") and facts(found) == {"failed": 2.0, "node failed": 3.0}
    assert set(lost_hours.ADVICE) == set(LOST)


def test_a_run_that_fails_at_its_start_costs_little_and_idle_hours_count_once() -> None:
    assert of(job(device(), lost_runs={"failed": 0.99})) == [] and len(of(job(device(), lost_runs={"failed": 1.0}))) == 1
    found = {one.kind: one.gpu_hours for one in of(job(device(idle=4.0, counted=6.0), lost_runs={"failed": 10.0}))}
    assert found == {"lost_hours": 6.0, "held_idle": 4.0}


def waits(**more: Any) -> QueueWaits:
    """Four runs of 25 GPUs, which waited 900 s on average: 25 GPU-hours, a tenth of what they then held."""
    values: dict[str, Any] = {"runs": 4, "unknown": 0, "jobs": 4, "mean": 900.0, "median": 600.0, "longest": 3600.0, "longest_job": "7"}
    return QueueWaits(**values | {"gpu_hours": 25.0, "ran": 250.0} | more)


def queue_finding(found: QueueWaits, *free: FreeHours) -> list[Finding]:
    return [one for one in fleet_findings(FleetEvidence(84.0, 1000.0, (), free, queue=found)) if one.kind == "queue_wait"]


@pytest.mark.parametrize(
    ("more", "found"),
    [({}, True), ({"mean": 899.0}, False), ({"gpu_hours": 24.9}, False), ({"ran": 250.1}, False), ({"unknown": 1}, True)],
)
def test_waits_are_told_from_a_quarter_of_an_hour_and_a_tenth_of_the_time_held(more: dict[str, Any], found: bool) -> None:
    told = queue_finding(waits(**more))
    assert len(told) == found
    for one in told:
        assert (one.gpu_hours, one.confidence) == (25.0, "medium" if more else "high") and str(one.where) == ""
        assert facts(one)["longest wait"] == "1.00 h (job 7)" and facts(one)["runs that waited"] == 4


def test_what_to_do_against_waits_depends_on_whether_gpus_stand_free() -> None:
    free = queue_finding(waits(), FreeHours("east", "n1", 100.0, 5.0, 0.0))
    full = queue_finding(waits(), FreeHours("east", "n1", 100.0, 4.9, 0.0))
    assert "stand free" in free[0].advice and "backfill" in full[0].advice
    assert facts(free[0])["free in the window"] == 0.05


def test_waits_of_one_job_are_told_of_that_job() -> None:
    (found,) = queue_finding(waits(jobs=1), FreeHours("east", "n1", 100.0, 50.0, 0.0))
    assert str(found.where) == "job 7" and "longest wait" not in facts(found) and "backfill" in found.advice


def test_series_that_are_left_out_are_told_by_host_and_fault() -> None:
    stuck = [Verdict(f"GPU-{n}", "stuck at zero", "reads 0", 5.0, "node-1", n) for n in range(2)]
    one = Verdict("GPU-9", "stale", "repeats", 7.0, "node-2", 3)
    counted = Verdict("GPU-8", "slow interval", "60 s", 10.0, "node-3", 0)
    found = fleet_findings(FleetEvidence(10.0, 100.0, (), (), (*stuck, one, counted)))
    assert [(str(f.where), f.gpu_hours, facts(f)["series"]) for f in found] == [("node-1", 10.0, 2), ("node-2 GPU 3", 7.0, 1)]
    assert "DCGM" in found[0].advice and "exporter" in found[1].advice
    assert set(faulty_series.ADVICE) == set(UNTRUSTED)


def test_what_is_planted_in_a_simulated_fleet_is_found() -> None:
    faults = load("finding_faults")
    score = faults.FindingScore()
    faults.add_fleets(score, 1)
    assert set(score.due) == set(score.right) == set(FLEET_KINDS) and score.wrong == []
    assert score.healthy.total() == 0


@pytest.mark.full
def test_precision_and_recall_over_many_simulated_fleets() -> None:
    faults = load("finding_faults")
    score = faults.FindingScore()
    for seed in range(200):
        faults.add_fleets(score, seed)
    assert all(score.recall(kind) > 0.9 and score.precision(kind) > 0.9 for kind in FLEET_KINDS)
    assert score.healthy.total() <= 4


def test_faults_a_little_beyond_their_threshold_are_found_and_those_before_it_are_not() -> None:
    faults = load("finding_faults")
    score = faults.FindingScore()
    faults.add_near_fleet(score, 1)
    assert score.due.total() > 4 and score.before.total() > 4
    assert score.false.total() == 0 and score.right.total() >= score.due.total() - 1


@pytest.mark.full
def test_most_faults_near_their_threshold_are_told_from_those_before_it() -> None:
    faults = load("finding_faults")
    score = faults.FindingScore()
    for seed in range(100):
        faults.add_near_fleet(score, seed)
    for kind in {near.kind for near in faults.NEAR}:
        assert score.recall(kind) > 0.9 and score.false[kind] <= 0.05 * score.before[kind]
