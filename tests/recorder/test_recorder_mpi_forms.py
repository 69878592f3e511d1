"""MPI in all its forms, with the real Open MPI and MPICH: C, large counts, sessions, Fortran's ways, and other tools around us."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.recorder.recorder_runs import HERE, compiled, library, run
from ullage.cupti.chunks import HostKind

MILLISECOND = 1_000_000
TABLE = HERE.parents[1] / "src" / "ullage" / "cupti" / "native" / "mpi_calls.h"
TOOL = HERE.parents[1] / "tools" / "mpi_calls.py"
BOTH = ("openmpi", "mpich")
LIBRARIES = ("libmpi.so", "libmpi_mpifh.so", "libmpi_usempif08.so", "libmpi_usempi_ignore_tkr.so", "libmpich.so", "libmpichfort.so")


@functools.cache
def program(implementation, language, *flags):
    """Return `mpi_forms` compiled by an implementation's wrapper of the compiler; skips without it."""
    wrapper = {"c": "mpicc", "f90": "mpifort"}[language] + "." + implementation
    source = HERE / f"mpi_forms.{language}"
    if shutil.which(wrapper) is None or (language == "f90" and shutil.which("gfortran") is None):
        pytest.skip(f"no {wrapper}")
    folder = Path(tempfile.gettempdir(), f"ullage-recorder-tests-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / hashlib.sha256(repr((wrapper, flags, source.read_text())).encode()).hexdigest()[:16]
    if not made.exists():
        more = ["-cpp", "-w"] if language == "f90" else []
        part = made.with_suffix(f".{os.getpid()}")
        done = subprocess.run([wrapper, *more, *flags, str(source), "-o", str(part)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        part.replace(made)
    return made


def version(implementation):
    """Return the MPI standard that an implementation says it is of."""
    text = "#include <mpi.h>\nMPI_VERSION"
    done = subprocess.run([f"mpicc.{implementation}", "-E", "-P", "-x", "c", "-"], input=text, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def ranks(folder, implementation, command, preload=()):
    """Return the recordings of two ranks, by rank."""
    launcher = [f"mpirun.{implementation}"] + (["--allow-run-as-root", "--oversubscribe"] if implementation == "openmpi" else [])
    preloaded = f"LD_PRELOAD={':'.join(map(str, (*preload, library())))}"
    ran = run(folder, [*launcher, "-n", "2", "env", preloaded, *command], timeout=120)
    assert ran.code == 0, ran.errors
    assert len(ran.recordings) == 2
    return {recording.info["rank"]: recording for recording in ran.recordings}


def did(recording):
    return recording.did(HostKind.MPI)


def took(recording, name):
    (found,) = (end - start for kind, called, _, _, start, end, *_ in recording.host if kind == HostKind.MPI and called == name)
    return found / MILLISECOND


USUAL = (
    ["MPI_Init", "MPI_Barrier", "MPI_Allreduce", "MPI_Send", "MPI_Finalize"],
    ["MPI_Init", "MPI_Barrier", "MPI_Allreduce", "MPI_Recv", "MPI_Finalize"],
)


def usual(told):
    """Whether both ranks called what `usual` calls, once each, and rank 1 waited for rank 0."""
    assert (did(told[0]), did(told[1])) == USUAL
    assert took(told[1], "MPI_Barrier") > 30 > took(told[0], "MPI_Barrier")


FORTRANS = [("-DF77",), ("-DF90",), ("-DF08",), ("-DF77", "-fsecond-underscore"), ("-DF77", "-fno-underscoring")]


@pytest.mark.parametrize(
    ("implementation", "flags"),
    [pytest.param(who, how, marks=[] if how == ("-DF08",) else pytest.mark.full) for who in BOTH for how in FORTRANS],
)
def test_fortran_s_calls_are_told_as_c_s(implementation, flags, tmp_path):
    usual(ranks(tmp_path, implementation, [program(implementation, "f90", *flags)]))


def test_large_counts_of_fortran_are_told_as_the_others(tmp_path):
    usual(ranks(tmp_path, "mpich", [program("mpich", "f90", "-DF08", "-DLARGE")]))


@pytest.mark.full
@pytest.mark.parametrize("implementation", BOTH)
def test_c_s_calls(implementation, tmp_path):
    usual(ranks(tmp_path, implementation, [program(implementation, "c"), "usual"]))


PERSISTENT = [["MPI_Send_init", "MPI_Start", "MPI_Wait"], ["MPI_Recv_init", "MPI_Start", "MPI_Wait"]]
PARTITIONED = [["MPI_Psend_init", "MPI_Start", "MPI_Pready", "MPI_Wait"], ["MPI_Precv_init", "MPI_Start", "MPI_Wait"]]
FORMS = {
    "profiled": [["MPI_Barrier", "MPI_Allreduce"]] * 2,
    "persistent": PERSISTENT,
    "neighbours": [["MPI_Cart_create", "MPI_Neighbor_allgather", "MPI_Comm_free"]] * 2,
    "large": [["MPI_Allreduce", "MPI_Send"], ["MPI_Allreduce", "MPI_Recv"]],
    "partitioned": PARTITIONED,
    "collective": [["MPI_Allreduce_init", "MPI_Start", "MPI_Wait"]] * 2,
}
SINCE_4 = ("large", "partitioned", "collective")


@pytest.mark.parametrize(
    ("implementation", "form"),
    [
        pytest.param(who, form, marks=[] if (who, form) in (("mpich", "large"), ("openmpi", "profiled")) else pytest.mark.full)
        for form in FORMS
        for who in BOTH
    ],
)
def test_each_form_of_c_counts_once(implementation, form, tmp_path):
    made = program(implementation, "c")
    if form in SINCE_4 and version(implementation) < 4:
        pytest.skip(f"{implementation} is older than MPI 4")
    told = ranks(tmp_path, implementation, [made, form])
    assert [did(told[rank])[1:-1] for rank in (0, 1)] == FORMS[form]


@pytest.mark.full
@pytest.mark.parametrize("implementation", BOTH)
def test_a_session_s_calls_are_told(implementation, tmp_path):
    made = program(implementation, "c")
    if version(implementation) < 4:
        pytest.skip(f"{implementation} is older than MPI 4")
    told = ranks(tmp_path, implementation, [made, "session"])
    names = ["MPI_Session_init", "MPI_Comm_create_from_group", "MPI_Barrier", "MPI_Comm_disconnect", "MPI_Session_finalize"]
    assert [did(told[rank]) for rank in (0, 1)] == [names, names]


# --- other tools ---

OTHER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
static int calls;
__attribute__((destructor)) static void say(void) { printf("the other tool saw %d\\n", calls); }
#ifdef DIRECT
int PMPI_Barrier(long);
int MPI_Barrier(long world) { calls++; return PMPI_Barrier(world); }
#else
int MPI_Barrier(long world) { calls++; return ((int (*)(long))dlsym(RTLD_NEXT, NEXT))(world); }
#endif
"""
WAYS = {"direct": ("-DDIRECT",), "darshan": ('-DNEXT="PMPI_Barrier"',), "polite": ('-DNEXT="MPI_Barrier"',)}


@pytest.mark.parametrize(
    ("way", "order"),
    [
        pytest.param(way, order, marks=[] if way == "darshan" else pytest.mark.full)
        for way in WAYS
        for order in ("before", "behind", "linked")
    ],
)
def test_another_tool_and_we_both_see_a_call_once_whoever_comes_first(way, order, tmp_path):
    linked = order == "linked"
    other = compiled(OTHER, "libother.so", (*WAYS[way], "-shared", "-fPIC", "-Wl,-soname,libother.so"))
    link = ("-Wl,--no-as-needed", f"-L{other.parent}", "-lother", f"-Wl,-rpath,{other.parent}") if linked else ()
    made = program("mpich", "c", *link)
    preload = {"before": [other, library()], "behind": [library(), other], "linked": [library()]}[order]
    ran = run(tmp_path, [made, "barrier"], preload=preload)
    assert (ran.code, ran.output) == (0, "the other tool saw 1\n"), ran.errors
    assert did(ran.only) == ["MPI_Init", "MPI_Barrier", "MPI_Finalize"]


# --- the table ---

# What libraries export beside the standard's calls: functions that programs may name as callbacks, constants, overloads of Fortran's, and
# what was in MPI 4's drafts.
OTHERS = "|".join(
    (r"_fn|_fn_null|_?sizeof_\w+|\w+_cptr|\w+_f90", r"f_\w+|fortran_\w+|f08_status\w*|unweighted|weights_empty", r"delete_error_\w+")
)
FORM = re.compile(r"p?mpir?_(\w+?)(_c|_f|_f08|_f08(ts)?(_large)?_|_{0,2})", re.IGNORECASE)


def table():
    """Return the names of the calls that are wrapped, and of those that are not."""
    text = TABLE.read_text()
    return set(re.findall(r"X\((\w+), ", text)), set(re.findall(r"X\((\w+)\)", text))


def exported(path):
    """Return the names of a library's functions that look like MPI's."""
    done = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True)
    names = (line.split()[-1] for line in done.stdout.splitlines() if line.split()[-2] in "TW")
    return sorted(name for name in names if re.match(r"p?mpi_", name, re.IGNORECASE))


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_of_a_library_s_functions_is_in_the_table(name):
    paths = sorted(Path("/usr/lib").glob(f"*/{name}*"))
    if not paths or shutil.which("nm") is None:
        pytest.skip(f"no {name}")
    known = {call.lower() for group in table() for call in group}
    unknown = [
        symbol
        for symbol in exported(paths[0])
        if FORM.fullmatch(symbol)[1].lower() not in known and not re.search(rf"(?i)^p?mpi_\w*?({OTHERS})(_f|_f08|_{{0,2}}|_f08_)$", symbol)
    ]
    assert unknown == []


def test_what_only_asks_is_not_wrapped_and_what_waits_is():
    wrapped, local = table()
    assert not wrapped & local
    assert {"Comm_rank", "Wtime", "Pcontrol", "Type_commit", "Get_count", "Aint_add"} <= local
    assert {"Test", "Iprobe", "Get", "Comm_dup", "Win_fence", "File_write_all", "Ineighbor_alltoallw", "Session_init"} <= wrapped


@pytest.mark.skipif(importlib.util.find_spec("pympistandard") is None, reason="no pympistandard: see tools/mpi_calls.py")
def test_the_table_is_what_the_tool_writes():
    subprocess.run([sys.executable, str(TOOL), "--check"], check=True)
