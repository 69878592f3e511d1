"""A window cut out of a place is a part of the whole: the same numbers however one asks, and parts that add up."""

import shutil
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

import ullage
from ullage.intake import opened

START = 1_786_320_000_000  # 2026-08-10T00:00:00Z, in ms
TENSOR_CLOCK = 1830e6  # of an H100 SXM


def reading(second: int, **fields: float) -> str:
    """The lines of one GPU in a scrape `second` after START."""
    labels = '{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="n",namespace="ml",pod="a"}'
    names = {
        "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "clock": "DCGM_FI_DEV_SM_CLOCK",
        "worked": "DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL",
        "elapsed": "DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL",
    }
    return "".join(f"{names[field]}{labels} {value:.6f} {START + 1000 * second}\n" for field, value in fields.items())


def scrapes(seconds: int = 3600, every: int = 30) -> str:
    """An hour at 30 s: cycles are counted in its quarters 1 and 3 (tensor pipes work in 10 % of them), gauges say 50 % and 90 %."""
    lines = ""
    for second in range(0, seconds + 1, every):
        counted = ((second - 1) // 900) % 2 == 0  # in the time before this reading
        there = counted or second % 900 == 0  # the counters' first reading says nothing of the time before it
        cycles = {"worked": 1e9 + 0.1 * TENSOR_CLOCK * second, "elapsed": 1e9 + TENSOR_CLOCK * second} if there else {}
        lines += reading(second, tensor=0.5 if counted else 0.9, clock=1830, **cycles)
    return lines


def truth(since: int, until: int) -> tuple[float, float, float]:
    """Seconds, the integral of OFU, and seconds that are exact, of the hour above between two of its seconds."""
    inside = [second // 900 % 2 == 0 for second in range(since, until)]
    return len(inside), sum(0.1 if counted else 0.9 for counted in inside), sum(inside)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    (folder / "hour.prom").write_text(scrapes())
    with opened([str(folder / "hour.prom")], store=str(folder / "store")) as taken:
        pq.write_table(taken.samples.to_pyarrow(), folder / "settled.parquet")
    plain = pq.read_table(folder / "settled.parquet").select(["time", "gpu", "model", "job", "tensor_active", "sm_clock"])
    pq.write_table(plain, folder / "plain.parquet")
    yield folder
    shutil.rmtree(folder)


def long(*values):
    """A case for the long tests."""
    return pytest.param(*values, marks=pytest.mark.full)


WINDOWS = [(887, 1803), *(long(*window) for window in [(0, 900), (900, 1800), (450, 1350), (1817, 2699), (13, 17), (2691, 2712)])]


@pytest.mark.parametrize("name", ["hour.prom", "store", long("settled.parquet")])
@pytest.mark.parametrize(("since", "until"), WINDOWS)
def test_a_window_is_what_the_whole_says_of_its_time(places, name, since, until):
    report = ullage.fleet(str(places / name), since=START + 1000 * since, until=START + 1000 * until)
    seconds, ofu, exact = truth(since, until)
    assert report.gpu_hours * 3600 == pytest.approx(seconds)
    assert report.ofu * seconds == pytest.approx(ofu)
    assert report.exact_share * seconds == pytest.approx(exact)


@pytest.mark.full
@pytest.mark.parametrize("name", ["hour.prom", "store", "settled.parquet", "plain.parquet"])
def test_parts_of_a_window_add_up_to_it(places, name):
    cuts = [0, 17, 900, 1803, 1804, 3600]
    parts = [ullage.fleet(str(places / name), since=START + 1000 * since, until=START + 1000 * until) for since, until in pairwise(cuts)]
    whole = ullage.fleet(str(places / name), since=START, until=START + 3_600_000)
    assert sum(part.gpu_hours for part in parts) == pytest.approx(whole.gpu_hours)
    assert sum(part.ullage for part in parts) == pytest.approx(whole.ullage)


@pytest.mark.full
def test_samples_that_speak_for_longer_than_most_reach_back_into_a_window_all_the_same(tmp_path):
    # read every 5 minutes for two days; of the second at 00:02 a sample three minutes later speaks
    moments = np.arange(0, 2 * 86_400 + 1, 300)
    (tmp_path / "days.prom").write_text("".join(reading(int(second), tensor=0.5, clock=1830) for second in moments))
    with opened([str(tmp_path / "days.prom")], store=str(tmp_path / "store")):
        pass
    for name in ("days.prom", "store"):
        report = ullage.fleet(str(tmp_path / name), since=START + 86_400_000 - 60_000, until=START + 86_400_000 + 120_000)
        assert report.gpu_hours * 3600 == pytest.approx(180)


def test_a_job_that_ended_before_the_window_is_not_seen_in_it(tmp_path):
    early, late = ('pod="a"', 'pod="b"')
    lines = [reading(second, tensor=0.5, clock=1830).replace(early, early if second <= 900 else late) for second in range(30, 1801, 30)]
    (tmp_path / "two.prom").write_text("".join(lines))
    report = ullage.fleet(str(tmp_path / "two.prom"), since=START + 900_000, until=START + 1_800_000)
    assert [group.key for group in report.groups] == ["ml/b"]
