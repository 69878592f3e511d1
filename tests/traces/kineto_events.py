"""Events of PyTorch profiles as Python writes them, files of them, and what is read back."""

from __future__ import annotations

import json

from ullage.problems import Problems
from ullage.recording import Recording
from ullage.traces.trace import TraceOptions, recognised

BASE = 1_767_189_312_000_000_000  # ns: when a quarter of Kineto's began


def kernel(ts, dur, name="gemm", **args):
    given = {"device": 0, "stream": 7, "correlation": 1} | args
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": given}


def call(ts, dur, name="cudaLaunchKernel", cat="cuda_runtime", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 11, "tid": 12, "ts": ts, "dur": dur, "args": {"correlation": 1} | args}


def on_host(ts, dur, name, cat="user_annotation", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 11, "tid": 12, "ts": ts, "dur": dur, "args": args}


def written(folder, *events, text=None, name="trace.json", **metadata):
    path = folder / name
    path.write_text(json.dumps(metadata | {"traceEvents": list(events)}) if text is None else text)
    return path


def reading(path, code=False, **options):
    """Return a file's rows, without those that only name code (operators, Python functions) unless asked for."""
    form, file = recognised(path)
    recording, problems = Recording(path.name), Problems()
    batches = list(form.read(file, recording, TraceOptions(**options), problems))
    rows = [row for batch in batches for row in batch.to_pylist() if code or row["kind"] not in ("operator", "function")]
    return sorted(rows, key=lambda r: (r["start"], r["end"], r["kind"])), recording, problems


def only(path, **options):
    rows, _, _ = reading(path, **options)
    assert len(rows) == 1
    return rows[0]
