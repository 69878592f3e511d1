"""Whole programs on the driver's double, traced in Python: their recordings, and what becomes of them however they end."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests import cupti_double
from tests.cupti_recording import Recording
from ullage.cupti.chunks import Type, chunks


@pytest.fixture
def path(tmp_path):
    return tmp_path / "host-1.ullage"


def python(code, path, **environment):
    """Run Python code that has a running tracer `traced` on the fake CUDA, and `cuda`, its runtime; give its result."""
    head = f"""
import atexit, ctypes, json, os, signal, sys, threading
from pathlib import Path
from ullage.cupti.activity import Tracer
from ullage.cupti.chunks import Writer
from ullage.cupti.library import find
traced = Tracer(find(), Writer(Path({str(path)!r})), (10, 1, 4, 5, 38)).start()
cuda = ctypes.CDLL("libcuda.so.1")
kernel = ctypes.c_void_p()
cuda.cuModuleGetFunction(ctypes.byref(kernel), None, b"fake")
def work(count=20):
    for n in range(count):
        cuda.cudaLaunchKernel(kernel, 50, 128, None)
    cuda.cudaDeviceSynchronize()
def operations():
    class Operation(ctypes.Structure):
        _fields_ = [("kind", ctypes.c_uint32), ("stream", ctypes.c_uint32), *((n, ctypes.c_uint64) for n in ("start", "end", "bytes"))]
    first = ctypes.POINTER(Operation)()
    count = cuda.cuda_double_operations(ctypes.byref(first))
    return [(first[n].start, first[n].end) for n in range(count)]
"""
    known = cupti_double.environment(PYTHONPATH=os.pathsep.join(sys.path), **environment)
    return subprocess.run([sys.executable, "-c", head + code], env=known, capture_output=True, text=True, timeout=100)


def test_a_python_programs_kernels_are_recorded_as_the_device_ran_them(path):
    done = python(
        """
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
traced.close()
print(json.dumps(operations()))
""",
        path,
    )
    assert done.returncode == 0, done.stderr
    truth, found = json.loads(done.stdout), Recording(path)
    assert sorted((start, end) for _, start, end in found.kernels()) == sorted(map(tuple, truth)) and len(truth) == 60
    # each kernel belongs to a runtime call, and to a driver call inside it; 3 threads synchronise once each
    assert set(found.of(5)["correlationId"]) >= set(found.of(10)["correlationId"]) <= set(found.of(4)["correlationId"])
    assert (len(found.of(5)), len(found.of(4)), len(found.of(38)), len(set(found.of(5)["threadId"]))) == (63, 63, 3, 3)


def test_a_program_that_forgets_to_close_is_closed_at_its_end(path):
    done = python("work()", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(Recording(path).kernels()) == 20 and Recording(path).end is not None


def test_a_killed_program_leaves_what_was_flushed(path):
    done = python("work(); traced.flush(); work(); os.kill(os.getpid(), signal.SIGKILL)", path)
    assert done.returncode == -signal.SIGKILL
    found = Recording(path)
    assert len(found.kernels()) == 20 and found.end is None and not found.cut


def test_the_exit_code_and_an_exception_are_the_programs_own(path):
    done = python("work(); sys.exit(7)", path)
    assert done.returncode == 7 and Recording(path).end is not None
    done = python("work(); raise KeyError('mine')", path.with_suffix(".2"))
    assert done.returncode == 1 and "KeyError: 'mine'" in done.stderr


def test_a_forked_child_writes_nothing_and_ends_in_peace(path):
    done = python(
        """
work()
child = os.fork()
if child == 0:
    traced.flush(); traced.enable(1); traced.stop(); traced.close()
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        path,
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    with path.open("rb") as file:
        assert [chunk.type for chunk in chunks(file, "here")].count(Type.END) == 1
    assert len(Recording(path).kernels()) == 20


def test_cupti_is_detached_from_inside_a_call_and_can_be_attached_again(path):
    done = python(
        """
work()
traced.finalize()
cupti = ctypes.CDLL(os.environ["ULLAGE_CUPTI"])
print(cupti.cupti_double_finalized())
work()
again = Tracer(find(), Writer(Path(os.environ["SECOND"])), (10,)).start()
work(5)
again.finalize()
print(cupti.cupti_double_finalized())
work()
""",
        path,
        SECOND=str(path.with_suffix(".second")),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n2\n", "")
    assert len(Recording(path).kernels()) == 20 and Recording(path).end is not None
    assert len(Recording(path.with_suffix(".second")).kernels()) == 5


# The fake program itself, which tests of `ullage run` trust


def test_the_fake_program_says_what_it_did_and_ends_as_it_is_told():
    def run(*options):
        return subprocess.run([cupti_double.program(), *options], env=cupti_double.environment(), capture_output=True, text=True)

    (told,) = cupti_double.told(run("--kernels", "6", "--microseconds", "50", "--threads", "2", "--graphs", "1").stdout)
    # 2 threads: 6 kernels, 2 copies and a graph launch each
    assert (told.launches, len(told.of(10)), len(told.of(1)), len(told.of(51))) == (12, 12, 4, 2)
    assert all(end - start == 50_000 for _, _, start, end, _ in told.of(10))
    assert all(told.started <= start for _, _, start, _, _ in told.operations)
    assert [run(*options).returncode for options in (["--exit", "7"], ["--abort"], ["--kill"], ["--no-cuda", "--exit", "1"])] == [
        7,
        -6,
        -9,
        1,
    ]
    assert len({told.pid for told in cupti_double.told(run("--fork").stdout)}) == 2
    assert [told.launches for told in cupti_double.told(run("--exec").stdout)] == [10, 10]
