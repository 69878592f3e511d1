"""The checks that take more than one start: microbenchmarks, random products, counted FLOPs; and how a run's time is dealt out."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from gpu import ncu, timetable
from gpu.bench_answers import answers, contradictions
from gpu.benches import FORM, Pass, Shelf, code_of, fill, plan
from gpu.check import CHECKS, Check, Findings, NotMeasured, checks
from gpu.machine import Room
from gpu.pack import pack, unpack
from gpu.page import page
from gpu.session import Session, main, run

from tests.gpu_double import World
from tests.gpu_room_double import nsight
from ullage.benches.bench import BENCHES, Target, cases_for
from ullage.benches.gemm_ofu_record import read as read_products
from ullage.benches.result import restored
from ullage.benches.running.session import pseudonym
from ullage.gpus.chip import find
from ullage.gpus.measured import load
from ullage.render.bench import text
from ullage.reports.bench import bench_report

ROOT = Path(__file__).parents[1]
H100 = "nvidia-h100-80gb-hbm3"
RECORDED = sorted((ROOT / "results").glob("*/benches/*.json"))
checks()


def of(name, world):
    """Return what a check finds in a world."""
    return CHECKS[name].function(world.machine())


def shelf(world, folder, since=0.0, driver="595.10", left=1000.0):
    return Shelf(Room(Path(folder), left, since, lambda: 0.0, lambda line: None), pseudonym("GPU-secret"), driver)


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
    fill(shelved, world.suite)
    assert sorted(path.stem for path in (tmp_path / "benches").iterdir() if path.stem in BENCHES)[-1] == "wgmma-sparse"
    assert shelved.get("memory-bandwidth") is None and "not reached: memory-bandwidth, " in shelved.missed
    world.suite.stops_at, world.suite.ran = None, []
    fill(shelved, world.suite)
    ran = [name for name, _ in world.suite.ran]
    assert "memory-latency" not in ran and "wgmma" not in ran and ran[0] == "memory-bandwidth"
    assert shelved.missed == ""
    world.suite.ran = []
    fill(shelved, world.suite)
    assert world.suite.ran == []


def test_nothing_is_begun_without_time(tmp_path):
    world = World()
    fill(shelf(world, tmp_path, left=0.0), world.suite)
    assert world.suite.ran == []


def test_a_few_cases_stand_until_all_are_measured(tmp_path):
    world = World()
    shelved = shelf(world, tmp_path)
    (few,) = world.suite(["best-gemm"], index=0, quick=True, budget=1, silence=1)
    shelved.keep(few)
    assert shelved.has(Pass("best-gemm", quick=True)) and not shelved.has(Pass("best-gemm", quick=False))
    assert "a few cases only: best-gemm" in shelved.missed
    world.suite.stops_at = "best-gemm"
    (late,) = world.suite(["best-gemm"], index=0, quick=False, budget=1, silence=1)
    shelved.keep(late)
    assert shelved.get("best-gemm").quick, "what had no time does not replace what was measured"


def test_a_recording_of_another_driver_gpu_or_code_or_of_last_week_is_none(tmp_path, monkeypatch):
    world = World()
    shelved = shelf(world, tmp_path)
    (found,) = world.suite(["launch"], index=0, quick=False, budget=1, silence=1)
    shelved.keep(found)
    assert shelved.get("launch") is not None
    assert shelf(world, tmp_path, driver="600.1").get("launch") is None
    assert replace(shelved, gpu="GPU-0").get("launch") is None
    assert shelf(world, tmp_path, since=4e9).get("launch") is None
    monkeypatch.setattr("gpu.benches.code_of", lambda name: "0")
    assert shelved.get("launch") is None
    shelved.path("launch").write_text('{"format": 1, "bench"')
    assert shelved.get("launch") is None


def test_the_mark_of_a_benchs_code_follows_what_its_module_imports(tmp_path, monkeypatch):
    assert code_of("memory-latency") != code_of("wgmma") and code_of("cluster-latency") == code_of("cluster-latency")
    import gpu.benches as benches

    plain, seen = benches._source, []
    monkeypatch.setattr(benches, "_source", lambda module: seen.append(module) or plain(module))
    code_of.__wrapped__("memory-latency")
    assert {"ullage.benches.memory_latency", "ullage.benches.chase"} <= set(seen) and not set(seen) & set(FORM)
    changed = {"ullage.benches.chase": b"x = 1"}
    monkeypatch.setattr(benches, "_source", lambda module: changed.get(module, plain(module)))
    assert code_of.__wrapped__("memory-latency") != code_of("memory-latency") and code_of.__wrapped__("launch") == code_of("launch")


def test_the_recordings_give_tables_ceilings_and_answers(tmp_path):
    world = World()
    assert main(["benches", "--out", str(tmp_path)], opened=world.machine()) == 0
    folder = tmp_path / H100
    results = [restored(json.loads(path.read_text())) for path in sorted((folder / "benches").iterdir())]
    assert "NVIDIA H100 80GB HBM3" in text(bench_report(results))
    (ceilings,) = (load(path) for path in (folder / "ceilings").iterdir())
    assert ceilings.flops["bf16"].value == pytest.approx(0.98 * 1350 / 1830 * find("H100").peak("bf16"))
    evidence = json.loads((folder / "benches.json").read_text())
    assert evidence["unfinished"] == "" and evidence["answers"]["shared_latency"] == 29.0 and evidence["answers"]["hbm_share"] == 0.9


def test_a_run_that_is_cut_short_says_what_was_not_reached_and_the_next_goes_on(tmp_path, capsys):
    world = World()
    world.suite.stops_at = "linear"
    main(["benches", "--out", str(tmp_path), "--minutes", "2.5"], opened=world.machine())
    said = capsys.readouterr().out
    assert "benches: passed (" in said and "not finished: not reached: linear" in said
    world.suite.stops_at = None
    main(["benches", "--out", str(tmp_path)], opened=world.machine())
    said = capsys.readouterr().out
    assert "benches: passed (" in said and "not finished" not in said and "memory-latency" not in said
    main(["benches", "--out", str(tmp_path)], opened=world.machine())
    assert "passed already" in capsys.readouterr().out


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
        ("memory-latency", "shared memory", {"latency": 23.0}, "the latency of shared is 23.0 cycles, where 29 are published"),
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
        said = text(bench_report([one for one in found if one.gpu == gpu]))
        assert "not measured yet" not in said.splitlines()[0]
    assert all(one.bench == path.stem for one, path in zip(found, RECORDED, strict=True))


# --- random products ---


def test_random_products_go_on_where_they_ended(tmp_path, capsys):
    # 6 squares and 2 random shapes in each of 4 precisions: 32 products
    world = World()
    world.products_a_run = 10
    assert main(["gemm_ofu", "--out", str(tmp_path)], opened=world.machine()) == 0
    said = capsys.readouterr().out  # a start goes on once with the time that is left: 10 products and 10 more
    assert "not finished: the time was up: 22 products" in said and "not finished: the time was up: 12 products" in said
    main(["gemm_ofu", "--out", str(tmp_path)], opened=world.machine())
    assert len(read_products(tmp_path / H100 / "gemm_ofu.jsonl").observations) == 32
    evidence = json.loads((tmp_path / H100 / "gemm_ofu.json").read_text())
    assert evidence["answers"]["products"] == 8 and evidence["unfinished"] == ""
    # without its padding OFU is MFU, for every active cycle was a product's
    assert evidence["answers"]["worst_error_adjusted"] < 1e-9 < evidence["answers"]["worst_error"]
    assert {row["precision"] for row in evidence["rows"]} == {"fp16", "bf16", "tf32", "fp8"}


def test_random_products_of_another_driver_are_set_aside(tmp_path):
    world = World()
    room = Room(tmp_path, 1000.0, 0.0, lambda: 0.0, lambda line: None)
    world.products_a_run = 10
    check = CHECKS["gemm_ofu"].function
    assert check(replace(world.machine(), room=room)).unfinished.startswith("the time was up")
    world.nvmlSystemGetDriverVersion = lambda: "600.1"
    check(replace(world.machine(), room=room))
    assert len(read_products(tmp_path / "gemm_ofu.jsonl").observations) == 10, "begun anew"
    assert len(read_products(tmp_path / ".gemm_ofu.jsonl.old").observations) == 10, "and nothing lost"


def test_adjusted_ofu_far_from_mfu_and_wrong_products_fail_the_check(monkeypatch):
    from tests import gpu_room_double

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
        ncu.found((str(tmp_path / "nsight-compute"),))
    for version in ("2024.3.2", "2025.3.1", "2025.10.0"):
        (tmp_path / "nsight-compute" / version).mkdir(parents=True)
        (tmp_path / "nsight-compute" / version / "ncu").touch()
    assert ncu.found((str(tmp_path / "nsight-compute"),)).endswith("2025.10.0/ncu")


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
    main(["benches", "--out", str(tmp_path)], opened=world.machine())
    said = page(tmp_path)
    line = next(line for line in said.splitlines() if line.startswith("| `benches` |"))
    assert "| 120 to 560 s |" in line and line.rstrip(" |").endswith(", not finished")
    assert "- not finished: not reached: linear, " in said


# --- the time of a run ---


def check(name, seconds, least=None, function=None, rank=5):
    return Check(name, seconds, False, {}, {}, function or (lambda machine: Findings()), seconds if least is None else least, rank)


def test_where_not_all_fit_the_first_come_first_served():
    # 30 + 40 + 50 do not fit into 80: the first gets its 30, of 50 left the second its 40, and the third nothing
    first, second, third = check("a", 90, 30), check("b", 40), check("c", 50)
    assert timetable.share(first, [second, third], 80) == 30
    assert timetable.share(second, [third], 50) == 40
    assert timetable.share(third, [], 10) is None


def session(tmp_path, world, clock, said, **options):
    plain = {"begin": 0.0, "seconds": 100.0, "max_age": 24.0, "again": False, "now": lambda: clock[0], "say": said.append}
    return Session(world.machine(), tmp_path, **{**plain, **options})


def test_time_that_others_do_not_need_goes_to_what_is_not_finished(tmp_path):
    clock, given = [0.0], []

    def resumable(machine):
        given.append(machine.room.left)
        clock[0] += machine.room.left
        return Findings(unfinished="" if sum(given) >= 80 else "more")

    quickly = check("b", 60, function=lambda machine: Findings())
    assert run(session(tmp_path, World(), clock, []), [check("a", 90, 20, resumable), quickly]) == 0
    # of 100 s 20 are beyond the leasts of 20 and 60: 40 s; b needs none of its 60
    assert given == [40.0, 60.0]


def test_what_failed_comes_last_the_next_time(tmp_path):
    order, clock = [], [0.0]

    def fails(machine):
        order.append("a")
        return Findings(wrong=["oh"])

    def works(machine):
        order.append("b")
        return Findings(unfinished="more")

    two = [check("a", 30, function=fails), check("b", 30, function=works)]
    for _ in range(2):
        run(session(tmp_path, World(), clock, [], seconds=60.0, begin=clock[0]), two)
        clock[0] += 60
        order.append("|")
    assert "".join(order) == "abb|bab|", "b is not finished, and goes on once with the time that is left"


def test_a_check_that_hangs_ends_the_script_with_evidence(tmp_path):
    ended, hang, said = [], threading.Event(), []

    def end(code):
        ended.append(code)
        hang.set()

    one = check("a", 0.01, function=lambda machine: hang.wait(30) and Findings())
    run(session(tmp_path, World(), [0.0], said, end=end, grace=0.05), [one])
    assert ended == [1] and any("a: failed: it did not end within" in line for line in said)


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
        unpack(tmp_path / "bad.tar.gz", tmp_path / "results")
    assert not (tmp_path / "outside").exists() and pack(tmp_path / "results", tmp_path / "empty.tar.gz") == 0
