"""Programs run with the recorder in them, and what their recordings say: for the tests of the recorder."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cupti import cupti_double
from ullage.cache_folder import cache_folder
from ullage.cupti.chunks import NO_CALLS, ChunkType, EarlyEnd, HostKind, chunks
from ullage.cupti.decoding import decode
from ullage.cupti.endings import RINGS, STARTED
from ullage.cupti.kinds import DEFAULT, ActivityKind
from ullage.cupti.layouts import layouts
from ullage.cupti.native.build import FLAGS, built, compiler
from ullage.cupti.releases import release
from ullage.cupti.rings import beside

HERE = Path(__file__).parent
LAYOUTS = layouts(release(130101))
KINDS = sorted(int(kind) for kind in DEFAULT)
TRACED = {"ULLAGE_KINDS": ",".join(map(str, KINDS)), "ULLAGE_NAMES": LAYOUTS.name_offsets(KINDS)}
PAUSE = 6  # a record of HOST: CUDA was not recorded meanwhile


@functools.cache
def library(*flags):
    """Return the recorder, built with more flags; skips without a compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: the recorder can't be built")
    return built(compiler(os.environ), cache_folder(os.environ), (*FLAGS, "-Werror", *flags))


def compiled(source, name, flags=(), compiler="gcc"):
    """Return a program or library made of C source text, or of a file; kept until the text changes."""
    text = source.read_text() if isinstance(source, Path) else source
    folder = Path(tempfile.gettempdir(), f"ullage-recorder-tests-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / hashlib.sha256(repr((text, name, flags, compiler)).encode()).hexdigest()[:16]
    if not (place / name).exists():
        command = shutil.which(compiler) or pytest.skip(f"no {compiler}")
        place.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            made, kept = Path(work, name), Path(work, "source.c")
            kept.write_text(text)
            command = [command, "-std=gnu11", "-O1", "-g", "-pthread", "-o", str(made), str(kept), *flags, "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            made.replace(place / name)
    return place / name


def program():
    return compiled(HERE / "recorder_program.c", "program")


@dataclass
class Recording:
    """A recording as its chunks tell it. `host` are (kind, name, depth, serial, start, end, thread, bytes) in the file's order."""

    path: Path
    info: dict = field(default_factory=dict)
    host: list = field(default_factory=list)
    buffers: list = field(default_factory=list)
    texts: list = field(default_factory=list)  # what pointers pointed to, when each buffer was written
    dropped: int = 0
    clocks: list = field(default_factory=list)
    end: dict | None = None

    def did(self, kind=HostKind.REGION):
        """Return the names of host records of a kind, in the file's order."""
        return [record[1] for record in self.host if record[0] == kind]

    def records(self, kind):
        """Return (record, name) of each activity record of a kind, as Ullage's own decoder finds them."""
        found, known = [], layouts(release(self.info.get("cupti", 130101)))
        for buffer, texts in zip(self.buffers, self.texts, strict=True):
            for record in decode(buffer, known).records.get(int(kind), ()):
                found.append((record, texts.get(int(record["name"])) if "name" in record.dtype.names else None))
        return found

    def operations(self):
        """Return kernels and copies as the fake program tells them: (kind, stream, start, end, bytes), sorted."""
        kernels = [(10, int(r["streamId"]), int(r["start"]), int(r["end"]), 0) for r, _ in self.records(ActivityKind.CONCURRENT_KERNEL)]
        copies = [(1, int(r["streamId"]), int(r["start"]), int(r["end"]), int(r["bytes"])) for r, _ in self.records(ActivityKind.MEMCPY)]
        return sorted(kernels + copies)


def _chunks(file, path):
    try:
        yield from chunks(file, str(path))
    except EarlyEnd:
        if not beside(path).exists():
            raise


def read(path):
    """Return a recording; fails where it doesn't end with a whole chunk, unless its process was killed and left its rings."""
    recording, names, texts, raw = Recording(path), {}, {}, []
    with path.open("rb") as file:
        for chunk in _chunks(file, path):
            if chunk.type == ChunkType.INFO:
                assert chunk.json(), chunk.payload
                recording.info |= chunk.json()
            elif chunk.type == ChunkType.NAMES:
                (names if chunk.flags else texts).update(chunk.names())
            elif chunk.type == ChunkType.BUFFER:
                recording.buffers.append(chunk.payload[16:])
                recording.texts.append(dict(texts))
            elif chunk.type == ChunkType.HOST:
                raw.extend(chunk.host())
            elif chunk.type == ChunkType.DROPPED:
                recording.dropped += int.from_bytes(chunk.payload, "little")
            elif chunk.type == ChunkType.CLOCKS:
                recording.clocks.append(tuple(int.from_bytes(chunk.payload[at : at + 8], "little") for at in (0, 8, 16)))
            elif chunk.type == ChunkType.END:
                recording.end = chunk.json()
    recording.host = [
        (
            int(r["kind"]),
            names[int(r["name"])] if int(r["name"]) not in NO_CALLS else "",
            *(int(r[key]) for key in ("depth", "serial", "start", "end", "thread", "bytes")),
        )
        for r in raw
    ]
    return recording


@dataclass
class Ran:
    """How a program ended: its exit code (negative: the signal), what it printed, and its recordings in the order of their beginnings."""

    code: int
    output: str
    errors: str
    recordings: list[Recording]
    folder: Path

    @property
    def only(self):
        """The one recording."""
        (recording,) = self.recordings
        return recording

    def of(self, pid):
        """Return the recording of a process."""
        (recording,) = (recording for recording in self.recordings if recording.info["pid"] == pid)
        return recording


def run(folder, command, *, preload=(), recorder=None, timeout=60, **environment):
    """Run a program with the recorder's environment; `preload` are libraries to load first. Recordings go to `folder`/rec."""
    ours = {"ULLAGE_RECORD": str(folder / "rec"), "ULLAGE_RECORDER": str(recorder or library()), "ULLAGE_FLUSH": "50"}
    given = cupti_double.environment(**ours | environment)
    if preload:
        given["LD_PRELOAD"] = ":".join(map(str, preload))
    done = subprocess.run([*map(str, command)], env=given, capture_output=True, text=True, timeout=timeout, cwd=folder)
    files = (path for path in folder.glob("rec/*") if path.suffix not in (RINGS, STARTED))
    found = sorted((read(path) for path in files), key=lambda recording: recording.info["started"])
    return Ran(done.returncode, done.stdout, done.stderr, found, folder)


def run_cuda(folder, *arguments, recorder=None, **environment):
    """Run the fake CUDA program with the recorder injected, as the driver does it."""
    given = TRACED | {"CUDA_INJECTION64_PATH": str(recorder or library())} | environment
    return run(folder, [cupti_double.program(), *arguments], recorder=recorder, **given)


def run_program(folder, deed, **environment):
    """Run `recorder_program.c`."""
    return run(folder, [program(), deed], **environment)


IN_PYTHON = """
import ctypes, json, os, sys, time
from pathlib import Path
from ullage.cupti.recorder import this_recorder
from tests.cupti import cupti_double
cuda = ctypes.CDLL(str(cupti_double.driver()))
cuda.cuInit(0); cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)
function = ctypes.c_void_p()
cuda.cuModuleGetFunction(ctypes.byref(function), None, b"kernel")
def launch(): cuda.cudaLaunchKernel(function, 1, 32, None); cuda.cudaDeviceSynchronize()
r = this_recorder()
"""


def in_python(folder, code, **environment):
    """Return the JSON that Python code prints: it has a fake CUDA begun, a function to `launch` a kernel, and the recorder `r`."""
    ran = run(folder, [sys.executable, "-c", IN_PYTHON + code], ULLAGE_RECORD="", PYTHONPATH=":".join(sys.path), **TRACED, **environment)
    assert ran.code == 0, ran.errors
    return json.loads(ran.output)
