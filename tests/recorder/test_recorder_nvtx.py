"""NVTX ranges that the recorder takes itself, where CUPTI can't: without a driver, or without libcupti."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.recorder import run_runs
from tests.recorder.recorder_runs import compiled, library, run

HERE = Path(__file__).parent
HEADERS = [folder for folder in map(Path, ("/usr/local/cuda/include", "/usr/include")) if (folder / "nvtx3" / "nvToolsExt.h").is_file()]
HEADERS += sorted(found.parents[1] for found in Path("/usr/local").glob("cuda-*/include/nvtx3/nvToolsExt.h"))

# NVTX's side of the exchange, without its headers (nvtxDetail/nvtxTypes.h): module 1, functions 9 and 11 are nvtxRangePushA and RangePop.
WITHOUT_HEADERS = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
typedef void (*function)(void);
static int (*push)(const char *);
static int (*pop)(void);
static function *table[16] = {[9] = (function *)&push, [11] = (function *)&pop};
static int module(int number, function ***out, unsigned *size) { return number == 1 ? *out = table, *size = 16, 1 : 0; }
static struct { size_t size; int (*module)(int, function ***, unsigned *); } callbacks = {sizeof callbacks, module};
static const void *exported(uint32_t id) { return id == 1 ? &callbacks : NULL; }
int main(void) {
    void *injected = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_LAZY);
    int (*initialize)(void *) = (int (*)(void *))dlsym(injected, "InitializeInjectionNvtx2");
    if (initialize((void *)exported) != 1) return 2;
    push("outer"), push("inner"), pop(), pop();
    return 0;
}
"""


def with_headers() -> Path:
    if not HEADERS:
        pytest.skip("no headers of NVTX 3")
    return compiled(HERE / "nvtx_program.c", "nvtx", ("-Wall", f"-I{HEADERS[0]}"))


def test_pushed_ranges_are_regions(tmp_path: Path) -> None:
    ran = run(tmp_path, [compiled(WITHOUT_HEADERS, "nvtx")], NVTX_INJECTION64_PATH=str(library()), ULLAGE_NVTX="2")
    assert ran.code == 0
    regions = [record for record in ran.only.host if record[0] == 2]
    assert [record[1:3] for record in regions] == [("inner", 1), ("outer", 0)]


@pytest.mark.parametrize("cupti", ["", "/nowhere/libcupti.so"], ids=["no CUPTI", "CUPTI that can't be loaded"])
def test_what_cupti_does_not_take_the_recorder_does(tmp_path: Path, cupti: str) -> None:
    given = {"NVTX_INJECTION64_PATH": str(library()), "ULLAGE_CUPTI": cupti, "ULLAGE_NVTX": "1"}
    assert run(tmp_path, [compiled(WITHOUT_HEADERS, "nvtx")], **given).only.did() == ["inner", "outer"]


def test_nvtx_s_own_client_side(tmp_path: Path) -> None:
    ran = run(tmp_path, [with_headers()], NVTX_INJECTION64_PATH=str(library()), ULLAGE_NVTX="2")
    assert (ran.code, ran.output, ran.errors) == (0, "done\n", "")
    regions = [record for record in ran.only.host if record[0] == 2]
    assert Counter(record[1] for record in regions) == {
        "outer": 1, "ascii": 2, "registered": 1, "größe €𝄞": 1, "wide": 1, "": 2, "across": 1, "thread": 1,
    }  # fmt: skip
    of = {record[1]: record for record in regions}
    across, outer = of["across"], of["outer"]
    assert outer[4] < across[4] < outer[5] < across[5]
    assert of["registered"][5] - of["registered"][4] >= 1_000_000
    assert of["registered"][2] == 2
    main, other = of["outer"][6], of["thread"][6]
    (given_over,) = (record for record in regions if record[1] == "ascii" and record[2] == 0)
    assert given_over[6] == main != other  # started by the first thread, ended by the second
    assert ran.only.end is not None and ran.only.end["unmatched"] == 1


def test_ranges_under_ullage_run_without_a_driver(tmp_path: Path) -> None:
    given = run_runs.environment(tmp_path)
    given.pop("LD_LIBRARY_PATH", None)
    ran, report = run_runs.record(tmp_path, "--by", "region", command=[compiled(WITHOUT_HEADERS, "nvtx")], given=given)
    assert ran.code == 0, ran.said
    assert {row["name"] for row in report["regions"]} == {"outer", "inner"}


def test_the_python_package(tmp_path: Path) -> None:
    pytest.importorskip("nvtx", reason="NVTX for Python (pip install nvtx)")
    code = """import nvtx
with nvtx.annotate("forward"):
    nvtx.push_range("inner"); nvtx.pop_range()
nvtx.end_range(nvtx.start_range("started"))
"""
    ran = run(tmp_path, [sys.executable, "-c", code], NVTX_INJECTION64_PATH=str(library()), ULLAGE_NVTX="2")
    assert ran.only.did() == ["inner", "forward", "started"]


def test_a_child_has_ranges_of_its_own(tmp_path: Path) -> None:
    if not HEADERS:
        pytest.skip("no headers of NVTX 3")
    source = """#include <nvtx3/nvToolsExt.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        nvtxRangeId_t parents = nvtxRangeStartA("parent's");
        if (!fork()) { nvtxRangeEnd(parents); nvtxRangePushA("child's"); nvtxRangePop(); return 0; }
        wait(0);
        nvtxRangeEnd(parents);
        return 0;
    }
    """
    ran = run(tmp_path, [compiled(source, "forks", (f"-I{HEADERS[0]}",))], NVTX_INJECTION64_PATH=str(library()), ULLAGE_NVTX="2")
    assert sorted(tuple(recording.did()) for recording in ran.recordings) == [("child's",), ("parent's",)]
