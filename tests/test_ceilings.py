"""Measured ceilings: which numbers become one, how they are kept and found, and where they show."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.bench_results import H200, of_bench, result, row, stamp
from ullage.cli.gpus import command as gpus
from ullage.cli.waterfall import command as waterfall
from ullage.errors import UllageError
from ullage.gpus.measured import Ceiling, Ceilings, ceilings_of, folder, load, measured_ceiling, save
from ullage.reports.roofline import ceilings


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
    return Ceilings(gpu, uuid, date, "580", flops or {"bf16": Ceiling(7e14, "best-gemm", date)}, bandwidth or {})


# --- which numbers become one


def test_a_ceiling_is_the_best_dense_product_on_random_data_with_its_stamp():
    found = ceilings([result("best-gemm", product(6e14), product(7e14), product(8e14, "zero"), product(9e14, sparse=True))])
    assert found.flops == {"bf16": Ceiling(7e14, "best-gemm: 8192 bf16", "2026-08-10T12:00:00Z", "random", 1.755e9, 500.0)}
    assert (found.gpu, found.uuid_hash, found.driver) == (H200, "GPU-0123456789abcdef", "580.95.05")


def test_the_best_of_several_benches_counts_and_zeros_alone_make_no_ceiling():
    suite = [result("wgmma", product(6.6e14), product(1.4e15, "zero", "fp8")), result("best-gemm", product(7e14))]
    assert {name: one.source for name, one in ceilings(suite).flops.items()} == {"bf16": "best-gemm: 8192 bf16"}


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
    save(made(uuid="GPU-b", date="2026-08-11T12:00:00Z", flops={"bf16": Ceiling(6e14, "x")}), kept)
    assert ceilings_of(H200, "GPU-a").peak("bf16").value == 7e14
    assert ceilings_of(H200, "GPU-c").peak("bf16").value == 6e14  # the newest of its model
    assert ceilings_of("H200 SXM").uuid_hash == "GPU-b"
    assert ceilings_of("H200 NVL") is None and ceilings_of("Whatever 9000") is None


def test_a_gpu_that_is_not_in_the_tables_is_found_by_its_own_name(kept):
    save(made(gpu="Whatever 9000"), kept)
    assert ceilings_of("whatever-9000").gpu == "Whatever 9000"


def test_what_was_measured_anew_replaces_the_old_and_the_rest_stays(kept):
    save(made(flops={"bf16": Ceiling(7e14, "old"), "fp8": Ceiling(1.3e15, "old")}), kept)
    path = save(made(date="2026-08-12", flops={"bf16": Ceiling(6e14, "new")}, bandwidth={"L2 cache": Ceiling(7e12, "new")}), kept)
    found = load(path)
    assert {name: (one.value, one.source) for name, one in found.flops.items()} == {"bf16": (6e14, "new"), "fp8": (1.3e15, "old")}
    assert found.date == "2026-08-12" and set(found.bandwidth) == {"L2 cache"}
    assert [one.name for one in kept.iterdir()] == [path.name]


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
        {"format": 2},
        {"flops": []},
        {"flops": {"bf16": {"value": "7e14", "source": "x"}}},
        {"flops": {"bf16": {"value": float("nan"), "source": "x"}}},
        {"flops": {"bf16": {"value": 7e14, "source": "x", "sm_clock": float("inf")}}},
        {"flops": {"bf16": {"value": -1.0, "source": "x"}}},
        {"flops": {"bf16": {"value": 7e14, "source": ["x"]}}},
        {"flops": {"bf16": {"value": 7e14, "source": "x", "wit": 1}}},
        {"bandwidth": None},
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
    save(made(flops={"bf16": Ceiling(7e14, "best-gemm: 8192", "2026-08-10T12:00:00Z", "random", 1.755e9)}), kept)
    value, source = measured_ceiling("H200", "bfloat16")
    assert value == 7e14 and "best-gemm: 8192, 2026-08-10, SM clock 1,755 MHz" in source
    with pytest.raises(UllageError, match="'NVIDIA H200' at fp8"):
        measured_ceiling("H200", "fp8")


# --- where they show


def test_ullage_gpus_shows_them_beside_the_stated_peak(kept):
    save(made(flops={"bf16": Ceiling(7e14, "best-gemm: 8192", "2026-08-10", "random", 1.755e9, 690.0)},
              bandwidth={"global memory": Ceiling(4.32e12, "memory-bandwidth: read", "2026-08-10")}), kept)  # fmt: skip
    out = CliRunner().invoke(gpus, ["H200"]).output
    # 700 of 989.4 TFLOP/s; 4.32 of 4.8 TB/s
    assert out.split("\n\n")[-1] == (
        "measured on NVIDIA H200 GPU-a, driver 580\n"
        "               measured           of stated   SM clock  power\n"
        "bf16              700.0  TFLOP/s       71 %  1,755 MHz  690 W  best-gemm: 8192, 2026-08-10\n"
        "global memory      4.32     TB/s       90 %          –      –  memory-bandwidth: read, 2026-08-10\n"
    )
    assert "measured on" not in CliRunner().invoke(gpus, ["B200"]).output


def test_the_json_of_ullage_gpus_has_them_or_null(kept):
    save(made(), kept)
    told = {one["name"]: one["measured"] for one in json.loads(CliRunner().invoke(gpus, ["--json"]).output)}
    assert told[H200]["flops"]["bf16"]["value"] == 7e14
    assert told["NVIDIA B200"] is None


def test_a_damaged_file_is_a_note_of_ullage_gpus(kept):
    save(made(), kept).write_text("{")
    found = CliRunner().invoke(gpus, ["H200"])
    assert found.exit_code == 0 and "holds no measured ceilings" in found.output


def test_the_waterfall_takes_the_ceiling_of_the_jobs_gpu(kept):
    save(made(flops={"bf16": Ceiling(7e14, "best-gemm: 8192", "2026-08-10T12:00:00Z", "random", 1.755e9)}), kept)
    out = CliRunner().invoke(waterfall, ["--ofu", "34", "--mfu", "26", "--gpu", "H200", "--ceiling", "measured"]).output
    # 700 of 989.4 TFLOP/s is 70.7 %; 26 of 70.75 is 36.75 %
    assert (
        "measured ceiling 700.0 TFLOP/s (NVIDIA H200, bf16, best-gemm: 8192, 2026-08-10, SM clock 1,755 MHz): 70.7 % of the peak of 989.4; "
        "MFU is 36.8 % of the ceiling" in out
    )


def test_the_waterfall_says_what_it_lacks_for_a_measured_ceiling():
    runner = CliRunner()
    nobody = runner.invoke(waterfall, ["--ofu", "34", "--ceiling", "measured"]).exception
    assert "nothing says of which GPU" in str(nobody)
    nothing = runner.invoke(waterfall, ["--ofu", "34", "--gpu", "H200", "--ceiling", "measured"]).exception
    assert "nobody measured the ceilings of a 'H200'" in str(nothing)
