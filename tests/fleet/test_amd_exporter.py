"""What AMD's device-metrics-exporter prints, read from a page and from a Prometheus that scraped it."""

from __future__ import annotations

import json

import pytest

from ullage.gpus.chip import find
from ullage.intake import opened
from ullage.problems import Problems
from ullage.sources.naming.labels import identity
from ullage.sources.source import Options, read_samples
from ullage.tables import Flag

# label sets as the exporter prints them: gpu_gfx_activity of an MI300X (public log), values made up
CARD = 'card_model="102-G30211-0C",card_series="AMD Instinct MI300X OAM",card_vendor="AMD"'
WHO = (
    f'{CARD},cluster_name="",container="",driver_version="6.12.12",gpu_compute_partition_type="spx",gpu_id="2",'
    'gpu_memory_partition_type="nps1",gpu_partition_id="0",gpu_uuid="ccff74a1-0000-1000-80e0-c6d49f5b0d86",hostname="tw038",'
    'namespace="",pod="",serial_number="692409005408",vbios_version="022.040.003.043.000001"'
)
T = 1_786_363_200_000


def clock(kind: str, index: int, value: int) -> str:
    return f'gpu_clock{{{WHO},clock_type="GPU_CLOCK_TYPE_{kind}",clock_index="{index}"}} {value} {T}\n'


# an MI300X has eight dies, each with its own system clock; the memory's is the ninth
PAGE = (
    f"gpu_prof_tensor_active_percent{{{WHO}}} 40 {T}\ngpu_gfx_activity{{{WHO}}} 96 {T}\n"
    + "".join(clock("SYSTEM", die, 1300 + 100 * die) for die in range(8))
    + clock("MEMORY", 8, 1300)
)


def test_the_series_of_a_card_is_its_model_and_the_boards_number_is_not():
    labels = {"card_model": "102-G30299-00", "card_series": "AMD Instinct MI300X OAM", "gpu_id": "0", "hostname": "n1"}
    assert identity(labels)["model"] == "AMD Instinct MI300X OAM"
    assert find(str(identity(labels)["model"])).name == "AMD Instinct MI300X"
    assert identity({"card_model": "102-G30299-00", "gpu_id": "0", "hostname": "n1"})["model"] == "102-G30299-00"


@pytest.mark.parametrize("series", ["", "AMD INSTINCT MI300 (MCM) OAM AC MBA MSFT"])
def test_a_board_whose_number_is_known_needs_no_series(series):
    # the exporter's default labels hold the number alone; the names of early boards say no more than "MI300"
    who = identity({"card_model": "102-G30211-00", "card_series": series, "gpu_id": "0", "hostname": "n1"})
    assert find(str(who["model"])).name == "AMD Instinct MI300X"


@pytest.mark.parametrize("label", ["market_name", "product_name", "card_series"])
def test_the_names_under_which_amds_tools_sell_a_card_are_models(label):
    assert identity({label: "AMD Instinct MI325X", "gpu_id": "0", "hostname": "n1"})["model"] == "AMD Instinct MI325X"


def rows(path, problems=None):
    return [row for batch in read_samples(str(path), Options(), problems or Problems()) for row in batch.to_pylist()]


def test_a_page_gives_one_row_with_the_mean_clock_of_the_dies(tmp_path):
    (tmp_path / "a.prom").write_text(PAGE)
    [row] = rows(tmp_path / "a.prom")
    # 1300, 1400, ... 2000: the mean is 1650
    assert row["sm_clock"] == pytest.approx(1.65e9) and row["memory_clock"] == pytest.approx(1.3e9)
    assert row["tensor_active"] == pytest.approx(0.4) and row["gpu_util"] == pytest.approx(0.96)
    assert row["flags"] & (Flag.COPIED | Flag.CONFLICT) == 0
    assert (row["host"], row["index"], row["mig"], row["job"]) == ("tw038", 2, None, None)


def test_a_prometheus_that_scraped_it_gives_the_same(tmp_path):
    (tmp_path / "a.prom").write_text(PAGE)
    result = []
    for line in PAGE.splitlines():
        name, _, rest = line.partition("{")
        labels, _, value = rest.rpartition("}")
        told = dict(part.split("=", 1) for part in labels.split(","))
        metric = {"__name__": name} | {key: text.strip('"') for key, text in told.items()}
        result.append({"metric": metric, "values": [[T / 1000, value.split()[0]]]})
    (tmp_path / "a.json").write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    problems = Problems()
    assert rows(tmp_path / "a.json", problems) == rows(tmp_path / "a.prom")
    assert problems.lines() == []


def test_a_fleet_of_amd_gpus_has_an_ofu(tmp_path):
    (tmp_path / "a.prom").write_text(PAGE)
    with opened([str(tmp_path / "a.prom")]) as taken:
        [model] = taken.samples.select("model").to_pyarrow()["model"].to_pylist()
    assert find(model).name == "AMD Instinct MI300X"
