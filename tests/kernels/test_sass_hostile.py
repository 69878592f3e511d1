"""Hostile files for `ullage sass`: an answer or one clear error, soon, whatever the bytes and the names are."""

from __future__ import annotations

import json
import os
import random

import pytest
from click.testing import CliRunner

from ullage.cli._question_command import question_command
from ullage.errors import UllageError
from ullage.kernels.sass import assembler, binary, disassembler
from ullage.kernels.sass.asked import entries, read
from ullage.kernels.sass.binary import CodeImage, Opened, open_binary, target
from ullage.kernels.sass.instruction import Function, Instruction
from ullage.render import sass as render
from ullage.reports import sass as report
from ullage.reports.sass import audit_sass

PTX = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n    ret;\n}\n"
LOOP = (Instruction(0, "HMMA.16816.F32"), Instruction(16, "BRA", "0x0", "@P0"))


def ask(*words: object):
    return CliRunner().invoke(question_command("sass"), [str(word) for word in words])


def elf(size: int = 64) -> bytes:
    """The head of a cubin, without a table of sections."""
    head = bytearray(64)
    head[:5], head[18:20] = b"\x7fELF\x02", (190).to_bytes(2, "little")
    return bytes(head) + bytes(size - 64)


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/null", "pipe"])
def test_what_gives_its_bytes_once_or_without_end_is_refused(tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UllageError, match="is a pipe or a device"):
        open_binary(tmp_path / place)


def test_a_dash_is_no_file_and_the_hint_says_what_to_do():
    with pytest.raises(UllageError, match="'-' can't be read") as caught:
        open_binary(report.Path("-"))
    assert "write it to a file" in caught.value.hint


def test_a_link_is_read_and_a_circle_of_links_is_an_error(tmp_path):
    (tmp_path / "kernel.ptx").write_text(PTX)
    (tmp_path / "link").symlink_to("kernel.ptx")
    (tmp_path / "circle").symlink_to("circle")
    assert open_binary(tmp_path / "link").ptx == (("link", PTX),)
    with pytest.raises(UllageError, match="can't be read"):
        open_binary(tmp_path / "circle")


def test_a_file_too_large_is_left_unread(tmp_path):
    for name, head in (("sparse.cubin", elf()), ("sparse.ptx", PTX.encode())):
        path = tmp_path / name
        path.write_bytes(head)
        os.truncate(path, 2**40)  # a terabyte, of which the disk holds a block
        with pytest.raises(UllageError, match=f"{name}: 1,048,576 MiB is too large"):
            audit_sass([path])


@pytest.mark.parametrize("word", ["", "nonsense", "sm_", "sm_9", "90", "sm_90a -o /tmp/x", "sm_٩٠", "compute_90", "sm_90b", "sm_9000"])
def test_what_is_no_architecture_is_refused_before_the_work(tmp_path, word):
    path = tmp_path / "kernel.ptx"
    path.write_text(PTX)
    with pytest.raises(UllageError, match="is no architecture of a GPU"):
        audit_sass([path], architecture=word)


def test_a_cubin_of_another_architecture_is_an_error_that_says_which_it_is(monkeypatch):
    monkeypatch.setattr(report, "open_binary", lambda path, architecture: Opened((CodeImage("k.cubin", "", b""),)))
    code = [Function("k", "sm_90", LOOP)]
    with pytest.raises(UllageError, match="no machine code for sm_80") as caught:
        audit_sass([report.Path("k.cubin")], architecture="sm_80", disassembled=lambda _: code)
    assert caught.value.hint == "there is code for sm_90"
    assert audit_sass([report.Path("k.cubin")], architecture="sm_90a", disassembled=lambda _: code).kernels


def test_ptx_without_a_target_asks_for_one(tmp_path):
    path = tmp_path / "kernel.ptx"
    path.write_text(".version 9.0\n.visible .entry k()\n{ ret; }\n")
    with pytest.raises(UllageError, match=r"kernel\.ptx names no \.target") as caught:
        audit_sass([path])
    assert "--arch" in caught.value.hint
    compiled = audit_sass([path], architecture="sm_90a", assembled=lambda text, wanted: b"", disassembled=lambda _: [])
    assert compiled.notes[0].startswith("kernel.ptx was compiled for sm_90a")


@pytest.mark.skipif(assembler.ptxas() is None, reason="no ptxas here: pip install nvidia-cuda-nvcc")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("ret;", "rett;"), "Not a name of any known instruction"),
        ((".version 9.0", ".version 99.9"), "Unsupported .version 99.9"),
        (("sm_90a", "sm_200a"), "'sm_200a'"),
    ],
)
def test_ptx_that_the_assembler_refuses_is_its_own_words_and_a_hint(tmp_path, change, words):
    path = tmp_path / "kernel.ptx"
    path.write_text(PTX.replace(*change))
    with pytest.raises(UllageError) as caught:
        audit_sass([path])
    assert "ptxas refuses the program" in caught.value.problem and words in caught.value.problem
    assert caught.value.hint and "/tmp" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["\n" * 10**6, "/*" * 10**6, ".func(" * 300_000, ".entry " * 300_000, ".entry" + " " * 10**6, ".func" + " (" * 10**6, "\t" * 10**6,
     "mma." * 300_000, "//" * 10**6],
)  # fmt: skip
def test_no_text_takes_longer_than_its_length(text):
    # a reading that were quadratic would need 10¹¹ steps here, and not come back
    assert all(len(one.text) < 300 for one in read(text)) and target(text) is None
    entries(text)
    assert binary._PTX.search(text.encode()) is None


def test_an_open_comment_hides_what_follows():
    assert read("/* mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {d};") == []


@pytest.mark.parametrize(
    "said",
    [[], {}, None, [1, 2], [{}, []], [{"SM": {"version": {}}}, []], [{"SM": {"version": {"major": 9, "minor": 0}}}, [5]],
     [{"SM": {"version": {"major": 9, "minor": 0}}}, [{"function-name": "k", "sass-instructions": [3]}]],
     [{"SM": {"version": {"major": 9, "minor": 0}}}, [{"function-name": "k", "sass-instructions": [{}]}]]],
)  # fmt: skip
def test_a_disassembler_that_says_something_else_is_an_error(monkeypatch, said):
    monkeypatch.setattr(disassembler, "written", lambda cubin: said)
    with pytest.raises(UllageError, match="nvdisasm writes a form that is not known here"):
        disassembler.disassemble(b"")


def test_mutilated_heads_of_files_never_trace_back(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "disassemble", lambda cubin: [])
    monkeypatch.setattr(binary, "_cuobjdump", lambda action, path, folder: "cuobjdump fatal   : no")
    draw, path = random.Random(5), tmp_path / "f"
    wholes = [elf(512), b"\x7fELF\x02" + bytes(200), b"!<arch>\n" + bytes(100), b"\x50\xed\x55\xba" + bytes(60), PTX.encode()]
    for _ in range(300):
        data = bytearray(draw.choice(wholes)[: draw.randint(0, 512)])
        for _ in range(draw.randint(0, 8)):
            if data:
                data[draw.randrange(min(len(data), 70))] = draw.randrange(256)
        path.write_bytes(data)
        try:
            str(audit_sass([path], disassembled=lambda cubin: [], assembled=lambda text, wanted: b""))
        except UllageError as error:
            assert error.hint and "\n" not in error.problem


@pytest.mark.parametrize("name", ["new\nline\x1b[31m.ptx", "bad\udcff.ptx", "<script>.ptx", "-.ptx", "a" * 250 + ".ptx"])
def test_names_of_files_and_kernels_are_shown_harmless(tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_text(PTX)
    code = [Function("k\x1b[31m\n\udcff<b>" + "a" * 5000, "sm_90", LOOP)]
    found = audit_sass([path], disassembled=lambda _: code, assembled=lambda text, wanted: b"")
    shown = str(found)
    assert "\x1b" not in shown and max(map(len, shown.splitlines())) < 400
    shown.encode("utf-8", "replace")
    assert json.loads(json.dumps(render.record(found)))["files"] == [name]


def test_a_name_that_is_no_text_finds_no_kernel(monkeypatch):
    monkeypatch.setattr(report, "open_binary", lambda path, architecture: Opened((CodeImage("k.cubin", "", b"k\xff"),)))
    code = [Function("k", "sm_90", LOOP)]
    with pytest.raises(UllageError, match="no kernel is called"):
        audit_sass([report.Path("k.cubin")], kernel="\udcff", disassembled=lambda _: code)


@pytest.mark.parametrize(
    "words", [["--family", "mma", "k.cubin"], ["--table", "--strict"], ["--table", "--kernel", "k"], ["--table", "k.cubin"], []]
)
def test_options_that_do_not_belong_together_are_usage(words):
    assert ask(*words).exit_code == 2


@pytest.mark.parametrize("place", ["none/report.json", "folder.json", "report.svg", "report.pftrace"])
def test_a_place_that_takes_no_report_is_refused_before_the_work(tmp_path, place):
    (tmp_path / "folder.json").mkdir()
    done = ask("none.cubin", "--out", tmp_path / place)
    assert isinstance(done.exception, UllageError) and "none.cubin" not in done.exception.problem and done.exception.hint


def test_progress_names_what_is_read(monkeypatch):
    images = (CodeImage("a\n.cubin", "sm_90", b""), CodeImage("b.cubin", "sm_90", b""))
    monkeypatch.setattr(report, "open_binary", lambda path, architecture: Opened(images))
    said: list[str] = []
    audit_sass([report.Path("lib.so")], disassembled=lambda _: [Function("k", "sm_90", LOOP)], progress=said.append)
    assert said == ["opening lib.so", "disassembling 1 of 2: a\\n.cubin", "disassembling 2 of 2: b.cubin"]
