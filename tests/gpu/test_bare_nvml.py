"""The stand-in for nvidia-ml-py: its numbers, its structures and its calls are those of nvidia-ml-py."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.nvml_libraries import stand_in
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.nvml import watch
from ullage.sources.nvml_readings import GPM
from ullage.sources.source import Options

ROOT = Path(__file__).parents[2]
OWN = stand_in()
BARE = ROOT / "gpu" / "bare"


@pytest.fixture(scope="module")
def real():
    module = pytest.importorskip("pynvml")
    if Path(module.__file__).is_relative_to(BARE):
        pytest.skip("nvidia-ml-py is not installed")
    return module


def used_names():
    """Return every name of NVML that the sources of Ullage and of its GPU checks hold, in code or in words.

    But for what `ullage top` alone asks for, which runs where Ullage is installed, with nvidia-ml-py.
    """
    files = [path for path in (ROOT / "src").rglob("*.py") if path.name != "nvml_health.py"]
    files += [path for path in (ROOT / "gpu").rglob("*.py") if BARE not in path.parents]
    names = {name for path in files for name in re.findall(r"\b(?:nvml[A-Z]\w+|NVML_\w*[A-Z0-9]|c_nvml\w+_t)\b", path.read_text())}
    from gpu.counters import ACTIVITY, NAMES

    return names | {f"NVML_GPM_METRIC_{name}" for name in (*GPM, *NAMES, ACTIVITY)}


def test_every_name_that_the_code_asks_for_is_there(real):
    names = {name for name in used_names() if hasattr(real, name)}
    assert len(names) > 60 and {name for name in names if not hasattr(OWN, name)} == set()


def test_every_number_is_that_of_nvidia_ml_py(real):
    numbers = {name: value for name, value in vars(OWN).items() if name.startswith("NVML_")}
    assert len(numbers) > 30 and numbers == {name: getattr(real, name) for name in numbers}


def structures():
    return [kind for name, kind in vars(OWN).items() if name.startswith("c_") and hasattr(kind, "_fields_")]


@pytest.mark.parametrize("kind", structures(), ids=lambda kind: kind.__name__)
def test_every_structure_lies_in_memory_as_that_of_nvidia_ml_py(kind, real):
    theirs = getattr(real, kind.__name__)
    assert ctypes.sizeof(kind) == ctypes.sizeof(theirs)
    assert [name for name, *_ in kind._fields_] == [name for name, *_ in theirs._fields_]
    for name, *_ in kind._fields_:
        own, other = getattr(kind, name), getattr(theirs, name)
        assert (own.offset, own.size) == (other.offset, other.size), name


@pytest.mark.parametrize("flags", [(), ("-DOLD",)], ids=["a driver of today", "an older driver"])
def test_every_question_has_the_answer_that_nvidia_ml_py_gives_by_the_same_calls(flags, real, tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: the double of the library can't be built")
    done = subprocess.run(
        [sys.executable, "tests/live/nvml_libraries.py", str(tmp_path), *flags], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # the last line counts the questions and says that each function was asked; a line before it is a difference
    assert (done.stdout, done.stderr) == ("191 True\n", "")


def test_without_a_driver_the_reader_says_so():
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        with pytest.raises(UllageError, match=r"does not answer \(NVML Shared Library Not Found\)"):
            list(watch(stand_in(), Options(), Problems(), "node"))
    else:
        pytest.skip("this machine has an NVIDIA driver")


def test_an_answer_is_told_in_the_librarys_words_and_without_it_by_its_number():
    assert str(OWN.NVMLError(13)) == "Function Not Found" and str(OWN.NVMLError(77)) == "NVML Error with code 77"
    assert OWN.NVMLError(77).value == 77
