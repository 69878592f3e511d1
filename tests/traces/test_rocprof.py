"""rocprofv3's database and JSON: scenarios written in every layout come back with the sums that brute force gives."""

import json
import sqlite3
from dataclasses import replace

import pytest

import ullage
from tests.traces import format_brute_force
from tests.traces.test_trace_files import given
from tests.traces.test_trace_sources_agree import several
from tests.traces.trace_brute_force import summed
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces import rocprof
from ullage.simulate.traces.answers import answer
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.traces import rocpd
from ullage.traces.trace import TRACES, File, TraceOptions, recognised

WRITTEN = {
    "json": rocprof.write_json,
    "times": rocprof.write_rocpd,
    "tracks": lambda scenario, folder: rocprof.write_rocpd(scenario, folder, layout="tracks"),
}
BRUTE = {"json": format_brute_force.rocprof_json, "times": format_brute_force.rocpd, "tracks": format_brute_force.rocpd}


def recorded(scenario: Scenario) -> Scenario:
    """What rocprofv3 records of a scenario: no host work, and no steps."""
    return replace(scenario, events=tuple(e for e in scenario.events if e.kind not in ("host", "step", "overhead")))


RUNS = {
    **{f"training {seed}": recorded(training(TrainingPlan(ranks=1, seed=seed, host_bound=seed % 2 == 1))) for seed in range(6)},
    "two devices a process": recorded(several({11: (0, 1)})),
    "graphs of kernels": recorded(training(TrainingPlan(ranks=1, graph="kernels"))),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("form", WRITTEN)
def test_a_recording_gives_the_sums_that_brute_force_gives(tmp_path, form, name):
    [path] = WRITTEN[form](RUNS[name], tmp_path)
    report, expected = ullage.read_trace(str(path)).report("ai"), summed(BRUTE[form](path))
    assert given(report.whole) == expected.whole
    assert {found.name: given(found) for found in report.regions} == expected.regions
    assert sum(p.device.launches for p in report.whole.device_parts) == expected.kernels


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("form", WRITTEN)
def test_a_recording_gives_the_answers_of_its_scenario(tmp_path, form, name):
    [path] = WRITTEN[form](RUNS[name], tmp_path)
    whole, true = ullage.read_trace(str(path)).report("ai").whole, answer(RUNS[name])
    assert whole.device_totals == true.device and whole.host_totals == true.host


@pytest.mark.parametrize("form", WRITTEN)
def test_each_form_is_known_by_its_own_reader_alone(tmp_path, form):
    [path] = WRITTEN[form](RUNS["training 0"], tmp_path)
    trace, file = recognised(path)
    assert trace.name == ("rocprofv3" if form == "json" else "rocpd")
    assert [name for name, other in TRACES.items() if other.recognise(file)] == [trace.name]


def test_calls_of_hsa_count_where_there_is_no_hip(tmp_path):
    scenario = Scenario("hsa", (ScenarioEvent(0, 10, "api", "hsa_signal_wait_scacquire", 1, thread=1),), {1: 0}, {0: ("MI300X", "")})
    [path] = rocprof.write_rocpd(replace(scenario, events=(*scenario.events, kernel(0, 100))), tmp_path)
    database = sqlite3.connect(path)
    database.execute(f'UPDATE "rocpd_string{rocprof.ENDING}" SET string = ? WHERE string = ?', ("HSA_CORE_API", "HIP_RUNTIME_API"))
    database.commit()
    whole = ullage.read_trace(str(path)).report("ai").whole
    assert whole.host_totals.offload_time == 10


def kernel(start, end):
    return ScenarioEvent(start, end, "kernel", "Cijk_gemm", 1, device=0, stream=0, correlation=5, blocks=4, threads=256)


def test_calls_of_hsa_beneath_hip_count_once(tmp_path):
    scenario = Scenario(
        "both",
        (ScenarioEvent(0, 50, "api", "cudaLaunchKernel", 1, thread=1, call="launch", correlation=5), kernel(60, 100)),
        {1: 0},
        {0: ("G", "")},
    )
    [path] = rocprof.write_json(scenario, tmp_path)
    data = json.loads(path.read_text())
    records = data["rocprofiler-sdk-tool"][0]["buffer_records"]
    records["hsa_api"] = [records["hip_api"][0] | {"end_timestamp": rocprof.UPTIME + 90, "thread_id": 9}]
    path.write_text(json.dumps(data))
    assert ullage.read_trace(str(path)).report("ai").whole.host_totals.offload_time == 50


def test_a_json_that_ends_early_is_refused_in_words(tmp_path):
    [path] = rocprof.write_json(RUNS["training 0"], tmp_path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UllageError, match="no whole JSON of rocprofv3"):
        ullage.read_trace(str(path)).report("ai")


def test_names_of_any_bytes_are_read(tmp_path):
    [path] = rocprof.write_json(Scenario("raw", (kernel(0, 10),), {1: 0}, {0: ("G", "")}), tmp_path)
    path.write_bytes(path.read_bytes().replace(b"Cijk", b"Ci\x8d\x1bk".replace(b"\x1b", b"")))
    assert ullage.read_trace(str(path)).report("ai").whole.device_parts[0].kernel == 10


def test_a_dispatch_that_ends_before_it_starts_is_lost_and_not_idle(tmp_path):
    [path] = rocprof.write_rocpd(Scenario("lost", (kernel(0, 100), kernel(50, 60)), {1: 0}, {0: ("G", "")}), tmp_path)
    database = sqlite3.connect(path)
    database.execute(f'UPDATE "rocpd_kernel_dispatch{rocprof.ENDING}" SET "end" = 5 WHERE id = 2')
    database.commit()
    report = ullage.read_trace(str(path)).report("ai")
    assert report.partial and any("end at an impossible time" in note for note in report.notes)


def test_no_secret_of_a_command_line_names_a_process(tmp_path):
    [path] = rocprof.write_rocpd(Scenario("python a.py --token s3cr3t", (kernel(0, 100),), {1: 0}, {0: ("G", "")}), tmp_path)
    recording = Recording(path.name)
    list(rocpd.read(File(path), recording, TraceOptions(), Problems()))
    [process] = recording.processes.values()
    assert process.name == "python a.py --token …"


def test_a_database_without_gpus_is_told(tmp_path):
    [path] = rocprof.write_rocpd(Scenario("none", (ScenarioEvent(0, 10, "api", "cudaFree", 1, thread=1),), {1: 0}, {}), tmp_path)
    with pytest.raises(UllageError, match="tells of no GPU"):
        ullage.read_trace(str(path)).report("ai")


def test_numbers_that_can_t_be_are_left_out(tmp_path):
    [path] = rocprof.write_json(Scenario("huge", (kernel(0, 100), kernel(150, 160)), {1: 0}, {0: ("G", "")}), tmp_path)
    data = json.loads(path.read_text())
    data["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"][1]["end_timestamp"] = 2**64 - 1
    path.write_text(json.dumps(data))
    report = ullage.read_trace(str(path)).report("ai")
    assert report.partial and report.whole.device_parts[0].kernel == 100
    assert any(note.startswith("1 events with impossible numbers left out") for note in report.notes)


def rewritten(path, change, **how):
    """A recording's file with its JSON changed, written in some form."""
    data = json.loads(path.read_text())
    change(data["rocprofiler-sdk-tool"][0], data)
    path.write_text(json.dumps(data, **how))
    return path


def nothing(process, data):
    """Leave it as it is."""


def records_first(process, data):
    process["metadata"] = process.pop("metadata")  # to the end


def other_members(process, data):
    odd = {"none": [], "scratch": [{"a": [{"b": 1}, {"b": 2}]}], "about": {"x": [1, {"y": "]}"}]}, "odd": [1, "a"]}
    process["buffer_records"] = odd | process["buffer_records"]
    process["summary"] = [{"domain": "HIP"}]


def words_that_look_like_records(process, data):
    process["metadata"]["command"] = ['"buffer_records": {', '}, {"kind": 1']


def alone(process, data):
    data["rocprofiler-sdk-tool"] = process


SHAPES = {
    "as written": (nothing, {}), "compact": (nothing, {"separators": (",", ":")}), "indented": (nothing, {"indent": 1}),
    "records first": (records_first, {}), "other members": (other_members, {}), "words": (words_that_look_like_records, {}),
    "alone": (alone, {}),
}  # fmt: skip


@pytest.fixture(params=[1 << 13, pytest.param(1 << 10, marks=pytest.mark.full), pytest.param(1 << 22, marks=pytest.mark.full)])
def chunked(request, monkeypatch):
    """Records are decoded some thousand bytes at once, some hundred, or all."""
    monkeypatch.setattr("ullage.traces.rocprof_members.CHUNK", request.param)
    monkeypatch.setattr("ullage.traces.rocprof_members._BLOCK", request.param)


SLOW = ("compact", "indented", "alone", "words")


@pytest.mark.parametrize("shape", [pytest.param(s, marks=pytest.mark.full) if s in SLOW else s for s in SHAPES])
def test_a_json_read_in_pieces_gives_what_brute_force_gives_of_the_whole(tmp_path, shape, chunked):
    [path] = rocprof.write_json(RUNS["training 1"], tmp_path)
    expected = summed(format_brute_force.rocprof_json(path))
    change, how = SHAPES[shape]
    whole = ullage.read_trace(str(rewritten(path, change, **how))).report("ai").whole
    assert given(whole) == expected.whole


def test_further_processes_are_read_behind_the_first(tmp_path, chunked):
    [one] = rocprof.write_json(Scenario("one", (kernel(0, 100),), {1: 0}, {0: ("G", "")}), tmp_path)
    other = json.loads(one.read_text())["rocprofiler-sdk-tool"][0]
    other["metadata"]["pid"] = 2
    for record in other["buffer_records"]["kernel_dispatch"]:
        record["start_timestamp"], record["end_timestamp"] = record["start_timestamp"] + 200, record["end_timestamp"] + 200
    rewritten(one, lambda process, data: data["rocprofiler-sdk-tool"].append(other))
    assert ullage.read_trace(str(one)).report("ai").whole.device_parts[0].kernel == 200


@pytest.mark.parametrize("kept", [0.3, *(pytest.param(kept, marks=pytest.mark.full) for kept in (0.5, 0.7, 0.9, 0.999))])
def test_a_json_that_ends_anywhere_is_refused(tmp_path, kept, chunked):
    [path] = rocprof.write_json(RUNS["training 0"], tmp_path)
    text = path.read_bytes()
    path.write_bytes(text[: int(kept * len(text))])
    with pytest.raises(UllageError, match="no whole JSON of rocprofv3"):
        ullage.read_trace(str(path)).report("ai")


@pytest.mark.parametrize("kept", [0.5, pytest.param(0.9, marks=pytest.mark.full)])
def test_a_json_that_is_damaged_anywhere_is_refused(tmp_path, kept, chunked):
    [path] = rocprof.write_json(RUNS["training 0"], tmp_path)
    text = path.read_bytes()
    at = text.index(b'"start_timestamp"', int(kept * len(text)))
    path.write_bytes(text[:at] + b"\x00\x01" + text[at:])
    with pytest.raises(UllageError, match="no whole JSON of rocprofv3"):
        ullage.read_trace(str(path)).report("ai")


def test_calls_of_hsa_written_before_those_of_hip_count_once(tmp_path, chunked):
    events = (ScenarioEvent(0, 50, "api", "cudaLaunchKernel", 1, thread=1, call="launch", correlation=5), kernel(60, 100))
    [path] = rocprof.write_json(Scenario("both", events, {1: 0}, {0: ("G", "")}), tmp_path)

    def beneath_first(process, data):
        records = process["buffer_records"]
        process["buffer_records"] = {"hsa_api": [records["hip_api"][0] | {"end_timestamp": rocprof.UPTIME + 90, "thread_id": 9}]} | records

    rewritten(path, beneath_first)
    assert ullage.read_trace(str(path)).report("ai").whole.host_totals.offload_time == 50
