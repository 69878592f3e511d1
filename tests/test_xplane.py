"""xplane files: the same scenarios as JAX's JSON come back with the same sums; a real one holds the very events of its JSON twin."""

import contextlib
import gzip
import json
import random
from collections import Counter

import pytest

import ullage
from tests.test_jax import RUNS
from ullage.errors import UllageError
from ullage.protobuf import WireError, fields, message, number, string
from ullage.simulate.traces import xplane
from ullage.simulate.traces.answers import answer
from ullage.traces import jax_planes
from ullage.traces import xplane as reader
from ullage.traces.trace import TRACES, recognised


@pytest.mark.parametrize("name", RUNS)
def test_a_profile_gives_the_answers_of_its_scenario(tmp_path, name):
    [path] = xplane.write(RUNS[name], tmp_path)
    whole, true = ullage.read_trace(str(path)).report("ai").whole, answer(RUNS[name])
    assert whole.device_totals == true.device and whole.host_totals == true.host


def test_a_profile_is_known_by_its_own_reader_alone_and_counts_from_1970(tmp_path):
    [path] = xplane.write(RUNS["training 0"], tmp_path)
    trace, file = recognised(path)
    assert [name for name, other in TRACES.items() if other.recognise(file)] == [trace.name] == ["xplane"]
    assert ullage.read_trace(str(path)).profile.recordings[0].clock == "utc"


def test_a_real_file_holds_the_events_of_its_json_twin(shared_data, monkeypatch):
    # the profiler wrote both of one run; the reader is asked for every event of the host, whatever it is
    every = Counter()

    def keep(process, thread, name, start, end, args):
        every[name, start, end] += 1

    monkeypatch.setattr(reader, "on_host", keep)
    monkeypatch.setattr(reader, "_began", lambda whole: 0)
    folder = shared_data / "jax"
    with pytest.raises(UllageError, match="without a GPU or TPU"):
        ullage.read_trace(str(folder / "cpu.xplane.pb"))
    events = json.loads(gzip.decompress((folder / "cpu.trace.json.gz").read_bytes()))["traceEvents"]
    twin = [e for e in events if e.get("ph") == "X"]
    assert Counter(e["name"] for e in twin) == Counter({name: sum(c for (n, *_), c in every.items() if n == name) for name, *_ in every})
    ours = sorted((start, end) for (_, start, end), count in every.items() for _ in range(count))
    theirs = sorted((e["ts"] * 1000, (e["ts"] + e["dur"]) * 1000) for e in twin)
    assert all(abs(a - b) < 1.01 and abs(c - d) < 1.01 for (a, c), (b, d) in zip(ours, theirs, strict=True))  # whole ns, ps cut off


def test_a_profile_that_is_cut_gives_the_planes_before(tmp_path):
    [path] = xplane.write(RUNS["two devices a process"], tmp_path)
    raw = path.read_bytes()
    path.write_bytes(raw[:-10])
    traced = ullage.read_trace(str(path))
    assert traced.report("ai").partial and len(traced.report("ai").whole.device_parts) == 2
    with pytest.raises(UllageError, match="is damaged"):
        ullage.read_trace(str(path), strict=True)


@pytest.mark.parametrize("seed", range(60))
def test_mutated_bytes_give_the_good_part_or_a_refusal(tmp_path, seed):
    chance = random.Random(seed)
    [path] = xplane.write(RUNS["two devices a process"], tmp_path)
    raw = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 3, 30])):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    path.write_bytes(raw)
    with contextlib.suppress(UllageError):
        ullage.read_trace(str(path)).report("ai")


@pytest.mark.parametrize("raw", [b"\x0b\x01", b"\x0a\x7f", b"\xff" * 11, b"\x08", b"\x00\x01"])
def test_bytes_that_are_no_message_are_refused(raw):
    with pytest.raises(WireError):
        list(fields(memoryview(raw)))


def test_what_is_written_is_read_back():
    raw = memoryview(number(1, 2**64 - 1) + message(2, string(3, "ü")) + number(200, 0))
    (a, one), (b, inner), (c, zero) = fields(raw)
    assert (a, one, b, c, zero) == (1, 2**64 - 1, 2, 200, 0)
    assert [(field, bytes(value)) for field, value in fields(inner)] == [(3, "ü".encode())]


def test_planes_of_other_sorts_hold_nothing_that_ran():
    assert jax_planes.plane("/device:CUSTOM:megascale", 1) is None
