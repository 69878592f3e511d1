"""The checks that take more than one start: microbenchmarks, random products, counted FLOPs; and archives of evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gpu.bench_answers import answers, contradictions
from gpu.benches import Pass, Shelf, code_of, fill, plan
from gpu.check import CHECKS, NotMeasured, checks
from gpu.code_mark import AROUND, measuring_modules
from gpu.machine import Room
from gpu.pack import pack, unpack
from gpu.page import page
from gpu.run import main
from gpu.tools import find_tool

from gpu import ncu
from tests.gpu.gpu_double import World, measured
from tests.gpu.gpu_room_double import nsight
from ullage.benches.bench import BENCHES, Target, cases_for
from ullage.benches.gemm_ofu_record import read as read_products
from ullage.benches.result import restored
from ullage.gpus.chip import find
from ullage.gpus.measured import load
from ullage.gpus.names import pseudonym
from ullage.reports.bench.bench import bench_report

ROOT = Path(__file__).parents[2]
H100 = "nvidia-h100-80gb-hbm3"
RECORDED = sorted((ROOT / "results").glob("*/benches/*.json"))
checks()


def of(name, world):
    """Return what a check finds in a world."""
    return CHECKS[name].function(world.machine())


def shelf(world, folder, driver="595.10", left=1000.0):
    return Shelf(Room(Path(folder), left, lambda: 0.0, lambda line: None), "NVIDIA H100 80GB HBM3", driver)


# --- microbenchmarks ---


def test_what_matters_most_is_run_first_and_every_bench_once_whole():
    names = [one.name for one in plan()]
    assert names[:4] == ["memory-latency", "wgmma", "memory-bandwidth", "mma"]
    assert sorted(one.name for one in plan() if not one.quick) == sorted(BENCHES)
    # what is run in a few cases first is run whole only when all else was reached
    few = [one.name for one in plan() if one.quick]
    assert "best-gemm" in few and names[-len(few) :] == few


def test_benches_go_on_where_the_time_ended(tmp_path):
    world = World()
    world.suite.stops_at = "memory-bandwidth"
    shelved = shelf(world, tmp_path)
    fill(shelved, world.suite, plan())
    assert sorted(path.stem for path in (tmp_path / "benches").iterdir() if path.stem in BENCHES)[-1] == "wgmma-sparse"
    assert shelved.get("memory-bandwidth") is None and "not reached: memory-bandwidth, " in shelved.missed(plan())
    world.suite.stops_at, world.suite.ran = None, []
    fill(shelved, world.suite, plan())
    ran = [name for name, _ in world.suite.ran]
    assert "memory-latency" not in ran and "wgmma" not in ran and ran[0] == "memory-bandwidth"
    assert shelved.missed(plan()) == ""
    world.suite.ran = []
    fill(shelved, world.suite, plan())
    assert world.suite.ran == []


def test_nothing_is_begun_without_time(tmp_path):
    world = World()
    fill(shelf(world, tmp_path, left=0.0), world.suite, plan())
    assert world.suite.ran == []


def test_a_few_cases_stand_until_all_are_measured(tmp_path):
    world = World()
    shelved = shelf(world, tmp_path)
    (few,) = world.suite(["best-gemm"], index=0, quick=True, budget=1, silence=1)
    shelved.keep(few)
    assert shelved.has(Pass("best-gemm", quick=True)) and not shelved.has(Pass("best-gemm", quick=False))
    assert "a few cases only: best-gemm" in shelved.missed(plan())
    world.suite.stops_at = "best-gemm"
    (late,) = world.suite(["best-gemm"], index=0, quick=False, budget=1, silence=1)
    shelved.keep(late)
    assert shelved.get("best-gemm").quick, "what had no time does not replace what was measured"


def test_a_recording_of_another_branch_gpu_or_code_is_none(tmp_path, monkeypatch):
    world = World()
    shelved = shelf(world, tmp_path)
    (found,) = world.suite(["launch"], index=0, quick=False, budget=1, silence=1)
    shelved.keep(found)
    assert shelved.get("launch") is not None
    assert shelf(world, tmp_path, driver="600.1").get("launch") is None
    assert shelf(world, tmp_path, driver="595.99").get("launch") is not None
    assert replace(shelved, gpu="NVIDIA H200").get("launch") is None
    monkeypatch.setattr("gpu.benches.code_of", lambda name: "0")
    assert shelved.get("launch") is None
    shelved.path("launch").write_text('{"format": 1, "bench"')
    assert shelved.get("launch") is None


def test_the_mark_of_a_benchs_code_follows_what_its_module_imports():
    assert code_of("memory-latency") != code_of("wgmma") and code_of("cluster-latency") == code_of("cluster-latency")
    of_latency = measuring_modules("ullage.benches.memory_latency")
    assert {"ullage.benches.memory_latency", "ullage.benches.chase"} <= set(of_latency) and not set(of_latency) & set(AROUND)
    assert "ullage.benches.chase" not in measuring_modules("ullage.benches.launch")


def test_the_recordings_give_tables_ceilings_and_answers(tmp_path):
    world = World()
    assert measured("ceilings", world.machine(), tmp_path)["verdict"] == "confirmed"
    folder = tmp_path / H100
    results = [restored(json.loads(path.read_text())) for path in sorted((folder / "benches").iterdir())]
    assert "NVIDIA H100 80GB HBM3" in str(bench_report(results))
    (ceilings,) = (load(path) for path in (folder / "ceilings").iterdir())
    assert ceilings.flops["bf16"].value == pytest.approx(0.98 * 1350 / 1830 * find("H100").peak("bf16"))
    evidence = json.loads((folder / "ceilings.json").read_text())
    assert evidence["unfinished"] == "" and evidence["answers"]["shared_latency"] == 29.0 and evidence["answers"]["hbm_share"] == 0.9


def test_a_run_that_is_cut_short_says_what_was_not_reached_and_the_next_goes_on(tmp_path):
    world, said = World(), []
    world.suite.stops_at = "linear"
    first = measured("benches", world.machine(), tmp_path, say=said.append)
    assert first["verdict"] == "confirmed" and first["unfinished"].startswith("not reached: linear")
    assert "    not finished: not reached: linear" in "\n".join(said)
    world.suite.stops_at, said[:] = None, []
    second = measured("benches", world.machine(), tmp_path, say=said.append)
    assert second["unfinished"] == "" and "memory-latency" not in "\n".join(said)


def test_what_ceilings_recorded_is_not_run_again_for_the_sweep(tmp_path):
    world = World()
    measured("ceilings", world.machine(), tmp_path)
    first = {name for name, quick in world.suite.ran if not quick}
    assert {"wgmma", "sustained-ceilings", "memory-latency"} <= first and ("best-gemm", True) in world.suite.ran
    world.suite.ran = []
    assert measured("benches", world.machine(), tmp_path)["unfinished"] == ""
    assert not {name for name, quick in world.suite.ran if not quick} & first and ("best-gemm", False) in world.suite.ran


def test_ceilings_of_two_boards_of_a_model_are_kept_apart(tmp_path):
    world = World()
    measured("ceilings", world.machine(), tmp_path)
    for path in (tmp_path / H100 / "benches").glob("wgmma.json"):
        path.write_text(path.read_text().replace(pseudonym("GPU-secret"), "GPU-another"))
    assert measured("ceilings", world.machine(), tmp_path)["verdict"] == "confirmed"
    assert len(list((tmp_path / H100 / "ceilings").iterdir())) == 2


def test_wrong_results_are_named_with_their_reason_and_fail_the_check():
    world, problem = World(), {"problem": "the result is wrong: 3 of 8 elements differ"}
    first = cases_for(BENCHES["dpx"], Target("sm_90a"))[0].labels
    world.suite.change = lambda bench, case: problem if bench == "dpx" and case.labels == first else {}
    findings = of("benches", world)
    assert findings.answers["wrong_results"] == 1 and findings.wrong[0].startswith("1 cases gave a wrong result: dpx (")
    assert "dpx, 1 case: the result is wrong: 3 of 8 elements differ" in findings.notes


def test_a_library_that_is_missing_is_noted_and_fails_nothing():
    world = World()
    world.suite.change = lambda bench, case: {"problem": "needs PyTorch with a GPU"} if bench == "linear" else {}
    findings = of("benches", world)
    assert findings.answers["without"] == 20 and findings.wrong == [] and "linear, 20 cases: needs PyTorch with a GPU" in findings.notes


@pytest.mark.parametrize(
    ("bench", "level", "values", "said"),
    [
        ("memory-bandwidth", "global memory", {"bandwidth": 0.5 * 3.35e12}, "global memory reaches 50.0% of the stated bandwidth"),
        ("memory-bandwidth", "global memory", {"bandwidth": 1.2 * 3.35e12}, "global memory reaches 120.0%"),
        ("memory-latency", "L2 cache", {"latency": 200.0}, "the latency of L2 is 200.0 cycles, where 263 are published"),
        ("memory-latency", "shared memory", {"latency": 21.7}, "the latency of shared is 21.7 cycles, where 29 are published"),
        ("memory-latency", "shared memory", {"latency": 31.1}, "the latency of shared is 31.1 cycles, where 29 are published"),
    ],
)
def test_what_contradicts_the_maker_or_the_paper_fails_the_check(bench, level, values, said):
    world = World()
    world.suite.change = lambda name, case: values if name == bench and level in case.labels.values() else {}
    found = list(world.suite([bench], index=0, quick=False, budget=1, silence=1))
    chip = find("H100")
    assert [line for line in contradictions(answers(found, chip), chip, found) if line.startswith(said)]


@pytest.mark.skipif(not RECORDED, reason="no microbenchmark is recorded in results/ yet")
def test_the_recordings_in_the_repository_render():
    found = [restored(json.loads(path.read_text()), str(path)) for path in RECORDED]
    for gpu in {one.gpu for one in found}:
        said = str(bench_report([one for one in found if one.gpu == gpu]))
        assert "not measured yet" not in said.splitlines()[0]
    assert all(one.bench == path.stem for one, path in zip(found, RECORDED, strict=True))


# --- random products ---


def test_random_products_go_on_where_they_ended(tmp_path):
    # 6 squares and 2 random shapes in each of 4 precisions: 32 products
    world = World()
    world.products_a_run = 20
    assert measured("gemm_ofu", world.machine(), tmp_path)["unfinished"] == "the time was up: 12 products are not measured"
    evidence = measured("gemm_ofu", world.machine(), tmp_path)
    assert len(read_products(tmp_path / H100 / "gemm_ofu.jsonl").observations) == 32
    assert evidence["answers"]["products"] == 8 and evidence["unfinished"] == ""
    # without its padding OFU is MFU, for every active cycle was a product's
    assert evidence["answers"]["worst_error_adjusted"] < 1e-9 < evidence["answers"]["worst_error"]
    assert {row["precision"] for row in evidence["rows"]} == {"fp16", "bf16", "tf32", "fp8"}


def test_random_products_of_another_driver_are_set_aside(tmp_path):
    world = World()
    room = Room(tmp_path, 1000.0, lambda: 0.0, lambda line: None)
    world.products_a_run = 10
    check = CHECKS["gemm_ofu"].function
    assert check(replace(world.machine(), room=room)).unfinished.startswith("the time was up")
    world.nvmlSystemGetDriverVersion = lambda: "600.1"
    check(replace(world.machine(), room=room))
    assert len(read_products(tmp_path / "gemm_ofu.jsonl").observations) == 10, "begun anew"
    assert len(read_products(tmp_path / ".gemm_ofu.jsonl.old").observations) == 10, "and nothing lost"


def test_adjusted_ofu_far_from_mfu_and_wrong_products_fail_the_check(monkeypatch):
    from tests.gpu import gpu_room_double

    plain = gpu_room_double.observed
    monkeypatch.setattr(gpu_room_double, "observed", lambda gemm: replace(plain(gemm), flops=plain(gemm).flops / 2))
    assert any(line.startswith("adjusted OFU (exact) is 2") and line.endswith("in fp8") for line in of("gemm_ofu", World()).wrong)
    bad = "the result is wrong: an element is off by 9"
    monkeypatch.setattr(gpu_room_double, "observed", lambda gemm: replace(plain(gemm), problem=bad))
    wrong = of("gemm_ofu", World()).wrong
    assert wrong == ["32 products gave a wrong result, the first fp16 512 × 512 × 512", "no product was observed"]


# --- counted FLOPs ---


def test_flops_by_the_counter_are_those_of_whole_tiles(tmp_path):
    # BF16 at 8192: columns in tiles of 256, two a cluster: 8192; rows in tiles of 160: 52 × 160 = 8320; K is 128 steps of 64
    findings = of("tile_flops", World())
    long = findings.rows[0]
    assert (long["counted"], long["needed"]) == (2 * 8192 * 8320 * 8192, 2 * 8192**3) and long["difference"] == 0
    assert findings.answers["exact"] == findings.answers["predicted"] == 33 and findings.wrong == []
    assert findings.answers["tensor_active_nvml"] == pytest.approx(findings.answers["tensor_active_ncu"], abs=0.01)
    assert findings.notes == ["fp16 1952 × 2112 × 3104: RuntimeError: no such type"]


def test_a_kernel_that_executes_other_flops_than_its_name_tells_fails_the_check(tmp_path):
    world = World()
    world.ncu = nsight(tmp_path, error=1001)
    (wrong,) = of("tile_flops", world).wrong
    assert wrong.startswith("33 kernels execute other FLOPs than their names tell: nvjet_sm90_tst") and "by 1,001" in wrong
    world.ncu = nsight(tmp_path, error=1000)
    assert of("tile_flops", world).wrong == []


def test_nvml_and_nsight_compute_that_disagree_fail_the_check(tmp_path):
    world = World()
    world.ncu = nsight(tmp_path, active=90.0)
    assert of("tile_flops", world).wrong == ["tensor activity is 0.700 by NVML and 0.900 by Nsight Compute"]


def test_a_driver_that_forbids_counters_is_not_measured_and_ncus_words_are_told(tmp_path):
    world = World()
    said = "==PROF== Connected to process 7\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
    world.ncu = nsight(tmp_path, silent=said)
    with pytest.raises(NotMeasured, match=r"counts nothing here \(ERR_NVGPUCTRPERM - The user does not have permission\)"):
        of("tile_flops", world)
    world.ncu = str(tmp_path / "missing")
    with pytest.raises(NotMeasured, match="can't be started"):
        of("tile_flops", world)


def test_nsight_compute_is_found_beside_the_path_the_newest_first(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(NotMeasured, match="not installed"):
        find_tool("ncu", (str(tmp_path / "nsight-compute"),))
    for version in ("2024.3.2", "2025.3.1", "2025.10.0"):
        (tmp_path / "nsight-compute" / version).mkdir(parents=True)
        (tmp_path / "nsight-compute" / version / "ncu").touch()
    assert find_tool("ncu", (str(tmp_path / "nsight-compute"),)).endswith("2025.10.0/ncu")


def test_a_program_that_does_not_end_under_nsight_compute_is_not_measured(tmp_path, monkeypatch):
    path = tmp_path / "ncu"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    monkeypatch.setattr(ncu, "LIMIT", 0.2)
    with pytest.raises(NotMeasured, match="did not end within 0 s"):
        ncu.profiled(str(path), ["x"], ["true"])


# --- the page ---


def test_the_page_says_what_is_not_finished(tmp_path):
    world = World()
    world.suite.stops_at = "linear"
    measured("benches", world.machine(), tmp_path)
    said = page(tmp_path)
    line = next(line for line in said.splitlines() if line.startswith("| `benches` |"))
    assert " to " in line and line.rstrip(" |").endswith(", not finished")
    assert "- not finished: not reached: linear, " in said


# --- archives ---


def test_all_evidence_goes_through_one_file_and_back(tmp_path, capsys):
    there, here, file = tmp_path / "there", tmp_path / "here", tmp_path / "all.tar.gz"
    (there / H100 / "benches").mkdir(parents=True)
    (there / H100 / "benches" / "launch.json").write_text("{}")
    (there / H100 / ".peaks.json.new").write_text("half")
    (there / "README.md").write_text("not evidence")
    assert main(["--out", str(there), "--pack", str(file)]) == 0 and "1 files of" in capsys.readouterr().out
    assert main(["--out", str(here), "--unpack", str(file)]) == 0
    assert (here / H100 / "benches" / "launch.json").read_text() == "{}"
    assert [path.name for path in here.rglob("*") if path.is_file()] == ["launch.json"]


def test_a_packed_file_cannot_write_outside_the_results(tmp_path):
    import tarfile

    (tmp_path / "x").write_text("x")
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "x", arcname="../outside")
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack([tmp_path / "bad.tar.gz"], tmp_path / "results")
    assert not (tmp_path / "outside").exists() and pack(tmp_path / "results", tmp_path / "empty.tar.gz") == 0
