"""Measured ceilings: which numbers become one, how they are kept and found, and where they show."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.benches.bench_results import H200, of_bench, result, row, stamp
from ullage.cli._question_command import question_command
from ullage.errors import UllageError
from ullage.gpus.measured import Ceilings, MeasuredCeiling, ceilings_of, folder, load, measured_ceiling, save
from ullage.render.bench import record, view
from ullage.reports.bench.bench import bench_report
from ullage.reports.bench.roofline import ceilings
from ullage.views.html import html
from ullage.views.json_text import json_text
from ullage.views.text import text


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """A folder of ceilings of one's own."""
    monkeypatch.setenv("ULLAGE_CEILINGS", str(tmp_path / "ceilings"))
    return tmp_path / "ceilings"


def product(value, data="random", precision="bf16", **more):
    return row({"m": 8192, "dtype": precision}, {"throughput": value}, stamped=stamp(data), precision=precision, **more)


def memory(value, level="global memory", mix="read"):
    return row({"level": level, "mix": mix}, {"bandwidth": value})


def made(gpu=H200, uuid="GPU-a", date="2026-08-10T12:00:00Z", flops=None, bandwidth=None):
    return Ceilings(gpu, uuid, date, "580", flops or {"bf16": MeasuredCeiling(7e14, "best-gemm", date)}, bandwidth or {})


# --- which numbers become one


def test_a_ceiling_is_the_best_dense_product_on_random_data_with_its_stamp():
    found = ceilings([result("best-gemm", product(6e14), product(7e14), product(8e14, "zero"), product(9e14, sparse=True))])
    assert found.flops == {
        "bf16": MeasuredCeiling(7e14, "best-gemm: 8192 bf16", "2026-08-10T12:00:00Z", "random", 1.755e9, 500.0, None, 55.0, None, ())
    }
    assert (found.sustained_flops, found.sustained_bandwidth) == ({}, {})
    assert (found.gpu, found.uuid_hash, found.driver) == (H200, "GPU-0123456789abcdef", "580.95.05")


def test_the_best_of_several_benches_counts_and_zeros_alone_make_no_ceiling():
    suite = [result("wgmma", product(6.6e14), product(1.4e15, "zero", "fp8")), result("best-gemm", product(7e14))]
    assert {name: one.source for name, one in ceilings(suite).flops.items()} == {"bf16": "best-gemm: 8192 bf16"}


HELD = {"seconds": 5.3, "settled": 1.1, "lowest_clock": 1.38e9}


def held(quantity, value, labels=None, **more):
    """Return a row that was measured for as long as a sustained ceiling takes."""
    stamped = stamp(clock=1.41e9, power=698.0, throttle=("power cap",), **{**HELD, **more.pop("stamp", {})})
    return row(labels or {"what": "BF16", "by": "wgmma"}, {quantity: value}, stamped=stamped, **more)


def test_what_ran_for_seconds_after_its_clock_settled_is_a_ceiling_of_its_own():
    memory_row = held("bandwidth", 4.1e12, {"what": "global memory", "by": "reads"})
    found = ceilings([result("wgmma", product(7e14)), result("sustained-ceilings", held("throughput", 6e14, precision="bf16"), memory_row)])
    assert (found.flops["bf16"].value, found.sustained_flops["bf16"].value) == (7e14, 6e14)
    assert found.sustained_flops["bf16"] == MeasuredCeiling(
        6e14, "sustained-ceilings: BF16 wgmma", "2026-08-10T12:00:00Z", "random", 1.41e9, 698.0, 1.38e9, 55.0, 5.3, ("power cap",)
    )
    assert (set(found.bandwidth), found.sustained_bandwidth["global memory"].value) == (set(), 4.1e12)


@pytest.mark.parametrize(
    ("stamped", "sustained"),
    [({"seconds": 5.0, "settled": 1.0}, True), ({"seconds": 4.9, "settled": 1.0}, False), ({"seconds": 5.0, "settled": 0.9}, False)],
)
def test_a_run_that_is_too_short_or_never_settled_is_a_burst(stamped, sustained):
    found = ceilings([result("sustained-ceilings", held("throughput", 6e14, precision="bf16", stamp=stamped))])
    assert (set(found.flops), set(found.sustained_flops)) == ((set(), {"bf16"}) if sustained else ({"bf16"}, set()))


def test_levels_of_memory_make_ceilings_and_paths_between_chips_do_not():
    suite = [
        result("memory-bandwidth", memory(4.3e12), memory(4.1e12, mix="copy"), memory(7e12, "L2 cache")),
        result("copies", row({"path": "host to device", "memory": "pinned", "size": 2**28}, {"bandwidth": 5e10})),
    ]
    assert {name: one.value for name, one in ceilings(suite).bandwidth.items()} == {"global memory": 4.3e12, "L2 cache": 7e12}


def test_the_real_benches_give_ceilings():
    suite = [of_bench(name) for name in ("wgmma", "mma", "dmma", "best-gemm", "memory-bandwidth", "memory-latency", "wgmma-sparse")]
    found = ceilings(suite)
    assert set(found.flops) == {"fp64", "tf32", "bf16", "fp16", "fp8", "int8"}
    assert found.flops["fp16"].value == 704.5e12  # table VIII: FP16 sums, SS, random
    assert set(found.bandwidth) == {"global memory", "L2 cache"}


def test_a_precision_that_nobody_knows_and_a_rate_of_zero_make_no_ceiling():
    assert ceilings([result("mma", product(7e14, precision="fp32"), product(0.0))]) is None
    assert ceilings([]) is None


def test_ceilings_are_of_one_device():
    with pytest.raises(UllageError, match="of 2 devices"):
        ceilings([result("mma", product(7e14)), result("best-gemm", product(7e14), machine={"uuid_hash": "GPU-b"})])


# --- how they are kept and found


def test_what_is_kept_is_found_by_device_by_model_and_by_any_name_of_it(kept):
    save(made(uuid="GPU-a"), kept)
    save(made(uuid="GPU-b", date="2026-08-11T12:00:00Z", flops={"bf16": MeasuredCeiling(6e14, "x")}), kept)
    assert ceilings_of(H200, "GPU-a").peak("bf16").value == 7e14
    assert ceilings_of(H200, "GPU-c").peak("bf16").value == 6e14  # the newest of its model
    assert ceilings_of("H200 SXM").uuid_hash == "GPU-b"
    assert ceilings_of("H200 NVL") is None and ceilings_of("Whatever 9000") is None


def test_a_gpu_that_is_not_in_the_tables_is_found_by_its_own_name(kept):
    save(made(gpu="Whatever 9000"), kept)
    assert ceilings_of("whatever-9000").gpu == "Whatever 9000"


def test_what_was_measured_anew_replaces_the_old_and_the_rest_stays(kept):
    save(made(flops={"bf16": MeasuredCeiling(7e14, "old"), "fp8": MeasuredCeiling(1.3e15, "old")}), kept)
    path = save(
        made(date="2026-08-12", flops={"bf16": MeasuredCeiling(6e14, "new")}, bandwidth={"L2 cache": MeasuredCeiling(7e12, "new")}), kept
    )
    found = load(path)
    assert {name: (one.value, one.source) for name, one in found.flops.items()} == {"bf16": (6e14, "new"), "fp8": (1.3e15, "old")}
    assert found.date == "2026-08-12" and set(found.bandwidth) == {"L2 cache"}
    assert [one.name for one in kept.iterdir()] == [path.name]


def test_what_was_sustained_is_kept_beside_the_bursts_and_read_back_whole(kept):
    one = MeasuredCeiling(6e14, "sustained-ceilings", "2026-08-10", "random", 1.41e9, 698.0, 1.38e9, 71.0, 5.3, ("power cap",))
    save(made(), kept)
    path = save(replace(made(flops={}), flops={}, sustained_flops={"bf16": one}, sustained_bandwidth={"global memory": one}), kept)
    found = load(path)
    assert found.flops["bf16"].value == 7e14 and found.sustained_flops == {"bf16": one} == {
        "bf16": found.sustained_bandwidth["global memory"]
    }
    assert json.loads(path.read_text())["format"] == 2


OLD = {
    "format": 1, "gpu": H200, "uuid_hash": "GPU-a", "date": "2026-01-01T12:00:00Z", "driver": "570",
    "flops": {"bf16": {"value": 7e14, "source": "best-gemm", "date": "", "data": "random", "sm_clock": 1.755e9, "power": None}},
    "bandwidth": {"L2 cache": {"value": 7e12, "source": "memory-bandwidth"}},
}  # fmt: skip


def test_a_file_of_the_first_format_holds_bursts_and_the_next_save_keeps_them_in_the_second(kept):
    kept.mkdir()
    (kept / "h-200-GPU-a.json").write_text(json.dumps(OLD))
    found = ceilings_of(H200, "GPU-a")
    assert found.flops == {"bf16": MeasuredCeiling(7e14, "best-gemm", "", "random", 1.755e9)} and found.sustained_flops == {}
    path = save(replace(made(), flops={}, sustained_flops={"bf16": MeasuredCeiling(6e14, "x")}), kept)
    assert path.name == "h-200-GPU-a.json"
    again = load(path)
    assert (again.flops["bf16"].value, again.sustained_flops["bf16"].value, set(again.bandwidth)) == (7e14, 6e14, {"L2 cache"})


def test_a_name_from_a_driver_makes_no_path_of_its_own(kept):
    path = save(made(gpu="../../etc/passwd", uuid="../x"), kept)
    assert path.parent == kept


def test_a_damaged_file_is_replaced_by_the_next_save(kept):
    path = save(made(), kept)
    path.write_text("{")
    with pytest.raises(UllageError, match="holds no measured ceilings"):
        ceilings_of(H200)
    save(made(), kept)
    assert ceilings_of(H200).flops["bf16"].value == 7e14


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 3},
        {"format": None},
        {"flops": []},
        {"flops": {"bf16": {"value": "7e14", "source": "x"}}},
        {"flops": {"bf16": {"value": float("nan"), "source": "x"}}},
        {"flops": {"bf16": {"value": 7e14, "source": "x", "sm_clock": float("inf")}}},
        {"flops": {"bf16": {"value": -1.0, "source": "x"}}},
        {"flops": {"bf16": {"value": 7e14, "source": ["x"]}}},
        {"flops": {"bf16": {"value": 7e14, "source": "x", "wit": 1}}},
        {"bandwidth": None},
        {"sustained_flops": None},
        {"sustained_flops": {"bf16": {"value": 7e14, "source": "x", "seconds": 0}}},
        {"sustained_flops": {"bf16": {"value": 7e14, "source": "x", "lowest_clock": "1"}}},
        {"sustained_bandwidth": {"L2 cache": {"value": 7e14, "source": "x", "throttle": "power cap"}}},
        {"sustained_bandwidth": {"L2 cache": {"value": 7e14, "source": "x", "throttle": [4]}}},
    ],
)
def test_a_file_that_holds_no_ceilings_is_refused(kept, damage):
    path = save(made(), kept)
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(UllageError, match="holds no measured ceilings"):
        load(path)


def test_where_ceilings_are_kept_follows_the_environment():
    assert folder({"XDG_CONFIG_HOME": "/c"}).as_posix() == "/c/ullage/ceilings"
    assert folder({}).parts[-3:] == (".config", "ullage", "ceilings")


def test_a_measured_ceiling_says_where_it_is_from_and_what_is_missing_where_there_is_none(kept):
    with pytest.raises(UllageError, match="nobody measured the ceilings of a 'H200'"):
        measured_ceiling("H200", "bf16")
    save(made(flops={"bf16": MeasuredCeiling(7e14, "best-gemm: 8192", "2026-08-10T12:00:00Z", "random", 1.755e9)}), kept)
    found = measured_ceiling("H200", "bfloat16")
    assert found.value == 7e14 and "best-gemm: 8192, 2026-08-10, SM clock 1,755 MHz" in found.source
    with pytest.raises(UllageError, match="'NVIDIA H200' at fp8"):
        measured_ceiling("H200", "fp8")


def test_a_job_is_held_against_what_was_sustained_and_a_burst_says_that_it_is_one(kept):
    burst = MeasuredCeiling(7e14, "best-gemm: 8192", "2026-08-10", "random", 1.755e9, seconds=0.29)
    long = MeasuredCeiling(6e14, "sustained-ceilings: BF16 wgmma", "2026-08-10", "random", 1.41e9, 698.0, 1.38e9, 71.0, 5.3, ("power cap",))
    save(made(flops={"bf16": burst}), kept)
    found = measured_ceiling("H200", "bf16")
    assert (found.value, found.caution) == (
        7e14,
        "the measured ceiling is a burst of 0.29 s, and hours under load may clock lower: "
        "`ullage bench sustained-ceilings --save` measures what holds",
    )
    save(replace(made(flops={"bf16": burst}), sustained_flops={"bf16": long}), kept)
    found = measured_ceiling("H200", "bf16")
    assert (found.value, found.caution) == (6e14, "")
    assert found.source == (
        "NVIDIA H200, bf16, sustained-ceilings: BF16 wgmma, 2026-08-10, 5.3 s, SM clock 1,410 MHz (lowest 1,380), 698 W, 71 °C, "
        "held back by power cap, random data"
    )


# --- where they show


def test_ullage_gpus_shows_them_beside_the_stated_peak(kept):
    long = MeasuredCeiling(6.4e14, "sustained-ceilings: BF16 wgmma", "2026-08-10", "random", 1.41e9, lowest_clock=1.38e9, seconds=5.3)
    save(replace(made(flops={"bf16": MeasuredCeiling(7e14, "best-gemm: 8192", "2026-08-10", "random", 1.755e9, 690.0)},
                      bandwidth={"global memory": MeasuredCeiling(4.32e12, "memory-bandwidth: read", "2026-08-10")}),
                 sustained_flops={"bf16": long}), kept)  # fmt: skip
    out = CliRunner().invoke(question_command("gpus"), ["H200"]).output
    # 640 of 700 and of 989.4 TFLOP/s; 4.32 of 4.8 TB/s
    told, _, note = out.partition("\n\nnote: ")  # of its clock
    assert note.startswith("OFU of NVIDIA H200 by sampled clocks")
    assert told.split("\n\n")[-2:] == [
        "Ceilings\n"
        "Measured on NVIDIA H200 GPU-a, driver 580\n"
        "               burst  sustained           of burst  of stated\n"
        "bf16           700.0      640.0  TFLOP/s      91 %       65 %\n"
        "global memory   4.32          –  TB/s            –       90 %",
        "Measured under:\n"
        "  bf16, burst: best-gemm: 8192, 2026-08-10, SM clock 1,755 MHz, 690 W, random data\n"
        "  bf16, sustained: sustained-ceilings: BF16 wgmma, 2026-08-10, 5.3 s, SM clock 1,410 MHz (lowest 1,380), random data\n"
        "  global memory, burst: memory-bandwidth: read, 2026-08-10",
    ]
    assert "Measured on" not in CliRunner().invoke(question_command("gpus"), ["B200"]).output


def test_the_json_of_ullage_gpus_has_them_or_null(kept):
    save(made(), kept)
    told = {one["name"]: one["measured"] for one in json.loads(CliRunner().invoke(question_command("gpus"), ["--json"]).output)["gpus"]}
    assert told[H200]["flops"]["bf16"]["value"] == 7e14
    assert told["NVIDIA B200"] is None


def test_a_damaged_file_is_a_note_of_ullage_gpus(kept):
    save(made(), kept).write_text("{")
    found = CliRunner().invoke(question_command("gpus"), ["H200"])
    assert found.exit_code == 0 and "holds no measured ceilings" in found.output


def test_the_waterfall_takes_the_ceiling_of_the_jobs_gpu(kept):
    save(made(flops={"bf16": MeasuredCeiling(7e14, "best-gemm: 8192", "2026-08-10T12:00:00Z", "random", 1.755e9)}), kept)
    ask = ["--ofu", "34", "--mfu", "26", "--gpu", "H200", "--ceiling", "measured"]
    out = CliRunner().invoke(question_command("waterfall"), ask).output
    # 700 of 989.4 TFLOP/s is 70.7 %; 26 of 70.75 is 36.75 %
    assert (
        "measured ceiling 700.0 TFLOP/s (NVIDIA H200, bf16, best-gemm: 8192, 2026-08-10, SM clock 1,755 MHz, random data): "
        "70.7 % of the peak of 989.4; MFU is 36.8 % of the ceiling" in out
    )
    assert "note: the measured ceiling is a burst, and hours under load may clock lower" in out
    long = MeasuredCeiling(6e14, "sustained-ceilings: BF16 wgmma", "2026-08-10", "random", 1.41e9, 698.0, 1.38e9, 71.0, 5.3)
    path = save(replace(made(), flops={}, sustained_flops={"bf16": long}), kept)
    for given in (ask, [*ask[:-1], str(path)]):
        out = CliRunner().invoke(question_command("waterfall"), given).output
        # 600 of 989.4 is 60.6 %; 26 of 60.64 is 42.9 %
        assert (
            "measured ceiling 600.0 TFLOP/s (NVIDIA H200, bf16, sustained-ceilings: BF16 wgmma, 2026-08-10, 5.3 s, SM clock 1,410 MHz "
            "(lowest 1,380), 698 W, 71 °C, random data): 60.6 % of the peak of 989.4; MFU is 42.9 % of the ceiling" in out
        )
        assert "burst" not in out


def test_ullage_bench_shows_bursts_and_what_was_sustained_side_by_side():
    report = bench_report([result("wgmma", product(7e14)), result("sustained-ceilings", held("throughput", 6e14, precision="bf16"))])
    shown, under = (part.splitlines() for part in text(view(report)).split("\n\n")[1:3])
    assert shown[2:4] == ["      burst  sustained           of burst  of stated", "bf16  700.0      600.0  TFLOP/s      86 %       61 %"]
    assert under[2] == (
        "  bf16, sustained: sustained-ceilings: BF16 wgmma, 2026-08-10, 5.3 s, SM clock 1,410 MHz (lowest 1,380), 698 W, 55 °C, "
        "held back by power cap, random data"
    )
    kinds = json.loads(json_text(record(report)))["ceilings"]
    assert (kinds["flops"]["bf16"]["value"], kinds["sustained_flops"]["bf16"]["value"]) == (7e14, 6e14)
    assert (kinds["sustained_flops"]["bf16"]["seconds"], kinds["sustained_flops"]["bf16"]["throttle"]) == (5.3, ["power cap"])
    page = html(view(report))
    section = page[page.index('aria-labelledby="ceilings"') :]
    assert (
        "700.0" in section and "600.0" in section and "SM clock 1,410 MHz (lowest 1,380), 698 W" in section[: section.index("</section>")]
    )


def test_ullage_bench_has_no_ceilings_where_none_was_measured_and_of_several_devices():
    assert bench_report([of_bench("memory-latency")]).ceilings is None
    two = [result("wgmma", product(7e14)), result("mma", product(5e14), machine={"uuid_hash": "GPU-b"})]
    assert bench_report(two).ceilings is None and "Measured on" not in text(view(bench_report(two)))
    assert json.loads(json_text(record(bench_report(two))))["ceilings"] is None


def test_the_waterfall_says_what_it_lacks_for_a_measured_ceiling():
    runner = CliRunner()
    nobody = runner.invoke(question_command("waterfall"), ["--ofu", "34", "--ceiling", "measured"]).exception
    assert "nothing says of which GPU" in str(nobody)
    nothing = runner.invoke(question_command("waterfall"), ["--ofu", "34", "--gpu", "H200", "--ceiling", "measured"]).exception
    assert "nobody measured the ceilings of a 'H200'" in str(nothing)
