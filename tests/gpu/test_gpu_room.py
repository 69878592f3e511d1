"""The checks for a real GPU, on a machine without one: a GPU in simulated time stands in."""

from __future__ import annotations

import ast
import ctypes
import doctest
import importlib
import json
import string
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet
import pytest
from gpu.check import CHECKS, Check, Findings, NotMeasured, checks
from gpu.counters import counts_from, steps, units
from gpu.machine import machine
from gpu.recording import Recorder, packed
from gpu.session import mark_of
from gpu.timetable import TABLE

from gpu import evidence as evidence_module
from gpu import page, run
from tests.gpu.gpu_double import SHARE, World, measured
from tests.gpu.nvml_replay import Replay, load, replayed
from tests.live.nvml_double import Gpu, Nvml
from ullage.errors import UllageError
from ullage.gpus.names import pseudonym

ROOT = Path(__file__).parents[2]
H100 = "nvidia-h100-80gb-hbm3"
EVERY = [check.name for check in checks()]


def found(folder, name):
    return json.loads((folder / H100 / f"{name}.json").read_text())


def of(name, world, loaded=True):
    """Return what a check finds in a world."""
    return CHECKS[name].function(world.machine(loaded))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The evidence of one session on the simulated GPU, with a load."""
    folder = tmp_path_factory.mktemp("results")
    for name in EVERY:
        measured(name, World().machine(), folder)
    return folder


# --- the script ---


def test_without_a_gpu_the_script_says_so_in_one_line_and_ends_with_1():
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU, and the script would measure it")
    done = subprocess.run([sys.executable, "gpu/run.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("no GPU: ") and done.stdout.count("\n") == 1 and not done.stderr


@pytest.mark.parametrize("nvml", [Nvml(fails=12), Nvml()], ids=["no driver", "no device"])
def test_a_driver_that_does_not_answer_and_one_without_a_gpu_are_told(nvml):
    with pytest.raises(UllageError, match="does not answer" if nvml.fails else "finds no GPU"):
        machine(nvml)


def test_the_runner_needs_python_alone():
    blocker = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] not in {*sys.stdlib_module_names, 'gpu', 'ullage'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No()); sys.path[:0] = ['.', 'src']\n"
        "from gpu.run import main\n"
        "import gpu.session, gpu.summary\n"
        "from gpu.session import mark_of\n"
        "from gpu.timetable import TABLE\n"
        "assert all(mark_of(entry) for entry in TABLE)\n"
        "sys.exit(main(['--list']))\n"
    )
    done = subprocess.run([sys.executable, "-c", blocker], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("   ")] == [*EVERY, "together"]


def test_every_check_imports_only_what_a_bare_gpu_node_has():
    blocker = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in 'duckdb ibis click rich scipy urllib3 msgspec polars pandas pynvml torch cuda'.split():\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No()); sys.path[:0] = ['.', 'src']\n"
        "from gpu.check import checks\n"
        "print(len(checks()))\n"
    )
    done = subprocess.run([sys.executable, "-c", blocker], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) == len(EVERY), done.stderr


def test_an_unknown_check_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as error:
        run.main(["peeks"])
    assert error.value.code == 2 and "no check is called 'peeks'" in capsys.readouterr().err


# --- every check ---


@pytest.mark.parametrize("name", EVERY)
def test_every_check_is_one_function_with_a_question_a_page_and_a_duration(name):
    check = CHECKS[name]
    tree = ast.parse((ROOT / "gpu" / f"check_{name}.py").read_text())
    public = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    assert public == [name]
    assert check.question.endswith("?") and len(check.page.splitlines()) > 1 and check.answers
    fields = {field for _, field, _, _ in string.Formatter().parse(check.headline) if field}
    assert fields and fields <= set(check.answers), "its line tells answers"


@pytest.mark.parametrize("name", EVERY)
def test_every_check_passes_on_the_simulated_gpu_and_its_evidence_is_well_formed(name, results):
    evidence = found(results, name)
    assert evidence["verdict"] == "confirmed" and evidence_module.problems_of(evidence, CHECKS[name]) == []
    assert evidence["machine"]["driver"] == "595.10" and evidence["machine"]["cuda"] == "13.2"
    assert evidence["versions"]["numpy"] and evidence["date"].endswith("Z")
    assert all((results / H100 / recording).stat().st_size < 500_000 for recording in evidence["recordings"])


def test_no_file_of_the_results_holds_the_uuid(results):
    import gzip

    for path in (path for path in (results / H100).rglob("*") if path.is_file()):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert b"GPU-secret" not in data, path.name
    assert found(results, "peaks")["machine"]["uuid_hash"] == pseudonym("GPU-secret")


def test_the_stated_duration_is_what_a_check_takes_in_simulated_time():
    for entry in TABLE:
        world = World()
        begin = world.ms
        CHECKS[entry.name].function(world.machine())
        assert (world.ms - begin) / 1000 <= entry.seconds, entry.name


def test_evidence_that_is_not_well_formed_is_told_apart():
    check = Check("x", False, {"a": "…"}, {"c": "…"}, lambda machine: Findings())
    about = {"verdict": "confirmed", "reason": "", "now": 0.0, "seconds": 1.0, "code": "0", "machine": {}, "versions": {}}
    good = evidence_module.evidence(check, Findings(answers={"a": float("nan")}, rows=[{"c": 1}]), **about)
    assert good["answers"] == {"a": None} and evidence_module.problems_of(good, check) == []
    assert evidence_module.problems_of({**good, "answers": {}}, check) == ["the answers are [], not ['a']"]
    assert evidence_module.problems_of({**good, "rows": [{"d": 1}]}, check) == ["a row has ['d'], not ['c']"]
    assert evidence_module.problems_of({**good, "answers": {"a": [1]}}, check) == ["'a' is no plain value"]
    assert evidence_module.problems_of({**good, "verdict": "fine"}, check) == ["the verdict is 'fine'"]
    assert evidence_module.problems_of({"check": "x"}, check)[0] == "'format' is missing or no int"


def kept_problems(evidence, check, mark):
    """Return what is not well-formed in kept evidence; that of earlier code, by its mark, knows no more than that code did."""
    if evidence.get("code") != mark:
        evidence = evidence | {"answers": dict.fromkeys(check.answers) | evidence["answers"]}
        evidence |= {"rows": [dict.fromkeys(check.columns) | row for row in evidence["rows"]]}
    return evidence_module.problems_of(evidence, check)


def test_only_evidence_of_earlier_code_may_lack_answers():
    check = Check("x", False, {"a": "…", "b": "…"}, {"c": "…", "d": "…"}, lambda machine: Findings())
    about = {"verdict": "confirmed", "reason": "", "now": 0.0, "seconds": 1.0, "code": "now", "machine": {}, "versions": {}}
    lacks = evidence_module.evidence(check, Findings(answers={"a": 1, "b": 1}, rows=[{"c": 1}]), **about)
    lacks["answers"].pop("b")
    assert kept_problems(lacks, check, "now") == ["the answers are ['a'], not ['a', 'b']", "a row has ['c'], not ['c', 'd']"]
    assert kept_problems(lacks, check, "later") == []
    lacks["answers"]["e"] = 1
    assert kept_problems(lacks, check, "later") == ["the answers are ['a', 'b', 'e'], not ['a', 'b']"]


def test_the_evidence_in_the_repository_is_well_formed():
    files = {path: json.loads(path.read_text()) for path in (ROOT / "results").glob("*/*.json")}
    recordings = {path.parent / name for path, evidence in files.items() for name in evidence.get("recordings", ())}
    marks = {entry.name: mark_of(entry) for entry in TABLE}
    assert files, "evidence of a real GPU is in the repository"
    for path, evidence in ((path, evidence) for path, evidence in files.items() if path not in recordings):
        assert kept_problems(evidence, CHECKS[path.stem], marks[path.stem]) == [], path
        assert all((path.parent / recording).exists() for recording in evidence["recordings"]), path


# --- failing, missing ---


def test_without_a_load_that_is_said_and_earlier_evidence_is_kept(tmp_path):
    world = World()
    assert measured("sampling_overhead", world.machine(loaded=False), tmp_path)["verdict"] == "not measured"
    assert "no load" in found(tmp_path, "sampling_overhead")["reason"]
    measured("sampling_overhead", world.machine(), tmp_path, begin=1e9)
    measured("sampling_overhead", world.machine(loaded=False), tmp_path)
    assert found(tmp_path, "sampling_overhead")["verdict"] == "confirmed"


@pytest.mark.parametrize("name", ["peaks", "cycle_counters", "nvml_recording"])
def test_three_checks_need_no_load(name, tmp_path):
    measured(name, World().machine(loaded=False), tmp_path)
    assert evidence_module.problems_of(found(tmp_path, name), CHECKS[name]) == []
    notes = found(tmp_path, name)["notes"]
    assert name == "peaks" or notes == ["under load: not measured, no CUDA driver answers"]


def test_a_check_that_raises_is_broken_and_its_words_are_kept(tmp_path, monkeypatch):
    def broken(machine):
        raise ZeroDivisionError("oh")

    said = []
    monkeypatch.setitem(CHECKS, "peaks", replace(CHECKS["peaks"], function=broken))
    assert measured("peaks", World().machine(), tmp_path, say=said.append)["verdict"] == "broken"
    assert said == ["peaks              broken       ZeroDivisionError: oh"]
    assert found(tmp_path, "peaks")["reason"] == "ZeroDivisionError: oh"


def test_what_a_check_keeps_on_the_way_stands_until_its_end(tmp_path, monkeypatch):
    seen = []

    def slow(machine):
        machine.room.keep(Findings(answers={"chip": "x"}))
        seen.append(found(tmp_path, "peaks"))
        return Findings(answers=dict.fromkeys(CHECKS["peaks"].answers, 1))

    monkeypatch.setitem(CHECKS, "peaks", replace(CHECKS["peaks"], function=slow))
    measured("peaks", World().machine(), tmp_path)
    assert (seen[0]["verdict"], seen[0]["unfinished"], seen[0]["answers"]) == ("broken", "it was cut off", {"chip": "x"})
    assert found(tmp_path, "peaks")["verdict"] == "confirmed" and found(tmp_path, "peaks")["unfinished"] == ""
    measured("peaks", World().machine(), tmp_path, begin=1e9)
    assert seen[1]["verdict"] == "confirmed", "what was answered before is not given up for what is half done"


def test_evidence_that_a_check_gets_wrong_breaks_it(tmp_path, monkeypatch):
    monkeypatch.setitem(CHECKS, "peaks", replace(CHECKS["peaks"], function=lambda machine: Findings(answers={"x": 1})))
    assert "malformed evidence" in measured("peaks", World().machine(), tmp_path)["reason"]


def test_the_gpu_that_cuda_counts_as_0_is_the_one_that_is_read():
    two, second = Nvml([Gpu("GPU-a"), Gpu("GPU-b")]), SimpleNamespace(uuid="GPU-b")
    assert machine(two, find_board=lambda: second).index == 1 and machine(two, find_board=lambda: None).index == 0
    with pytest.raises(UllageError, match=r"computes on a GPU that NVML does not list \(GPU-b\)"):
        machine(Nvml([Gpu("GPU-a")]), find_board=lambda: second)


# --- what the checks find ---


def test_peaks_agree_with_the_gpus_own_word(results):
    # SMs by NVML: 128 × 132 cores / 128; PyTorch is not there; 80 GiB against 80e9 B is 7 % off, within 10 %
    answers = found(results, "peaks")["answers"]
    assert (answers["chip"], answers["agree"], answers["differ"], answers["silent"]) == ("NVIDIA H100 80GB HBM3", 5, 0, 1)


def test_a_chip_that_differs_from_its_entry_fails_the_check_and_an_unknown_one_too(tmp_path):
    world = World()
    world.nvmlDeviceGetMaxClockInfo = lambda handle, kind: 1755
    assert of("peaks", world).wrong == ["highest SM clock is 1755000000.0 by the GPU and 1980000000.0 by ullage.gpus"]
    assert measured("peaks", World(Gpu("GPU-1", name="NVIDIA X9")).machine(), tmp_path)["verdict"] == "broken"
    assert "no GPU is called 'NVIDIA X9'" in json.loads((tmp_path / "nvidia-x9" / "peaks.json").read_text())["reason"]


def test_counters_per_sm_are_told_from_counters_summed_over_sms():
    one, summed = of("cycle_counters", World()).answers, of("cycle_counters", World(scale=132)).answers
    assert (one["counted"], one["units"]) == ("per SM", 1)
    assert (summed["counted"], summed["units"]) == ("summed over the SMs", 132)
    for answers in (one, summed):
        assert answers["counts_from"] == "the start of the driver"
        assert answers["rate_over_clock_idle"] == pytest.approx(1, abs=0.01)
        assert answers["rate_over_clock_loaded"] == pytest.approx(1, abs=0.01)
        assert answers["tensor_share_error"] < 1e-6
        assert (answers["across_handles"], answers["across_processes"]) == ("goes on", "goes on")
        assert answers["told"].startswith("SM_CYCLES_ELAPSED")


def test_counters_that_stand_still_on_an_idle_gpu_are_found():
    world = World(stops_idle=True)
    answers = of("cycle_counters", world).answers
    assert answers["rate_over_clock_idle"] == 0 and answers["rate_over_clock_loaded"] == pytest.approx(1, abs=0.01)
    assert answers["counts_from"] == "the start of the driver", "found under load"
    assert of("cycle_counters", world, loaded=False).answers["counts_from"] == "unclear"


def test_counters_that_are_differences_contradict_the_reader_and_fail():
    findings = of("cycle_counters", World(differences=True))
    assert findings.answers["counts_from"] == "the older sample" and findings.answers["across_processes"] == "not asked"
    assert findings.wrong == ["the counters are differences, and the reader takes them as cumulative"]
    assert findings.answers["rate_over_clock_loaded"] == pytest.approx(1, abs=0.01)


def test_counters_that_another_process_sees_start_anew_are_found():
    assert of("cycle_counters", World(torn=True)).answers["across_processes"] == "starts anew"


def test_another_process_that_fails_is_noted():
    def fails(index):
        raise subprocess.CalledProcessError(1, "python")

    findings = CHECKS["cycle_counters"].function(replace(World().machine(), elsewhere=fails))
    assert findings.answers["across_processes"] == "unclear"
    assert findings.notes == ["another process could not read the counters (CalledProcessError)"]


def test_a_driver_without_the_counters_is_not_measured():
    with pytest.raises(NotMeasured, match="tells no cycle counters"):
        of("cycle_counters", World(Gpu("GPU-1", refused=frozenset({248, 250}))))
    with pytest.raises(NotMeasured, match="tells no cycle counters"):
        of("cycle_counters", World(Gpu("GPU-1", old_driver=True)))


def test_ofu_agrees_with_mfu_where_the_world_is_as_we_think(results):
    # every active tensor cycle does 132 × 4096 FLOPs, so OFU is MFU: 0.7 × 1350 / 1830 = 0.516
    evidence = found(results, "ofu_gemm")
    steady = [row for row in evidence["rows"] if row["pattern"] == "steady"]
    assert len(steady) == 5 and [row["pattern"] for row in evidence["rows"][-2:]] == ["gaps", "zeros"]
    for row in steady:
        assert row["mfu"] == pytest.approx(SHARE * 1350 / 1830, abs=0.02)
    assert evidence["answers"]["exact_error"] < 0.005 and evidence["answers"]["sampled_error"] < 0.02
    assert evidence["answers"]["zeros_clock"] == pytest.approx(1350 / 1830, abs=0.02)
    assert evidence["rows"][-2]["mfu"] == pytest.approx(SHARE * 1350 / 1830 * 0.35 / 0.6, abs=0.02)


def test_cycles_that_sms_count_settle_what_the_clock_that_is_told_leaves_open(monkeypatch):
    from contextlib import contextmanager

    from gpu.telemetry import CountedCycles

    from gpu import check_ofu_gemm

    # OFU by counted cycles is MFU at 0.516 of steady products; NVML tells a tenth more than the SMs count
    monkeypatch.setattr(check_ofu_gemm, "counted_cycles", contextmanager(lambda _: iter([CountedCycles([0.51, 0.52], [1.35e9 / 1.1])])))
    answers = of("ofu_gemm", World()).answers
    assert answers["counted_error"] < 0.01 and answers["told_over_counted"] == pytest.approx(1.1, abs=0.03)
    monkeypatch.setattr(check_ofu_gemm, "counted_cycles", contextmanager(lambda _: iter([CountedCycles([0.6], [1.35e9])])))
    assert any(text.startswith("counted OFU of size 8192 is 0.600 where MFU is 0.5") for text in of("ofu_gemm", World()).wrong)
    monkeypatch.setattr(check_ofu_gemm, "counted_cycles", contextmanager(lambda _: iter([CountedCycles(problem="forbidden")])))
    findings = of("ofu_gemm", World())
    assert findings.answers["counted_error"] is None and findings.notes == ["cycles are not counted: forbidden"]


@pytest.mark.parametrize(("share", "loads"), [(1.0, 0), (0.9, 5), (1.1, 5)])
def test_a_clock_that_is_not_the_one_of_the_sms_is_refuted_by_load(share, loads):
    world = World()
    world.counted_share = share
    findings = of("sm_clock", world)
    assert len(findings.rows) == 5 and len(findings.wrong) == loads
    assert findings.answers["idle_told_over_counted"] == pytest.approx(1 / share, rel=1e-3)
    assert findings.answers["told_over_counted"] == pytest.approx(1 / share, abs=0.03)
    # the products' own FLOPs tell the clock too: of these, all that tensor cycles do
    by_products = [row["by_products"] for row in findings.rows if row["load"] != "nothing"]
    assert by_products == pytest.approx([1.35e9] * 4, rel=0.03)


def test_a_clock_that_no_sm_counts_is_not_measured(monkeypatch):
    def refused(_self, looks, _over):
        looks.problem = "the CUDA driver answers 801 to cuLaunchKernel"

    monkeypatch.setattr(World, "count_cycles", refused)
    with pytest.raises(NotMeasured, match="answers 801 to cuLaunchKernel"):
        of("sm_clock", World())


@pytest.mark.parametrize(("told_over_counted", "refuted"), [(1.029, False), (1.031, True), (0.971, False), (0.969, True)])
def test_a_clock_may_be_three_percent_off(told_over_counted, refuted):
    world = World()
    world.counted_share = 1 / told_over_counted
    wrong = of("sm_clock", world).wrong
    assert any(text.startswith("under nothing NVML tells 345 MHz where SMs count ") for text in wrong) == refuted


def test_exact_ofu_is_the_same_from_counters_summed_over_sms():
    assert of("ofu_gemm", World(scale=132)).answers["exact_error"] < 0.005


def test_products_that_disagree_with_ofu_fail_the_check(monkeypatch):
    from tests.gpu import gpu_double

    monkeypatch.setattr(gpu_double, "FLOPS_PER_CYCLE", 2048)  # as if the peak were taken twice too high
    wrong = of("ofu_gemm", World()).wrong
    assert any(text.startswith("sampled OFU of size 8192 is 0.5") for text in wrong), wrong


def test_a_gpu_without_tensor_activity_is_not_measured():
    with pytest.raises(NotMeasured, match="no tensor activity"):
        of("ofu_gemm", World(Gpu("GPU-1", gpm=False)))


def test_clock_noise_has_a_row_for_each_interval_and_keeps_the_series(results):
    evidence = found(results, "clock_noise")
    assert [row["interval"] for row in evidence["rows"]] == pytest.approx([1, 5, 10, 20, 30] * 2)
    assert evidence["answers"]["clock_mean"] == pytest.approx(1350e6, rel=0.01)
    assert evidence["answers"]["clock_sd"] == pytest.approx(30e6 / 2**0.5, rel=0.05)  # of a sine
    kept = pyarrow.parquet.read_table(results / H100 / "clock_noise.parquet")
    assert kept.num_rows == 315 and kept["sm_clock"][0].as_py() > 1.3e9


def test_overhead_is_nothing_where_sampling_costs_nothing(results):
    evidence = found(results, "sampling_overhead")
    assert len(evidence["rows"]) == 9 and abs(evidence["answers"]["loss_0_1_s"]) < 0.02


def test_pure_parts_of_the_counters_check():
    assert counts_from(1, 2, 9) == "unclear"
    assert units(rate=0, clock=1e9, sms=132) is None and units(rate=1e9, clock=0, sms=None) is None
    assert steps([5, 5], [0, 1]) == {"smallest_step": None, "seconds_between_changes": None}


# --- recordings ---


def recorded(results):
    """Return every recording: that of the simulated GPU and those of the repository."""
    return sorted([*results.glob("*/*.calls.json.gz"), *(ROOT / "results").glob("*/*.calls.json.gz")])


def test_recordings_replay_to_the_same_samples(results):
    assert recorded(results)
    for path in recorded(results):
        samples, replay = replayed(load(path))
        kept = pyarrow.parquet.read_table(str(path).replace("calls.json.gz", "samples.parquet"))
        assert samples.to_pylist() == kept.to_pylist(), path
        assert replay.unanswered == [] and replay.remaining() == 0


def test_a_recording_holds_refusals_and_structures(results):
    recording = load(next(results.glob("*/*.calls.json.gz")))
    replies = {name: reply for name, _, reply, _ in recording["calls"]}
    assert replies["nvmlDeviceGetTemperatureV"] == {"error": 13}
    assert replies["nvmlDeviceGetMemoryInfo"]["reply"]["fields"]["total"] == 80 * 2**30
    assert (
        found(results, "nvml_recording")["answers"]["refused"] == "nvmlDeviceGetMigMode: Not Supported; nvmlDeviceGetTemperatureV: error 13"
    )


def test_what_was_not_recorded_is_answered_as_by_a_driver_that_lacks_it():
    replay = Replay(Recorder(Nvml(), lambda: 0).recording())
    with pytest.raises(Replay.NVMLError) as error:
        replay.nvmlDeviceGetCount()
    assert error.value.value == replay.NVML_ERROR_FUNCTION_NOT_FOUND and replay.unanswered == [("nvmlDeviceGetCount", [])]
    assert getattr(replay, "NVML_NEVER_LOOKED_UP", None) is None


def test_a_recorder_knows_the_structures_and_pointers_of_nvidia_ml_py():
    pynvml = pytest.importorskip("pynvml")
    handle, target = pynvml.c_nvmlGpmSample_t, pynvml.struct_c_nvmlGpmSample_t()

    class Library:
        NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_FUNCTION_NOT_FOUND = 0, 3, 13
        NVMLError = pynvml.NVMLError
        nvmlGpmSampleAlloc = staticmethod(lambda: ctypes.cast(ctypes.pointer(ctypes.c_int(7)), handle))
        nvmlDeviceGetMemoryInfo = staticmethod(lambda device: pynvml.c_nvmlMemory_t(80, 60, 20))

        @staticmethod
        def nvmlGpmMetricsGet(request):
            request.metrics[0].value = 12.5
            return request

    del target
    recorder = Recorder(Library, lambda: 0, lambda: 0.0)
    samples = [recorder.nvmlGpmSampleAlloc(), recorder.nvmlGpmSampleAlloc()]
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics, request.sample1, request.sample2 = 1, 1, *samples
    request.metrics[0].metricId = 5
    recorder.nvmlGpmMetricsGet(request)
    assert recorder.nvmlDeviceGetMemoryInfo(samples[0]).used == 20
    assert recorder.calls[2] == ["nvmlGpmMetricsGet", [1, {"object": 1}, {"object": 2}, [5]], {"reply": [[0, 12.5]]}, 0]
    assert recorder.calls[3][2] == {"reply": {"fields": {"total": 80, "free": 60, "used": 20}}}
    assert packed(recorder.recording()) == packed(recorder.recording())


# --- the page ---


def test_the_page_says_not_measured_yet_without_results(tmp_path):
    text = page.page(tmp_path)
    assert text.count("*not measured yet*") == len(EVERY) and text.count("| not measured yet |") == len(EVERY)


def test_the_page_shows_every_answer_with_its_meaning(results):
    text = page.page(results)
    assert "*not measured yet*" not in text and "**NVIDIA H100 80GB HBM3**, driver 595.10" in text
    assert "| `counted` | per SM | per SM, summed over the SMs, or neither |" in text
    for check in checks():
        assert all(f"| `{name}` |" in text for name in check.answers)


def test_evidence_that_is_torn_or_foreign_is_left_out_of_the_page(tmp_path):
    (tmp_path / H100).mkdir()
    (tmp_path / H100 / "peaks.json").write_text('{"check": "peaks"')
    (tmp_path / H100 / "clock_noise.json").write_text("[]")
    assert page.page(tmp_path) == page.page(tmp_path / "nowhere")


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "gpu").glob("*.py")))
def test_the_examples_in_the_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(f"gpu.{name}")).failed == 0


def test_evidence_is_written_whole_or_not_at_all_and_large_recordings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="more than"):
        evidence_module.write(tmp_path, {"check": "x"}, {"a.gz": bytes(2_000_000)})
    assert list(tmp_path.iterdir()) == []
    assert evidence_module.write(tmp_path, {"check": "x"}, {"a.gz": b"1"}).read_text() == '{\n "check": "x"\n}\n'
