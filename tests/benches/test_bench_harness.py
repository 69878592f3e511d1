"""The harness end to end: real cuda-bindings and NVRTC on a double of the driver, kernels' results computed by the test."""

import json
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from tests.benches.bench_cases import SOURCE, Torch, bench, case, library_case, reference, work
from tests.cupti.cuda_double import ILLEGAL_ADDRESS, with_driver
from ullage.benches.bench import BENCHES, Output
from ullage.benches.result import Stamp, record, restored
from ullage.benches.running.checking import wrong
from ullage.benches.running.harness import run
from ullage.benches.running.session import opened, suite
from ullage.errors import UllageError


def session(**changed):
    """Return a session whose clocks nobody else can move, without NVML."""
    return opened(nvml=object(), torch=changed.pop("torch", object()), today=lambda: datetime(2026, 3, 1, 12, tzinfo=UTC), **changed)


def rows(*cases, within=None, **options):
    with within or session() as one:
        return run(bench(*cases), one, **options).rows


def row(one, **options):
    (found,) = rows(one, **options)
    return found


# --- numbers ---


@with_driver
def test_latency_is_cycles_over_the_dependent_steps(gpu):
    gpu.kernels["work"] = work(cycles=185_600)
    found = row(case()).values["latency"]
    # 185,600 cycles / (100 trips × 64 steps) = 29
    assert (found.value, found.low, found.high, found.unit) == (29.0, 29.0, 29.0, "cycles")
    assert found.repeats >= 5


@with_driver
def test_latency_is_the_median_blocks_and_bandwidth_in_cycles_the_slowest_ones(gpu):
    def uneven(launch):
        work()(launch)
        notes = launch.array(0, np.uint64, 4 * 3).reshape(3, 4)
        notes[:, 2] = notes[:, 0] + np.array([6400, 12800, 64000], np.uint64)

    gpu.kernels["work"] = uneven
    quantities = ("latency", "bytes_per_cycle", "bytes_per_cycle_sm", "results_per_cycle_sm")
    found = row(case(grid=3, bytes=640_000, items=960_000, quantities=quantities)).values
    # 12,800 / 6,400 = 2; 640,000 B / 64,000 cycles = 10, on 3 SMs
    assert (found["latency"].value, found["bytes_per_cycle"].value, found["bytes_per_cycle_sm"].value) == (2.0, 10.0, pytest.approx(10 / 3))
    assert (found["results_per_cycle_sm"].value, found["results_per_cycle_sm"].unit) == (5.0, "1/cycle/SM")  # 960,000 in 64,000 on 3 SMs


@with_driver
def test_throughput_is_the_work_over_the_time_between_events(gpu):
    gpu.kernels["work"] = work(cycles=1_980_000, clock=1.98e9)
    found = row(case(flops=10**12, bytes=10**9, items=5, quantities=("throughput", "bandwidth", "rate", "time"))).values
    # a launch takes 1 ms
    assert found["throughput"].value == pytest.approx(1e15, rel=1e-5)
    assert found["bandwidth"].value == pytest.approx(1e12, rel=1e-5)
    assert found["rate"].value == pytest.approx(5000, rel=1e-5)
    assert found["time"].value == pytest.approx(1e-3, rel=1e-5)


@with_driver
def test_the_sm_clock_is_the_kernels_own_where_a_block_ran_long_enough(gpu):
    gpu.kernels["work"] = work(cycles=1_755_000, clock=1.755e9)
    found = row(case()).stamp
    assert (found.sm_clock, found.clock_from, found.data) == (pytest.approx(1.755e9), "kernel", "random")
    gpu.kernels["work"] = work(cycles=100_000, clock=1.755e9)  # 57 µs: too short for a timer that ticks in microseconds
    found = row(case()).stamp
    assert (found.sm_clock, found.clock_from, found.power, found.throttle) == (None, None, None, None)


@with_driver
def test_a_kernel_is_checked_with_few_trips_on_fresh_random_data_and_timed_with_all_on_zeros(gpu):
    seen = []
    gpu.kernels["work"] = work(seen=seen)
    one = row(case(data="zero"))
    assert one.stamp.data == "zero"
    assert seen[0][0] == 2 and seen[0][1] > 0
    assert {trips for trips, _ in seen[1:]} == {100} and {total for _, total in seen[1:]} == {0}
    first = seen[0]
    seen.clear()
    row(case())
    assert seen[0] != first  # another session, other data
    assert seen[1][1] > 0


@with_driver
def test_a_kernel_is_checked_on_random_data_and_timed_on_what_its_case_makes_of_them(gpu):
    seen = []
    gpu.kernels["work"] = work(seen=seen)
    one = row(case(timed_inputs=lambda arrays: (arrays[0] * 0 + 7,)))
    assert one.stamp.data == "random"
    assert seen[0][0] == 2 and seen[0][1] != 32 * 7
    assert set(seen[1:]) == {(100, 32 * 7)}
    seen.clear()
    row(case(data="zero", timed_inputs=lambda arrays: (arrays[0] * 0 + 7,)))  # zeros stay zeros
    assert {total for _, total in seen[1:]} == {0}


@with_driver
def test_a_power_case_runs_for_its_seconds(gpu):
    gpu.kernels["work"] = work(cycles=19_800_000)  # 10 ms
    before = gpu.now
    assert row(case(quantities=("time",), seconds=3.0)).values["time"].value == pytest.approx(0.01, rel=1e-5)
    assert 3.0 <= (gpu.now - before) / 1e9 < 3.3


def cooling(gpu, until=0.7, before=1.98e9, after=1.4e9):
    """Return a kernel of 14 million cycles whose clock falls after some seconds of load."""

    def body(launch):
        work(cycles=14_000_000, clock=before if gpu.now / 1e9 < until else after)(launch)

    return body


@with_driver
def test_what_has_to_settle_is_timed_only_after_the_load_has_run_for_so_long(gpu):
    gpu.now, gpu.kernels["work"] = 0, cooling(gpu)
    found = row(case(flops=10**12, quantities=("throughput",), seconds=5.3, settle=1.1))
    # 14 million cycles at 1.4 GHz are 10 ms; before it settled they took 7.1 ms
    assert found.values["throughput"].value == pytest.approx(1e14, rel=1e-4)
    assert found.values["throughput"].low == pytest.approx(1e14, rel=1e-4)
    assert (found.stamp.sm_clock, found.stamp.lowest_clock) == (pytest.approx(1.4e9), pytest.approx(1.4e9))
    assert 5.3 <= found.stamp.seconds < 5.9 and 1.1 <= found.stamp.settled < 1.5
    assert found.stamp.sustained and found.values["throughput"].repeats == 50


@with_driver
def test_what_need_not_settle_is_timed_at_once_and_is_not_sustained(gpu):
    gpu.now, gpu.kernels["work"] = 0, cooling(gpu)
    found = row(case(flops=10**12, quantities=("throughput",)))
    assert found.values["throughput"].value == pytest.approx(1.414e14, rel=1e-3)
    assert 0.1 < found.stamp.seconds < 0.4 and found.stamp.settled < 0.1 and not found.stamp.sustained


@with_driver
def test_a_clock_that_rises_while_it_settles_still_settles_for_its_time(gpu):
    # 70 ms a run in the first half second, then 7: as many runs as would have filled the time don't
    gpu.now, gpu.kernels["work"] = 0, cooling(gpu, until=0.5, before=0.2e9, after=2e9)
    found = row(case(flops=10**12, quantities=("throughput",), seconds=5.3, settle=1.1))
    assert found.stamp.settled >= 1.1 and found.stamp.seconds >= 5.3


@with_driver
def test_a_short_case_that_has_to_settle_has_room_for_the_notes_of_all_its_spans(gpu):
    # 70 ms a run before it settled: 5 spans; 7 ms afterwards would make 20
    gpu.now, gpu.kernels["work"] = 0, cooling(gpu, until=0.7, before=0.2e9, after=2e9)
    assert row(case(quantities=("time",), settle=1.1)).values["time"].value == pytest.approx(7e-3, rel=1e-3)


@with_driver
def test_the_lowest_clock_is_the_lowest_of_all_timed_launches(gpu):
    launches = []

    def body(launch):
        launches.append(1)
        work(cycles=19_800_000, clock=1.2e9 if len(launches) > 500 else 1.98e9)(launch)

    gpu.kernels["work"] = body
    found = row(case(quantities=("time",), seconds=5.3, settle=1.1))
    assert (found.stamp.sm_clock, found.stamp.lowest_clock) == (pytest.approx(1.98e9), pytest.approx(1.2e9))


@pytest.mark.parametrize(
    ("seconds", "settled", "sustained"),
    [(5.0, 1.0, True), (4.99, 1.0, False), (5.0, 0.99, False), (None, None, False), (60.0, None, False)],
)
def test_a_number_is_sustained_from_five_seconds_on_after_one_that_does_not_count(seconds, settled, sustained):
    assert Stamp(None, None, None, None, None, "random", None, seconds, settled).sustained is sustained


@with_driver
def test_a_short_case_is_repeated_and_stays_within_its_time(gpu):
    gpu.kernels["work"] = work(cycles=19_800)  # 10 µs
    before = gpu.now
    assert row(case()).values["latency"].repeats == 20
    assert (gpu.now - before) / 1e9 < 0.1


# --- wrong, broken ---


@with_driver
def test_a_wrong_result_gives_no_number_and_the_next_case_goes_on(gpu):
    def off_by_one(launch):
        work()(launch)
        launch.array(2, np.int32, 32)[5] += 1

    gpu.kernels.update(work=work(), wrong=off_by_one)
    bad, good = rows(case({"level": "bad"}, source=SOURCE.replace("work", "wrong"), entry="wrong"), case())
    assert bad.values == {} and bad.stamp is None
    assert bad.problem.startswith("the result is wrong: 1 of 32 elements of output 0 differ, first [5]: ")
    assert good.values["latency"].value == 29.0


@with_driver
def test_what_a_kernel_never_wrote_is_named_as_that(gpu):
    gpu.kernels["work"] = lambda launch: launch.took(1000)
    assert row(case()).problem == "the result is wrong: 32 of 32 elements of output 0 were never written"


@with_driver
def test_a_kernel_without_its_stopwatch_has_no_latency_but_a_time(gpu):
    def silent(launch):
        launch.array(2, np.int32, 32)[:] = reference((launch.array(1, np.int32, 32),), min(launch.integer(3), 2))[0]
        gpu.now += 1_000_000

    gpu.kernels["work"] = silent
    without, timed = rows(case(), case(quantities=("time",)))
    assert without.problem == "the kernel did not note its cycles: ULLAGE_BEGIN and ULLAGE_END must stand around its loop"
    assert timed.values["time"].value == pytest.approx(1e-3)


@with_driver
def test_each_failure_costs_its_own_row_and_everything_is_given_back(gpu):
    gpu.kernels["work"] = work()

    def broken(arrays, trips):
        raise ZeroDivisionError("by zero")

    found = rows(
        case(source="this is no C++"),
        case(entry="missing"),
        case(outputs=(Output((2**40,), "int32"),)),
        case(reference=broken),
        case(shared=300_000),
        case(quantities=("power",)),
        case(),
    )
    problems = [one.problem for one in found]
    assert problems[0].startswith("the compiler refuses the kernel for sm_90a: ")
    assert problems[1].startswith("the CUDA driver refuses the kernel 'missing' (CUDA_ERROR_NOT_FOUND")
    assert "of memory (CUDA_ERROR_OUT_OF_MEMORY: out of memory)" in problems[2]
    assert problems[3] == "ZeroDivisionError: by zero"
    assert "300,000 bytes of shared memory a block" in problems[4]
    assert problems[5] == "power can't be told: the driver tells no power"
    assert problems[6] == "" and found[6].values["latency"].value == 29.0
    assert (gpu.used, gpu.modules, gpu.events, gpu.resets) == (0, 0, 0, 0)


@with_driver
def test_an_illegal_address_costs_its_row_and_pytorch_but_not_the_next_kernel(gpu):
    gpu.kernels.update(work=work(), faulty=lambda launch: ILLEGAL_ADDRESS)
    bad, good, late = rows(
        case(source=SOURCE.replace("work", "faulty"), entry="faulty"), case(), library_case(), within=session(torch=Torch())
    )
    assert "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered" in bad.problem
    assert good.values["latency"].value == 29.0
    assert late.problem == "needs PyTorch with a GPU"
    assert gpu.resets == 1


@with_driver
def test_where_no_context_can_be_had_any_more_the_rest_says_so(gpu):
    gpu.kernels.update(work=work(), faulty=lambda launch: ILLEGAL_ADDRESS)
    gpu.state.stays_sticky = 1
    bad, *others = rows(case(source=SOURCE.replace("work", "faulty"), entry="faulty"), case(), case())
    assert "ILLEGAL_ADDRESS" in bad.problem
    assert all(
        one.problem.startswith("not run: the CUDA driver refuses") and "another context can't be had" in one.problem for one in others
    )


@with_driver
def test_a_kernel_that_never_ends_leaves_the_rest_unrun(gpu):
    def endless(launch):
        gpu.state.hangs = 1

    gpu.kernels["work"] = endless
    one = session()
    seconds = iter(range(10_000))
    one.device.now, one.device.sleep = lambda: next(seconds), lambda pause: None
    stuck, rest = rows(case(), case(), within=one)
    assert stuck.problem == "a kernel did not end within 20 s"
    assert rest.problem == "not run: a kernel did not end within 20 s"


@with_driver
def test_only_the_user_can_stop_a_suite(gpu):
    def interrupted(arrays, trips):
        raise KeyboardInterrupt

    gpu.kernels["work"] = work()
    with pytest.raises(KeyboardInterrupt):
        rows(case(reference=interrupted), case())


@with_driver
def test_past_its_time_a_bench_begins_no_case(gpu):
    gpu.kernels["work"] = work()
    one = session()
    times = iter([0.0, 1.0, 3.0, 3.5])  # the bench begins, the first case, the second, the end
    one.now = lambda: next(times)
    first, second = rows(case(), case(), within=one, until=2.0)
    assert (first.problem, second.problem) == ("", "not run: the time was up")


@with_driver
def test_a_bench_that_can_not_be_laid_out_says_why(gpu):
    with session() as one:
        assert run(bench(ValueError("no such size")), one).notes == ("sample can't be laid out for this GPU: ValueError: no such size",)
        assert run(bench(), one).notes == ("sample has nothing for sm_90a",)


# --- libraries ---


@with_driver
def test_a_library_call_is_checked_then_timed_by_its_own_events(gpu):
    torch, asked = Torch(seconds=1e-3), []
    found = row(library_case(asked=asked, data="zero"), within=session(torch=torch))
    assert found.values["throughput"].value == pytest.approx(1e15)
    assert asked == ["random", "zero"]
    assert torch.emptied == 1


@with_driver
def test_a_wrong_library_call_or_a_missing_library_gives_a_reason(gpu):
    one = session(torch=Torch())
    bad, missing = rows(library_case(wrong="by 3 %"), library_case(needs=("no_such_library",)), within=one)
    assert bad.problem == "the result is wrong: by 3 %"
    assert missing.problem == "needs the library 'no_such_library', which can't be loaded (ModuleNotFoundError)"
    assert row(library_case()).problem == "needs PyTorch with a GPU"


# --- sessions and suites ---


@with_driver
def test_a_result_says_machine_and_date_and_survives_its_file(gpu):
    gpu.kernels["work"] = work()
    with session() as one:
        found = run(bench(case()), one, quick=True)
    assert (found.gpu, found.date, found.quick) == ("NVIDIA H200", "2026-03-01T12:00:00Z", True)
    machine = found.machine
    assert (machine["sms"], machine["cuda"], machine["ecc"], machine["driver"], machine["power_limit"]) == (132, "13.0", True, None, None)
    assert machine["uuid_hash"].startswith("GPU-") and "0001" not in machine["uuid_hash"]
    assert restored(record(found)) == found


@with_driver
def test_a_result_of_before_lacks_how_long_it_was_and_is_read(gpu):
    gpu.kernels["work"] = work()
    with session() as one:
        old = record(run(bench(case()), one))
    for name in ("lowest_clock", "seconds", "settled"):
        del old["rows"][0]["stamp"][name]
    found = restored(json.loads(json.dumps(old))).rows[0].stamp
    assert (found.lowest_clock, found.seconds, found.settled, found.sustained) == (None, None, None, False)
    old["rows"][0]["stamp"]["seconds"] = "long"
    with pytest.raises(UllageError, match="damaged result"):
        restored(old)


@with_driver
def test_progress_tells_each_case_as_it_begins(gpu):
    gpu.kernels["work"] = work()
    said = []
    rows(case({"level": "L1", "type": None}), case({"level": "L2"}), progress=said.append)
    assert said == ["sample 1/2 (level L1)", "sample 2/2 (level L2)"]


@with_driver
def test_a_compiler_that_is_newer_than_the_driver_is_refused(gpu):
    gpu.state.version = 12040
    with pytest.raises(UllageError, match=r"the driver knows CUDA 12\.4, the compiler makes kernels for CUDA 13"):
        session()
    assert gpu.contexts == 0


@with_driver
def test_a_suite_runs_what_is_named_and_the_drift_check_what_belongs_to_it(gpu):
    gpu.kernels["work"] = work()
    BENCHES.load()
    known = dict(BENCHES._members)
    try:
        BENCHES._members.clear()
        for name, drift in (("one", False), ("two", True)):
            BENCHES.add(name, bench(case(), name=name, drift=drift))
        with session() as one:
            assert [found.bench for found in suite(["two", "one"], one)] == ["two", "one"]
            assert [(found.bench, found.quick) for found in suite([], one, drift=True)] == [("two", True)]
            with pytest.raises(UllageError, match="no microbenchmark is called 'three'"):
                list(suite(["one", "three"], one))
    finally:
        BENCHES._members.clear()
        BENCHES._members.update(known)


def test_exactness_is_relative_to_the_largest_magnitude_and_nan_is_wrong():
    right = np.array([100.0, 0.0])
    assert wrong([np.array([100.5, 0.4])], [right], tolerance=0.005) is None
    assert wrong([np.array([100.0, 0.6])], [right], tolerance=0.005) is not None
    assert wrong([np.array([100.0, np.nan])], [right], tolerance=0.005) is not None
    assert wrong([np.zeros(3)], [np.zeros(2)]) == "the result is wrong: output 0 has the shape (3,), its reference (2,)"
    assert wrong([np.zeros(3)], []) == "the reference gives 0 arrays for 1 outputs"


def test_the_harness_is_cheap_to_import():
    code = "import sys, ullage.benches.running.apart; print({'torch', 'cuda', 'pynvml', 'duckdb'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
