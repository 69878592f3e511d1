"""The recorder is built where it is needed, once, and what keeps it from being built is told in a sentence."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorder.recorder_runs import compiled, library
from ullage.cupti.native import build
from ullage.cupti.native.elf_requirements import NotALibrary, without_loader
from ullage.errors import UllageError

QUICK = ("-shared", "-fPIC", "-pthread", "-std=gnu11", "-O0")


def gcc():
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: the recorder can't be built")
    return build.compiler({"CC": "gcc", "PATH": os.environ["PATH"]})


@pytest.fixture
def little(tmp_path, monkeypatch):
    """Have a recorder of one line, quickly compiled."""
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "all.c").write_text("int nothing;\n")
    monkeypatch.setattr(build, "FOLDER", tmp_path / "sources")
    return tmp_path / "cache"


def test_it_is_built_once_and_again_for_other_flags_sources_or_another_compiler(little, tmp_path):
    first = build.built(gcc(), little, QUICK)
    stamp = first.stat().st_mtime_ns
    assert build.built(gcc(), little, QUICK) == first
    assert first.stat().st_mtime_ns == stamp
    assert sorted(path.name for path in little.iterdir()) == sorted([first.name, "recorder.lock"])
    others = [build.built(gcc(), little, (*QUICK, "-g")), build.built([*gcc(), "-pipe"], little, QUICK)]
    (tmp_path / "sources" / "one.h").touch()
    assert len({first, *others, build.built(gcc(), little, QUICK)}) == 4


def test_processes_that_need_it_at_once_get_the_same_whole_library(little, tmp_path):
    slow = tmp_path / "gcc"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {shutil.which(gcc()[0])} "$@"\n')  # all of them come while one builds
    slow.chmod(0o755)
    code = f"import ctypes, pathlib\nfrom ullage.cupti.native import build\nbuild.FOLDER = pathlib.Path({str(build.FOLDER)!r})\n"
    code += "print(path := build.recorder(), ctypes.CDLL(path)._handle != 0)"
    environment = {name: value for name, value in os.environ.items() if name != "ULLAGE_RECORDER"} | {"XDG_CACHE_HOME": str(tmp_path)}
    environment["CC"] = str(slow)
    started = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = {process.communicate()[0] for process in started}
    (library,) = (tmp_path / "ullage").glob("*.so")
    assert told == {f"{library} True\n"}


def test_a_compiler_s_first_complaint_is_passed_on(tmp_path):
    with pytest.raises(UllageError, match=r"gcc ends with 1: .*unrecognized command-line option .-fno-such-thing") as raised:
        build.built(gcc(), tmp_path, ("-fno-such-thing",))
    assert "CC" in raised.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["recorder.lock"]


def test_without_a_compiler_it_says_what_brings_one_and_what_works_without(tmp_path):
    with pytest.raises(UllageError, match=r"^the recorder can't be built: there is no C compiler") as raised:
        build.compiler({"PATH": str(tmp_path)})
    assert "apt-get install gcc" in raised.value.hint
    assert "recordings can be read" in raised.value.hint
    with pytest.raises(UllageError, match="CC names 'icx', which is not there"):
        build.compiler({"PATH": str(tmp_path), "CC": "icx -O3"})


def test_cc_may_have_arguments(tmp_path):
    (tmp_path / "mycc").touch(mode=0o755)
    assert build.compiler({"PATH": str(tmp_path), "CC": "mycc -m64 '-DX=a b'"}) == [str(tmp_path / "mycc"), "-m64", "-DX=a b"]


def test_a_cache_that_can_t_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UllageError, match=r"the recorder can't be kept in .*file/ullage: ") as raised:
        build.recorder({"XDG_CACHE_HOME": str(tmp_path / "file"), "PATH": os.environ["PATH"], "CC": gcc()[0]})
    assert "XDG_CACHE_HOME" in raised.value.hint


# --- one that was built elsewhere ---


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """Return a recorder that was built to be carried."""
    gcc()
    path = tmp_path_factory.mktemp("carried") / "recorder.so"
    command = [sys.executable, "-m", "ullage.cupti.native.build", "--out", str(path)]
    environment = {name: value for name, value in os.environ.items() if name not in ("ULLAGE_RECORDER", "XDG_CACHE_HOME")}
    done = subprocess.run(command, env=environment | {"HOME": "/nowhere"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{path}: for {platform.machine()} with GNU's C library {build.requirements(path).glibc_words} or later\n"
    return path


def changed(path, folder, old, new):
    """Return a copy of a library in which some bytes are others."""
    data = path.read_bytes()
    assert old in data and len(old) == len(new)
    copy = folder / "changed.so"
    copy.write_bytes(data.replace(old, new))
    return copy


def machine_of(path, folder, number, bits=2):
    """Return a copy of a library that says it is of another machine."""
    data = bytearray(path.read_bytes())
    data[4], data[18:20] = bits, number.to_bytes(2, "little")
    copy = folder / "other.so"
    copy.write_bytes(data)
    return copy


def needed(path):
    """Return the newest version of GNU's C library that a library needs, as readelf tells it."""
    if shutil.which("readelf") is None:
        pytest.skip("no readelf")
    told = subprocess.run(["readelf", "-V", str(path)], capture_output=True, text=True, check=True).stdout
    return max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", told))


def test_a_recorder_built_elsewhere_is_taken_as_it_is(carried, tmp_path):
    assert build.recorder({"ULLAGE_RECORDER": str(carried)}) == carried
    with pytest.raises(UllageError, match=r"ULLAGE_RECORDER names .*gone\.so, which is not a file"):
        build.recorder({"ULLAGE_RECORDER": str(tmp_path / "gone.so")})


def test_what_a_library_needs_is_read_from_it_as_readelf_does(carried):
    found = build.requirements(carried)
    assert (found.machine, found.glibc) == (platform.machine(), needed(carried))


def test_of_the_c_librarys_versions_the_newest_counts(carried, tmp_path):
    newest = "GLIBC_" + ".".join(map(str, needed(carried)))
    older = changed(carried, tmp_path, newest.encode(), b"GLIBC_2.09")
    assert build.requirements(older).glibc == needed(older) < needed(carried)


@pytest.mark.parametrize(
    ("number", "bits", "words"),
    [
        (183, 2, r"is for aarch64, and this machine is x86_64"),
        (62, 1, r"is a library of 32 bits"),
        (4711, 2, r"is for machine 4711, and this machine is x86_64"),
    ],
)
def test_a_library_for_another_machine_is_refused_in_a_sentence(carried, tmp_path, monkeypatch, number, bits, words):
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    with pytest.raises(UllageError, match=words) as raised:
        build.recorder({"ULLAGE_RECORDER": str(machine_of(carried, tmp_path, number, bits))})
    assert "--out" in raised.value.hint


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ("glibc 2.33", "needs GNU's C library 2.34, and this machine has 2.33"),
        ("", "needs GNU's C library 2.34, and this machine has another one"),
        ("glibc 2.34", None),
        ("glibc 2.100", None),  # 100 is more than 34
    ],
)
def test_a_library_that_needs_a_newer_c_library_is_refused_in_a_sentence(carried, tmp_path, monkeypatch, here, words):
    newest = "GLIBC_" + ".".join(map(str, needed(carried)))
    library = changed(carried, tmp_path, newest.encode(), b"GLIBC_2.34")
    monkeypatch.setattr(build.os, "confstr", lambda _: here or None)
    if words is None:
        assert build.recorder({"ULLAGE_RECORDER": str(library)}) == library
        return
    with pytest.raises(UllageError, match=words) as raised:
        build.recorder({"ULLAGE_RECORDER": str(library)})
    assert "ziglang cc -target" in raised.value.hint


@pytest.mark.parametrize("keep", [0, 3, 16, 63, 64, 200, 1000, 5000])
def test_what_is_no_whole_library_is_refused(carried, tmp_path, keep):
    (tmp_path / "cut.so").write_bytes(carried.read_bytes()[:keep])
    with pytest.raises(UllageError, match=r"cut\.so, which is no (whole )?library"):
        build.recorder({"ULLAGE_RECORDER": str(tmp_path / "cut.so")})


def test_another_library_is_refused(tmp_path):
    with pytest.raises(UllageError, match="which is another library than the recorder"):
        build.recorder({"ULLAGE_RECORDER": str(compiled("int something;", "some.so", ("-shared", "-fPIC")))})


@settings(max_examples=200)
@given(data=st.data())
def test_a_damaged_library_is_refused_or_read_and_never_crashes(carried, data):
    bytes_ = bytearray(carried.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        bytes_[data.draw(st.integers(0, 2000))] = data.draw(st.integers(0, 255))
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(bytes_), file.flush()
        with contextlib.suppress(UllageError):
            build.recorder({"ULLAGE_RECORDER": file.name})


@pytest.mark.parametrize("at", [32, 40, 64 + 8, 64 + 16, 64 + 32])
def test_an_offset_past_every_file_is_refused_or_read_and_never_crashes(carried, tmp_path, at):
    bytes_ = bytearray(carried.read_bytes())
    bytes_[at : at + 8] = b"\xff" * 8
    (tmp_path / "far.so").write_bytes(bytes_)
    with contextlib.suppress(UllageError):
        build.recorder({"ULLAGE_RECORDER": str(tmp_path / "far.so")})


def test_it_is_built_where_it_is_asked_for_by_the_compiler_that_is_named(little, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CC", f"{gcc()[0]} -pipe")
    assert build.main(["--out", str(tmp_path / "made" / "r.so")]) == 0
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["r.so"]
    assert capsys.readouterr().out.startswith(f"{tmp_path}/made/r.so: for {platform.machine()} with GNU's C library ")


@pytest.mark.parametrize(
    ("out", "compiler", "words"),
    [
        ("r.so", "nowhere-cc", "the recorder can't be built: CC names 'nowhere-cc', which is not there"),
        ("file/r.so", "gcc", "the recorder can't be built into "),
    ],
)
def test_what_keeps_it_from_being_built_is_told(little, tmp_path, monkeypatch, capsys, out, compiler, words):
    gcc()
    (tmp_path / "file").touch()
    monkeypatch.setenv("CC", compiler)
    assert build.main(["--out", str(tmp_path / out)]) == 1
    assert capsys.readouterr().err.startswith(f"ullage: {words}")


def test_what_is_no_recorder_is_refused_by_name(tmp_path):
    from ullage.cupti.recorder import Recorder

    Path(tmp_path, "mine.so").write_text("no library")
    with pytest.raises(UllageError, match=r"mine\.so is not the recorder: "):
        Recorder(tmp_path / "mine.so")


# --- one that came with the package ---


def came_with(sources, library, word=None):
    """Have a package with this library prebuilt for this machine."""
    folder = sources / build.PREBUILT
    folder.mkdir()
    shutil.copyfile(library, folder / f"recorder-{platform.machine()}.so")
    (folder / "sources").write_text(build.sources() if word is None else word)
    return folder / f"recorder-{platform.machine()}.so"


def test_a_recorder_that_came_with_the_package_goes_before_a_compiler(little, tmp_path):
    made = build.built(gcc(), little, QUICK)
    path = came_with(tmp_path / "sources", made)
    assert build.recorder({"PATH": "", "CC": "none"}) == path
    (tmp_path / "sources" / "all.c").write_text("int something_else;\n")
    with pytest.raises(UllageError, match="can't be built"):
        build.recorder({"PATH": ""})


@pytest.mark.parametrize(("here", "fits"), [((2, 16), False), ((2, 17), True), ((2, 36), True), ((), False)])
def test_a_prebuilt_recorder_is_for_c_libraries_that_can_load_it(little, tmp_path, monkeypatch, here, fits):
    came_with(tmp_path / "sources", build.built(gcc(), little, QUICK))
    needs = build.requirements
    monkeypatch.setattr(build, "requirements", lambda path: replace(needs(path), glibc=(2, 17)))
    monkeypatch.setattr(build, "c_library_version", lambda: here)
    assert (build.prebuilt(platform.machine()) is not None) == fits
    assert build.prebuilt("another machine") is None


def test_a_damaged_prebuilt_recorder_is_none(little, tmp_path):
    came_with(tmp_path / "sources", build.built(gcc(), little, QUICK)).write_bytes(b"\x7fELF")
    assert build.prebuilt(platform.machine()) is None


def test_what_a_wheel_carries_is_for_old_c_libraries_and_both_processors(tmp_path, monkeypatch):
    pytest.importorskip("ziglang", reason="no ziglang: see `make wheel`")
    from tools import prebuilt_recorder

    assert prebuilt_recorder.main(tmp_path / "prebuilt") == 0
    for machine in prebuilt_recorder.MACHINES:
        needed = build.requirements(tmp_path / "prebuilt" / f"recorder-{machine}.so")
        assert needed.machine == machine and needed.glibc <= (2, 17) and needed.has("ullage_attach")


# --- programs that are not of GNU's C library ---

HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 7; }\n'


@pytest.mark.parametrize("command", [["musl-gcc"], ["gcc", "-static"]])
def test_programs_of_another_c_library_or_none_start_with_the_recorder_preloaded(tmp_path, command):
    gcc()
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    (tmp_path / "hello.c").write_text(HELLO)
    subprocess.run([*command, "hello.c", "-o", "hello"], cwd=tmp_path, check=True)
    given = os.environ | {"LD_PRELOAD": str(library()), "ULLAGE_RECORD": str(tmp_path / "rec")}
    done = subprocess.run([tmp_path / "hello"], env=given, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello\n", "")


def test_a_built_recorder_asks_for_no_loader_by_name():
    asked = subprocess.run(["readelf", "-d", str(library())], capture_output=True, text=True).stdout if shutil.which("readelf") else ""
    if not asked:
        pytest.skip("no readelf")
    assert "libc.so.6" in asked and "ld-linux" not in asked


def test_a_library_without_the_loader_is_otherwise_the_same():
    before = library().read_bytes()
    assert without_loader(before) == before
    with pytest.raises(NotALibrary):
        without_loader(before[:200])
