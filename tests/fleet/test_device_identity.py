"""Which device a reading is of, where no UUID says it: cluster, host and number, from every source."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ullage.errors import UllageError
from ullage.intake import opened
from ullage.problems import Problems
from ullage.sources.jobs.attribute import attribute
from ullage.sources.jobs.record import Record, table
from ullage.sources.machine import DeviceReading, rows
from ullage.sources.naming.labels import device_name, identity
from ullage.sources.source import Options, file_names, read_samples
from ullage.store.store import Store
from ullage.tables import Flag

T = 1_786_363_200_000  # 2026-08-10 12:00 UTC
EXPOSITION = 'DCGM_FI_PROF_SM_ACTIVE{{gpu="0",Hostname="n0"{labels}}} {value} {time}\n'
DMON = "# gpu sm pclk\n# Idx % MHz\n0 {sm} 1980\n1 {sm} 1980\n"


def devices(folder: Path, *sources: Path, cluster: str | None = None) -> dict[str, float]:
    """How many seconds each device was observed."""
    with opened([str(source) for source in sources], options=Options(cluster=cluster), store=str(folder / "store")) as taken:
        found = taken.samples.select("gpu", "span_ms").to_pyarrow()
    seconds: dict[str, float] = {}
    for gpu, span in zip(found["gpu"].to_pylist(), found["span_ms"].to_pylist(), strict=True):
        seconds[gpu] = seconds.get(gpu, 0) + span / 1000
    return seconds


def test_the_cluster_is_part_of_a_device_that_has_no_uuid():
    told = {"gpu": "0", "Hostname": "n0", "cluster": "east"}
    assert identity(told)["gpu"] == "east/n0/0"
    assert identity({"gpu": "0", "Hostname": "n0"}, cluster="west")["gpu"] == "west/n0/0"
    assert identity(told, cluster="west")["cluster"] == "east"  # what the labels say goes before what the user says
    assert identity({"gpu": "0", "Hostname": "n0"})["gpu"] == "n0/0"
    assert identity(told | {"UUID": "GPU-1"})["gpu"] == "GPU-1"
    assert device_name(None, None, 3) == "3"


def test_two_clusters_with_a_host_of_one_name_are_two_gpus_by_label(tmp_path):
    text = "".join(
        EXPOSITION.format(labels=f',cluster="{cluster}"', value=value, time=T + 30_000 * n)
        for n in range(4)
        for cluster, value in (("east", 0.2), ("west", 0.4))
    )
    (tmp_path / "a.prom").write_text(text)
    assert devices(tmp_path, tmp_path / "a.prom") == {"east/n0/0": 120, "west/n0/0": 120}


@pytest.mark.parametrize("kind", ["exposition", "csv", "long csv", "parquet", "prometheus", "omnistat", "amd", "dmon"])
def test_two_clusters_with_a_host_of_one_name_are_two_gpus_by_option(tmp_path, kind):
    path = tmp_path / "n0.data"
    if kind == "exposition":
        path.write_text(EXPOSITION.format(labels="", value=0.2, time=T))
    elif kind == "csv":
        path.write_text("time,host,gpu,sm_active\n1786363200,n0,0,0.2\n")
    elif kind == "long csv":
        path.write_text("time,host,gpu,metric,value\n1786363200,n0,0,sm_active,0.2\n")
    elif kind == "parquet":  # as `ullage sample` writes them
        (tmp_path / "n0.csv").write_text("time,host,gpu,sm_active\n1786363200,n0,0,0.2\n")
        [batch] = read_samples(str(tmp_path / "n0.csv"))
        pq.write_table(batch.schema.empty_table().from_batches([batch]), path)
    elif kind == "prometheus":
        metric = {"__name__": "DCGM_FI_PROF_SM_ACTIVE", "Hostname": "n0", "gpu": "0"}
        path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [
            {"metric": metric, "values": [[1786363200, "0.2"]]}]}}))  # fmt: skip
    elif kind == "omnistat":
        path.write_text(f'rocm_utilization_percentage{{instance="n0:8001",card="0"}} 20 {T}\n')
    elif kind == "amd":
        path.write_text(f'gpu_gfx_activity{{gpu_id="0",hostname="n0"}} 20 {T}\n')
    else:
        path.write_text("#Date Time gpu sm pclk\n#YYYYMMDD HH:MM:SS Idx % MHz\n 20260810 12:00:00 0 20 1980\n")
    for cluster in ("east", "west"):
        found = devices(tmp_path, path, cluster=cluster)
    assert found == {"east/n0/0": 30, "west/n0/0": 30}


def test_a_gpu_of_this_machine_without_a_uuid_is_named_by_cluster_host_and_number():
    told = [DeviceReading(uuid, 1, "AMD Instinct MI300X", {"sm_clock": 2100.0}) for uuid in ("GPU-1", "", "N/A", "[N/A]")]
    batch = rows(T, "n0", told, {"sm_clock": "MHz"}, Options(cluster="east"), Problems())
    assert batch["gpu"].to_pylist() == ["GPU-1", "east/n0/1", "east/n0/1", "east/n0/1"]


def test_dmon_logs_of_one_name_in_two_folders_are_two_hosts(tmp_path):
    paths = [tmp_path / name / "gpu.dmon" for name in ("a", "b")]
    for path, sm in zip(paths, (20, 40), strict=True):
        path.parent.mkdir()
        path.write_text(DMON.format(sm=sm))
    four = {f"{folder}/gpu/{index}": 30.0 for folder in "ab" for index in (0, 1)}
    assert devices(tmp_path / "1", *paths) == devices(tmp_path / "2", tmp_path / "a", tmp_path / "b") == four
    assert devices(tmp_path / "3", tmp_path) == four
    assert devices(tmp_path / "4", paths[0]) == {"gpu/0": 30, "gpu/1": 30}


def test_files_are_named_by_the_shortest_path_that_tells_them_apart():
    paths = [Path(name) for name in ("/x/a/gpu.dmon", "/y/a/gpu.dmon.gz", "/y/a/n1.dmon", "/y/a/n1.dmon.1", "/y/b/gpu.dmon")]
    # the two logs of n1 lie side by side: one host whose log was rotated
    assert list(file_names(paths).values()) == ["x/a/gpu", "y/a/gpu", "n1", "n1", "b/gpu"]


def test_a_file_that_names_no_gpu_is_one_gpu_by_its_shortest_name(tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "gpu.csv").write_text("time,power\n1786363200,300\n")
    assert devices(tmp_path / "1", tmp_path / "a", tmp_path / "b") == {"a/gpu": 30, "b/gpu": 30}


def test_a_record_may_name_a_device_with_its_cluster_or_without():
    text = {"gpu": "0", "Hostname": "n0", "cluster": "east"}
    from ullage.tables import samples

    who = identity(text)
    rows_ = samples({name: [value] for name, value in who.items()} | {"time": [T]})
    import pyarrow as pa

    for gpu in ("east/n0/0", "n0/0"):
        found = attribute(pa.Table.from_batches([rows_]), table([Record("a", gpu=gpu)], Problems()), Problems())
        assert found["job"].to_pylist() == ["a"]


def test_copies_of_a_reading_that_disagree_are_a_conflict_wherever_they_meet(tmp_path):
    # two exporters that claim to be the same device, in one scrape, in two files, and in a store that knows one already
    one, other = (EXPOSITION.format(labels=f',driver="{n}"', value=value, time=T) for n, value in ((1, 0.2), (2, 0.4)))
    (tmp_path / "one.prom").write_text(one)
    (tmp_path / "other.prom").write_text(other)
    (tmp_path / "both.prom").write_text(one + other)

    def flags(*sources: str) -> int:
        store = tmp_path / "-".join(sources)
        for name in sources:
            with opened([str(tmp_path / f"{name}.prom")], store=str(store)) as taken:
                [found] = taken.samples.select("flags").to_pyarrow()["flags"].to_pylist()
        return found

    assert flags("one") & (Flag.CONFLICT | Flag.COPIED) == 0
    assert flags("both") & Flag.CONFLICT and flags("both") & Flag.COPIED
    assert flags("one", "other") & Flag.CONFLICT
    assert not flags("one", "one") & Flag.CONFLICT


def test_a_gpu_number_that_no_host_has_is_left_out(tmp_path):
    (tmp_path / "n.dmon").write_text("# gpu sm pclk\n# Idx % MHz\n0 20 1980\n32768 20 1980\n99999999999999999999 20 1980\n")
    problems = Problems()
    [batch] = read_samples(str(tmp_path / "n.dmon"), problems=problems)
    assert batch["index"].to_pylist() == [0]
    assert problems.dropped == {"lines with a GPU number above 32,767": 2}
    with pytest.raises(UllageError, match="a line that can be read"):
        (tmp_path / "m.dmon").write_text("# gpu sm pclk\n# Idx % MHz\n40000 20 1980\n")
        list(read_samples(str(tmp_path / "m.dmon")))


def test_a_store_keeps_both(tmp_path):
    store = Store.open(tmp_path / "s", create=True)
    for cluster in ("east", "west"):
        (tmp_path / "a.prom").write_text(EXPOSITION.format(labels="", value=0.2, time=T))
        store.append(read_samples(str(tmp_path / "a.prom"), Options(cluster=cluster)))
    assert store.info().devices == 2
