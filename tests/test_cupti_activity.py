"""Tracing in Python: what the recording holds is what the double says it did."""

import ctypes
import mmap
import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import cupti_double
from tests.cupti_recording import Recording
from ullage.cupti import attributes, callbacks
from ullage.cupti.activity import Tracer
from ullage.cupti.attributes import Attribute
from ullage.cupti.buffers import Buffers
from ullage.cupti.chunks import Writer
from ullage.cupti.kinds import Kind
from ullage.cupti.layouts import layouts
from ullage.cupti.library import find
from ullage.cupti.naming import LONGEST, Memory
from ullage.cupti.releases import release
from ullage.cupti.results import CuptiError
from ullage.cupti.writing import Writing
from ullage.errors import UllageError

KERNELS = (Kind.CONCURRENT_KERNEL,)
DRIVER_API, LAUNCH = 1, 307


@pytest.fixture
def double(monkeypatch):
    for name in ("CUPTI_DOUBLE_FAULTS", "CUPTI_DOUBLE_VERSION", "CUPTI_DOUBLE_SKEW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(callbacks, "holders", list)
    yield cupti_double.loaded()
    monkeypatch.undo()
    cupti_double.loaded()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "host-1.ullage"


@pytest.fixture
def tracer(double, path):
    """A tracer of kernels, made when it is called; with a script of faults if need be."""
    made = []

    def make(kinds=KERNELS, **options):
        made.append(Tracer(find(cupti_double.library()), Writer(path), kinds, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def run_kernels(double, count, name=b"kernel"):
    """So many kernels, of 10 ns each, one every 100 ns: the nth runs from 1,000 + 100 n on."""
    for n in range(count):
        double.cupti_double_kernel(name, n, 7, 1000 + 100 * n, 1010 + 100 * n, 4, 128)


# What is recorded


@pytest.mark.parametrize("version", [28, 130001, 130101])
def test_kernels_are_recorded_as_they_ran_in_the_layout_of_the_release(double, tracer, path, monkeypatch, version):
    monkeypatch.setenv("CUPTI_DOUBLE_VERSION", str(version))
    traced = tracer().start()
    double.cupti_double_kernel(b"gemm", 3, 7, 1000, 1250, 4, 128)
    double.cupti_double_kernel(b"softmax", 4, 8, 2000, 2500, 8, 256)
    traced.close()
    found = Recording(path)
    assert found.kernels() == [("gemm", 1000, 1250), ("softmax", 2000, 2500)]
    assert [found.of(10)[field].tolist() for field in ("correlationId", "streamId", "gridX", "blockX")] == [
        [3, 4],
        [7, 8],
        [4, 8],
        [128, 256],
    ]
    assert found.info["cupti"] == version and found.info["kinds"] == {"10": 0}


def test_the_recording_says_what_process_it_is_and_what_tracing_cost(tracer, double, path):
    traced = tracer(size=1 << 16).start()
    run_kernels(double, 5)
    traced.close()
    found = Recording(path)
    assert (found.info["pid"], found.info["parent"], found.info["library"]) == (os.getpid(), os.getppid(), str(cupti_double.library()))
    # one buffer asked for and given back: 2 callbacks; 5 records of 224 bytes
    assert {key: found.end[key] for key in ("buffers", "bytes", "dropped", "lost", "refused", "callbacks", "memory_peak")} == {
        "buffers": 1, "bytes": 1120, "dropped": 0, "lost": 0, "refused": 0, "callbacks": 2, "memory_peak": 65536,
    }  # fmt: skip
    assert found.end["callback_ns"] > 0 and found.end["writer_ns"] >= 0 and found.info["problems"] == []


def test_every_kind_that_the_double_writes_is_recorded(double, tracer, path):
    kinds = (10, 1, 2, 4, 8, 9, 12, 17, 38, 51)
    traced = tracer(kinds).start()
    call = double.cupti_double_enter(DRIVER_API, LAUNCH, b"cuLaunchKernel", None)
    double.cupti_double_kernel(b"k", call, 7, 1000, 1010, 1, 1)
    double.cupti_double_exit(DRIVER_API, LAUNCH, b"cuLaunchKernel", None, call, 0)
    double.cupti_double_memcpy(1, 4096, call, 7, 2000, 2040)
    double.cupti_double_memset(64, call, 7, 3000, 3001)
    double.cupti_double_synchronization(3, call, 7, 3001, 3500)
    double.cupti_double_marker(2, 5, b"forward", b"", 900)
    double.cupti_double_graph(11, call, 7, 4000, 4100)
    double.cupti_double_overhead(3 << 16, 500, 600)
    double.cupti_double_context(1, 0)
    traced.close()
    found = Recording(path)
    assert {kind: len(found.of(kind)) for kind in kinds} == dict.fromkeys(kinds, 1)
    assert (found.of(1)["bytes"][0], found.of(2)["bytes"][0], found.of(51)["graphId"][0]) == (4096, 64, 11)
    assert (found.of(8)["numMultiprocessors"][0], found.names[found.of(8)["name"][0]]) == (132, "Double of an H200")
    assert found.names[found.of(12)["name"][0]] == "forward"
    assert found.of(4)["threadId"][0] == threading.get_native_id()  # named as the system does
    assert found.of(4)["correlationId"][0] == found.of(10)["correlationId"][0] == call


def test_calls_are_marked_with_the_identity_that_was_pushed(double, tracer, path):
    library = find(cupti_double.library())
    traced = tracer((4, 39)).start()
    for kind, identity in ((3, 41), (3, 42), (4, 7)):
        attributes.push_external(library, kind, identity)
    call = double.cupti_double_enter(DRIVER_API, LAUNCH, b"cuLaunchKernel", None)
    double.cupti_double_exit(DRIVER_API, LAUNCH, b"cuLaunchKernel", None, call, 0)
    assert (attributes.pop_external(library, 3), attributes.pop_external(library, 3), attributes.pop_external(library, 4)) == (42, 41, 7)
    with pytest.raises(CuptiError, match="QUEUE_EMPTY"):
        attributes.pop_external(library, 4)
    traced.close()
    found = Recording(path).of(39)
    # of each stack the newest
    assert list(zip(*(found[f].tolist() for f in ("externalKind", "externalId", "correlationId")), strict=True)) == [
        (3, 42, call),
        (4, 7, call),
    ]


def test_the_clocks_are_read_together(double, tracer, path, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_SKEW", str(10**15))
    traced = tracer().start()
    traced.flush()
    traced.close()
    readings = Recording(path).clocks
    assert len(readings) == 3  # at the start, at the flush, at the end
    assert [round((cupti - real) / 1e12) for cupti, real, _ in readings] == [1000] * 3  # apart by the skew, and by far less than 500 s
    assert [monotonic for _, _, monotonic in readings] == sorted(monotonic for _, _, monotonic in readings)


# While it runs


def test_a_flush_brings_what_is_complete_and_a_forced_one_the_rest(double, tracer, path):
    double.cupti_double_set_time(5000)
    traced = tracer().start()
    double.cupti_double_kernel(b"done", 1, 7, 4000, 4500, 1, 1)
    double.cupti_double_kernel(b"runs", 2, 7, 4500, 6000, 1, 1)
    traced.flush()
    assert Recording(path).kernels() == [("done", 4000, 4500)]
    double.cupti_double_set_time(5500)
    traced.flush(forced=True)
    assert Recording(path).kernels() == [("done", 4000, 4500), ("runs", 4500, 0)]  # 0: it hasn't ended


def test_kinds_are_switched_and_tracing_pauses_while_the_program_runs(double, tracer, path):
    traced = tracer((10, 1)).start()
    traced.disable(1)
    double.cupti_double_memcpy(1, 1, 1, 7, 1, 2)
    assert traced.enable(1) == 0
    double.cupti_double_memcpy(1, 2, 1, 7, 1, 2)
    traced.stop()
    run_kernels(double, 3)
    traced.start()
    run_kernels(double, 1)
    traced.close()
    found = Recording(path)
    assert found.of(1)["bytes"].tolist() == [2] and len(found.kernels()) == 1


def test_small_buffers_lose_nothing(double, tracer, path):
    # 3 kernels of 224 bytes fit into 700: 1,000 kernels are 334 buffers
    traced = tracer(size=700, most=334).start()
    run_kernels(double, 1000)
    traced.close()
    found = Recording(path)
    assert found.kernels() == [("kernel", 1000 + 100 * n, 1010 + 100 * n) for n in range(1000)]
    assert (found.end["buffers"], found.end["lost"], found.dropped) == (334, 0, 0)


def test_what_finds_no_buffer_is_counted_as_dropped(double, tracer, path, monkeypatch):
    # 2 buffers of 3 kernels each, and nothing comes back before the end: 6 of 10 kernels are kept
    monkeypatch.setattr(Writing, "begin", lambda self: None)
    traced = tracer(size=700, most=2).start()
    run_kernels(double, 10)
    monkeypatch.undo()
    traced._writing.begin()
    traced.close()
    found = Recording(path)
    assert (len(found.kernels()), found.dropped, found.end["dropped"]) == (6, 4, 4) and found.end["refused"] >= 4


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=st.lists(st.sampled_from(["kernel", "memcpy", "flush"]), max_size=60), size=st.integers(100, 3000), most=st.integers(1, 4))
def test_whatever_happens_each_record_is_either_in_the_recording_or_counted_as_dropped(double, tmp_path_factory, deeds, size, most):
    double.cupti_double_reset()
    path = tmp_path_factory.mktemp("drawn") / "host-1.ullage"
    traced = Tracer(find(cupti_double.library()), Writer(path), (10, 1), size=size, most=most).start()
    for n, deed in enumerate(deeds):
        match deed:
            case "kernel":
                double.cupti_double_kernel(b"k", n, 7, 10 * n + 1, 10 * n + 2, 1, 1)
            case "memcpy":
                double.cupti_double_memcpy(1, n, n, 7, 10 * n + 1, 10 * n + 2)
            case _:
                traced.flush()
    traced.close()
    found = Recording(path)
    assert len(found.of(10)) + len(found.of(1)) + found.dropped == len(deeds) - deeds.count("flush")
    assert found.dropped == found.end["dropped"]
    if size >= 224 and most == 4 and len(deeds) < 4 * (size // 224):
        assert found.dropped == 0


@pytest.mark.parametrize("version", [26, 27, 28, 130000, 130001, 130100, 130101])
def test_the_doubles_records_have_the_sizes_of_nvidias(double, monkeypatch, version):
    monkeypatch.setenv("CUPTI_DOUBLE_VERSION", str(version))
    known, size = layouts(release(version)), ctypes.c_size_t()
    for kind in (1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 17, 38, 39, 51):
        assert double.cuptiActivityGetStructSize(kind, 0, ctypes.byref(size)) == 0
        assert (kind, size.value) == (kind, known.of(kind).size)


def test_a_name_that_changes_where_it_stands_is_written_again(double, tracer, path):
    text = ctypes.create_string_buffer(b"first")
    traced = tracer((12,)).start()
    double.cupti_double_marker.argtypes = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    double.cupti_double_marker(2, 1, ctypes.addressof(text), None, 1)
    traced.flush()
    assert Recording(path).names == {ctypes.addressof(text): "first"}
    text.value = b"other"
    double.cupti_double_marker(2, 2, ctypes.addressof(text), None, 2)
    traced.close()
    assert Recording(path).names == {ctypes.addressof(text): "other"}


def test_a_pointer_into_nothing_leaves_a_name_out(double, tracer, path):
    traced = tracer((12,)).start()
    double.cupti_double_marker.argtypes = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    double.cupti_double_marker(2, 1, 0x10, 2**63 + 8, 1)
    traced.close()
    found = Recording(path)
    assert found.names == {} and len(found.of(12)) == 1 and found.end["lost"] == 0


# Faults


def test_a_kind_that_is_refused_is_left_out_and_told(double, tracer, path, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "kind=5:15,kind=1:27")
    traced = tracer((10, 5, 1)).start()
    run_kernels(double, 1)
    traced.close()
    assert traced.answers == {10: 0, 5: 15, 1: 27}
    assert Recording(path).info["kinds"] == {"10": 0, "5": 15, "1": 27} and len(Recording(path).kernels()) == 1


def test_where_every_kind_is_refused_tracing_says_why(tracer, path, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "privileges")
    with pytest.raises(CuptiError) as refused:
        tracer((10, 1)).start()
    assert refused.value.code == 35 and refused.value.problem.startswith("starting to trace failed")
    assert Recording(path).info["kinds"] == {"10": 35, "1": 35}


def test_beside_another_profiler_nothing_is_touched(double, tracer, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "subscriber")
    with pytest.raises(CuptiError, match="another profiler is already attached"):
        tracer().start()
    assert double.cuptiActivityFlushAll(0) == 7  # INVALID_OPERATION: nobody has registered buffers


def test_where_buffers_can_not_be_handed_over_nothing_stays_attached(double, tracer, path, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "cuptiActivityRegisterCallbacks=14")
    with pytest.raises(CuptiError, match="handing buffers over failed") as refused:
        tracer().start()
    assert refused.value.code == 14 and Recording(path).end is not None
    monkeypatch.delenv("CUPTI_DOUBLE_FAULTS")
    tracer().start()  # another can attach, so the first has let go


def test_a_closed_tracer_is_not_started_again(tracer):
    traced = tracer().start()
    traced.close()
    with pytest.raises(UllageError, match="this tracer is closed"):
        traced.start()


def test_a_release_that_is_not_known_is_refused_before_anything(tracer, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_VERSION", "990000")
    with pytest.raises(UllageError, match="known"):
        tracer()


def test_dropped_records_are_counted(double, tracer, path, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "dropped=7")
    traced = tracer().start()
    run_kernels(double, 10)
    traced.close()
    found = Recording(path)
    assert (found.dropped, found.end["dropped"], len(found.kernels())) == (7, 7, 3)


def test_records_in_disorder_are_kept_as_they_lie(double, tracer, path, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "disorder")
    traced = tracer((10, 1)).start()
    run_kernels(double, 3)
    double.cupti_double_memcpy(1, 9, 1, 7, 5000, 5001)
    traced.close()
    found = Recording(path)
    assert [start for _, start, _ in found.kernels()] == [1200, 1100, 1000] and len(found.of(1)) == 1


def test_a_buffer_with_an_unknown_kind_is_kept_whole_and_read_up_to_it(double, tracer, path, monkeypatch):
    # a buffer is full with 4 records; the third is of a kind that nobody knows: what follows it in its buffer can't be found
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "unknown-kind=2,full=4")
    traced = tracer().start()
    run_kernels(double, 8)
    traced.close()
    found = Recording(path)
    assert [start for _, start, _ in found.kernels()] == [1000, 1100, 1300, 1400, 1500, 1600, 1700]
    assert [len(buffer) for buffer in found.buffers] == [3 * 224 + 48, 4 * 224, 224]


@pytest.mark.parametrize("good", range(3, 13))
def test_an_error_in_the_middle_stops_nothing_and_is_told(double, tracer, path, monkeypatch, good):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", f"error-after={good}")
    try:
        traced = tracer((10, 1)).start()
    except CuptiError as error:
        assert error.code == 999
        return
    run_kernels(double, 3)
    traced.flush()
    traced.close()
    found = Recording(path)
    assert found.end is not None and not found.cut
    assert good > 11 or 999 in [problem["code"] for problem in found.info["problems"]]


def test_a_file_that_takes_no_more_stops_nothing(double, path, monkeypatch):
    writer = Writer(path)
    traced = Tracer(find(cupti_double.library()), writer, KERNELS, size=700).start()
    monkeypatch.setattr(writer, "add", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    run_kernels(double, 9)
    traced.flush()
    traced.close()
    assert {"what": "writing the recording: No space left on device", "code": 28} in traced._writing.problems


def test_more_buffers_than_allowed_are_not_given_and_cupti_drops_what_it_must(double):
    taken = []
    buffers = Buffers(taken.append, size=4096, most=2)
    buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()

    def ask():
        buffers.requested(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
        return buffer.value, size.value

    first, second, third = ask(), ask(), ask()
    assert first[1] == second[1] == 4096 and first[0] != second[0] and third == (None, 0)
    assert (buffers.refused, buffers.lent) == (1, 2)
    buffers.completed(None, 0, first[0], 4096, 96)
    buffers.back(taken[0].memory)
    assert ask() == first and taken[0].valid == 96


def test_a_buffer_that_is_nobodys_is_not_taken(double):
    taken = []
    Buffers(taken.append).completed(None, 0, 4096, 8192, 96)
    assert taken == []


# Attributes


def test_attributes_are_read_and_set(double):
    library = find(cupti_double.library())
    assert attributes.read(library, Attribute.DEVICE_BUFFER_POOL_LIMIT) == 250
    attributes.write(library, Attribute.DEVICE_BUFFER_SIZE, 16 << 20)
    attributes.write(library, Attribute.ZEROED_OUT_ACTIVITY_BUFFER, 1)
    assert (attributes.read(library, Attribute.DEVICE_BUFFER_SIZE), attributes.read(library, Attribute.ZEROED_OUT_ACTIVITY_BUFFER)) == (
        16 << 20,
        1,
    )
    attributes.flush_every(library, 250)
    assert double.cupti_double_period() == 250


def test_nvidias_own_library_takes_the_sizes_of_these_attributes():
    real = next((file for place in map(Path, sys.path) for file in (place / "nvidia/cu13/lib").glob("libcupti.so.1?")), None)
    if real is None or (known := find(real)).version is None or known.version > 130199:
        pytest.skip("no nvidia-cuda-cupti up to 13.1, which answers without a driver")
    # the header states these defaults: 3,200,000 bytes (since 12.0 3 MiB and more are seen), at most 250 buffers, 3 at first
    told = {}
    for attribute in (Attribute.DEVICE_BUFFER_SIZE, Attribute.DEVICE_BUFFER_POOL_LIMIT, Attribute.DEVICE_BUFFER_PRE_ALLOCATE_VALUE):
        try:
            told[attribute] = attributes.read(known, attribute)
        except CuptiError as error:
            assert error.code in (15, 999)
            pytest.skip("this release tells its attributes only where there is a driver")
    assert told[Attribute.DEVICE_BUFFER_POOL_LIMIT] == 250 and told[Attribute.DEVICE_BUFFER_SIZE] >= 3_000_000


# Names in memory


def test_text_is_read_up_to_its_end_also_where_the_page_ends():
    memory, page = mmap.mmap(-1, 2 * mmap.PAGESIZE), mmap.PAGESIZE
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    text = "käse ".encode() * 200
    memory[page - 300 : page - 300 + len(text) + 1] = text + b"\0"
    reader = Memory()
    assert reader.text(start + page - 300) == text.decode()
    assert reader.text(0) is None
    reader.close()


@given(text=st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=600), offset=st.integers(0, 4095))
def test_any_text_is_read_wherever_it_stands(text, offset):
    memory = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    encoded = text.encode() + b"\0"
    memory[offset : offset + len(encoded)] = encoded
    reader = Memory()
    assert reader.text(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + offset) == text
    reader.close()


def test_text_without_an_end_is_cut():
    memory = ctypes.create_string_buffer(b"a" * (2 * LONGEST))
    reader = Memory()
    assert reader.text(ctypes.addressof(memory)) == "a" * LONGEST
    reader.close()


def test_cplusplus_names_are_told_as_people_write_them():
    from ullage.cupti.naming import _demangler, demangled

    if _demangler() is None:
        pytest.skip("no C++ library on this machine")
    assert demangled("_Z5scaleIfEvPT_S0_i") == "void scale<float>(float*, float, int)"
    assert demangled("_Znonsense") == "_Znonsense" and demangled("_Z" + "x" * 10_000) == "_Z" + "x" * 10_000
