"""`ullage sass` on files: cubins made here by NVRTC, libraries where a CUDA toolkit is, and everything that is none of these."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("cuda.bindings.nvrtc")

from ullage.cli._question_command import question_command
from ullage.errors import UllageError
from ullage.kernels.compiling import compile_cubin
from ullage.kernels.sass import assembler, binary
from ullage.kernels.sass.asked import MatrixInstruction
from ullage.kernels.sass.binary import CodeImage, Opened, open_binary
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.instruction import Function, Instruction
from ullage.kernels.sass.probe import matrix_body
from ullage.reports import sass as report
from ullage.reports.sass import audit_sass

E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
INT4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
FP16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
needs_ptxas = pytest.mark.skipif(assembler.ptxas() is None, reason="no ptxas here: pip install nvidia-cuda-nvcc")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")


def source(**kernels: str) -> str:
    return "\n".join(
        f'extern "C" __global__ void {name}(unsigned *memory, int n) {{\n#pragma unroll 1\n'
        f"    for (int i = 0; i < n; i++) {{ {matrix_body(MatrixInstruction(text))} }}\n}}"
        for name, text in kernels.items()
    )


def ptx(**kernels: str) -> str:
    entries = "\n".join(f".visible .entry {name}(.param .u64 p)\n{{\n    {text} {{x}};\n}}" for name, text in kernels.items())
    return f".version 8.7\n.target sm_90a\n.address_size 64\n{entries}\n"


@pytest.fixture(scope="module")
def cubin(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sass") / "kernels.cubin"
    path.write_bytes(compile_cubin(source(eight=E4M3, four=INT4, half=FP16), "sm_90a"))
    return path


def ask(*words: object):
    return CliRunner().invoke(question_command("sass"), [str(word) for word in words])


def test_a_cubin_says_what_it_really_issues(cubin):
    found = {one.name: one for one in audit_sass([cubin]).kernels}
    assert [(one.opcode, one.count, one.looped) for one in found["four"].linted.issued] == [("IMMA.16832.S8.S8", 2, 2)]
    assert [(one.opcode, one.count, one.looped) for one in found["eight"].linted.issued] == [("HMMA.16816.F32", 2, 2)]
    assert [(f.sort, f.certain) for one in (found["eight"], found["four"], found["half"]) for f in one.bad] == [
        ("emulated", False),  # conversions in the source would look the same
        ("emulated", True),
        ("legacy", True),
    ]


def test_ptx_beside_a_cubin_makes_the_verdict_certain(cubin, tmp_path):
    text = tmp_path / "kernels.ptx"
    text.write_text(ptx(eight=E4M3, four=INT4, half=FP16))
    found = {one.name: one for one in audit_sass([cubin, text]).kernels}
    (finding,) = found["eight"].bad
    assert finding.certain and finding.asked.text == E4M3 and found["half"].told
    assert finding.ceiling.fraction == pytest.approx(490.7 / 1513)


def test_the_command_answers_first_and_shows_the_evidence(cubin):
    done = ask(cubin, "--kernel", "four")
    lines = done.output.splitlines()
    assert lines[0] == "1 of 1 kernel falls short of the tensor cores (1 emulated): kernels.cubin"
    assert lines[3].split() == ["four", "sm_90", "IMMA.16832.S8.S8", "2", "2", "emulated"]
    assert "CALL.REL.NOINC" in done.output and "64.6 % of the dense INT8 peak" in done.output and "Table VII" in done.output


def test_strict_is_for_ci(cubin, tmp_path):
    assert ask(cubin).exit_code == 0
    assert ask(cubin, "--strict").exit_code == 3
    clean = tmp_path / "ampere.cubin"
    clean.write_bytes(compile_cubin(source(four=INT4), "sm_80"))
    done = ask(clean, "--strict")
    assert (done.exit_code, done.output.splitlines()[0]) == (
        0,
        "nothing emulated or legacy in 1 kernel, 1 of them with tensor instructions: ampere.cubin",
    )


def test_json_holds_address_text_and_ceiling(cubin, tmp_path):
    out = tmp_path / "report.json"
    done = ask(cubin, "--json", "--out", out, "--kernel", "four")
    data = json.loads(done.stdout)
    assert json.loads(out.read_text()) == data
    (finding,) = data["kernels"][0]["findings"]
    assert finding["evidence"]["text"].startswith("CALL.REL.NOINC") and finding["evidence"]["address"] % 16 == 0
    assert finding["ceiling"]["fraction"] == pytest.approx(977.9 / 1513)
    assert data["kernels"][0]["tensor"] == [{"opcode": "IMMA.16832.S8.S8", "count": 2, "in_loops": 2}]


def test_a_form_that_is_not_known_is_refused_before_the_work(cubin, tmp_path):
    with pytest.raises(UllageError, match=r"report\.svg"):
        question_command("sass").main([str(cubin), "--out", str(tmp_path / "report.svg")], standalone_mode=False)


def test_files_or_the_table_and_not_both(cubin):
    assert ask().exit_code == 2
    assert ask(cubin, "--table").exit_code == 2


def test_the_table_names_the_compilers_reason():
    done = ask("--table", "--family", "tcgen05", "--arch", "sm_90a")
    assert "sm_90a  refused: Instruction 'tcgen05.mma' not supported on .target 'sm_90a'" in done.output
    cluster, *_ = json.loads(ask("--table", "--family", "cluster", "--arch", "sm_90a", "--json").output)["instructions"]
    assert cluster["architectures"]["sm_90a"]["opcodes"] == {
        "UCGABAR_ARV": 1,
        "UCGABAR_WAIT": 1,
    }


def test_a_kernel_of_that_name_must_exist(cubin):
    with pytest.raises(UllageError, match="'gemm'"):
        audit_sass([cubin], kernel="gemm")


@pytest.mark.parametrize("content", [b"", b"not code", b"\x00" * 4096, b"PK\x03\x04", "π".encode() * 50])
def test_what_is_no_device_code_is_refused_in_one_sentence(content, tmp_path):
    path = tmp_path / "file.cubin"
    path.write_bytes(content)
    with pytest.raises(UllageError, match=r"file\.cubin"):
        audit_sass([path])


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    for path in (tmp_path / "none.cubin", tmp_path):
        with pytest.raises(UllageError, match="can't be read"):
            audit_sass([path])


@pytest.mark.parametrize("kept", [20, 64, 500, 0.5, 0.99])
def test_a_cubin_that_ends_early_is_an_error(cubin, tmp_path, kept):
    whole = cubin.read_bytes()
    path = tmp_path / "cut.cubin"
    path.write_bytes(whole[: int(kept if kept > 1 else kept * len(whole))])
    with pytest.raises(UllageError) as caught:
        audit_sass([path])
    assert "/tmp" not in caught.value.problem


def test_a_damaged_cubin_is_an_error_or_read_but_no_traceback(cubin, tmp_path):
    whole = bytearray(cubin.read_bytes())
    for place in (16, 64, 1000, len(whole) // 2, len(whole) - 200):
        spoilt = bytearray(whole)
        spoilt[place : place + 64] = bytes(0x5A ^ byte for byte in spoilt[place : place + 64])
        path = tmp_path / f"{place}.cubin"
        path.write_bytes(spoilt)
        try:
            audit_sass([path])
        except UllageError as error:
            assert error.hint


def test_one_image_that_cannot_be_read_is_a_note_beside_the_others(monkeypatch):
    images = (CodeImage("a.sm_90a.cubin", "sm_90a", b"good"), CodeImage("b.sm_90a.cubin", "sm_90a", b"bad"))
    monkeypatch.setattr(report, "open_binary", lambda path, architecture: Opened(images))

    def disassembled(code):
        if code == b"bad":
            raise UllageError("nvdisasm can't read it", "…")
        return [Function("k", "sm_90", (Instruction(0, "HGMMA.64x256x16.F32"),))]

    found = audit_sass([Path("lib.so")], disassembled=disassembled)
    assert [one.name for one in found.kernels] == ["k"]
    assert found.notes == ("b.sm_90a.cubin: nvdisasm can't read it; left out",)


def test_images_without_the_kernel_are_not_disassembled(monkeypatch):
    images = (CodeImage("a", "sm_90a", b"..._Z4gemm.."), CodeImage("b", "sm_90a", b"..._Z4copy.."))
    monkeypatch.setattr(report, "open_binary", lambda path, architecture: Opened(images))
    seen = []

    def disassembled(code):
        seen.append(code)
        return [Function("_Z4gemm", "sm_90", ())]

    audit_sass([Path("lib.so")], kernel="gemm", disassembled=disassembled)
    assert seen == [b"..._Z4gemm.."]


def test_a_cubin_too_large_to_disassemble_is_left_out_with_a_note_and_alone_an_error(cubin, monkeypatch):
    monkeypatch.setattr(binary, "_LARGEST", 1000)
    opened = open_binary(cubin)
    assert not opened.images and "too large" in opened.notes[0]
    with pytest.raises(UllageError, match="too large"):
        audit_sass([cubin])


def test_ptx_without_a_ptxas_tells_what_is_asked_and_claims_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(assembler, "ptxas", lambda: None)
    path = tmp_path / "kernel.ptx"
    path.write_text(ptx(four=INT4))
    found = audit_sass([path])
    assert [one.text for one in found.asked] == [INT4] and not found.kernels
    assert str(found).splitlines()[0] == "not compiled, so what kernel.ptx issues is not known"
    assert "nvidia-cuda-nvcc" in found.notes[0]


def test_ptx_of_one_architecture_says_nothing_of_another_in_the_same_file(monkeypatch):
    # the library's PTX is for sm_90a, where FP8 is asked; its sm_80 code took another path in the source
    images = (CodeImage("l.1.sm_80.cubin", "sm_80", b""),)
    monkeypatch.setattr(report, "open_binary", lambda path, architecture: Opened(images, (("l.ptx", ptx(k=E4M3)),)))
    code = [Function("k", "sm_80", (Instruction(0, "HMMA.16816.F32", "R4,R8,R12,R4"),))]
    (kernel,) = audit_sass([Path("l.so")], disassembled=lambda _: code).kernels
    assert not kernel.told and not kernel.linted.findings


@needs_ptxas
def test_ptx_is_compiled_and_its_words_are_the_evidence(tmp_path):
    path = tmp_path / "kernel.ptx"
    text = (
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b32 a<4>, b<2>, d<4>;\n.reg .b64 m;\n"
    )
    registers = ["a0", "a1", "a2", "a3", "b0", "b1", "d0", "d1", "d2", "d3"]
    text += "ld.param.u64 m, [p];\n" + "".join(f"ld.volatile.global.b32 {name}, [m];\n" for name in registers)
    text += f"{INT4} {{d0,d1,d2,d3}}, {{a0,a1,a2,a3}}, {{b0,b1}}, {{d0,d1,d2,d3}};\n"
    path.write_text(text + "".join(f"st.volatile.global.b32 [m], d{n};\n" for n in range(4)) + "ret;\n}\n")
    (kernel,) = audit_sass([path]).kernels
    (finding,) = kernel.bad
    assert (kernel.architecture, finding.stand_in, finding.asked.text) == ("sm_90a", "IMMA.16832.S8.S8", INT4)
    path.write_text(text)
    with pytest.raises(UllageError, match="ptxas refuses"):
        audit_sass([path])


@needs_nvcc
def test_a_compressed_library_is_read_for_all_its_architectures(tmp_path):
    (tmp_path / "k.cu").write_text(source(four=INT4))
    library = tmp_path / "libk.so"
    kinds = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]"]
    subprocess.run(
        ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-Xfatbin", "-compress-all", *kinds, "k.cu", "-o", str(library)],
        cwd=tmp_path,
        check=True,
    )
    found = {one.architecture: one for one in audit_sass([library]).kernels}
    assert [one.opcode for one in found["sm_80"].linted.issued] == ["IMMA.16864.S4.S4"]
    assert found["sm_90a"].told and found["sm_90a"].bad[0].asked.text == INT4
    assert {one.architecture for one in audit_sass([library], architecture="sm_80").kernels} == {"sm_80"}


def test_a_program_without_device_code_is_refused():
    program = shutil.which("ls") or "/bin/ls"
    with pytest.raises(UllageError, match="no device code"):
        audit_sass([Path(program)])


def test_hostile_names_are_shown_harmless(monkeypatch):
    monkeypatch.setattr(report, "open_binary", lambda path, architecture: Opened((CodeImage("x", "sm_90", b""),)))
    code = [Function("k\x1b[31m\n" + "a" * 5000, "sm_90", (Instruction(0, "HMMA.16816.F32"), Instruction(16, "BRA", "0x0", "@P0")))]
    shown = str(audit_sass([Path("x.cubin")], disassembled=lambda _: code))
    assert "\x1b" not in shown and max(len(line) for line in shown.splitlines()) < 400


def test_disassembly_keeps_predicates_and_addresses(cubin):
    found = disassemble(cubin.read_bytes())
    branch = next(one for one in found[0].instructions if one.root == "BRA" and one.predicate)
    assert branch.predicate.startswith("@") and str(branch).startswith("@")
