"""Program counters sampled through CUPTI's documented interface, on a double of it; layouts and look-ups against NVIDIA's own files."""

from __future__ import annotations

import contextlib
import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cupti import cupti_double
from tests.cupti.wheel_headers import headers, hostly
from ullage.cupti import modules
from ullage.cupti.library import Library
from ullage.cupti.pc_sampling import samples as pc_samples
from ullage.cupti.pc_sampling import structures as pc_structures
from ullage.cupti.pc_sampling.buffer import Buffer
from ullage.cupti.pc_sampling.configuration import Configuration
from ullage.cupti.pc_sampling.pc_sampling import PcSampling
from ullage.cupti.pc_sampling.samples import KEY, SAMPLES, Facts, PcSamples, gathered, read
from ullage.cupti.releases import RELEASES, release
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError

CONTEXT, SECOND = 0x1000, 0x2000
CUBIN = 0xABCDEF0123
WAITS = "smsp__pcsamp_warps_issue_stalled_long_scoreboard"
ISSUED = "smsp__pcsamp_warps_issue_stalled_selected"


class Double:
    """The double of libcupti as a program would see it, and what makes it sample."""

    def __init__(self):
        self.handle = cupti_double.loaded()
        self.handle.cupti_double_pc_reset()
        self.handle.cupti_double_pc_calls.restype = ctypes.c_char_p
        self.handle.cupti_double_pc.argtypes = (
            ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32,
        )  # fmt: skip
        self.handle.cupti_double_module.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
        self.library = Library(cupti_double.library())
        self.names = {}

    @property
    def calls(self):
        return self.handle.cupti_double_pc_calls().decode().split()

    def sample(self, pc, waiting=0, selected=0, *, context=CONTEXT, function=b"_Z5scalePf", correlation=0, cubin=CUBIN):
        name = self.names.setdefault(function, ctypes.create_string_buffer(function))
        return self.handle.cupti_double_pc(context, cubin, ctypes.addressof(name), pc, waiting, selected, correlation)

    def module(self, number, cubin):
        self.handle.cupti_double_module(number, CONTEXT, cubin, len(cubin))


@pytest.fixture
def double(monkeypatch):
    monkeypatch.delenv("CUPTI_DOUBLE_FAULTS", raising=False)
    monkeypatch.delenv("CUPTI_DOUBLE_VERSION", raising=False)
    made = Double()
    monkeypatch.setattr("ullage.cupti.library.cuda_version", lambda: 13010)  # so that the version is asked for in this process
    yield made
    made.handle.cupti_double_pc_reset()


def sampling(double, *, contexts=(CONTEXT,), configuration=None, **more):
    return PcSampling(double.library, contexts, configuration, **({"every": 0, "cubins": False} | more))


def rows(samples, *names):
    return list(zip(*(samples.table[name].to_pylist() for name in names), strict=True))


# --- a range, from beginning to end


def test_a_range_is_read_right_after_it_ends_and_sampling_is_switched_off_once(double):
    with sampling(double) as one:
        assert not double.sample(0x10, 5), "nothing is sampled before the range begins"
        with one.range():
            double.sample(0x10, waiting=5, selected=2)
            double.sample(0x20, waiting=1)
        assert not double.sample(0x30, 5), "nothing is sampled after it"
    one.close()
    assert double.calls == ["enable", "configure", "start", "stop", "read", "read", "disable"]
    assert rows(one.result(), "pc", "reason", "samples") == [(0x10, WAITS, 5), (0x10, ISSUED, 2), (0x20, WAITS, 1)]


def test_a_sample_tells_its_function_cubin_and_context(double):
    with sampling(double) as one, one.range():
        double.sample(0x40, waiting=3, function=b"_Z4copyPfPKf", correlation=77)
    (row,) = one.result().table.to_pylist()
    assert row == {
        "context": 0, "range": 1, "cubin": CUBIN, "function_index": 7, "function": "_Z4copyPfPKf", "pc": 0x40, "correlation": 77,
        "reason_index": 3, "reason": WAITS, "samples": 3,
    }  # fmt: skip


def test_counts_of_one_place_are_added_up_and_ranges_are_kept_apart(double):
    with sampling(double) as one:
        for waiting in (5, 7):
            with one.range():
                double.sample(0x10, waiting)
                one.drain()
                double.sample(0x10, waiting)
    assert rows(one.result(), "range", "pc", "samples") == [(1, 0x10, 10), (2, 0x10, 14)]


def test_what_remains_is_read_until_nothing_does(double, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "keep=3")
    with sampling(double) as one, one.range():
        for n in range(10):
            double.sample(16 * n, waiting=1)
    # ten records at three a call: four calls after stop, one before disable
    assert double.calls.count("read") == 5
    assert one.result().table["pc"].to_pylist() == [16 * n for n in range(10)]


def test_without_ranges_what_is_left_comes_out_of_the_buffer_that_disable_fills(double, monkeypatch):
    with sampling(double, configuration=Configuration(ranges=False)) as one:
        double.sample(0x10, waiting=4)
        monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "cuptiPCSamplingGetData=999")  # so that only Disable can give it
    assert rows(one.result(), "pc", "samples") == [(0x10, 4)]
    with pytest.raises(UllageError, match="configured without ranges"):
        one.start()


def test_two_contexts_are_told_apart_and_two_of_one_gpu_are_refused(double, monkeypatch):
    with pytest.raises(UllageError, match="two contexts of GPU 0 can't be sampled at once"):
        sampling(double, contexts=(CONTEXT, SECOND))
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "cuptiGetDeviceId=3")  # a library that can't tell of which GPU a context is
    with sampling(double, contexts=(CONTEXT, SECOND)) as one, one.range():
        double.sample(0x10, 1)
        double.sample(0x10, 2, context=SECOND)
    assert rows(one.result(), "context", "samples") == [(0, 1), (1, 2)]


def test_a_thread_reads_while_the_program_runs(double):
    with sampling(double, configuration=Configuration(ranges=False), every=0.001) as one:
        double.sample(0x10, 1)
        for _ in range(10_000):
            if one.result().table.num_rows:
                break
            one._ended.wait(0.001)
        assert rows(one.result(), "samples") == [(1,)]
    assert double.calls[-1] == "disable"


# --- what can go wrong


def test_an_overflow_of_the_hardware_is_counted_and_no_error(double, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "hardware-full=1")
    with sampling(double) as one:
        with one.range():
            double.sample(0x10, 5)
        with one.range():
            double.sample(0x20, 6)
    facts = one.result().facts
    assert (facts.full, facts.dropped, facts.problems) == (1, 100, ())
    assert sum(one.result().table["samples"].to_pylist()) == 11


def test_an_error_in_the_middle_is_told_and_the_program_goes_on(double, monkeypatch):
    with sampling(double) as one:
        monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "cuptiPCSamplingGetData=999")
        with one.range():
            double.sample(0x10, 5)
    (problem,) = one.result().facts.problems
    assert problem.startswith("reading sampled program counters failed: ")


@pytest.mark.parametrize("function", ["Enable", "GetNumStallReasons", "GetStallReasons", "SetConfigurationAttribute"])
def test_a_refusal_to_begin_is_an_error_and_leaves_sampling_off(double, monkeypatch, function):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", f"cuptiPCSampling{function}=35")
    with pytest.raises(CuptiError, match="only the administrator") as caught:
        sampling(double)
    assert caught.value.code == 35
    monkeypatch.delenv("CUPTI_DOUBLE_FAULTS")
    with sampling(double) as one:  # the double refuses a context that is still enabled
        pass
    assert one.result().table.num_rows == 0


def test_a_library_that_always_says_there_is_more_doesnt_hang_the_program(double, monkeypatch):
    with sampling(double) as one:
        monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "keep=1")
        monkeypatch.setattr("ullage.cupti.pc_sampling.context.ROUNDS", 3)
        with one.range():
            for n in range(10):
                double.sample(16 * n, 1)
        assert double.calls.count("read") == 3


# --- the configuration


def test_the_chosen_reasons_alone_are_collected(double):
    with sampling(double, configuration=Configuration(reasons=("long_scoreboard",))) as one, one.range():
        double.sample(0x10, waiting=3, selected=9)
    assert rows(one.result(), "reason", "samples") == [(WAITS, 3)]


def test_a_short_reason_takes_its_latency_samples_along_and_a_whole_one_doesnt():
    known = {3: WAITS, 4: WAITS + "_not_issued", 17: ISSUED}
    assert Configuration(reasons=("long_scoreboard",)).chosen(known) == [3, 4]
    assert Configuration(reasons=(WAITS + "_not_issued",)).chosen(known) == [4]
    with pytest.raises(UllageError, match="no stall reason 'long_scorebord'") as caught:
        Configuration(reasons=("long_scorebord",)).chosen(known)
    assert "did you mean 'long_scoreboard'?" in caught.value.hint


def test_the_period_is_told_as_cupti_has_set_it(double):
    with sampling(double, configuration=Configuration(period=8, scratch=2**20, hardware=2**26, sleep=50)) as one:
        pass
    assert one.result().facts.cycles == 256
    with sampling(double) as one:
        pass
    assert one.result().facts.cycles == 4096  # the double's own choice is 2**12


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"period": 4}, "sampling period of 4"),
        ({"period": 32}, "sampling period of 32"),
        ({"mode": "parallel"}, "'parallel' is no mode"),
        ({"scratch": 0}, "scratch=0"),
        ({"hardware": -1}, "hardware=-1"),
        ({"sleep": 2**32}, "sleep=4294967296"),
    ],
)
def test_a_value_that_cupti_doesnt_take_is_refused_before_it_is_asked(values, said):
    with pytest.raises(UllageError, match=said):
        Configuration(**values)


# --- modules


def test_machine_code_that_is_loaded_meanwhile_is_kept_by_its_crc(double):
    with sampling(double, cubins=True) as one:
        double.module(6, b"first cubin")
        double.module(6, b"second")
        double.module(6, b"second")
    expected = {modules.crc(double.library, code): code for code in (b"first cubin", b"second")}
    assert one.result().cubins == expected
    assert not one.result().facts.problems


def test_a_module_that_goes_has_its_samples_read_before(double):
    with sampling(double, configuration=Configuration(ranges=False), cubins=True):
        double.sample(0x10, 1)
        assert "read" not in double.calls
        double.module(7, b"cubin")
        assert double.calls[-1] == "read"


def test_a_context_that_is_destroyed_is_read_before_and_never_touched_again(double):
    with sampling(double, configuration=Configuration(ranges=False), cubins=True) as one:
        double.sample(0x10, 3)
        double.handle.cupti_double_resource(2, CONTEXT, None)
        assert double.calls[-1] == "read"
        one.drain()
    assert double.calls == ["enable", "configure", "read"]
    assert rows(one.result(), "samples") == [(3,)]
    assert (one.result().facts.cycles, one.result().facts.total) == (4096, 3)


def test_an_error_that_comes_again_and_again_is_told_once(double, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "cuptiPCSamplingGetData=999")
    with sampling(double) as one:
        for _ in range(5):
            one.drain()
    assert len(one.result().facts.problems) == 1


def test_another_subscriber_costs_the_cubins_and_not_the_samples(double, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "subscriber")
    with sampling(double, cubins=True) as one, one.range():
        double.sample(0x10, 1)
    samples = one.result()
    assert samples.table.num_rows == 1
    assert samples.cubins == {}
    assert "another profiler is already attached" in samples.facts.problems[0]


# --- layouts


@pytest.mark.parametrize("version", [18, 21])
def test_before_cuda_12_4_records_are_56_bytes_without_a_correlation(version):
    layout = pc_structures.record(_release(version))
    assert (layout.itemsize, "correlation" in layout.names) == (56, False)


@pytest.mark.parametrize("version", [22, 28, 130000, 130101])
def test_from_cuda_12_4_on_records_are_64_bytes_with_one(version):
    layout = pc_structures.record(_release(version))
    assert (layout.itemsize, layout.fields["correlation"][1]) == (64, 56)


def _release(version):
    known = {one.version for one in RELEASES}
    return release(version) if version in known else pytest.skip(f"release {version} is not in the table")


_STRUCTURES = {
    "CUpti_PCSamplingData": (pc_structures.Data, None),
    "CUpti_PCSamplingEnableParams": (pc_structures.ContextParams, None),
    "CUpti_PCSamplingGetDataParams": (pc_structures.PointerParams, None),
    "CUpti_PCSamplingGetNumStallReasonsParams": (pc_structures.PointerParams, None),
    "CUpti_PCSamplingGetStallReasonsParams": (pc_structures.ReasonsParams, None),
    "CUpti_PCSamplingConfigurationInfo": (pc_structures.Attribute, None),
    "CUpti_PCSamplingConfigurationInfoParams": (pc_structures.ConfigurationParams, None),
    "CUpti_GetSassToSourceCorrelationParams": (pc_structures.SourceParams, None),
    "CUpti_GetCubinCrcParams": (pc_structures.CrcParams, None),
}
_FIELDS = {
    "CUpti_PCSamplingData": {"collectNumPcs": "room", "droppedSamples": "dropped", "totalNumPcs": "count", "hardwareBufferFull": "full"},
    "CUpti_GetSassToSourceCorrelationParams": {"lineNumber": "line", "pcOffset": "pc", "dirName": "folder"},
    "CUpti_PCSamplingGetStallReasonsParams": {"numStallReasons": "count", "stallReasons": "names"},
}


def test_the_structures_are_those_of_nvidias_headers(tmp_path):
    compiler = shutil.which("gcc") or pytest.skip("no compiler")
    for folder, version in headers():
        text = "#include <stdio.h>\n#include <stddef.h>\n#include <cupti_pcsampling.h>\nint main(void) {\n"
        for name, fields in _FIELDS.items():
            text += "".join(f'printf("%zu\\n", offsetof({name}, {field}));\n' for field in fields)
        text += "".join(f'printf("%zu\\n", sizeof({name}));\n' for name in (*_STRUCTURES, "CUpti_PCSamplingPCData")) + "return 0; }\n"
        Path(tmp_path, "sizes.c").write_text(text)
        command = [compiler, *(f"-I{one}" for one in folder), "-o", str(tmp_path / "sizes"), str(tmp_path / "sizes.c")]
        subprocess.run(command, check=True, capture_output=True)
        told = [int(word) for word in subprocess.run([tmp_path / "sizes"], check=True, capture_output=True).stdout.split()]
        ours = [getattr(_STRUCTURES[name][0], mine).offset for name, fields in _FIELDS.items() for mine in fields.values()]
        ours += [ctypes.sizeof(kind) for kind, _ in _STRUCTURES.values()] + [pc_structures.record(release(version)).itemsize]
        assert ours == told, f"release {version}"


# --- the buffer


@given(st.integers(0, 40), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_a_buffer_never_tells_more_than_its_room(count, reasons, samples):
    # whatever a library claims (40 records in a room of 8, 9 reasons in a room of 4), what is read lies in our own memory
    buffer = Buffer(release(130101), 8, 4)
    buffer._records["reasons"] = reasons
    buffer._counts["samples"] = samples
    buffer.data.count = count
    expected = min(count, 8) * min(reasons, 4) if samples else 0
    assert len(buffer.columns()["samples"]) == expected


# --- files


def _samples(**facts):
    table = pa.table(
        {
            "context": [0, 0], "range": [1, 1], "cubin": [5, 6], "function_index": [0, 0], "function": ["a", "b"], "pc": [0, 16],
            "correlation": [0, 0], "reason_index": [3, 3], "reason": [WAITS, WAITS], "samples": [4, 2],
        }
    )  # fmt: skip
    return PcSamples(gathered([_typed(table)]), Facts(**facts), {5: b"machine code", 9: b"not sampled"})


def _typed(table):
    return pa.table([table[name].cast(pa.string()).dictionary_encode() if name in ("function", "reason") else table[name].cast(SAMPLES.field(name).type) for name in SAMPLES.names], SAMPLES.names)  # fmt: skip  # noqa: E501


def test_samples_come_back_from_a_file_as_they_were_with_the_cubins_they_point_into(tmp_path):
    samples = _samples(chip="GH100", release="13.0", mode="continuous", cycles=1024, clock=1.98e9, total=7, dropped=1, other=0, full=1)
    samples.write(tmp_path / "a.parquet")
    again = read(tmp_path / "a.parquet")
    assert again.table.equals(samples.table)
    assert again.facts == samples.facts
    assert again.cubins == {5: b"machine code"}


def _many(count):
    """Return two rows that count so many samples each: their sum runs over 64 bits."""
    return _samples().table.set_column(9, "samples", pa.array([count, count], pa.uint64()))


def _parquet(path, table=None, facts=None):
    table = table if table is not None else _samples().table
    parquet.write_table(table.replace_schema_metadata({KEY: json.dumps({} if facts is None else facts)}), path)
    return path


def test_facts_of_other_types_are_left_out_and_not_believed(tmp_path):
    told = {"chip": 5, "cycles": "many", "clock": 1e300, "total": -1, "full": True, "problems": {"a": 1}, "reasons": [1], "mode": None}
    assert read(_parquet(tmp_path / "a.parquet", facts=told)).facts == Facts(reasons=("1",))
    assert read(_parquet(tmp_path / "a.parquet", facts=["a list"])).facts == Facts()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b"PAR1" + bytes(100)),
        lambda path: path.write_bytes(b""),
        lambda path: path.mkdir(),
        lambda path: parquet.write_table(_samples().table, path),
        lambda path: _parquet(path, _samples().table.drop_columns(["pc"])),
        lambda path: _parquet(path, pa.table({name: pa.array([None], SAMPLES.field(name).type) for name in SAMPLES.names})),
        lambda path: parquet.write_table(_samples().table.replace_schema_metadata({KEY: b"{" * 5000}), path),
        lambda path: _parquet(path, _many(2**63)),
        lambda path: _parquet(path, pa.table({**_samples().table.to_pydict(), "samples": [-1, 2]})),
        lambda path: None,
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_one_sentence(tmp_path, make):
    make(tmp_path / "a.parquet")
    with pytest.raises(UllageError) as caught:
        read(tmp_path / "a.parquet")
    assert "a.parquet" in caught.value.problem
    assert "\n" not in caught.value.problem


@given(st.data())
def test_a_damaged_file_is_read_or_refused_and_nothing_else(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.parquet"
    _parquet(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    with contextlib.suppress(UllageError):
        assert read(path).table.schema.equals(SAMPLES)


def test_only_files_named_as_ours_are_taken_for_cubins(tmp_path):
    _samples().write(tmp_path / "a.parquet")
    folder = tmp_path / "a.cubins"
    (folder / "readme.txt").write_text("no cubin")
    (folder / "../0000000000000006.cubin").resolve().write_bytes(b"elsewhere")
    (folder / "0000000000000007.cubin").symlink_to("/etc/passwd")
    (folder / "0000000000000006.cubin").symlink_to("/etc/passwd")
    (folder / "0000000000000009.cubin").write_bytes(b"of a kernel that was not sampled")
    assert list(read(tmp_path / "a.parquet").cubins) == [5]


def test_cubins_are_read_as_long_as_there_is_room_for_them(tmp_path, monkeypatch):
    _samples().write(tmp_path / "a.parquet")
    (tmp_path / "a.cubins/0000000000000006.cubin").write_bytes(bytes(20))
    assert list(read(tmp_path / "a.parquet").cubins) == [5, 6]
    monkeypatch.setattr(pc_samples, "ALL", 30)  # 12 bytes and 20
    assert list(read(tmp_path / "a.parquet").cubins) == [5]


def test_a_table_of_many_readings_keeps_every_sample(double):
    generator = np.random.default_rng(6)
    parts = []
    for _ in range(5):
        pcs = generator.integers(0, 4, 50) * 16
        table = pa.table(
            {name: pa.array(pcs if name == "pc" else ["x"] * 50 if name in ("function", "reason") else [1] * 50) for name in SAMPLES.names}
        )
        parts.append(_typed(table))
    whole = gathered(parts)
    assert whole.num_rows == 4
    assert sum(whole["samples"].to_pylist()) == 250


# --- NVIDIA's own library, whose host side needs no GPU


_ASK = """
import json, sys
from pathlib import Path
from ullage.cupti.library import find
from ullage.cupti.modules import crc, source
library, cubin = find(sys.argv[1]), Path(sys.argv[2]).read_bytes()
lines = [source(library, cubin, "twice", pc) for pc in (0, 16, 32, 48, 1 << 20)]
print(json.dumps([crc(library, cubin), crc(library, cubin), crc(library, cubin + bytes(1)), lines]))
"""


def test_nvidias_library_names_a_cubin_and_finds_the_line_of_an_instruction(tmp_path):
    # in a process of its own: two copies of libcupti in one collide
    pytest.importorskip("cuda.bindings")
    from ullage.kernels.compiling import compile_cubin

    # line 3 alone computes: the first instruction may belong to the function's head, those that load and store to line 3
    source = 'extern "C" __global__ void twice(float *x) {\n\n  x[threadIdx.x] *= 2.0f;\n}\n'
    (tmp_path / "twice.cubin").write_bytes(compile_cubin(source, "sm_90a", ("-lineinfo",)))
    command = [sys.executable, "-c", _ASK, str(hostly()), str(tmp_path / "twice.cubin")]
    first, again, other, lines = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert first == again != other
    assert {line for _, line in lines[:4]} <= {1, 3}
    assert all(path.endswith("/kernel.cu") for path, _ in lines[:4])
    assert lines[4] is None, "there is no instruction so far behind"
