"""Questions that need little: the fleet's OFU, the tree of every job; and that knowing empty columns changes no sum."""

from __future__ import annotations

import math
from pathlib import Path

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import T0, settled_table
from tests.seeds import examples
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.ofu import fleet_ofu, job_trees
from ullage.reports.fleet.request import FleetRequest
from ullage.store.footers import Footers, footers_of
from ullage.store.reading import connection, open_settled
from ullage.store.reading import settled_table as table_of_parts
from ullage.sums.devices import device_sums
from ullage.sums.held import empty, full, known, same_everywhere


@pytest.fixture
def at_rest(tmp_path):
    """A function from rows to settled samples read by the store's own reader, which knows what the footers say."""

    def make(rows, columns=None):
        table = settled_table(rows)
        parquet.write_table(table.select(columns) if columns else table, tmp_path / "day.parquet")
        return open_settled(tmp_path / "day.parquet").samples()

    return make


ROWS = [
    {"gpu": "a", "job": "1", "gr_active": 0.9, "sm_active": 0.6, "tensor_active": 0.3, "sm_clock": 1830e6},
    {"gpu": "b", "job": "1", "gr_active": 0.3, "sm_active": 0.2, "tensor_active": 0.1, "sm_clock": 915e6},
    {"gpu": "b", "job": "2", "gr_active": 0.5, "sm_active": 0.4, "tensor_active": 0.4, "sm_clock": 1830e6},
]


def test_fleet_ofu_is_the_mean_over_all_samples(at_rest):
    # 0.3 at the tensor clock, 0.1 at half of it, 0.4 at it: (0.3 + 0.05 + 0.4) / 3 = 0.25
    assert fleet_ofu(at_rest(ROWS)) == pytest.approx(0.25, rel=1e-6)


@pytest.mark.parametrize("absurd", [float("nan"), float("inf"), -0.1, 1.2, 1e30])
def test_what_no_device_can_give_in_a_foreign_file_is_missing_and_refuses_no_question(at_rest, absurd):
    sound = {"gpu": "c", "job": "1", "gr_active": 0.9, "sm_active": 0.6, "tensor_active": 0.3, "sm_clock": 1830e6}
    for broken in ({"tensor_active": absurd}, {"sm_clock": 1e10 if absurd == 1.2 else absurd}):
        samples = at_rest([*ROWS, sound | broken])
        assert fleet_ofu(samples) == pytest.approx(0.25, rel=1e-6)
        assert fleet(samples, None, FleetRequest()).ofu_all == pytest.approx(0.25, rel=1e-6)


def test_fleet_ofu_is_what_the_report_says_of_all_series(at_rest):
    samples = at_rest(ROWS)
    assert fleet_ofu(samples) == pytest.approx(fleet(samples, None, FleetRequest()).ofu_all, rel=1e-12)


def test_job_trees_are_the_groups_of_the_report(at_rest):
    samples = at_rest(ROWS)
    report = {group.key: group for group in fleet(samples, None, FleetRequest(by="job")).groups}
    trees = {group.key: group for group in job_trees(samples)}
    assert trees.keys() == report.keys()
    for job, group in trees.items():
        assert group.tree.as_dict() == report[job].tree.as_dict()
        assert (group.gpus, group.gpu_hours) == (report[job].gpus, report[job].gpu_hours)


def test_each_tree_is_a_product(at_rest):
    for group in job_trees(at_rest(ROWS)):
        assert np.prod([factor.value for factor in group.tree.factors]) == pytest.approx(group.ofu, rel=1e-12)


def test_cycle_counters_go_before_clock_samples_also_when_only_ofu_is_asked(at_rest):
    # 30 s at 1830 MHz are 54.9e9 cycles, a quarter of them tensor cycles; the clock sample (915 MHz) would say 0.125
    row = {"tensor_active": 0.25, "sm_clock": 915e6, "tensor_cycles_delta": 13_725_000_000, "sm_cycles_delta": 54_900_000_000}
    assert fleet_ofu(at_rest([row, row])) == pytest.approx(0.25, rel=1e-9)


def test_mig_instances_weigh_their_share_also_when_only_ofu_is_asked(at_rest):
    # 3 of 7 slices and 1 of 7, and 3 that nobody made: 2.4 / 7; the whole GPU's own row would count twice
    rows = [
        {"time": T0 + 30_000, "mig": "3g.40gb/1", "tensor_active": 0.7, "sm_clock": 1830e6},
        {"time": T0 + 30_000, "mig": "1g.10gb/9", "tensor_active": 0.3, "sm_clock": 1830e6},
        {"time": T0 + 30_000, "mig": None, "tensor_active": 0.9, "sm_clock": 1830e6},
    ]
    assert fleet_ofu(at_rest(rows)) == pytest.approx(2.4 / 7, rel=1e-6)


def test_a_fleet_of_which_no_gpu_is_known_has_no_ofu(at_rest):
    assert fleet_ofu(at_rest([{"model": "a GPU of nobody", "tensor_active": 0.5, "sm_clock": 1e9}])) is None


def test_the_name_of_the_gpu_can_be_given_where_samples_lack_it(at_rest):
    rows = [{"model": None, "tensor_active": 0.5, "sm_clock": 1830e6}]
    assert fleet_ofu(at_rest(rows)) is None
    assert fleet_ofu(at_rest(rows), "H100 SXM") == pytest.approx(0.5, rel=1e-6)


def test_without_samples_there_is_no_ofu(at_rest):
    assert fleet_ofu(at_rest(ROWS).filter(ibis.literal(False))) is None
    assert job_trees(at_rest(ROWS).filter(ibis.literal(False))) == []


# --- what the footers say ---


def written(folder: Path, **columns: list) -> Path:
    file = folder / f"{len(list(folder.iterdir()))}.parquet"
    parquet.write_table(pa.table(columns), file)
    return file


def test_a_column_is_empty_when_no_file_has_a_value_of_it(tmp_path):
    nothing = pa.array([None, None], pa.float32())
    first, second = written(tmp_path, a=nothing, b=[1, 2], c=nothing), written(tmp_path, a=nothing, b=[1, None], c=[1.0, 2.0])
    assert footers_of([first]) == Footers({"a", "c"}, {"b"})
    assert footers_of([first, second]) == Footers({"a"}, set())


def test_a_column_that_a_file_lacks_is_not_full(tmp_path):
    files = [written(tmp_path, a=[1], b=[2]), written(tmp_path, a=[1])]
    assert footers_of(files) == Footers(set(), {"a"}, {"a": 1})


def test_a_value_is_the_same_everywhere_where_every_row_of_every_file_has_it(tmp_path):
    first = written(tmp_path, a=["x", "x"], b=["x", "y"], c=["x", None], d=[7, 7], e=[1.5, 1.5], f=[float("nan"), 1.5])
    assert footers_of([first]).same == {"a": "x", "d": 7}
    assert footers_of([first, written(tmp_path, a=["x"], d=[8])]).same == {"a": "x"}
    groups = tmp_path / "groups.parquet"
    parquet.write_table(pa.table({"a": ["x", "x", "y"]}), groups, row_group_size=2)
    assert footers_of([groups]).same == {}


@pytest.mark.parametrize("second", ["north", "south", None])
def test_a_cluster_that_is_the_same_in_every_row_is_known_before_anything_is_asked(tmp_path, second):
    rows = [{"cluster": "north", "job": "a"}, {"cluster": second, "job": "a"}]
    parquet.write_table(settled_table(rows), tmp_path / "part.parquet")
    samples = table_of_parts(connection(), [tmp_path / "part.parquet"], None, None, None)
    assert same_everywhere(samples, "cluster") == (second == "north")
    assert sorted(map(str, samples.cluster.to_pyarrow().to_pylist())) == sorted(map(str, ("north", second)))
    observed = sum(samples.span_ms.to_pyarrow().to_pylist()) / 3.6e6
    assert sum(group.gpu_hours for group in job_trees(samples)) == pytest.approx(observed)
    foreign = table_of_parts(connection(), [tmp_path / "part.parquet"], None, None, None, foreign=True)
    assert not same_everywhere(foreign, "cluster")


def test_a_footer_without_statistics_claims_nothing(tmp_path):
    file = tmp_path / "plain.parquet"
    parquet.write_table(pa.table({"a": [1, 2], "b": pa.array([None, None], pa.int64())}), file, write_statistics=False)
    assert footers_of([file]) == Footers()


def test_a_damaged_file_claims_nothing(tmp_path):
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and then nothing")
    assert footers_of([written(tmp_path, a=[1]), tmp_path / "damaged.parquet"]) == Footers()


def test_what_the_footers_say_survives_filters_and_new_columns(tmp_path):
    rows = [{"power": 300.0, "tensor_active": 0.5}, {"power": None, "tensor_active": 0.25}]
    parquet.write_table(settled_table(rows), tmp_path / "part.parquet")
    samples = table_of_parts(connection(), [tmp_path / "part.parquet"], None, None, None)
    samples = samples.filter(samples.span_ms > 0).mutate(twice=samples.span_ms * 2)
    assert empty(samples, "sm_clock") and not empty(samples, "power") and not empty(samples, "twice")
    assert full(samples, "tensor_active") and not full(samples, "power")
    assert (known(samples, "tensor_active"), known(samples, "tensor_active", "sm_clock")) == (True, False)
    assert not isinstance(known(samples, "power"), bool)


def test_of_a_table_from_elsewhere_nothing_is_known(in_engine):
    samples = in_engine(settled_table([{"power": 300.0}]))
    assert not empty(samples, "sm_clock")
    assert not full(samples, "power")


some = st.one_of(st.none(), st.sampled_from([0.0, 0.002, 0.25, 1.0]))
gauges = ("tensor_active", "sm_active", "gr_active", "gpu_util")
rows = st.fixed_dictionaries(
    dict.fromkeys(gauges, some)
    | {
        "gpu": st.sampled_from(["a", "b"]),
        "job": st.sampled_from([None, "1"]),
        "mig": st.sampled_from([None, "1g.10gb/7"]),
        "flags": st.sampled_from([0, 1, 640]),
        "sm_clock": st.one_of(st.none(), st.just(1830e6)),
        "tensor_cycles_delta": st.one_of(st.none(), st.just(10**9)),
    }
)


@given(st.lists(rows, min_size=1, max_size=6), st.sets(st.sampled_from([*gauges, "sm_clock", "mig", "job", "tensor_cycles_delta"])))
@settings(max_examples=examples(8, 25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_knowing_which_columns_are_empty_or_full_changes_no_sum(tmp_path, in_engine, drawn, without):
    drawn = [{name: None if name in without else value for name, value in row.items()} for row in drawn]
    parquet.write_table(settled_table(drawn), tmp_path / "day.parquet")
    told = device_sums(open_settled(tmp_path / "day.parquet").samples()).to_pyarrow().to_pylist()
    untold = device_sums(in_engine(settled_table(drawn))).to_pyarrow().to_pylist()
    for mine, theirs in zip(told, untold, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            other = theirs[name]
            numeric = isinstance(value, int | float) or name.endswith(("_ms", "_sum", "_cycles"))
            # of a column without a value a sum is 0 over no time; asked of every sample it is null over no time
            assert math.isclose(float(value or 0), float(other or 0), rel_tol=1e-12) if numeric else value == other, name
