"""xplane files: the same scenarios as JAX's JSON come back with the same sums; a real one holds the very events of its JSON twin."""

import contextlib
import functools
import gzip
import json
import random
from collections import Counter

import pytest

import ullage
from tests.traces import xplane_at_once
from tests.traces.test_jax import RUNS
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.protobuf import MessageStream, WireError, double, fields, message, number, string
from ullage.recording import Recording
from ullage.simulate.traces import xplane
from ullage.simulate.traces.answers import answer
from ullage.traces import jax_planes
from ullage.traces import xplane as reader
from ullage.traces.trace import TRACES, File, TraceOptions, recognised


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
    monkeypatch.setattr(reader, "_tells_begin", lambda stream, size, found: False)
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


def drawn(chance: random.Random) -> bytes:
    """A file of planes, lines and events whose fields stand in any order, now and then twice or unknown."""

    def mixed(*parts: bytes) -> list[bytes]:
        parts = [*parts, *(chance.choice((number(50, 1), string(60, "?"), double(70, 0.5))) for _ in range(chance.randrange(2)))]
        chance.shuffle(parts)
        return parts if chance.random() < 0.8 else [*parts, chance.choice(parts)]

    def stat() -> bytes:
        value = chance.choice((number(3, 2**63), number(4, -5), string(5, "ü"), number(7, chance.randrange(4)), double(2, 0.5)))
        return message(4, *mixed(number(1, chance.randrange(5)), value))

    def event() -> bytes:
        parts = [number(1, chance.randrange(6)), number(2, chance.randrange(-9999, 10**7)), number(3, chance.randrange(-5, 10**6))]
        return message(4, *mixed(*parts, *(stat() for _ in range(chance.randrange(3)))))

    def line() -> bytes:
        named = [string(2, chance.choice(("", "Stream #7", "python"))), string(11, "shown")][: chance.randrange(3)]
        return message(3, *mixed(*named, number(3, chance.randrange(-10, 10**6)), *(event() for _ in range(chance.randrange(6)))))

    def names(field: int) -> list[bytes]:
        inner = [number(1, 0), string(2, chance.choice("abc")), string(4, "display")]
        return [message(field, *mixed(number(1, n), message(2, *mixed(*inner)))) for n in range(chance.randrange(5))]

    def plane() -> bytes:
        of = chance.choice(("/host:CPU", "/device:GPU:1", "Task Environment"))
        began = [message(5, number(1, 9), message(2, string(2, "profile_start_time"))), message(6, number(1, 9), number(3, 10**18))]
        parts = [string(2, of), number(1, chance.randrange(9)), *(line() for _ in range(chance.randrange(4))), *names(4), *names(5)]
        return message(1, *mixed(*parts, *(began if of[0] == "T" else [])))

    return b"".join(mixed(*(plane() for _ in range(chance.randrange(1, 5)))))


@pytest.fixture
def every_event(monkeypatch):
    """Asks the reader, in blocks of some size, for every event of lines on hosts and devices."""

    def read(path, block):
        seen = []

        def host(process, line, name, start, end, args):
            seen.append(("host", process, line, name, start, end, args))

        def device(of, line, name, start, end, args):
            seen.append(("device", of.device, line, name, start, end, args))

        with monkeypatch.context() as patch:
            patch.setattr(reader, "MessageStream", functools.partial(MessageStream, block=block))
            patch.setattr(reader, "on_host", host)
            patch.setattr(reader, "on_device", device)
            patch.setattr(reader, "stream", lambda of, name: name or "unnamed")
            recording = Recording(path.name)
            try:
                list(reader.read(File(path), recording, TraceOptions(), Problems()))
            except UllageError as error:
                seen.append(error.problem)
            return seen, recording.cut, recording.clock

    return read


def expected_events(raw):
    found = []
    for plane, number_of, line, place, *event in xplane_at_once.events(raw):
        of = jax_planes.plane(plane, number_of)
        if of is not None:
            found.append(("host", of.process, place, *event) if of.device is None else ("device", of.device, line or "unnamed", *event))
    return found


@pytest.mark.parametrize("first", [*range(0, 400, 100), *(pytest.param(n, marks=pytest.mark.full) for n in range(400, 10_000, 100))])
def test_reading_in_pieces_gives_what_a_reader_of_the_whole_gives(tmp_path, every_event, first):
    path = tmp_path / "a.xplane.pb"
    for seed in range(first, first + 100):
        chance = random.Random(seed)
        good = drawn(chance)
        raw = bytearray(good)
        for _ in range(chance.choice((0, 0, 1, 3))):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        path.write_bytes(raw[: len(raw) if chance.random() < 0.8 else chance.randrange(len(raw))])
        found = every_event(path, chance.choice((1, 7, 100)))
        assert found == every_event(path, 1 << 20)
        with contextlib.suppress(xplane_at_once.Damaged):
            expected, began = expected_events(path.read_bytes()), xplane_at_once.began(path.read_bytes())
            seen, cut, clock = found
            assert clock == ("utc" if began else "own") or cut
            assert [one for one in seen if isinstance(one, tuple)] == expected or (cut and path.read_bytes() != good)


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
