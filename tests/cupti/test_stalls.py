"""Stall reasons, and the report that joins sampled program counters with machine code and source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.cupti.test_pc_sampling import Double, sampling
from tests.cupti.wheel_headers import headers
from ullage.cli._question_command import question_command
from ullage.cupti import modules
from ullage.cupti.pc_sampling.samples import SAMPLES, Facts, PcSamples, gathered
from ullage.cupti.stalls import GROUPS, LATENCY, PREFIX, REASONS, reason, short
from ullage.errors import UllageError
from ullage.kernels.sass.disassembler import TooSlow
from ullage.kernels.sass.instruction import Function, Instruction
from ullage.kernels.sass.lines import Lined, SourceLine
from ullage.render.stalls import headline, record, view
from ullage.reports.stalls.stalls import INDICES, stall_report
from ullage.views.text import text

GUIDE = Path(__file__).parents[3] / "shared" / "seeds" / "cupti_12_0_guide.txt"
CRC = 0x385BC2D4


def sampled(*rows, cubins=None, crc=CRC, **facts):
    """Return samples of (function, pc, reason, count); reasons by their short names."""
    columns = {
        "context": 0, "range": 1, "cubin": crc, "function_index": 3, "function": [row[0] for row in rows], "pc": [row[1] for row in rows],
        "correlation": 0, "reason_index": 0, "reason": [PREFIX + row[2] for row in rows], "samples": [row[3] for row in rows],
    }  # fmt: skip
    arrays = []
    for field in SAMPLES:
        values = columns[field.name] if isinstance(columns[field.name], list) else [columns[field.name]] * len(rows)
        words = pa.types.is_dictionary(field.type)
        arrays.append(pa.array(values, pa.string()).dictionary_encode() if words else pa.array(values, field.type))
    return PcSamples(gathered([pa.table(arrays, SAMPLES.names)]), Facts(**facts), cubins or {})


def lined(name, *opcodes, place=None):
    """Return a function of these instructions, all of one line."""
    instructions = tuple(Instruction(16 * n, opcode) for n, opcode in enumerate(opcodes))
    return Lined(Function(name, "sm_90", instructions), (place,) * len(opcodes))


def disassembled(*functions):
    return lambda _cubin, _indices: list(functions)


# --- the reasons


def test_the_guides_table_of_old_and_new_reasons_stands_here_whole():
    if not GUIDE.exists():
        pytest.skip("the CUPTI guide is not here")
    table = GUIDE.read_text(errors="replace").partition("Table 10 Stall Reasons Mapping")[2].partition("2.10.3.")[0]
    found, old = {}, ""
    for word in (line.strip() for line in table.splitlines()):
        if re.fullmatch(r"[A-Z]+(_[A-Z]+)*", word):
            old = word
        elif re.fullmatch(r"[a-z]+(_[a-z]+)*", word):
            found.setdefault(old, []).append(PREFIX + word)
    assert len(found) == 12
    ours = {}
    for one in REASONS.values():
        ours.setdefault(one.old, set()).update({PREFIX + one.name, PREFIX + one.name + LATENCY})
    assert {old: set(names) for old, names in found.items()} == {old: names for old, names in ours.items() if old}


def test_the_old_reasons_are_those_of_the_header():
    for folders, version in headers():
        written = (folders[0] / "cupti_activity.h").read_text(errors="replace")
        found = re.findall(r"CUPTI_ACTIVITY_PC_SAMPLING_STALL_([A-Z_]+?)\s*=\s*\d+\b", written)
        assert {one.old for one in REASONS.values() if one.old} <= set(found), f"release {version}"


def test_every_reason_says_what_it_means_and_every_wait_what_to_do():
    for one in REASONS.values():
        assert one.group in GROUPS
        assert one.meaning
        assert one.waits
        assert bool(one.advice) == (one.group not in ("issued", "other")), one.name


@given(st.sampled_from(sorted(REASONS)), st.sampled_from([PREFIX, "smsp__pcsamp_warp_stall_", ""]), st.booleans())
def test_a_reason_is_known_by_all_its_names(name, prefix, latency):
    written = prefix + name + (LATENCY if latency else "")
    assert short(written) == (name, latency)
    assert reason(written) is REASONS[name]


# --- the report


def test_most_samples_waited_for_what_the_first_line_says():
    # kernel a: 40 of 60 wait for memory, 10 for a barrier; kernel b: 10 of 40 wait for memory; together 50 of 100
    report = stall_report(
        sampled(
            ("a", 0, "long_scoreboard", 40), ("a", 16, "barrier", 10), ("a", 16, "selected", 10),
            ("b", 0, "long_scoreboard", 10), ("b", 0, "selected", 25), ("b", 0, "not_selected", 5),
        )
    )  # fmt: skip
    assert str(headline(report)) == "50 % of 100 samples of 2 kernels waited for global, local or texture memory (long_scoreboard)"
    assert [(one.name, one.samples, one.waiting) for one in report.kernels] == [("a", 60, 50), ("b", 40, 10)]
    assert [(one.reason.name, one.samples) for one in report.shares] == [
        ("long_scoreboard", 50), ("selected", 35), ("barrier", 10), ("not_selected", 5),
    ]  # fmt: skip


def test_latency_samples_are_among_the_samples_and_not_beside_them():
    report = stall_report(sampled(("a", 0, "wait", 10), ("a", 0, "wait_not_issued", 7), ("a", 0, "selected", 5)))
    assert report.samples == 15
    assert [(one.reason.name, one.samples, one.latency) for one in report.shares] == [("wait", 10, 7), ("selected", 5, 0)]
    assert not report.notes


def test_where_only_latency_samples_were_taken_they_are_counted_and_it_is_said():
    report = stall_report(sampled(("a", 0, "wait_not_issued", 7)))
    assert report.samples == 7
    assert report.notes == ("of wait only latency samples were taken",)


def test_advice_is_given_for_what_takes_a_tenth_of_a_kernel():
    report = stall_report(sampled(("a", 0, "barrier", 10), ("a", 0, "membar", 9), ("a", 0, "selected", 81)))
    assert [one.reason.name for one in report.kernels[0].advised] == ["barrier"]


def test_instructions_and_lines_are_joined_by_the_program_counter():
    samples = sampled(("a", 16, "long_scoreboard", 6), ("a", 32, "selected", 3), ("a", 16, "wait", 1), cubins={CRC: b"cubin"})
    report = stall_report(samples, disassembled=disassembled(lined("a", "LDG.E", "FADD", "STG.E", place=SourceLine("/src/k.cu", 7))))
    (kernel,) = report.kernels
    assert [(spot.pc, str(spot.instruction), str(spot.place), spot.samples) for spot in kernel.spots] == [
        (16, "FADD", "/src/k.cu:7", 7), (32, "STG.E", "/src/k.cu:7", 3),
    ]  # fmt: skip
    assert [(place.line, sum(one.samples for one in shares)) for place, shares in kernel.lines] == [(7, 10)]


def test_samples_outside_the_code_are_told():
    samples = sampled(("a", 0, "wait", 4), ("a", 4096, "wait", 2), ("a", 8, "wait", 1), cubins={CRC: b"cubin"})
    report = stall_report(samples, disassembled=disassembled(lined("a", "FADD")))
    assert report.notes == ("3 samples lie outside the code of a: is it the cubin that ran?",)


def test_machine_code_that_is_given_is_told_by_its_crc_and_else_by_its_names():
    samples = sampled(("a", 0, "wait", 4))
    function = disassembled(lined("a", "FADD"))
    by_crc = stall_report(samples, cubins=[b"x", b"y"], crc=lambda code: CRC if code == b"y" else 1, disassembled=function)
    assert by_crc.kernels[0].matched == "crc"
    by_name = stall_report(samples, cubins=[b"\0a\0"], disassembled=function)
    assert by_name.kernels[0].matched == "name"
    doubtful = stall_report(samples, cubins=[b"\0a\0", b"\0a\0\0"], disassembled=function)
    assert doubtful.kernels[0].matched == ""
    assert "stands in 2 of the cubins" in doubtful.notes[0]


def test_without_nvdisasm_the_rest_of_the_report_stands():
    def missing(_cubin, _indices):
        raise UllageError("disassembling kernels needs nvdisasm", "")

    report = stall_report(sampled(("a", 0, "wait", 4), cubins={CRC: b"cubin"}), disassembled=missing)
    assert report.samples == 4
    assert report.notes == ("no instructions are shown: disassembling kernels needs nvdisasm",)


def test_only_the_sampled_functions_of_a_cubin_are_disassembled():
    asked = []

    def by_index(_cubin, indices):
        asked.append(list(indices))
        return [lined("a", "FADD")] if not indices else []

    stall_report(sampled(("a", 0, "wait", 4), cubins={CRC: b"cubin"}), disassembled=by_index)
    assert asked == [[3], []], "all of it only where the indices don't lead to the kernel"


def test_a_disassembler_that_hangs_is_waited_for_once():
    asked = []

    def hangs(cubin, _indices):
        asked.append(cubin)
        raise TooSlow("nvdisasm did not end within 120 s", "")

    one, other = sampled(("a", 0, "wait", 4)), sampled(("b", 0, "wait", 3), crc=7)
    both = PcSamples(gathered([one.table, other.table]), Facts(), {CRC: b"cubin", 7: b"another"})
    report = stall_report(both, disassembled=hangs)
    assert report.samples == 7 and asked == [b"cubin"]
    assert report.notes == ("no instructions are shown: nvdisasm did not end within 120 s",)


def test_no_command_line_is_made_longer_than_one_can_be():
    asked = []
    table = sampled(*(("a", 16 * n, "wait", 1) for n in range(5000))).table
    table = table.set_column(3, "function_index", pa.array(range(5000), pa.uint32()))
    stall_report(PcSamples(table, Facts(), {CRC: b"cubin"}), disassembled=lambda _, indices: asked.append(len(indices)) or [])
    assert asked == [INDICES, 0]


def test_rows_that_count_nothing_are_left_out():
    report = stall_report(sampled(("a", 0, "wait", 4), ("a", 16, "barrier", 0), ("b", 0, "wait", 0)))
    assert [(one.name, one.samples, len(one.spots)) for one in report.kernels] == [("a", 4, 1)]
    assert record(report)["kernels"][0]["share"] == 1


def test_nothing_sampled_and_no_such_kernel_are_errors():
    for nothing in (sampled(), sampled(("a", 0, "wait", 0))):
        with pytest.raises(UllageError, match="nothing was sampled"):
            stall_report(nothing)
    with pytest.raises(UllageError, match="no sampled kernel has 'gemm' in its name"):
        stall_report(sampled(("a", 0, "wait", 4)), kernel="gemm")


def test_what_the_recording_says_of_itself_is_told():
    facts = {"total": 1000, "dropped": 250, "full": 2, "other": 30, "unread": 1, "mode": "serialized", "problems": ("it failed once",)}
    notes = stall_report(sampled(("a", 0, "wait", 4), **facts)).notes
    assert notes[0] == "the hardware dropped 250 of 1,000 samples (25 %): a longer period loses fewer"
    assert [note.split()[0] for note in notes[1:]] == ["the", "30", "1", "kernels", "it"]


_rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5).map(lambda n: 16 * n), st.sampled_from(sorted(REASONS)), st.integers(1, 1000)),
    min_size=1,
)


@given(_rows)
def test_no_sample_is_lost_or_counted_twice(rows):
    report = stall_report(sampled(*rows))
    total = sum(row[3] for row in rows)
    assert report.samples == total
    assert sum(one.samples for one in report.kernels) == total
    for kernel in report.kernels:
        assert sum(spot.samples for spot in kernel.spots) == kernel.samples
        assert kernel.waiting + kernel.count("issued") + kernel.count("ready") == kernel.samples
    told = record(report)
    assert sum(sum(one["states"].values()) for one in told["kernels"]) == total


# --- with real machine code

_SOURCE = """
extern "C" __global__ void total(float *out, const float *in, int n) {
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++)
    sum += in[i];
  out[threadIdx.x] = sum;
}
"""


@pytest.fixture(scope="module")
def cubin():
    pytest.importorskip("cuda.bindings")
    from ullage.kernels.compiling import compile_cubin
    from ullage.kernels.sass.disassembler import nvdisasm

    try:
        nvdisasm()
        return compile_cubin(_SOURCE, "sm_90a", ("-lineinfo",))
    except UllageError as error:
        pytest.skip(error.problem)


def test_a_wait_for_a_load_is_found_at_its_line_of_source(cubin, tmp_path):
    from ullage.kernels.sass.lines import disassemble_lined

    (code,) = disassemble_lined(cubin)
    waits = next(i for i in code.function.instructions if i.root == "FADD")  # it needs what the load brings
    stores = next(i for i in code.function.instructions if i.root == "STG")
    rows = [("total", waits.address, "long_scoreboard", 90), ("total", stores.address, "selected", 10)]
    sampled(*rows, cubins={CRC: cubin}).write(tmp_path / "a.parquet")
    done = CliRunner().invoke(question_command("cupti stalls"), [str(tmp_path / "a.parquet"), "--json"])
    assert done.exit_code == 0, done.output
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert [(one["instruction"].split()[0], one["line"], one["samples"]) for one in kernel["instructions"]] == [
        ("FADD", 6, 90),
        ("STG.E", 7, 10),
    ]
    assert kernel["matched_by"] == "crc"


def test_what_a_program_sampled_is_reported_on_another_machine(cubin, tmp_path, monkeypatch):
    monkeypatch.setattr("ullage.cupti.library.cuda_version", lambda: 13010)
    double = Double()
    with sampling(double, cubins=True) as one, one.range():
        crc = modules.crc(double.library, cubin)
        double.module(6, cubin)
        double.sample(0, waiting=2, selected=1, function=b"total", cubin=crc)
    one.result().write(tmp_path / "a.parquet")
    done = CliRunner().invoke(question_command("cupti stalls"), [str(tmp_path / "a.parquet")])
    assert done.stdout.startswith("67 % of 3 samples of 1 kernel waited for global, local or texture memory (long_scoreboard)\n")
    assert re.search(r"^0x0000 +LDC .*kernel\.cu:\d+ +long_scoreboard +3 ", done.stdout, re.MULTILINE)


def test_every_instruction_has_the_line_that_nvdisasm_writes_before_it(cubin, tmp_path):
    import subprocess

    from ullage.kernels.sass.disassembler import nvdisasm
    from ullage.kernels.sass.lines import disassemble_lined

    (tmp_path / "a.cubin").write_bytes(cubin)
    listing = subprocess.run([nvdisasm(), "-c", "-g", tmp_path / "a.cubin"], check=True, capture_output=True, text=True).stdout
    expected, line = {}, None
    for row in listing.splitlines():
        if found := re.search(r'//## File ".*", line (\d+)', row):
            line = int(found[1])
        elif found := re.match(r"\s+/\*([0-9a-f]{4})\*/", row):
            expected[int(found[1], 16)] = line
    (code,) = disassemble_lined(cubin)
    assert {i.address: place.line if place else None for i, place in zip(code.function.instructions, code.places, strict=True)} == expected


# --- the command


def test_the_report_as_text_is_answer_tables_and_notes():
    facts = {"chip": "GH100", "release": "13.0", "mode": "continuous", "cycles": 4096}
    samples = sampled(("a", 16, "long_scoreboard", 6), ("a", 0, "selected", 4), cubins={CRC: b"cubin"}, **facts)
    report = stall_report(samples, disassembled=disassembled(lined("a", "LDG.E", "FADD", place=SourceLine("/src/k.cu", 7))))
    assert (
        text(view(report))
        == """\
60 % of 10 samples of 1 kernel waited for global, local or texture memory (long_scoreboard)
GH100, one sample every 4,096 cycles, continuous, CUPTI 13.0

kernel  samples  share  issued  ready  waits  mostly for
a            10  100 %    40 %    0 %   60 %  long_scoreboard

a
reason           meaning                                                               samples  share
long_scoreboard  a result of global, local, surface or texture memory isn't there yet        6   60 %
selected         the warp issued an instruction in this cycle                                4   40 %

line    mostly           samples  share
k.cu:7  long_scoreboard       10  100 %

at      instruction  line    mostly           samples  share
0x0010  FADD         k.cu:7  long_scoreboard        6   60 %
0x0000  LDG.E        k.cu:7  selected               4   40 %

long_scoreboard: load earlier (cp.async, or TMA with more stages), reuse through shared memory, coalesce, raise occupancy, spill less

note: a stall is counted at the instruction that waits, not at the one it waits for
"""
    )


def test_names_from_a_recording_reach_no_terminal():
    told = text(view(stall_report(sampled(("evil\x1b[31m\nname", 0, "wait", 1), mode="\x1b[2J", problems=("\x1bc",)))))
    assert "\x1b" not in told
    assert "evil\\x1b[31m\\nname" in told


def test_the_reasons_are_listed_with_their_old_names():
    done = CliRunner().invoke(question_command("cupti stalls"), ["--reasons"])
    assert done.output.startswith("19 stall reasons")
    assert re.search(r"^tex_throttle +TEXTURE ", done.output, re.MULTILINE)
    assert len(json.loads(CliRunner().invoke(question_command("cupti stalls"), ["--reasons", "--json"]).stdout)["reasons"]) == len(REASONS)


@pytest.mark.parametrize("form", ["svg", "html", "folded", "json", "txt"])
def test_each_form_is_written(tmp_path, form):
    sampled(("a", 0, "wait", 4)).write(tmp_path / "a.parquet")
    done = CliRunner().invoke(question_command("cupti stalls"), [str(tmp_path / "a.parquet"), "--out", str(tmp_path / f"b.{form}")])
    assert done.exit_code == 0, done.output
    begins = {"svg": "<svg", "html": "<!doctype html>", "folded": "a;0x0000;wait 4", "json": "{", "txt": "100 % of 4 samples"}[form]
    assert (tmp_path / f"b.{form}").read_text().startswith(begins)
