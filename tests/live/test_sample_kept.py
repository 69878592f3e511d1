"""What `ullage sample` keeps and gives out: jobs attached to devices, a Parquet file, an exposition behind HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.live.nvml_double import Gpu, Nvml
from tests.live.sampled_machine import H100, T, rows
from ullage.errors import UllageError
from ullage.live.sampling.course import Course
from ullage.live.sampling.exposition import Page, serve
from ullage.live.sampling.process_owners import ProcessOwners
from ullage.live.sampling.readings_file import ParquetFile
from ullage.problems import Problems
from ullage.sources import nvml
from ullage.sources.source import Options, read_samples
from ullage.tables import FIELDS, SAMPLES, samples

# -- whose work it is -------------------------------------------------------------------------------------------------


def process(proc: Path, pid: int, group: str = "0::/user.slice\n", **environment: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cgroup").write_text(group)
    (folder / "environ").write_bytes(b"\0".join(f"{name}={value}".encode() for name, value in environment.items()) + b"\0")


def test_a_job_is_found_by_the_control_group_or_the_environment_of_a_process(tmp_path):
    process(tmp_path, 1, "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", SLURM_JOB_ID="1", SLURM_JOB_USER="ada")
    process(tmp_path, 2, "4:memory:/slurm/uid_1000/job_4712/step_batch\n")
    process(tmp_path, 3, SLURM_JOB_ID="4713")
    process(tmp_path, 4, PBS_JOBID="88.server", HOME="/x")
    process(tmp_path, 5, "0::/kubepods.slice/pod7\n", POD_NAMESPACE="ml", POD_NAME="train-0")
    process(tmp_path, 6, "0::/user.slice/my_job_9/x\n")
    owners = ProcessOwners(tmp_path)
    assert [owners.job_and_user(pid)[0] for pid in range(1, 8)] == ["4711", "4712", "4713", "88.server", "ml/train-0", None, None]
    assert owners.job_and_user(1)[1] == "ada" and owners.job_and_user(7) == (None, None)


def test_several_jobs_on_one_device_are_joined(tmp_path):
    process(tmp_path, 1, SLURM_JOB_ID="9", SLURM_JOB_USER="bo")
    process(tmp_path, 2, SLURM_JOB_ID="10", SLURM_JOB_USER="ada")
    batch = samples({"time": [T, T], "gpu": ["GPU-1", "GPU-2"]})
    told = ProcessOwners(tmp_path).samples_with_owners(batch, {("GPU-1", None): [1, 2], ("GPU-2", None): []}).to_pylist()
    assert [(row["job"], row["user"]) for row in told] == [("10,9", "ada,bo"), (None, None)]


def test_nvml_says_which_processes_compute_on_a_gpu_and_on_its_instances():
    double = Nvml([Gpu("GPU-1", processes=(41, 42)), Gpu("GPU-2", mig={0: f"{H100} MIG 1g.10gb"}, instances={0: 7}, processes=(43,))])
    with nvml.opened(double, Options(), Problems(), "n7") as machine:
        told = machine.processes()
    assert told == {("GPU-1", None): [41, 42], ("GPU-2", None): [43], ("GPU-2", "1g.10gb/7"): [43]}


# -- a file -----------------------------------------------------------------------------------------------------------


def test_a_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"older")
    file = ParquetFile(path)
    file.add([rows((1, {"power": 5.0}))])
    assert path.read_bytes() == b"older"
    file.close()
    assert pyarrow.parquet.read_table(path).num_rows == 1
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


def test_many_readings_become_row_groups_and_are_read_back_as_samples(tmp_path):
    path = tmp_path / "x.parquet"
    file = ParquetFile(path)
    batch = pa.Table.from_batches([BATCH] * 1000).combine_chunks().to_batches()[0]
    for _ in range(10):
        file.add([batch])
    file.close()
    assert pyarrow.parquet.ParquetFile(path).num_row_groups == 2  # five times 2,000 rows pass 8,192
    assert sum(batch.num_rows for batch in read_samples(str(path))) == 20_000


def test_many_small_readings_take_no_more_memory_than_their_rows(tmp_path):
    file = ParquetFile(tmp_path / "x.parquet")
    begun = pa.total_allocated_bytes()
    for at in range(4000):
        file.add([rows((at, {"power": 5.0}))])
    # 4,000 batches of a row each would take some 20 MB; as columns they take 4,000 times some 300 B
    assert pa.total_allocated_bytes() - begun < 4_000_000
    file.close()
    assert pyarrow.parquet.read_table(tmp_path / "x.parquet")["time"].cast(pa.int64()).to_pylist()[::999] == [
        T + 1000 * at for at in (0, 999, 1998, 2997, 3996)
    ]


BATCH = rows((1, {"power": 5.0}), (2, {"power": 6.0}))


def test_a_disk_that_refuses_is_one_sentence_and_leaves_nothing_behind(tmp_path):
    file = ParquetFile(tmp_path / "x.parquet")
    file._file.write_table = lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    file.add([BATCH])
    with pytest.raises(UllageError, match="can't be written: No space left on device"):
        file.close()
    file.close()
    assert list(tmp_path.iterdir()) == []


# -- an exposition ----------------------------------------------------------------------------------------------------


def watched(*batches, interval=10.0):
    course = Course(interval)
    course.add(batches)
    return course


HOSTILE = 'a "quoted\\" {name}\nfoo="1"'


def page_of(course, now=T / 1000 + 11, fresh_ms=30_000):
    page = Page(fresh_ms, lambda: now)
    page.show(course)
    return page


def test_a_page_is_read_back_by_us_and_by_prometheus_clients_parser_as_it_was_measured(tmp_path):
    told = {"tensor_active": 0.5, "sm_clock": 915e6, "power": 612.5, "throttle": 4, "energy": 77, "memory_used": 2**30, "gpu_util": 0.98}
    batch = rows((10, told), model=H100)
    batch = batch.set_column(SAMPLES.get_field_index("job"), SAMPLES.field("job"), pa.array([HOSTILE]).dictionary_encode())
    text = page_of(watched(batch)).text()
    families = {family.name: family.samples[0] for family in text_string_to_metric_families(text)}
    assert families["ullage_ofu_ratio"].value == 0.25  # 0.5 × 915 / 1830
    assert families["DCGM_FI_DEV_SM_CLOCK"].labels["hpc_job"] == HOSTILE
    path = tmp_path / "1700000010.prom"
    path.write_text(text)
    [back] = [row for found in read_samples(str(path)) for row in found.to_pylist()]
    assert {name: back[name] for name in told} == pytest.approx(told)
    assert (back["gpu"], back["model"], back["job"]) == ("GPU-1", H100, HOSTILE)


def test_every_field_of_a_sample_is_published_and_understood(tmp_path):
    told = dict.fromkeys(FIELDS, 1.0)
    path = tmp_path / "1700000010.prom"
    path.write_text(page_of(watched(rows((10, told)))).text())
    [back] = [row for found in read_samples(str(path)) for row in found.to_pylist()]
    assert {name for name in FIELDS if back[name] is None} == set()


def test_a_reading_that_grew_old_is_left_out_so_that_a_stalled_driver_leaves_a_gap():
    course = watched(rows((10, {"power": 600.0})))
    assert "DCGM_FI_DEV_POWER_USAGE{" in page_of(course, now=T / 1000 + 39).text()
    assert page_of(course, now=T / 1000 + 41).text().splitlines()[-1] == "ullage_devices_answering 0"
    assert page_of(course, now=T / 1000 - 41).text().splitlines()[-1] == "ullage_devices_answering 0", "the clock was set back"


def asked(url, method="GET"):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_the_server_answers_as_http_demands():
    server = serve(page_of(watched(rows((10, {"power": 600.0})))), "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.port}"
        status, headers, text = asked(f"{url}/metrics")
        assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4") and "POWER_USAGE" in text
        status, headers, nothing = asked(f"{url}/metrics", "HEAD")
        assert (status, nothing) == (200, "") and int(headers["Content-Length"]) == len(text.encode())
        assert asked(f"{url}/other")[0] == 404 and "/metrics" in asked(url)[2]
        assert asked(f"{url}/metrics", "POST")[0] == 501
        assert server.local
        with pytest.raises(UllageError, match="can't serve at"):
            serve(Page(1), "127.0.0.1", server.port)
    finally:
        server.stop()


def test_a_server_that_every_machine_reaches_knows_it():
    for address in ("0.0.0.0", ""):
        server = serve(Page(1), address, 0)
        try:
            assert not server.local
        finally:
            server.stop()
