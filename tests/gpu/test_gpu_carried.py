"""What is carried to a machine without a network: which wheels are used there, the recorder, how all of it is fetched and built."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from gpu.carried import LIST, carry, fetching, unfit, wanted

import gpu
from gpu import carried
from tests.recorder.recorder_runs import library

ROOT = Path(__file__).parents[2]
LINES = wanted(LIST.read_text())


@pytest.fixture
def found(monkeypatch, tmp_path):
    """Carry what lies in `tmp_path/wheels`, and put the search path back afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wheels").mkdir()
    return lambda environment=None: carry(tmp_path / "wheels", {} if environment is None else environment)


def wheel(folder, name, tags="py3-none-any", files=None):
    package = name.split("-")[0]
    path = folder / f"{name}-{tags}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in (files or {f"{package}.py": f"WHERE = __file__\nNAME = {name!r}\n"}).items():
            archive.writestr(file, text)
        archive.writestr(f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {name.split('-')[1]}\n")
    return path


# --- the list ---


def test_the_versions_are_those_that_development_is_pinned_to():
    lock = (ROOT / "requirements-dev.lock").read_text()
    assert LINES and all(re.search(rf"^{re.escape(line.requirement)}\b", lock, re.MULTILINE) for line in LINES)
    assert "msgspec" in [line.requirement.partition("==")[0] for line in LINES if line.group == "usual"]


def test_every_package_is_listed_for_each_python_once():
    names = [(line.requirement.partition("==")[0], python) for line in LINES for python in line.pythons]
    assert len(set(names)) == len(names) and {python for _, python in names} == {"3.11", "3.12"}
    packages = {name for name, _ in names}
    assert all((name, python) in names for name in packages for python in ("3.11", "3.12"))


def test_all_of_it_together_can_be_carried():
    assert sum(line.megabytes * (1 if line.requirement.startswith("nvidia-ml") else len(line.pythons)) for line in LINES) < 60


def test_the_wheels_are_fetched_for_each_python_whatever_runs_this():
    usual, both = list(fetching(LINES, barer=False)), list(fetching(LINES, barer=True))
    assert [command[command.index("--python-version") + 1] for command in usual] == ["3.11", "3.12"]
    assert all("--only-binary=:all:" in command and "--no-deps" in command for command in both)
    assert [one for one in usual[0] if "==" in one] == ["msgspec==0.22.0"]
    assert "numpy==2.4.6" in both[0] and "numpy==2.5.5" in both[1] and "numpy==2.5.5" not in both[0]


# --- the wheels ---


def test_a_package_that_is_missing_is_found_after_all_that_is_installed_and_before_the_stand_ins(tmp_path, found):
    wheel(tmp_path / "wheels", "ullage_carried_sample-1.5")
    environment = {}
    told = found(environment)
    assert told.used == ["ullage_carried_sample"] and told.skipped == [] and environment == {gpu.CARRIED: str(told.folder)}
    assert sys.path[-2:] == [str(told.folder), str(gpu.BARE)] and not told.folder.is_relative_to(ROOT)
    assert importlib.metadata.version("ullage-carried-sample") == "1.5"


def test_what_is_installed_is_not_carried(tmp_path, found):
    wheel(tmp_path / "wheels", "numpy-0.1")
    assert found() == carried.Carried()


def test_wheels_of_another_python_or_machine_are_named_and_left(tmp_path, found):
    for tags in (
        "cp39-cp39-manylinux_2_17_x86_64",
        "py3-none-win_amd64",
        "cp311-cp311t-manylinux_2_17_x86_64",
        "py3-none-manylinux_2_99_x86_64",
    ):
        wheel(tmp_path / "wheels", "ullage_carried_other-1", tags)
    told = found()
    assert told.used == [] and told.folder is None and len(told.skipped) == 4
    assert "ullage_carried_other-1-py3-none-win_amd64.whl: it is for win_amd64" in told.skipped


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("x-1-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
        ("x-1-1build-cp312-cp312-linux_x86_64.whl", True),
        ("x-1-py2.py3-none-any.whl", True),
        ("x-1-cp311-abi3-manylinux_2_17_x86_64.whl", True),
        ("x-1-cp313-abi3-manylinux_2_17_x86_64.whl", False),
        ("x-1-cp311-cp311-manylinux_2_17_x86_64.whl", False),
        ("x-1-cp312-cp312t-manylinux_2_17_x86_64.whl", False),
        ("x-1-cp312-cp312-manylinux_2_17_aarch64.whl", False),
        ("x-1-cp312-cp312-musllinux_1_2_x86_64.whl", False),
        ("x-1-py2-none-any.whl", False),
        ("x-1-cp312-cp312-manylinux_2_36_x86_64.whl", True),
        ("x-1-cp312-cp312-manylinux_2_37_x86_64.whl", False),
        ("x-1-cp312-cp312-manylinux2014_x86_64.whl", True),
    ],
)
def test_a_wheels_tags_say_whether_it_fits(name, fits):
    assert (unfit(name, 12, "x86_64", "2.36") == "") is fits


def test_an_old_c_library_takes_only_old_wheels():
    assert unfit("x-1-cp312-cp312-manylinux2014_x86_64.whl", 12, "x86_64", "2.16") and unfit(
        "x-1-cp312-cp312-manylinux1_x86_64.whl", 12, "x86_64", ""
    )


def test_a_process_that_finds_them_unpacked_leaves_it_at_that(tmp_path, found):
    wheel(tmp_path / "wheels", "ullage_carried_again-1")
    environment = {gpu.CARRIED: str(tmp_path)}
    assert found(environment) == carried.Carried() and environment == {gpu.CARRIED: str(tmp_path)}


def test_the_processes_that_it_starts_find_the_packages_too_and_the_folder_goes_with_the_first(tmp_path):
    wheel(tmp_path, "ullage_carried_child-2")
    child = "import gpu, ullage_carried_child; print(ullage_carried_child.NAME)"
    code = (
        "import os, subprocess, sys; sys.path[:0] = ['.', 'src']\n"
        "from pathlib import Path; from gpu.carried import carry\n"
        f"told = carry(Path({str(tmp_path)!r}))\n"
        f"print(told.folder); sys.stdout.flush(); subprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    folder, name = done.stdout.split()
    assert name == "ullage_carried_child-2" and not Path(folder).exists()


def test_without_the_folder_there_is_nothing_to_do(tmp_path):
    assert carry(tmp_path / "none", {}) == carried.Carried()


# --- the recorder ---


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: the recorder can't be built")
    folder = tmp_path_factory.mktemp("recorder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ullage.cupti.native.build.built", lambda command, place: library())  # seconds of a compiler less
        carried.build_recorder(folder)
    return folder


@pytest.fixture
def recorder(found, built, tmp_path):
    for path in built.iterdir():
        shutil.copy(path, tmp_path / "wheels")
    return tmp_path / "wheels" / "recorder.so"


def test_the_carried_recorder_is_used_where_none_can_be_built(recorder, found):
    environment = {"PATH": ""}
    found(environment)
    assert environment["ULLAGE_RECORDER"] == str(recorder) and recorder.read_bytes().startswith(b"\x7fELF")


def test_the_carried_recorder_is_not_used_beside_a_compiler_or_one_that_is_named_nor_for_other_sources(recorder, found):
    with_compiler, named, other = {"PATH": os.environ["PATH"]}, {"PATH": "", "ULLAGE_RECORDER": "/own.so"}, {"PATH": ""}
    found(with_compiler)
    found(named)
    (recorder.parent / "recorder.sources").write_text("another")
    found(other)
    assert "ULLAGE_RECORDER" not in with_compiler and named["ULLAGE_RECORDER"] == "/own.so" and "ULLAGE_RECORDER" not in other
