"""Exposition text into samples: what is written is what is read, and what can't be read is counted."""

from __future__ import annotations

import gzip
import io
import os
import re
import string
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ullage.compressed import head
from ullage.errors import UllageError
from ullage.intake import opened
from ullage.problems import Problems
from ullage.sources.exposition import chunks, read, read_folder, recognise, recognise_folder, time_in_name, watch
from ullage.sources.naming.labels import identity, label_values
from ullage.sources.source import Options, Place, read_samples
from ullage.tables import SAMPLES, Flag

A100 = 'gpu="0",UUID="GPU-34319582-d595-d1c7-d1d2-179bcfa61660",device="nvidia0",Hostname="ub20-a100-k8s"'


def rows(path, text, options=None, problems=None):
    """Read a text as a file; return one dict a row, without what is missing."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    place = Place(str(path), path, head(path))
    batches = list(read(place, options or Options(), problems if problems is not None else Problems()))
    assert all(batch.schema == SAMPLES for batch in batches)
    return [{k: v for k, v in row.items() if v is not None} for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def scrape(tmp_path):
    def run(text, name="1723280400.prom", **more):
        return rows(tmp_path / name, text, **more)

    return run


# ---- real lines: the GPU operator's time-slicing guide, a cloud vendor's guide, dcgm-exporter's README


def test_lines_of_one_device_become_one_row(scrape):
    text = f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{A100}}} 0.995630\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{A100}}} 0.929260\n"
    [row] = scrape(text)
    assert (row["gpu"], row["index"], row["host"]) == ("GPU-34319582-d595-d1c7-d1d2-179bcfa61660", 0, "ub20-a100-k8s")
    assert row["gr_active"] == pytest.approx(0.99563) and row["tensor_active"] == pytest.approx(0.92926)
    assert row["time"].timestamp() == 1723280400 and row["flags"] == Flag.NAMED_RATIO


def test_pod_labels_become_a_job(scrape):
    [row] = scrape(
        'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-a8394b51-c086-568a-9f1a-c1e1c934c44c",pci_bus_id="00000000:00:02.0",'
        'device="nvidia0",modelName="NVIDIA RTX 4000 Ada Generation",Hostname="lke529760-766837-0a634ab30000",'
        'DCGM_FI_DRIVER_VERSION="580.95.05",container="cuda",namespace="default",pod="cuda-75454ffb9f-8ljq7",pod_uid=""} 0.000000\n'
    )
    assert row["tensor_active"] == 0 and row["model"] == "NVIDIA RTX 4000 Ada Generation"
    assert (row["container"], row["namespace"], row["pod"]) == ("cuda", "default", "cuda-75454ffb9f-8ljq7")
    assert row["job"] == "default/cuda-75454ffb9f-8ljq7"


def test_a_blank_after_the_comma_and_a_no_value_number(scrape):
    problems = Problems()
    [row] = scrape(
        'DCGM_FI_DEV_SM_CLOCK{gpu="0", UUID="GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52",container="",namespace="",pod=""} 139\n'
        'DCGM_FI_DEV_MEMORY_TEMP{gpu="0", UUID="GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"} 9223372036854775794\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="0", UUID="GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"} 9223372036854775794\n',
        problems=problems,
    )
    assert row["sm_clock"] == 139e6 and "job" not in row and "temperature" not in row
    assert "flags" not in row or not row["flags"]  # OFU does not rest on the temperature
    assert problems.dropped == {"'no value' numbers of the exporter (sentinels)": 1}  # memory temperature is no field of ours


def test_amd_lines_find_their_clock_by_its_label(scrape):
    who = 'card_model="AMD Instinct MI300X",gpu_compute_partition_type="spx",gpu_id="0",gpu_partition_id="0",hostname="mi-7",'
    who += 'serial_number="6922"'
    [row] = scrape(
        f'gpu_clock{{clock_index="9",clock_type="video",{who}}} 29\ngpu_clock{{clock_index="2",clock_type="system",{who}}} 2104\n'
        f'gpu_clock{{clock_index="3",clock_type="system",{who}}} 2100\ngpu_prof_tensor_active_percent{{{who}}} 41.5\n'
        f"gpu_energy_consumed{{{who}}} 1.4e12\n"
    )
    assert row["sm_clock"] == 2.102e9  # the mean of the compute dies that speak
    assert row["tensor_active"] == pytest.approx(0.415) and row["energy"] == 1_400_000
    assert (row["gpu"], row["host"], row["model"]) == ("6922", "mi-7", "AMD Instinct MI300X") and "mig" not in row


def test_mig_slices_are_devices_of_their_own(scrape):
    first, second = scrape(
        f'DCGM_FI_PROF_SM_ACTIVE{{{A100},GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"}} 0.5\n'
        f'DCGM_FI_PROF_SM_ACTIVE{{{A100},GPU_I_PROFILE="1g.10gb",GPU_I_ID="8"}} 0.25\n'
    )
    assert (first["mig"], second["mig"]) == ("1g.10gb/7", "1g.10gb/8") and first["gpu"] == second["gpu"]


def test_n_jobs_on_a_device_are_n_rows(scrape):
    both = scrape(f'DCGM_FI_DEV_POWER_USAGE{{{A100},hpc_job="17"}} 300\nDCGM_FI_DEV_POWER_USAGE{{{A100},hpc_job="18"}} 300\n')
    assert [row["job"] for row in both] == ["17", "18"]


# ---- labels


@pytest.mark.parametrize(
    ("labels", "column", "expected"),
    [
        ({"Hostname": "a", "instance": "b:9400"}, "host", "a"),
        ({"instance": "node-17:9400"}, "host", "node-17"),
        ({"instance": "10.0.0.7:9400", "node": "n7"}, "host", "n7"),
        ({"gpu": "3", "hostname": "n7"}, "gpu", "n7/3"),
        ({"device": "nvidia3", "hostname": "n7"}, "index", 3),
        ({"ordinal": "1", "minor_number": "0", "uuid": "GPU-9"}, "index", 1),
        ({"gpu": "GPU-9"}, "gpu", "GPU-9"),
        ({"job": "dcgm-exporter", "exported_job": "dcgm"}, "job", None),
        ({"hpc_job": "", "job_id": "4711"}, "job", "4711"),
        ({"jobid": "12", "userid": "1007", "uuid": "GPU-1"}, "user", "1007"),
        (
            {"pod": "nvidia-dcgm-exporter-x7k", "namespace": "gpu-operator", "exported_pod": "train-0", "exported_namespace": "ml"},
            "job",
            "ml/train-0",
        ),
        ({"pod": "nvidia-dcgm-exporter-x7k", "namespace": "gpu-operator", "container": "nvidia-dcgm-exporter"}, "job", None),
        ({"pod_name": "p", "pod_namespace": "n", "container_name": "c"}, "job", "n/p"),
        ({"k8s_pod_name": "p"}, "job", "p"),
        ({"GPU_I_ID": "2"}, "mig", "/2"),
        ({"gpu_compute_partition_type": "cpx", "gpu_partition_id": "5"}, "mig", "cpx/5"),
        ({"cluster": "west"}, "cluster", "west"),
        ({"model_name": "<<<NULL>>>", "modelName": "L4"}, "model", "L4"),
    ],
)
def test_labels_say_whose_a_number_is(labels, column, expected):
    assert identity(labels)[column] == expected


def test_a_label_of_ten_megabytes_is_cut_and_counted(scrape):
    problems = Problems()
    [row] = scrape(f'DCGM_FI_DEV_POWER_USAGE{{{A100},pod="{"x" * 10_000_000}"}} 300\n', problems=problems)
    assert row["pod"] == "x" * 4096
    assert problems.lines()[0].startswith("1 label values longer than 4,096 characters were cut")


@pytest.mark.parametrize(
    "pod", ['say "hi"', 'a","b', "}", "{x}", "a} 1", "back\\slash", "C:\\", "comma, blank", "a=b", "<b>&</b>", "\x1b[31m", '"']
)
def test_labels_that_are_not_escaped_are_read_as_they_stand(scrape, pod):
    # dcgm-exporter's template escapes nothing
    [row] = scrape(f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-1",pod="{pod}",Hostname="n1"}} 300.5\n')
    assert (row["pod"], row["power"], row["host"]) == (pod, 300.5, "n1")


def test_a_label_cannot_pass_itself_off_as_an_earlier_one(scrape):
    # the pod is named so that its text reads like a second UUID: the first counts
    [row] = scrape('DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",pod="x",UUID="GPU-2"} 300\n')
    assert row["gpu"] == "GPU-1"


def test_text_that_is_not_utf8_is_replaced(scrape):
    [row] = scrape(b'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",pod="\xff\xfe"} 300\n')
    assert row["pod"] == "\ufffd\ufffd"


escaped = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20).filter(
    lambda text: "\r" not in text and not text.startswith("<<<") and "exporter" not in text
)
names = st.sampled_from(["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_POWER_USAGE", "up", "other_metric_total"])


def quoted(value):
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@given(st.dictionaries(st.sampled_from(["pod", "namespace", "hpc_job", "container", "Hostname"]), escaped, min_size=1))
def test_escaped_labels_are_read_as_prometheus_client_reads_them(labels):
    text = ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items())
    [family] = text_string_to_metric_families(f"m{{{text}}} 1\n")
    assert label_values(text.encode()) == family.samples[0].labels == labels


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(names, st.integers(0, 3), escaped, st.floats(0, 1)), min_size=1, max_size=30))
def test_a_generated_page_holds_what_prometheus_client_finds_in_it(tmp_path, lines):
    page, seen = [], set()
    for name, gpu, pod, value in lines:
        if (name, gpu, pod) not in seen:
            page.append(f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}",pod="{quoted(pod)}"}} {value!r}')
            seen.add((name, gpu, pod))
    text = "\n".join(page) + "\n"
    field = {
        "DCGM_FI_DEV_GPU_TEMP": ("temperature", 1),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active", 1),
        "DCGM_FI_DEV_POWER_USAGE": ("power", 1),
    }
    expected = {
        (s.labels["UUID"], s.labels["pod"] or None, field[s.name][0]): s.value * field[s.name][1]
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name in field
    }
    try:
        got = rows(tmp_path / "1723280400.prom", text)
    except UllageError:
        got = []
    found = {(row["gpu"], row.get("pod"), name): row[name] for row in got for name, _ in field.values() if name in row}
    assert found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key], rel=1e-6, abs=1e-30) for key in expected)


hostile = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\n"), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(hostile.filter(lambda t: "\\" not in t and not re.search(r'"\s*(,|$)', t) and "exporter" not in t and "<<<" not in t))
def test_hostile_labels_that_nobody_escaped_survive(tmp_path, pod):
    [row] = rows(tmp_path / "1.prom", f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-1",pod="{pod}",Hostname="n1"}} 300.5\n')
    assert (row.get("pod", ""), row["power"], row["host"]) == (pod, 300.5, "n1")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_rows_or_one_clear_error(tmp_path, noise):
    good = f"DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300\n".encode()
    got = rows(tmp_path / "1723280400.prom", good + noise)
    assert got[0]["power"] == 300


# ---- time


def test_a_time_after_the_value_counts_first(scrape):
    first, second = scrape(f"DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300 1700000000000\nDCGM_FI_DEV_POWER_USAGE{{{A100}}} 301 1700000030000\n")
    assert first["time"].timestamp() == 1700000000 and second["time"].timestamp() == 1700000030
    assert (first["power"], second["power"]) == (300, 301)


def test_openmetrics_writes_seconds_an_end_and_exemplars(scrape):
    [row] = scrape(f'# TYPE x gauge\nDCGM_FI_DEV_POWER_USAGE{{{A100}}} 300 1700000000.5 # {{trace_id="a}}b"}} 0.5\n# EOF\n')
    assert row["time"].timestamp() == 1700000000.5 and row["power"] == 300


def test_a_comment_can_give_the_time_of_what_follows(scrape):
    line = f"DCGM_FI_DEV_POWER_USAGE{{{A100}}}"
    got = scrape(f"# time 1700000000\n{line} 300\n# timestamp: 1700000030000\n{line} 310\n", name="log.txt")
    assert [(row["time"].timestamp(), row["power"]) for row in got] == [(1700000000, 300), (1700000030, 310)]


def test_scrapes_that_follow_each_other_without_a_time_count_once(scrape):
    problems = Problems()
    line = f"DCGM_FI_DEV_POWER_USAGE{{{A100}}}"
    [row] = scrape(f"{line} 300\n{line} 310\n{line} 320\n", problems=problems)
    assert row["power"] == 300 and problems.dropped == {"repeated series without a time": 2}


def test_two_names_of_one_field_are_no_repetition_and_the_first_wins(scrape):
    problems = Problems()
    [row] = scrape(
        f"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{A100}}} 4\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{A100}}} 5\n"
        f"DCGM_FI_DEV_SM_CLOCK{{{A100}}} NaN\nDCGM_FI_DEV_SM_CLOCK_HERTZ{{{A100}}} 1.41e9\n",
        problems=problems,
    )
    assert row["throttle"] == 4 and row["sm_clock"] == 1.41e9
    assert problems.dropped == {"readings that are not a number (NaN)": 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scrape-2026-08-10T12-00-00Z.prom", 1786363200000),
        ("node7_20260810T120000.prom.gz", 1786363200000),
        ("2026-08-10 12:00:00.250.txt", 1786363200250),
        ("1786363200.prom", 1786363200000),
        ("dump-1786363200500.prom", 1786363200500),
        ("node-17.prom", None),
        ("2026-13-41T99-99-99.prom", None),
        ("GPU-34319582-d595-d1c7.prom", None),
    ],
)
def test_file_names_hold_times(name, expected):
    assert time_in_name(name) == expected


def test_without_any_other_time_the_files_own_is_used_and_said(tmp_path, scrape):
    problems = Problems()
    path = tmp_path / "node.prom"
    path.write_text(f"DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300\n")
    os.utime(path, (1723280400, 1723280400))
    [row] = pa.Table.from_batches(read(Place(str(path), path), Options(), problems)).to_pylist()
    assert row["time"].timestamp() == 1723280400
    assert problems.notes == ["neither the text nor the file name gives a time; the time at which the file was written is used"]


def test_only_what_was_asked_for_is_kept(scrape):
    line = f"DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300"
    got = scrape(
        f"{line} 1000000000000\n{line} 1000000001000\n{line} 1000000002000\n",
        options=Options(since=1000000001000, until=1000000002000, cluster="west"),
    )
    assert [(row["time"].timestamp(), row["cluster"]) for row in got] == [
        (1000000002, "west")
    ]  # (since, until]: a sample speaks for the time before it


# ---- what is broken


def test_bad_lines_are_counted_with_the_first_place(scrape):
    problems = Problems()
    text = f'DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300\nDCGM_FI_DEV_SM_CLOCK{{{A100}}} fast\nDCGM_FI_DEV_SM_CLOCK{{gpu="0 5\nwhat is this?\n'
    [row] = scrape(text, problems=problems)
    assert row["power"] == 300
    assert problems.lines() == ["3 lines that can't be read left out (first: 1723280400.prom line 2)"]


def test_nan_and_infinity_are_missing(scrape):
    values = {"POWER_USAGE": "NaN", "SM_CLOCK": "+Inf", "GPU_TEMP": "-Inf", "GPU_UTIL": "98"}
    [row] = scrape("".join(f"DCGM_FI_DEV_{name}{{{A100}}} {value}\n" for name, value in values.items()))
    assert row["gpu_util"] == pytest.approx(0.98) and not {"power", "sm_clock", "temperature"} & row.keys()


def test_a_last_line_without_an_end_is_not_trusted(scrape):
    problems = Problems()
    [row] = scrape(f"DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300\nDCGM_FI_DEV_SM_CLOCK{{{A100}}} 14", problems=problems)
    assert "sm_clock" not in row
    assert problems.lines() == ["1 last lines without an end left out (first: 1723280400.prom line 2)"]


def test_a_truncated_gzip_yields_its_good_part(tmp_path):
    lines = [f'DCGM_FI_DEV_POWER_USAGE{{gpu="{n}",UUID="GPU-{n}",Hostname="{hash((n, 7))}"}} {n % 700}\n' for n in range(5000)]
    path, problems = tmp_path / "1723280400.prom.gz", Problems()
    path.write_bytes(gzip.compress("".join(lines).encode())[:-2000])
    got = rows(path, path.read_bytes(), problems=problems)
    assert 4000 < len(got) < 5000
    assert [key for key in problems.dropped if "damaged" in key] == ["ends of files that are damaged"]
    assert problems.dropped["ends of files that are damaged"] == 1


def test_a_gzip_that_holds_nothing_good_is_an_error(tmp_path):
    path = tmp_path / "1723280400.prom.gz"
    path.write_bytes(gzip.compress(b"x" * 1000)[:10])
    with pytest.raises(UllageError, match="is damaged after 0 decompressed bytes"):
        rows(path, path.read_bytes())


def test_a_web_page_is_an_error_that_says_so(tmp_path, scrape):
    with pytest.raises(UllageError, match=r"x\.prom is an HTML page \('Sign in'\), not metrics"):
        scrape("<!DOCTYPE html><html><head><title>Sign in</title></head></html>\n", name="x.prom")


def test_a_text_without_gpu_fields_names_what_it_holds(scrape):
    with pytest.raises(UllageError) as error:
        scrape("# TYPE go_goroutines gauge\ngo_goroutines 42\n" + "".join(f'm{n}{{a="b"}} 1\n' for n in range(6)))
    assert error.value.problem == "1723280400.prom holds no field of a GPU; it holds go_goroutines, m0, m1, m2, m3 and 2 more"


def test_fields_of_no_device_are_counted_and_an_error_when_nothing_else_is_there(scrape):
    problems = Problems()
    assert len(scrape(f"DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300\nDCGM_FI_DEV_POWER_USAGE 5\n", problems=problems)) == 1
    assert problems.dropped == {"lines that name no device": 1}
    with pytest.raises(UllageError, match="names no device in any of its lines"):
        scrape('DCGM_FI_DEV_POWER_USAGE{pod="x"} 5\n')


def test_an_empty_file_is_an_error(scrape):
    with pytest.raises(UllageError, match="holds no metrics"):
        scrape("")


def test_a_line_too_long_to_be_one_is_skipped_without_being_held():
    problems = Problems()
    text = b"a 1\n" + b"x" * 50 + b"\nb 2\n"
    pieces = list(chunks(io.BytesIO(text), problems, "f", size=8, longest=20))
    assert b"".join(piece for _, piece in pieces) == b"a 1\nb 2\n"
    assert problems.first == {"lines longer than 0 MB": "f line 2"}
    assert pieces[-1][0] == 3


@given(st.lists(st.text(string.ascii_letters, max_size=12)), st.integers(1, 40))
def test_chunks_lose_nothing_and_number_the_lines(words, size):
    text = "".join(f"{word}\n" for word in words).encode()
    pieces = list(chunks(io.BytesIO(text), Problems(), "f", size=size))
    assert b"".join(piece for _, piece in pieces) == text
    lines = 1
    for number, piece in pieces:
        assert number == lines and piece.endswith(b"\n")
        lines += piece.count(b"\n")


def test_a_text_in_small_chunks_gives_the_same_numbers(tmp_path, monkeypatch):
    text = "".join(
        f'{name}{{gpu="{g}",UUID="GPU-{g}"}} {g / 10}\n' for name in ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_POWER_USAGE") for g in range(9)
    )
    whole = rows(tmp_path / "1723280400.prom", text)
    monkeypatch.setattr("ullage.sources.exposition.chunks", lambda *a, **more: chunks(*a, size=100, **more))
    parts = rows(tmp_path / "1723280400.prom", text)
    assert len(parts) > len(whole) == 9  # rows may be partial; they are merged when they settle
    for row in whole:
        mine = [part for part in parts if part["gpu"] == row["gpu"]]
        assert {k: v for part in mine[::-1] for k, v in part.items()} == row


def test_the_name_may_be_a_label_as_in_a_database_dump(scrape):
    [row] = scrape('{__name__="DCGM_FI_DEV_POWER_USAGE",UUID="GPU-1",gpu="0"} 300 1700000000000\n')
    assert row["power"] == 300 and row["time"].timestamp() == 1700000000


# ---- a live exporter


def pages(*answers):
    given = iter(answers)

    def fetch():
        answer = next(given)
        if isinstance(answer, UllageError):
            raise answer
        return io.BytesIO(answer.encode())

    return fetch


def test_a_live_exporter_is_asked_at_the_interval():
    clock = {"now": 1_000_000}
    fetch = pages(*(f'DCGM_FI_DEV_POWER_USAGE{{gpu="0"}} {watts}\n' for watts in (100, 200, 300)))
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        clock["now"] += round(seconds * 1000)

    options = Options(watch=30, interval=15)
    batches = list(watch("http://n7:9400/metrics", fetch, options, Problems(), clock=lambda: clock["now"], sleep=sleep))
    table = pa.Table.from_batches(batches).to_pylist()
    assert [(row["power"], round(row["time"].timestamp() * 1000)) for row in table] == [
        (100, 1_000_000),
        (200, 1_015_000),
        (300, 1_030_000),
    ]
    assert naps == [15, 15]
    assert {(row["gpu"], row["host"]) for row in table} == {("n7/0", "n7")}


def test_a_page_of_now_is_later_than_the_end_that_was_now_when_somebody_began_to_ask():
    [batch] = watch("n7", pages('DCGM_FI_DEV_POWER_USAGE{gpu="0"} 1\n'), Options(until=999_999), Problems(), clock=lambda: 1_000_000)
    assert batch["power"].to_pylist() == [1]


def test_a_scrape_that_fails_in_between_is_counted():
    problems = Problems()
    line = 'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 1\n'
    fetch = pages(line, UllageError("n7 did not answer"), "<html></html>\n", line)
    batches = list(watch("http://n7/metrics", fetch, Options(watch=3, interval=1), problems, clock=lambda: 0, sleep=lambda _: None))
    assert len(batches) == 2
    assert problems.lines() == ["2 scrapes that failed left out (first: n7 did not answer)"]


def test_a_first_scrape_that_fails_is_an_error():
    with pytest.raises(UllageError, match="did not answer"):
        list(watch("x", pages(UllageError("x did not answer")), Options(), Problems(), clock=lambda: 0))


@pytest.mark.parametrize(
    ("place", "sure"),
    [
        (Place("http://n7:9400/metrics"), 2),
        (Place("https://prom/federate?match[]=x"), 2),
        (Place("http://prometheus:9090"), 1),
        (Place("prometheus+http://prometheus:9090"), 0),
        (Place("local"), 0),
    ],
)
def test_urls_are_recognised_by_their_path(place, sure):
    assert recognise(place) == sure


@pytest.mark.parametrize(
    ("start", "sure"),
    [
        (b"# HELP DCGM_FI_DEV_SM_CLOCK SM clock\n", 2),
        (b'DCGM_FI_DEV_SM_CLOCK{gpu="0"} 5\n', 2),
        (b"# gpu    pwr  gtemp\n# Idx      W      C\n    0    360     55\n", 0),
        (b"time,gpu,power\n1,0,5\n", 0),
        (b'{"status":"success","data":{}}', 0),
        (b"", 0),
    ],
)
def test_files_are_recognised_by_their_lines(start, sure):
    assert recognise(Place("f", Path("f"), start)) == sure


def folder(path, pages):
    path.mkdir()
    for name, text in pages.items():
        (path / name).write_text(text)
    return Place(str(path), path)


def test_a_folder_of_scrapes_is_read_as_one(tmp_path):
    line = f"# TYPE x gauge\nDCGM_FI_DEV_POWER_USAGE{{{A100}}}"
    place = folder(tmp_path / "scrapes", {"1723280400.prom": f"{line} 300\n", "1723280430.prom": f"{line} 330\n", ".hidden": "x"})
    assert recognise_folder(place) == 2
    [batch] = read_samples(place.name)
    assert [(row["time"].timestamp(), row["power"]) for row in batch.to_pylist()] == [(1723280400, 300), (1723280430, 330)]


def test_a_folder_with_anything_else_in_it_is_not_claimed(tmp_path):
    page = f"DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300\n"
    assert recognise_folder(folder(tmp_path / "mixed", {"a.prom": page, "b.csv": "time,gpu,power\n1,0,5\n"})) == 0
    assert recognise_folder(folder(tmp_path / "empty", {})) == 0


def test_files_of_a_folder_that_fail_are_counted_and_the_others_kept(tmp_path):
    page = f"DCGM_FI_DEV_POWER_USAGE{{{A100}}} 300\n"
    place, problems = (
        folder(tmp_path / "scrapes", {"1723280400.prom": page, "1723280430.prom": "up{} 1\n", "1723280460.prom": ""}),
        Problems(),
    )
    (tmp_path / "scrapes" / "1723280490.prom.gz").write_bytes(gzip.compress(page.encode() * 999)[:10])
    [batch] = read_folder(place, Options(), problems)
    assert batch.num_rows == 1
    assert problems.dropped == {"files that could not be read to the end": 1}


def test_a_folder_without_gpu_fields_is_an_error(tmp_path):
    with pytest.raises(UllageError, match="holds no field of a GPU; it holds up"):
        list(read_folder(folder(tmp_path / "scrapes", {"1.prom": 'up{job="x"} 1\n'}), Options(), Problems()))


def test_a_pod_with_a_comma_in_its_name_is_one_job(tmp_path):
    (tmp_path / "a.prom").write_text(
        'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1",Hostname="n1",namespace="ml",pod="train,eval"} 0.5 1700000000000\n'
        'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1",Hostname="n1",namespace="ml",pod="other"} 0.5 1700000000000\n'
    )
    with opened([str(tmp_path / "a.prom")]) as taken:
        row = taken.samples.select("job", "sharers").to_pyarrow().to_pylist()
    assert row == [{"job": r"ml/other,ml/train\,eval", "sharers": 2}]
