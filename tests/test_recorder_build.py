"""The recorder is built where it is needed, once, and what keeps it from being built is told in a sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ullage.cupti.native import build
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


def test_processes_that_need_it_at_once_get_the_same_whole_library(tmp_path):
    gcc()
    code = (
        "from ullage.cupti.recorder import recorder; from ullage.cupti.native import build; print(build.recorder(), recorder().now() > 0)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ULLAGE_RECORDER"} | {"XDG_CACHE_HOME": str(tmp_path)}
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


def test_a_recorder_built_elsewhere_is_taken_as_it_is(tmp_path):
    (tmp_path / "mine.so").touch()
    assert build.recorder({"ULLAGE_RECORDER": str(tmp_path / "mine.so")}) == tmp_path / "mine.so"
    with pytest.raises(UllageError, match=r"ULLAGE_RECORDER names .*gone\.so, which is no file"):
        build.recorder({"ULLAGE_RECORDER": str(tmp_path / "gone.so")})


def test_what_is_no_recorder_is_refused_by_name(tmp_path):
    from ullage.cupti.recorder import Recorder

    Path(tmp_path, "mine.so").write_text("no library")
    with pytest.raises(UllageError, match=r"the recorder .*mine\.so can't be used: "):
        Recorder(tmp_path / "mine.so")
