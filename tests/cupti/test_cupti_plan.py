"""Passes: what NVIDIA's own library answers without a GPU, and how groups and cheaper names are found."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cupti.cupti_counting import SHARE, installed, real
from ullage.cupti.counters import host, perfworks, structures
from ullage.cupti.counters.catalogue import Catalogue, CounterSource, catalogue
from ullage.cupti.counters.host import NotCollected, Use
from ullage.cupti.counters.names import CounterMetric
from ullage.cupti.counters.plan import cheaper_way, plan, twin_names, way
from ullage.cupti.counters.wanted import SETS, wanted
from ullage.cupti.metric_names.dictionary import base, metrics
from ullage.errors import UllageError

DCGM = [f"{name}{SHARE}" for name in ("sm__cycles_active", "sm__warps_active", "sm__pipe_tensor_cycles_active", "dram__cycles_active")]
SEVEN = [*DCGM, "sm__inst_executed_pipe_tensor.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"]
THROUGHPUT = [f"sm__throughput{SHARE}"]


def planned(chip, names, modes=("range", "pm")):
    library = real()
    return plan(library, chip, names, catalogue(chip, CounterSource(library, "")), modes)


@pytest.mark.parametrize(
    ("chip", "names", "ranges", "sampling"),
    [
        ("GH100", DCGM, 1, 1), ("GH100", SEVEN, 1, 3), ("GH100", THROUGHPUT, 8, 19),
        ("GH100", [f"sm__pipe_fp64_cycles_active{SHARE}"], 1, 2),
        ("GB100", DCGM, 1, 1), ("GA100", DCGM, 1, 1), ("AD102", DCGM, 1, 1),
    ],
)  # fmt: skip
def test_passes_are_those_of_cupti_13_1(chip, names, ranges, sampling):
    found = planned(chip, names)
    assert (found.ways["range"].passes, found.ways["pm"].passes) == (ranges, sampling)


@pytest.mark.parametrize(("chip", "ranges", "sampling"), [("GH100", 88, 248), ("GB100", 92, 260), ("GA100", 80, 224)])
def test_a_pass_holds_as_many_counters_as_cupti_13_1_says(chip, ranges, sampling):
    assert (host.most(real(), chip, Use.RANGES), host.most(real(), chip, Use.SAMPLING)) == (ranges, sampling)


class Keeping:
    """A library that keeps the chip's name where the caller has put it, as NVIDIA's does, and never lets go of it."""

    path, version = Path("libcupti.so"), 130_101

    def has(self, _name):
        return True

    def call(self, function, given, *, doing):
        assert doing
        if function == "cuptiProfilerHostInitialize":
            structure = ctypes.cast(given, ctypes.POINTER(structures.structure(function, self.version))).contents
            self.name = ctypes.c_void_p.from_buffer(structure, type(structure).pChipName.offset).value
            structure.pHostObject = 1


def test_the_name_of_the_chip_stays_where_cupti_keeps_it_as_long_as_it_is_asked(monkeypatch):
    # a program in C gives it as a constant; one that is gone makes CUPTI 13.1 plan other passes: 2 for this metric, which needs 1
    monkeypatch.setattr(host, "prepare", lambda _: None)
    library = Keeping()
    with host.Host(library, "GH100", Use.SAMPLING):
        taken = [b"XY%03d" % number for number in range(1000)]  # bytes of the same size, where that of the name may have been
        assert (ctypes.string_at(library.name), len(taken)) == (b"GH100", 1000)


def test_a_metric_of_one_counter_is_one_pass_of_sampling():
    name = "SM_C.TriageCompute.smsp__thread_inst_executed_pred_on.min"
    assert [way.passes for way in planned("GH100", [name]).ways.values()] == [1, 1]


_OLDER = """
import json, sys
from ullage.cupti.counters.catalogue import CounterSource, catalogue
from ullage.cupti.counters.host import Host, Unserved, Use, most
from ullage.cupti.counters.plan import plan
from ullage.cupti.library import find
library, names = find(sys.argv[1]), ("sm__cycles_active", "l1tex__t_sector_hit_rate", "sm__throughput")
with Host(library, "GH100", Use.RANGES) as opened:
    told = {"endings": [len(opened.submetrics(name, kind)) for kind, name in enumerate(names)]}
for chip in ("GV100", "GV11B"):
    found = plan(library, chip, ["sm__cycles_active.sum"], catalogue(chip, CounterSource(library, "")))
    told[chip] = [found.ways["range"].passes, found.ways["pm"].passes, found.ways["pm"].refused, most(library, chip, Use.SAMPLING)]
try:
    Host(library, "GV100", Use.SAMPLING)
except Unserved as unserved:
    told["error"] = unserved.problem
print(json.dumps(told))
"""


def test_older_releases_and_chips_without_sampling_are_asked_as_they_can_be():
    # in a process of its own, as two copies of libcupti collide; before 13.0 endings are listed for complete names alone
    library = installed(28) or pytest.skip("no nvidia-cuda-cupti-cu12 12.9 on this machine")
    done = subprocess.run([sys.executable, "-c", _OLDER, str(library.path)], check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert told["endings"] == [44, 3, 8]
    # of GV11B the profiler host counts no ranges either, and Perfworks does
    assert told["GV100"] == told["GV11B"] == [1, 0, ["sm__cycles_active.sum"], None]
    assert told["error"] == "this CUPTI doesn't count by PM sampling on GV100"


@pytest.mark.parametrize("names", [DCGM, SEVEN, THROUGHPUT])
def test_perfworks_counts_the_passes_over_ranges_as_the_profiler_host_does(names):
    library = real()
    with perfworks.Evaluator(library, "GH100") as evaluator, host.Host(library, "GH100", Use.RANGES) as opened:
        assert evaluator.passes(names) == opened.passes(names)


def test_what_makes_it_more_than_one_pass_is_left_out():
    found = planned("GH100", SEVEN, ["pm"]).ways["pm"]
    assert found.dropped == ("sm__inst_executed_pipe_tensor.sum",)
    assert found.kept == tuple(name for name in SEVEN if name not in found.dropped)
    assert found.alone["sm__inst_executed_pipe_tensor.sum"] == 2


def test_a_family_made_for_one_pass_comes_cheaper():
    found = planned("GH100", [f"sm__pipe_fp64_cycles_active{SHARE}"], ["pm"]).cheaper["pm"]
    assert found.renamed == {f"sm__pipe_fp64_cycles_active{SHARE}": f"TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime{SHARE}"}
    assert found.way.passes == 1


def test_what_sampling_does_not_have_under_one_name_it_has_under_another():
    name = f"sm__pipe_tensor_op_hmma_cycles_active{SHARE}"
    found = planned("GH100", [*DCGM, name], ["pm"])
    assert found.ways["pm"].refused == (name,)
    assert (found.cheaper["pm"].way.passes, found.cheaper["pm"].way.refused) == (1, ())


def test_a_family_of_one_hardware_unit_fits_one_pass_of_sampling():
    names = [f"{metric.name}.sum" for metric in metrics("GH100", "13.1") if metric.name.startswith("TPC.TriageCompute.")]
    counters = [name for name in names if "average" not in name]
    assert len(counters) == 24
    with host.Host(real(), "GH100", Use.SAMPLING) as opened:
        assert opened.passes(counters) == 1


@pytest.mark.parametrize("chip", ["GA100", "AD102", "GH100", "GB100", "GB110", "GB202"])
def test_ullages_own_counters_exist_and_the_devices_fit_one_pass(chip):
    known = [metric.name for metric in metrics(chip, "13.1")]  # in their order, on which passes depend
    found = {which: wanted(which, known) for which in SETS}
    assert {base(name) for names in found.values() for name in names.values()} <= set(known)
    assert set(found["device"]) == {quantity.name for quantity in SETS["device"]}  # nothing is missing
    device = planned(chip, list(found["device"].values()))
    assert (device.ways["range"].passes, device.ways["pm"].passes, device.ways["pm"].refused) == (1, 1, ())
    with host.Host(real(), chip, Use.RANGES) as opened:
        passes = opened.passes(list(found["kernel"].values()))
    assert passes == {"GA100": 10, "AD102": 10, "GH100": 8, "GB100": 7, "GB110": 9, "GB202": 11}[chip]


def test_an_unknown_set_is_refused_with_the_nearest():
    with pytest.raises(UllageError, match="'kernels'") as caught:
        wanted("kernels", [])
    assert "'kernel'" in caught.value.hint


def test_ranges_are_counted_where_sampling_cannot_be(monkeypatch):
    monkeypatch.setattr(host, "refusal", lambda _: "it needs a driver")
    found = planned("GH100", SEVEN)
    assert found.ways["range"].passes == 1
    assert found.unknown == {"pm": "it needs a driver"}
    assert found.ways["range"].most is None
    with pytest.raises(UllageError, match="it needs a driver"):
        planned("GH100", SEVEN, ["pm"])


def counting(sizes, room, without=()):
    """Count passes as hardware would that has `room` counters a pass, where each metric needs some of its own."""

    def count(names):
        refused = [name for name in names if name in without]
        if refused:
            raise NotCollected(refused, "X1", Use.SAMPLING)
        return -(-sum(sizes[name] for name in names) // room)

    return count


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(4, 10))
def test_groups_hold_each_metric_once_and_fit_a_pass(sizes, room):
    by_name = {f"m{index}.sum": size for index, size in enumerate(sizes)}
    found = way("range", list(by_name), counting(by_name, room), grouped=True)
    assert sorted(name for group in found.groups for name in group) == sorted(by_name)
    for group in found.groups:
        assert sum(by_name[name] for name in group) <= room or len(group) == 1
    assert found.passes <= sum(found.alone.values())
    assert set(found.kept) | set(found.dropped) == set(by_name)


def test_metrics_that_a_mode_lacks_are_told_apart():
    found = way("pm", ["a.sum", "b.sum"], counting({"a.sum": 1, "b.sum": 1}, 4, without=["b.sum"]))
    assert (found.passes, found.refused, found.kept) == (1, ("b.sum",), ("a.sum",))
    nothing = way("pm", ["b.sum"], counting({"b.sum": 1}, 4, without=["b.sum"]))
    assert (nothing.passes, nothing.groups, nothing.kept) == (0, (), ())


def test_metrics_that_go_singly_and_not_together_have_no_number_of_passes():
    def count(names):
        if len(names) > 1:
            raise NotCollected(names, "X1", Use.RANGES)
        return 1

    found = way("range", ["a.sum", "b.sum"], count, grouped=True)
    assert (found.passes, found.groups) == (None, (("a.sum",), ("b.sum",)))


def test_as_few_names_as_possible_are_changed():
    # a and b share 4 places and need 3 each; a's twin needs one, c fits anyway
    sizes = {"a.sum": 3, "b.sum": 3, "c.sum": 0, "T.a.sum": 1, "T.c.sum": 0}
    names = ["a.sum", "b.sum", "c.sum"]
    found = cheaper_way(way("pm", names, counting(sizes, 4)), names, {}, counting(sizes, 4))
    assert found is None
    twins = {base(name): f"T.{base(name)}" for name in ("a.sum", "c.sum")}
    found = cheaper_way(way("pm", names, counting(sizes, 4)), names, twins, counting(sizes, 4))
    assert found.renamed == {"a.sum": "T.a.sum"}
    assert found.way.passes == 1


def test_a_twin_has_the_same_kind_and_unit():
    names = [
        CounterMetric("sm__a_cycles", "counter", "cycles"), CounterMetric("TPC.TriageCompute.sm__a_cycles_realtime", "counter", "cycles"),
        CounterMetric("sm__b_cycles", "counter", "cycles"), CounterMetric("sm__b_cycles_realtime", "counter", "warps"),
        CounterMetric("sm__throughput", "throughput", "percent"), CounterMetric("TriageCompute.sm__throughput", "throughput", "percent"),
    ]  # fmt: skip
    assert twin_names(Catalogue("X1", tuple(names), "")) == {"sm__a_cycles": "TPC.TriageCompute.sm__a_cycles_realtime"}
