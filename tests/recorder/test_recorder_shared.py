"""CUPTI shared with other tools: from CUDA 13.4 on each subscriber has kinds, buffers and callbacks of its own."""

from __future__ import annotations

import ctypes
import re

import pytest

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import KINDS, in_python, read, run_cuda
from tests.recorder.test_recorder_faults import INTERFACE, code_of
from ullage.cupti.kinds import ActivityKind

SHARED, NEWEST_ALONE = "130500", "130301"  # what cuptiGetVersion says
FUNCTIONS = re.findall(r"X\((cupti\w+_v2),", INTERFACE)
GRAPH, KERNEL = ActivityKind.GRAPH_TRACE, ActivityKind.CONCURRENT_KERNEL
NOT_COMPATIBLE, NOT_SUPPORTED, INVALID, HELD = 14, 27, 1, 39


def shared(folder, *arguments, version=SHARED, **environment):
    return run_cuda(folder, *arguments, CUPTI_DOUBLE_VERSION=version, **environment)


@pytest.mark.parametrize("version", ["130400", "130401", SHARED])
def test_where_cupti_can_be_shared_all_is_recorded_as_before(version, tmp_path):
    ran = shared(tmp_path, "--threads", "2", version=version)
    (told,) = cupti_double.told(ran.output)
    assert ran.only.info["shared"] is True and "problems" not in ran.only.info
    assert ran.only.operations() == sorted(told.operations)
    assert {kind for kind, answer in ran.only.info["kinds"].items() if answer} == {"22"}  # MEMCPY2, which the double never writes
    threads = {int(record["threadId"]) for record, _ in ran.only.records(ActivityKind.RUNTIME)}
    assert len(threads) == 2 and told.pid in threads  # as the system numbers them: the first has the process' number


@pytest.mark.parametrize(("version", "fault"), [("130000", ""), ("130101", ""), (NEWEST_ALONE, ""), (SHARED, "old-driver")])
def test_before_that_and_with_an_older_driver_the_recorder_has_cupti_alone(version, fault, tmp_path):
    ran = shared(tmp_path, version=version, CUPTI_DOUBLE_FAULTS=fault)
    (told,) = cupti_double.told(ran.output)
    assert "shared" not in ran.only.info and "problems" not in ran.only.info
    assert ran.only.operations() == sorted(told.operations)


def test_graphs_can_be_told_as_a_whole_where_cupti_is_shared(tmp_path):
    ran = shared(tmp_path, "--graphs", "2", ULLAGE_KINDS=",".join(map(str, [*KINDS, int(GRAPH)])))
    assert (ran.only.info["kinds"][str(int(GRAPH))], len(ran.only.records(GRAPH))) == (0, 2)


def test_of_graphs_the_kernels_are_told_where_cupti_is_shared_and_nobody_asked_for_the_whole(tmp_path):
    assert len(shared(tmp_path, "--graphs", "2").only.records(KERNEL)) == 10 + 2 * 2


@pytest.mark.parametrize("asked", [{"ULLAGE_COUNTERS": "{}"}, {"ULLAGE_STALLS": "0"}])
def test_who_counts_or_samples_does_not_share(asked, tmp_path):
    ran = shared(tmp_path, **asked)
    assert ran.code == 0 and all("shared" not in recording.info for recording in ran.recordings)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_whatever_fails_of_the_functions_for_sharing_the_program_runs(function, tmp_path):
    ran = shared(tmp_path, "--exit", "5", CUPTI_DOUBLE_FAULTS=f"{function}=999")
    (told,) = cupti_double.told(ran.output)
    assert (ran.code, ran.errors, told.launches, ran.only.end is not None) == (5, "", 10, True)
    if function in ("cuptiSubscribe_v2", "cuptiActivitySetAttribute_v2"):  # then it is not shared
        assert "shared" not in ran.only.info and ran.only.operations() == sorted(told.operations)
    if function == "cuptiActivityRegisterCallbacks_v2":
        assert code_of(ran, function) == 999
    if function == "cuptiActivityEnable_v2":
        assert set(ran.only.info["kinds"].values()) == {999}


OTHER_TOOL = """
double = ctypes.CDLL(os.environ["ULLAGE_CUPTI"])
pointer, size, word = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
class Asked(ctypes.Structure):
    _fields_ = [("size", size), ("name", ctypes.c_char_p), ("holder", pointer), ("room", size), ("several", ctypes.c_uint8)]
REQUEST = ctypes.CFUNCTYPE(None, ctypes.POINTER(pointer), ctypes.POINTER(size), ctypes.POINTER(size), pointer)
COMPLETE = ctypes.CFUNCTYPE(None, pointer, size, size, pointer)
given, seen, other = [], [], pointer()
def request(buffer, room, most, _):
    given.append(ctypes.create_string_buffer(1 << 16))
    buffer[0], room[0], most[0] = ctypes.addressof(given[-1]), 1 << 16, 0
def complete(buffer, room, valid, _): seen.append(valid)
callbacks = REQUEST(request), COMPLETE(complete)
def subscribe(several):
    return double.cuptiSubscribe_v2(ctypes.byref(other), None, None, ctypes.byref(Asked(40, b"another tool", None, 0, several)))
def trace():
    return double.cuptiActivityRegisterCallbacks_v2(other, *callbacks), double.cuptiActivityEnable_v2(other, word(10), None)
def kernels(): double.cuptiActivityFlushAll(1); return sum(seen) // 248
"""


def test_another_tool_and_the_recorder_see_all_kernels_and_the_other_goes_on_when_the_recorder_leaves(tmp_path):
    told = _beside(tmp_path, 1)
    assert told == {"answers": [0, 0, 0], "others": 4, "finalized": 0, "ours": 2, "shared": True, "problems": []}


def test_a_tool_that_has_cupti_alone_keeps_it_and_the_note_names_it(tmp_path):
    told = _beside(tmp_path, 0)
    assert (told["answers"], told["others"], told["ours"], told["shared"]) == ([0, 0, 0], 4, 0, False)
    assert told["problems"] == [["cuptiSubscribe", HELD, "it is CUPTI for another tool"]]


def _beside(folder, several):
    """Return what became of a kernel before the recorder came in beside another tool, two while it was there, and one after it."""
    code = f"""
answers = [subscribe({several}), *trace()]
launch()
r.attach({str(folder / "rec")!r})
launch(); launch()
r.detach()
launch()
print(json.dumps(dict(answers=answers, others=kernels(), finalized=double.cupti_double_finalized())))
"""
    told = in_python(folder, OTHER_TOOL + code, CUPTI_DOUBLE_VERSION=SHARED)
    (path,) = (path for path in (folder / "rec").iterdir() if path.suffix == ".ullage")
    found = read(path)
    problems = [[problem["what"], problem["code"], problem["detail"]] for problem in found.info.get("problems", ())]
    return told | {"ours": len(found.records(KERNEL)), "shared": "shared" in found.info, "problems": problems}


# --- the double refuses what CUPTI would ---


class Subscription(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("holder", ctypes.c_void_p), ("room", ctypes.c_size_t),
                ("several", ctypes.c_uint8)]  # fmt: skip


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_VERSION", SHARED)
    monkeypatch.delenv("CUPTI_DOUBLE_FAULTS", raising=False)
    yield cupti_double.loaded()
    cupti_double.loaded()


def subscribed(double, several=1, size=40):
    holder, handle = ctypes.create_string_buffer(64), ctypes.c_void_p()
    wanted = Subscription(size, b"a tool", ctypes.addressof(holder), 64, several)
    return double.cuptiSubscribe_v2(ctypes.byref(handle), None, None, ctypes.byref(wanted)), handle, holder.value


def test_two_share_only_if_both_agree(double):
    assert subscribed(double)[0] == 0 and subscribed(double)[0] == 0
    assert subscribed(double, several=0)[::2] == (HELD, b"CUPTI for a tool")
    assert double.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), None, None) == HELD
    assert subscribed(double, size=24)[0] == INVALID


def test_where_cupti_is_shared_the_functions_of_the_process_are_refused(double):
    assert subscribed(double)[0] == 0
    size, value = ctypes.c_size_t(8), ctypes.c_size_t()
    assert [
        double.cuptiActivityEnable(10),
        double.cuptiActivityDisable(10),
        double.cuptiActivityGetAttribute(0, ctypes.byref(size), ctypes.byref(value)),
        double.cuptiSetThreadIdType(1),
        double.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(value)),
    ] == [NOT_SUPPORTED] * 5


def test_graphs_as_a_whole_are_refused_unless_that_was_settled_before_anything_was_enabled(double):
    _, handle, _ = subscribed(double)
    one, size = ctypes.c_uint8(1), ctypes.c_size_t(1)
    asked = (handle, 20, ctypes.byref(size), ctypes.byref(one))
    assert double.cuptiActivityEnable_v2(handle, int(GRAPH), None) == NOT_COMPATIBLE
    assert double.cuptiActivitySetAttribute_v2(*asked) == 0 and double.cuptiActivityEnable_v2(handle, int(GRAPH), None) == 0
    double.cupti_double_reset()
    _, handle, _ = subscribed(double)
    assert double.cuptiActivityEnable_v2(handle, int(KERNEL), None) == 0
    assert double.cuptiActivitySetAttribute_v2(handle, *asked[1:]) != 0


def test_a_subscriber_that_is_none_is_refused(double):
    assert double.cuptiActivityEnable_v2(ctypes.c_void_p(8), 10, None) == INVALID
