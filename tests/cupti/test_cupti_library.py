"""libcupti found, loaded and asked: by the double, by NVIDIA's own libraries, and where there is none."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cupti import cupti_double
from ullage.cupti import library, searching
from ullage.cupti.library import find, library_path
from ullage.cupti.results import CuptiError, explain
from ullage.errors import UllageError


@pytest.fixture
def double(monkeypatch):
    """The double of libcupti, unscripted, on a machine without a driver."""
    for name in ("CUPTI_DOUBLE_FAULTS", "CUPTI_DOUBLE_VERSION", "ULLAGE_CUPTI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(library, "cuda_version", lambda: None)
    cupti_double.loaded()
    return find(cupti_double.library())


def wheel(generation):
    """NVIDIA's own library of a CUDA generation, where its wheel is installed."""
    for place in map(Path, sys.path):
        for file in (place / generation).glob("lib/libcupti.so.1?"):
            return file
    return pytest.skip(f"no {generation}: nvidia-cuda-cupti is not installed")


def file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF")
    return path


# What answers mean


def test_answers_have_the_numbers_and_names_of_nvidias_header():
    header = wheel("nvidia/cu13").parent.parent / "include" / "cupti_result.h"
    if not header.exists():
        pytest.skip("the wheel has no headers")
    stated = {int(code): name for name, code in re.findall(r"^ +(CUPTI_\w+) *= (\d+),", header.read_text(), re.MULTILINE)}
    assert len(stated) > 45
    assert {code: explain(code).name for code in stated} == stated


def test_every_answer_is_explained_in_words_of_its_own():
    known = [explain(code) for code in (*range(48), 999)]
    meanings = [result.meaning for result in known]
    assert len(set(meanings)) == len(meanings) == 49
    assert all(result.hint for result in known if result.code not in (0, 12, 18, 24))
    assert not any("\n" in result.meaning + result.hint for result in known)


@pytest.mark.parametrize(
    ("code", "word"),
    [(35, "RestrictProfilingToAdminUsers=0"), (39, "nsys"), (26, "dcgmi profile --pause"), (38, "map"), (15, "--gpus all"),
     (999, "--gpus all"), (43, "whole GPU"), (41, "ullage sample"), (45, "Windows")],
)  # fmt: skip
def test_the_hint_of_a_frequent_refusal_says_what_to_do(code, word):
    assert word in explain(code).hint


# Calls


def test_a_refused_call_raises_what_was_to_be_done_and_why(double, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "privileges")
    with pytest.raises(CuptiError) as refused:
        double.call("cuptiActivityEnable", 10, doing="starting to trace")
    assert refused.value.code == 35
    assert str(refused.value).startswith(
        "starting to trace failed: the driver lets only the administrator read the GPU's counters (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)\n"
    )


def test_a_function_that_the_release_lacks_is_named(double):
    assert double.has("cuptiActivityEnable") and not double.has("cuptiActivityEnable_v3")
    with pytest.raises(UllageError, match="this CUPTI has no cuptiActivityEnable_v3"):
        double.call("cuptiActivityEnable_v3", None)


def test_an_error_in_the_middle_is_an_error_of_the_call_that_met_it(double, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "error-after=2")
    time = ctypes.c_uint64()
    answers = [double.ask("cuptiGetTimestamp", ctypes.byref(time)) for _ in range(4)]
    assert answers == [0, 0, 999, 999]


# Versions


@pytest.mark.parametrize(("version", "name", "cuda"), [(28, "12.9", 12090), (130001, "13.0", 13000), (130101, "13.1", 13010)])
def test_the_version_is_the_one_that_the_library_says(double, monkeypatch, version, name, cuda):
    monkeypatch.setenv("CUPTI_DOUBLE_VERSION", str(version))
    assert (double.version, double.release.name, double.cuda) == (version, name, cuda)


def test_an_unknown_version_is_refused_with_the_list_of_known_ones(double, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_VERSION", "990000")
    with pytest.raises(UllageError, match="990000") as refused:
        _ = double.release
    assert "13.1 (130101)" in str(refused.value)


@pytest.mark.parametrize("fault", ["crash", "cuptiGetVersion=999"])
def test_a_library_that_crashes_or_is_silent_without_a_driver_has_no_version_and_says_so(double, monkeypatch, fault):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", fault)
    assert double.version is None
    with pytest.raises(UllageError, match="doesn't say its version") as refused:
        _ = double.release
    assert "13.1 or older" in refused.value.hint


def test_a_silent_library_is_of_the_version_that_its_wheel_says(tmp_path):
    # as in site-packages: nvidia/cu13/lib/libcupti.so.13 beside nvidia_cuda_cupti-13.3.75.dist-info
    place = tmp_path / "nvidia" / "cu13" / "lib" / "libcupti.so.13"
    place.parent.mkdir(parents=True)
    place.write_bytes(cupti_double.library().read_bytes())
    (tmp_path / "nvidia_cuda_cupti-13.3.75.dist-info").mkdir()
    (tmp_path / "nvidia_cuda_cupti_cu12-12.9.79.dist-info").mkdir()
    words = [sys.executable, "-c", f"from ullage.cupti.library import find; print(find({str(place)!r}).release.name)"]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"CUPTI_DOUBLE_FAULTS": "crash"}, timeout=60)
    assert done.stdout == "13.3\n", done.stderr


def test_with_a_driver_a_copy_that_is_in_use_here_is_asked_here(double, monkeypatch):
    monkeypatch.setattr(library, "cuda_version", lambda: 13010)
    monkeypatch.setattr(library, "_OURS", set())  # the fixture loads it as PyTorch would
    monkeypatch.setattr(library, "_asked_apart", lambda path: pytest.fail("asked apart"))
    assert find(double.path).version == 130101


CRASHING = """
import sys
from pathlib import Path
from ullage.cupti import library
from ullage.errors import UllageError
library.cuda_version = lambda: 13010
for found in (library.find(Path(sys.argv[1])), library.find(Path(sys.argv[1]))):  # the second time it is there already, by us
    assert found.version is None and found.mismatch() == ""
    try:
        found.release
    except UllageError as error:
        print(error)
"""


def test_with_a_driver_too_a_library_that_crashes_takes_nobody_with_it(tmp_path):
    path = tmp_path / "libcupti.so.13"
    path.write_bytes(cupti_double.library().read_bytes())  # nobody has loaded this copy
    # in a process of its own: a library that is loaded is the one that is found from then on, by other tests too
    words, settings = [sys.executable, "-c", CRASHING, str(path)], os.environ | {"CUPTI_DOUBLE_FAULTS": "crash"}
    done = subprocess.run(words, capture_output=True, text=True, env=settings, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("crashes when it is asked its version") == 2


@pytest.mark.parametrize(
    ("driver", "told"), [(13010, ""), (13020, ""), (None, ""), (13000, "allows CUDA 13.0"), (12080, "allows CUDA 12.8")]
)
def test_a_library_newer_than_the_driver_is_told(double, monkeypatch, driver, told):
    assert double.cuda == 13010
    monkeypatch.setattr(library, "cuda_version", lambda: driver)
    assert told in double.mismatch() and bool(double.mismatch()) == bool(told)


@pytest.mark.parametrize(("generation", "versions"), [("nvidia/cuda_cupti", range(18, 29)), ("nvidia/cu13", range(130000, 130102))])
def test_nvidias_own_library_says_its_version_without_a_driver(generation, versions):
    real = find(wheel(generation))
    if real.version not in versions:
        pytest.skip(f"a library of version {real.version}")
    assert real.release.version == real.version and real.has("cuptiActivityEnable")
    # in a process of its own: there is one libnvperf_host in a process, and other tests need that of 13.1
    code = "import sys; from ullage.cupti.library import find; print(find(sys.argv[1]).counters)"
    assert "libnvperf_host" in subprocess.run([sys.executable, "-c", code, str(real.path)], capture_output=True, text=True).stdout


def test_nvidias_own_library_refuses_to_trace_without_a_driver():
    if library.cuda_version() is not None:
        pytest.skip("there is a driver here")
    with pytest.raises(CuptiError) as refused:
        find(wheel("nvidia/cu13")).call("cuptiActivityEnable", 10)
    assert refused.value.code in (15, 999) and "--gpus all" in refused.value.hint


# Where it lies


def test_the_named_file_or_folder_is_taken(tmp_path, monkeypatch):
    older, newer = file(tmp_path / "libcupti.so.12"), file(tmp_path / "libcupti.so.13")
    monkeypatch.setenv("ULLAGE_CUPTI", str(older))
    assert library_path() == older
    assert library_path(newer) == library_path(tmp_path) == newer


def test_a_toolkit_can_be_named_as_a_folder(tmp_path):
    inside = file(tmp_path / "extras" / "CUPTI" / "lib64" / "libcupti.so.13")
    assert library_path(tmp_path) == inside


def test_a_named_file_that_is_not_there_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("ULLAGE_CUPTI", str(tmp_path / "no\x1b"))
    with pytest.raises(UllageError, match=r"there is no libcupti at .*/no\\x1b"):
        library_path()


def test_a_file_that_is_no_library_is_an_error(tmp_path):
    with pytest.raises(UllageError, match="can't be loaded"):
        find(file(tmp_path / "libcupti.so.13"))


def test_a_library_that_is_no_libcupti_is_an_error():
    with pytest.raises(UllageError, match="is no libcupti"):
        find(cupti_double.checkpoint())


def test_wheels_come_before_toolkits_and_newer_before_older(tmp_path):
    twelve = file(tmp_path / "site" / "nvidia/cuda_cupti/lib/libcupti.so.12")
    thirteen = file(tmp_path / "site" / "nvidia/cu13/lib/libcupti.so.13")
    file(tmp_path / "site" / "nvidia/cu13/lib/libcupti_static.so")
    named = file(tmp_path / "named" / "extras/CUPTI/lib64/libcupti.so.12")
    old, new = (file(tmp_path / "usr" / f"cuda-{v}" / "extras/CUPTI/lib64/libcupti.so.12") for v in ("12.4", "12.10"))
    found = searching.installed({"CUDA_HOME": str(tmp_path / "named")}, [str(tmp_path / "site")], tmp_path / "usr")
    assert list(found) == [thirteen, twelve, named, new, old]


def test_the_linkers_path_is_looked_into(tmp_path):
    there = file(tmp_path / "libcupti.so.13")
    assert next(searching.linked({"LD_LIBRARY_PATH": f"/nowhere::{tmp_path}"})) == there


def test_what_cuda_pathfinder_finds_is_taken_too():
    pytest.importorskip("cuda.pathfinder", reason="no cuda-pathfinder")
    found = list(searching.by_pathfinder()) or pytest.skip("cuda-pathfinder finds no libcupti")
    assert found[0].is_file() and found[0].name.startswith("libcupti.so")


def test_a_copy_that_is_loaded_already_is_preferred(double, monkeypatch, tmp_path):
    assert double.path in searching.loaded()
    monkeypatch.setattr(searching, "installed", lambda *_: [file(tmp_path / "libcupti.so.13")])
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 42    /opt/py thon/lib/libcupti.so.13\n7f02-7f03 r--p 0 0 0 [heap]\n")
    monkeypatch.setattr(searching.loaded, "__defaults__", (maps,))
    assert library_path() == Path("/opt/py thon/lib/libcupti.so.13")


@pytest.mark.parametrize(("driver", "taken"), [(None, "13"), (13000, "13"), (12040, "12"), (11080, "13")])
def test_of_several_the_first_is_taken_that_the_driver_can_serve(tmp_path, monkeypatch, driver, taken):
    # a driver of CUDA 12 can't serve CUPTI 13; one of CUDA 11 can serve neither, and the first is tried
    copies = [file(tmp_path / f"libcupti.so.{major}") for major in ("13", "12")]
    monkeypatch.setattr(library, "cuda_version", lambda: driver)
    assert library._fitting(copies).name == f"libcupti.so.{taken}"


def test_without_any_libcupti_the_error_says_how_to_get_one():
    with pytest.raises(UllageError) as missing:
        library._fitting([])
    assert str(missing.value).startswith("there is no libcupti on this machine") and "ullage[cupti]" in missing.value.hint


def test_finding_needs_no_driver_and_initialises_nothing():
    # the driver's double says on its error output when it can't load what is injected at cuInit: silence means that nobody called cuInit
    code = "from ullage.cupti.library import find; from ullage.cupti.driver import cuda_version; print(find().version, cuda_version())"
    environment = cupti_double.environment(CUDA_INJECTION64_PATH="/nowhere.so", PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("130101 13010\n", "")
