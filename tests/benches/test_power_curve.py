"""The power curve: its loads, what the harness makes of an idle GPU, and what the power limit costs."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import numpy as np
import pytest

from tests.benches.bench_cases import bench
from tests.benches.bench_results import H200, result, row, stamp
from tests.benches.emulated_gpu import emulated
from tests.cupti.cuda_double import with_driver
from tests.live.nvml_double import Gpu, Nvml
from ullage.benches.bench import BENCHES, Case, IdleCase, Target, cases_for
from ullage.benches.power_curve import FFMA, fp32
from ullage.benches.running.harness import run
from ullage.benches.running.session import opened
from ullage.render.bench import record, section, view
from ullage.render.svg.plot import curves, plot
from ullage.reports.bench.bench import bench_report
from ullage.reports.bench.power_curve import VOLTAGE, power_cost, power_notes
from ullage.views.html import html
from ullage.views.json_text import json_text
from ullage.views.text import section_text, text

TARGET = Target("sm_90a", H200, sms=132, l2=50 * 2**20, memory=100 * 2**30)
SVG = "{http://www.w3.org/2000/svg}"


# --- the loads


def test_a_product_runs_on_as_many_sms_as_its_row_says_on_zeros_and_on_random_data():
    cases = [case for case in cases_for(BENCHES["power-curve"], TARGET) if "BF16" in str(case.labels["load"])]
    assert [(case.data, case.grid, case.labels["SMs"]) for case in cases if isinstance(case, Case)] == [
        (data, sms, sms) for data in ("zero", "random") for sms in (16, 33, 66, 99, 132)
    ]
    per_sm = {case.flops / case.grid for case in cases if isinstance(case, Case) and isinstance(case.grid, int)}
    assert len(per_sm) == 1, "an SM does the same work however many compute"


def test_every_load_lasts_for_seconds_after_one_that_does_not_count_and_tells_its_power():
    cases = cases_for(BENCHES["power-curve"], TARGET)
    assert [case.labels["load"] for case in cases][:3] == ["idle", "memory reads", "FP32 multiply-add"]
    assert all(case.seconds >= 3 and case.settle >= 1 and "power" in case.quantities for case in cases)


@pytest.mark.parametrize("sms", [1, 2, 7])
def test_the_smallest_share_of_few_sms_is_one(sms):
    products = [case for case in cases_for(BENCHES["power-curve"], Target("sm_80", sms=sms)) if "BF16" in str(case.labels["load"])]
    assert min(case.grid for case in products) == 1 and max(case.grid for case in products) == sms


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")
def test_fp32_multiply_adds_equal_their_reference(emulation_folder):
    assert emulated(fp32(Target("sm_90a", sms=1)), emulation_folder) is None


def test_the_numbers_of_fp32_multiply_adds_neither_grow_nor_come_to_rest():
    # as long as a launch: 15,625 trips of 8 steps
    case = fp32(Target("sm_90a", sms=132))
    (values,) = case.inputs(np.random.default_rng(1), "random")
    angle, x, y = values[:64, :1], values[:64, 1::2], values[:64, 2::2]
    for _ in range(8 * case.trips):
        before = x
        x = x + angle * y
        y = y - angle * x
    assert max(np.abs(x).max(), np.abs(y).max()) < 3
    changed = np.bitwise_count(before.view(np.uint32) ^ x.view(np.uint32)).mean()
    assert changed > 8, "of 32 bits"


def test_fp32_counts_two_operations_for_each_multiply_add_of_each_thread():
    case = fp32(Target("sm_90a", sms=132))
    assert case.flops == 2 * FFMA * case.trips * 264 * 1024 and case.issues == {"FFMA": FFMA}
    # 128 multiply-adds a cycle and SM: 16 million cycles, 9 ms
    assert case.flops / (2 * 128 * 132) == pytest.approx(16e6, rel=1e-3)


# --- an idle GPU


class Board(Nvml):
    """A board whose energy counter grows with the double's time: 90 W."""

    def __init__(self, gpu, **told):
        super().__init__([Gpu("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", **told)])
        self.gpu = gpu

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return self.gpus[0]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return 90 * self.gpu.now / 1e6


def idle_row(gpu, nvml):
    with opened(nvml=nvml, torch=object(), today=lambda: datetime(2026, 3, 1, 12, tzinfo=UTC)) as session:
        launches = gpu.state.launches

        def sleep(seconds):
            gpu.now += int(seconds * 1e9)

        session.device.sleep = sleep
        session.monitor.now = lambda: gpu.now / 1e9
        session.monitor.interval = 1e-4
        (found,) = run(bench(IdleCase({"level": "idle"}, seconds=3.0, settle=1.0)), session).rows
        assert gpu.state.launches == launches
    return found


@with_driver
def test_an_idle_gpu_is_watched_for_its_seconds_while_nothing_runs(gpu):
    found = idle_row(gpu, Board(gpu, sm_clock=345, temperature=38, reasons=1))
    assert found.values["power"].value == pytest.approx(90.0)
    assert (found.stamp.sm_clock, found.stamp.clock_from, found.stamp.data) == (345e6, "driver", "none")
    assert (found.stamp.seconds, found.stamp.settled, found.stamp.throttle) == (3.0, 1.0, ())


@with_driver
def test_an_idle_gpu_without_nvml_has_no_number(gpu):
    assert idle_row(gpu, object()).problem == "power can't be told: the driver tells no power"


# --- what the power limit costs


def load(tera, sms, data="random", clock=1.98e9, power=500.0, throttle=(), name="BF16 wgmma", **more):
    """Return a row of a product on so many SMs."""
    values = {"throughput": tera * 1e12, "power": power, "efficiency": tera * 1e12 / power}
    held = stamp(data, clock, power, throttle, lowest_clock=clock * 0.97, seconds=3.0, settled=1.0)
    return row({"load": name, "data": data, "SMs": sms}, values, stamped=held, precision="bf16", **more)


def measured(*rows, **more):
    return result("power-curve", row({"load": "idle", "data": None, "SMs": 0}, {"power": 90.0}, stamped=stamp("none")), *rows, **more)


CAP = ("power cap",)
FULL = load(640, 132, clock=1.41e9, power=698.0, throttle=CAP)


def test_the_limit_costs_what_all_sms_would_do_at_the_clock_that_few_of_them_hold():
    # 250 TFLOP/s on 33 of 132 SMs: 1,000 on all; 640 are 36 % less
    (said, voltage) = power_notes([measured(load(120, 16), load(250, 33), load(450, 66, clock=1.8e9, throttle=CAP), FULL)])
    assert said == (
        "the power limit of 700 W costs BF16 wgmma 36.0 % (360.0 TFLOP/s): 640.0 TFLOP/s on random data at 1,410 MHz and 698 W, "
        "where all 132 SMs would do 1,000.0 at the 1,980 MHz that 33 of them hold on random data"
    )
    assert voltage == VOLTAGE
    assert power_cost([measured(load(250, 33), FULL)]).certain


def test_zeros_on_all_sms_tell_the_free_clock_where_nothing_holds_them_back():
    # 890 on zeros is more than 4 × 220
    cost = power_cost([measured(load(890, 132, "zero", power=560.0), load(220, 33), FULL)])
    assert (cost.free, cost.free_data, cost.free_sms) == (890e12, "zero", 132)
    assert cost.share == pytest.approx(250 / 890)
    (said, _) = power_notes([measured(load(890, 132, "zero", power=560.0), FULL)])
    assert "all 132 SMs would do 890.0 at the 1,980 MHz that all of them hold on zeros" in said


def test_where_even_few_sms_are_held_back_the_cost_is_at_least_so_much():
    held = measured(load(230, 33, throttle=CAP), load(800, 132, "zero", throttle=CAP), FULL)
    cost = power_cost([held])
    assert not cost.certain and cost.free == 920e12
    assert "costs BF16 wgmma at least 30.4 % (280.0 TFLOP/s)" in power_notes([held])[0]


def test_a_board_that_is_not_held_back_loses_nothing_to_its_limit():
    free = measured(load(245, 33), load(979, 132, clock=1.98e9, power=610.0))
    cost = power_cost([free])
    assert not cost.held_back and cost.share == pytest.approx(1 / 980)
    assert power_notes([free])[0] == (
        "BF16 wgmma does 979.0 TFLOP/s on random data at 1,980 MHz and 610 W, where all 132 SMs would do 980.0 at the 1,980 MHz that "
        "33 of them hold on random data, a difference of 0.1 % (1.0 TFLOP/s): "
        "neither power nor heat held the clock back at a limit of 700 W"
    )


@pytest.mark.parametrize(
    ("reasons", "subject"),
    [(("power cap",), "the power limit of 700 W costs"), (("power brake",), "the power limit of 700 W costs"),
     (("hardware thermal slowdown",), "heat costs"), (("software thermal slowdown", "power cap"), "the power limit of 700 W costs"),
     (("application clocks",), "BF16 wgmma does"), ((), "BF16 wgmma does")],
)  # fmt: skip
def test_what_is_blamed_is_what_the_driver_names(reasons, subject):
    found = measured(load(250, 33), load(640, 132, clock=1.41e9, throttle=reasons))
    assert power_notes([found])[0].startswith(subject)


def test_a_driver_that_names_no_reasons_blames_nothing():
    found = measured(load(250, 33, throttle=None), load(640, 132, clock=1.41e9, throttle=None))
    assert "the driver does not tell what holds clocks back" in power_notes([found])[0]


def test_without_the_limit_the_clock_or_the_power_the_sentence_leaves_them_out():
    bare = row({"load": "BF16 mma", "data": "random", "SMs": 8}, {"throughput": 5e12}, stamped=stamp(clock=None, power=None, throttle=CAP),
               precision="bf16")  # fmt: skip
    few = row(
        {"load": "BF16 mma", "data": "random", "SMs": 2}, {"throughput": 2e12}, stamped=stamp(clock=None, power=None), precision="bf16"
    )
    said, _ = power_notes([measured(few, bare, machine={"power_limit": None})])
    assert said == (
        "the power limit costs BF16 mma 37.5 % (3.0 TFLOP/s): 5.0 TFLOP/s on random data, "
        "where all 8 SMs would do 8.0 at the clock that 2 of them hold on random data"
    )


@pytest.mark.parametrize("rows", [(), (load(250, 33, "zero"),), (row({"load": "BF16 wgmma"}, {"throughput": 1.0}, precision="bf16"),)])
def test_without_random_data_on_all_sms_nothing_is_said(rows):
    assert power_cost([measured(*rows)]) is None and power_notes([measured(*rows)]) == () and power_notes([]) == ()


# --- where it shows

CURVE = measured(
    load(115, 16, "zero", power=180.0), load(240, 33, "zero", power=240.0), load(890, 132, "zero", power=560.0),
    load(115, 16, power=210.0), load(240, 33, power=300.0), FULL,
    row({"load": "memory reads", "data": "random", "SMs": 132}, {"bandwidth": 4.1e12, "power": 410.0}),
)  # fmt: skip


def test_each_load_has_a_row_with_watts_throughput_flops_a_joule_clock_temperature_and_reasons():
    (table,) = bench_report([CURVE]).tables
    shown = section_text(section(table), width=140).splitlines()
    (line,) = [line for line in shown if line.startswith("BF16 wgmma    random  132")]
    # 640 / 698 = 0.917 TFLOP/J
    assert line.split() == ["BF16", "wgmma", "random", "132", "640.0", "65", "%", "–", "698.0", "0.917",
                            "1,410", "(1,368)", "MHz,", "55", "°C,", "power", "cap"]  # fmt: skip
    assert next(line for line in shown if line.startswith("idle")).split()[:5] == ["idle", "0", "–", "–", "90.0"]


def test_the_curve_is_drawn_over_watts_a_line_for_each_kind_of_data():
    (table,) = bench_report([CURVE]).tables
    found = {curve.name: curve.points for curve in curves(table)}
    assert found == {
        "BF16 wgmma zero": ((180.0, 115.0), (240.0, 240.0), (560.0, 890.0)),
        "BF16 wgmma random": ((210.0, 115.0), (300.0, 240.0), (698.0, 640.0)),
    }
    words = [one.text for one in ET.fromstring(str(plot(table))).iter(f"{SVG}text")]
    assert "W" in words and "TFLOP/s" in words and "698" in words


def test_text_page_and_json_say_what_the_limit_costs():
    report = bench_report([CURVE])
    cost = "the power limit of 700 W costs BF16 wgmma 33.3 %"  # 640 of 4 × 240
    said = " ".join(text(view(report)).split())
    assert cost in said and VOLTAGE in said
    page = html(view(report))
    assert cost in page.split('aria-labelledby="power-curve"')[1].split("</section>")[0] and "plot-power-curve" in page
    told = json.loads(json_text(record(report)))["power_cost"]
    assert (told["free"], told["throughput"], told["limit"], told["reasons"]) == (960e12, 640e12, 700.0, ["power cap"])
    assert told["share"] == pytest.approx(1 / 3) and told["held_back"] is True
    assert json.loads(json_text(record(bench_report([result("mma")]))))["power_cost"] is None


def test_the_data_of_an_idle_row_are_not_named_among_those_of_others():
    (table,) = bench_report([CURVE]).tables
    assert ", data zero and random\n" in section_text(section(table))
    (alone,) = bench_report([measured()]).tables
    assert ", data none\n" in section_text(section(alone))
