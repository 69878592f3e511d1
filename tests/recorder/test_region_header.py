"""Regions in C, C++ and Fortran (`ullage.h`, `ullage.f90`): what is recorded under the recorder, and that without it nothing changes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.recorder import run_runs
from tests.recorder.recorder_runs import library, run
from ullage.live.launch import INCLUDE

STRICT = ("-Wall", "-Wextra", "-pedantic", "-Werror")
PAGE = Path(__file__).parents[2] / "docs" / "live-trees.md"

# What is done in all three languages: `outer` around two `inner` in each of three threads, then names of all sorts.
IN_C = r"""
#include <ullage.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *work(void *nothing) {
    ULLAGE_REGION_BEGIN("outer");
    for (int i = 0; i < 2; i++) {
        ULLAGE_REGION_BEGIN("inner");
        ULLAGE_REGION_END();
    }
    ULLAGE_REGION_END();
    return nothing;
}

int main(void) {
    static char longest[10001];
    pthread_t threads[2];
    memset(longest, 'x', 10000);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, NULL);
    work(NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    ullage_begin("it's \"größe\" \\ \n"), ullage_end();
    ullage_begin(""), ullage_end();
    ullage_begin(longest), ullage_end();
    uint32_t first = ullage_open("first"), second = ullage_open("second");
    ullage_close(first), ullage_close(second);
    ULLAGE_REGION_END(); /* there is none */
    puts("done");
    return 0;
}
"""
IN_CPP = r"""
#include <ullage.h>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

static void work() {
    ullage::region outer("outer");
    for (int i = 0; i < 2; i++) ullage::region inner("inner");
}

static void fails() {
    ullage::region here("fails");
    throw std::runtime_error("lost");
}

int main() {
    std::thread one(work), two(work);
    work();
    one.join(), two.join();
    { ullage::region here("it's \"größe\" \\ \n"); }
    { ullage::region here(""); }
    { ullage::region here(std::string(10000, 'x').c_str()); }
    try { fails(); } catch (const std::runtime_error &) {}
    ULLAGE_REGION_BEGIN("macro");
    ULLAGE_REGION_END();
    std::cout << "done" << std::endl;
}
"""
IN_FORTRAN = r"""
program main
   use ullage
   implicit none
   character(len=10000) :: longest
   character(len=20) :: padded = "padded"
   integer :: thread, i
   longest = repeat("x", 10000)
   !$omp parallel do private(i) num_threads(3) schedule(static, 1)
   do thread = 1, 3
      call ullage_begin("outer")
      do i = 1, 2
         call ullage_begin("inner")
         call ullage_end()
      end do
      call ullage_end()
   end do
   call ullage_begin("it's ""größe"" \ "//new_line("a"))
   call ullage_end()
   call ullage_begin("")
   call ullage_end()
   call ullage_begin(longest)
   call ullage_end()
   call ullage_begin(padded)
   call ullage_end()
   call ullage_end()
   print "(a)", "done"
end program
"""
QUOTED = 'it\'s "größe" \\ \n'
COMMON = {"outer": 3, "inner": 6, QUOTED: 1, "": 1, "x" * 4096: 1}  # longer names are cut
LANGUAGES = {
    "C": ("gcc", "main.c", IN_C, ["-std=c99", "-pthread"], {"first": 1, "second": 1}),
    "C++": ("g++", "main.cpp", IN_CPP, ["-std=c++11", "-pthread"], {"fails": 1, "macro": 1}),
    "Fortran": ("gfortran", "main.f90", IN_FORTRAN, ["-std=f2008", "-fopenmp", str(INCLUDE / "ullage.f90")], {"padded": 1}),
}


def made(folder: Path, compiler: str, name: str, source: str, *flags: str) -> Path:
    """Return a program, compiled without a word from the compiler and linked with nothing of ours."""
    path = shutil.which(compiler) or pytest.skip(f"no {compiler}")
    (folder / name).write_text(source, encoding="utf-8")
    command = [path, *STRICT, f"-I{INCLUDE}", *flags, name, "-o", "program", "-ldl"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "program"


@pytest.mark.parametrize("language", LANGUAGES)
def test_regions_are_recorded_and_without_the_recorder_nothing_is(tmp_path: Path, language: str) -> None:
    compiler, name, source, flags, own = LANGUAGES[language]
    program = made(tmp_path, compiler, name, source, *flags)
    alone = subprocess.run([program], capture_output=True, text=True, check=True)
    ran = run(tmp_path, [program], preload=[library()])
    assert (ran.code, ran.output, ran.errors) == (0, alone.stdout, "")
    regions = [record for record in ran.only.host if record[0] == 2]
    assert Counter(record[1] for record in regions) == COMMON | own
    depths = {(record[1], record[2]) for record in regions if record[1] in ("outer", "inner")}
    assert depths == {("outer", 0), ("inner", 1)}
    assert len({record[6] for record in regions if record[1] == "outer"}) == 3
    for outer in (record for record in regions if record[1] == "outer"):
        within = [r for r in regions if r[1] == "inner" and r[6] == outer[6]]
        assert len(within) == 2 and all(outer[4] <= r[4] <= r[5] <= outer[5] for r in within)


@pytest.mark.parametrize(("compiler", "standards"), [("gcc", ("c99", "gnu11", "c2x")), ("g++", ("c++11", "gnu++17", "c++20"))])
def test_compilers_have_nothing_to_say_about_it(tmp_path: Path, compiler: str, standards: tuple[str, ...]) -> None:
    path = shutil.which(compiler) or pytest.skip(f"no {compiler}")
    more = ("-Wshadow", "-Wconversion", "-Wcast-qual", "-Wundef", *(("-Wold-style-cast", "-Weffc++") if compiler == "g++" else ()))
    (tmp_path / "main.cc").write_text(
        '#include <ullage.h>\n#include <ullage.h>\nint main(void) { ULLAGE_REGION_BEGIN("a"); ULLAGE_REGION_END(); }\n'
    )
    for standard in standards:
        language = "c++" if compiler == "g++" else "c"
        command = [path, f"-std={standard}", *STRICT, *more, f"-I{INCLUDE}", "-fsyntax-only", "-x", language, "main.cc"]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("flags", [["-static"], ["-fno-pie", "-no-pie"], ["-DULLAGE_NO_REGIONS"]], ids=["static", "fixed place", "without"])
def test_however_it_is_linked_a_program_runs(tmp_path: Path, flags: list[str]) -> None:
    source = '#include <ullage.h>\nint main(void) { ULLAGE_REGION_BEGIN("a"); ULLAGE_REGION_END(); return 7; }\n'
    program = made(tmp_path, "gcc", "main.c", source, "-std=c99", *flags)
    ran = run(tmp_path, [program], preload=[library()])
    assert (ran.code, ran.errors) == (7, "")
    assert [recording.did() for recording in ran.recordings] == ([["a"]] if "-no-pie" in flags else [])


def test_regions_too_deep_to_be_recorded_are_ended_before_those_around_them(tmp_path: Path) -> None:
    source = """#include <ullage.h>
    static void down(int depth) { ullage_begin(depth ? "in" : "outermost"); if (depth < 70000) down(depth + 1); ullage_end(); }
    int main(void) { down(0); ullage_begin("next"); ullage_end(); return 0; }
    """
    ran = run(tmp_path, [made(tmp_path, "gcc", "main.c", source, "-std=c99", "-O0")], preload=[library()])
    regions = [record for record in ran.only.host if record[0] == 2]
    assert [record[1:3] for record in regions[-2:]] == [("outermost", 0), ("next", 0)]
    assert ran.only.end is not None and (ran.only.end["lost"] + len(regions), ran.only.end["unmatched"]) == (70002, 0)


def test_a_word_about_what_was_not_found_is_not_left_for_the_program(tmp_path: Path) -> None:
    source = """#include <ullage.h>
    int main(void) { ullage_begin("a"); ullage_end(); return dlerror() ? 1 : 0; }
    """
    assert subprocess.run([made(tmp_path, "gcc", "main.c", source, "-std=c99")]).returncode == 0


@pytest.mark.full
def test_threads_that_all_begin_at_once_disturb_nobody(tmp_path: Path) -> None:
    flags = ("-fsanitize=thread", "-g", "-O1")
    found = subprocess.run(["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True).stdout.strip()
    if run(tmp_path, ["true"], preload=[found]).code:
        pytest.skip("libtsan.so doesn't run here")
    program = made(tmp_path, "gcc", "main.c", IN_C, "-std=c99", "-pthread")
    for _ in range(5):
        ran = run(tmp_path, [program], preload=[found, library(*flags)])
        assert (ran.code, ran.errors) == (0, "")
    assert list(tmp_path.glob("rec/*.started")) == []


def test_the_page_s_program_under_ullage_run(tmp_path: Path) -> None:
    """What docs/live-trees.md tells a reader to type, typed; `half` is half of what it computes."""
    section = PAGE.read_text(encoding="utf-8").split("### Regions in C, C++ and Fortran")[1].split("\n## ")[0]
    (source,) = re.findall(r"```c\n(.*?)```", section, re.DOTALL)
    asked = subprocess.run([*run_runs.ULLAGE, "run", "--include"], capture_output=True, text=True, check=True, env=os.environ)
    assert Path(asked.stdout.strip()) == INCLUDE
    program = made(tmp_path, "gcc", "program.c", source, "-std=c99", "-D_POSIX_C_SOURCE=199309L")
    ran, report = run_runs.record(tmp_path, "--by", "region", command=[program])
    assert ran.code == 0, ran.said
    found = {row["name"]: row["elapsed_ns"] for row in report["regions"]}
    assert set(found) == {"step", "half"}
    assert 0.2 < found["half"] / found["step"] < 0.8
