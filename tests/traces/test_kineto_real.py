"""Profiles from HolisticTraceAnalysis' and TraceLens' own tests: what any reader of them must find."""

from __future__ import annotations

import pytest

from tests.traces.kineto_events import reading
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.spans import join
from ullage.traces.trace import TraceOptions, recognised

# ns in which any kernel, copy or memset runs, by a loop over the events in the order of their start, as the standard library's
# json reads them. HolisticTraceAnalysis finds 1.00062 s in the first, and less in the last two, as it cuts events to whole microseconds.
ACTIVE = {
    "hta_v100_rank1of2_df_index_resolver": 1_000_613_000,
    "hta_a100_rank0of16_neg_queue": 438_424_000,
    "hta_a100_rank0of2_nccl_data": 157_500_014,
    "tracelens_h100_google_owlv2-large-patch14-ensemble__1016001": 566_759_477,
}


def reduced(path):
    form, file = recognised(path)
    recording, problems = Recording(path.name), Problems()
    return reduce(gather(form.read(file, recording, TraceOptions(), problems), recording)), problems


@pytest.mark.full
@pytest.mark.parametrize("name", ACTIVE)
def test_a_device_is_busy_as_long_as_its_events_unite_to(shared_data, name):
    done, problems = reduced(shared_data / "kineto" / f"{name}.json.gz")
    (device,) = done.devices
    assert device.busy.total == ACTIVE[name]
    assert problems.lines() == []
    assert len(device.owners) == 1


def test_a_process_group_size_and_bytes_come_from_the_file(shared_data):
    rows, recording, _ = reading(shared_data / "kineto" / "hta_a100_rank0of2_nccl_data.json.gz")
    found = [row for row in rows if row["kind"] == "collective"]
    largest = max(found, key=lambda row: row["bytes"])
    # 7,875,584 floats of 4 bytes
    assert (largest["operation"], largest["group"], largest["members"], largest["bytes"]) == ("allreduce", "0", 2, 4 * 7_875_584)
    assert (len(found), recording.rank, recording.ranks, recording.clock) == (21, 0, 2, "utc")
    assert sum(row["kind"] == "step" for row in rows) == 3
    # the file says baseTimeNanoseconds 1711964646 s and a first step at 4458676.4 s
    assert min(row["start"] for row in rows) // 10**9 == 1_711_964_646 + 4_458_676


def test_a_replayed_graph_keeps_all_its_kernels(shared_data):
    rows, recording, _ = reading(shared_data / "kineto" / "tracelens_mi300_vllm_decode_hipgraph.json.gz")
    graph = next(row for row in rows if row["call"] == "graph")
    assert sum(row["kind"] == "kernel" and row["correlation"] == graph["correlation"] for row in rows) > 400
    assert {row["stream"] for row in rows if row["kind"] == "kernel"} >= {0}
    assert recording.devices[0].sms == 304


def test_a_profile_of_amd_finds_the_process_that_owns_the_device(shared_data):
    done, problems = reduced(shared_data / "kineto" / "tracelens_mi210_gpu_only.json.gz")
    assert [owner[1] for owner in done.devices[0].owners] == [44077]
    assert (done.recording.devices[1].name, problems.lines()) == ("AMD Instinct MI210", [])


def test_a_profile_without_a_gpu_has_steps_and_no_device(shared_data):
    rows, recording, _ = reading(shared_data / "kineto" / "hta_cpuonly_no_rank.json.gz")
    assert {row["kind"] for row in rows} == {"step", "region"}
    assert (recording.rank, list(recording.extent)) == (None, [3113936])


@pytest.mark.full
def test_every_real_profile_is_read_whole(shared_data):
    for path in sorted((shared_data / "kineto").glob("*.json.gz")):
        done, problems = reduced(path)
        assert problems.lines() == [], path.name
        assert not done.recording.cut, path.name
        for device in done.devices:
            assert device.owners, path.name
            assert device.kernel.total > 0, path.name
            assert join(device.kernel, device.collective, device.memory).total == sum(
                s.total for s in (device.kernel, device.collective, device.memory)
            )
