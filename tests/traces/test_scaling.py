"""Several runs beside each other: the TALP paper's tables, the products in them, and scalability from a reference run."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import UllageError
from ullage.metrics.host import HOST
from ullage.metrics.scaling import detected
from ullage.metrics.tree import DEVICE_TALP, Branch, Node, bounded
from ullage.render.scaling import headline, lost, record, table
from ullage.render.svg.scaling import scaling as picture
from ullage.reports.trace.part import RunPart, view
from ullage.reports.trace.scaling import ScalingReport, scaling
from ullage.totals import DeviceTotals, HostTotals
from ullage.views.draw import NARROW, WIDE, extent
from ullage.views.table import ties
from ullage.views.text import table_text

SVG = "{http://www.w3.org/2000/svg}"

# TALP paper, tables 1 to 3, for 1, 2, 4 and 8 nodes: host (5 rows) and device (4 rows), rows as printed from top to bottom
SOD2D = (
    ((0.06, 0.05, 0.04, 0.04), (0.94, 0.88, 0.79, 0.67), (0.95, 0.89, 0.80, 0.68), (1.00, 0.98, 0.99, 0.99), (0.06, 0.05, 0.06, 0.06)),
    ((0.87, 0.81, 0.72, 0.59), (1.00, 0.98, 0.99, 0.99), (0.99, 0.99, 0.99, 0.99), (0.88, 0.84, 0.73, 0.60)),
)
FALL3D = (
    ((0.26, 0.16, 0.10, 0.07), (0.44, 0.27, 0.16, 0.11), (0.85, 0.83, 0.82, 0.89), (0.52, 0.32, 0.20, 0.12), (0.59, 0.61, 0.63, 0.64)),
    ((0.14, 0.08, 0.04, 0.03), (0.98, 0.97, 0.96, 0.96), (0.78, 0.77, 0.76, 0.75), (0.19, 0.11, 0.06, 0.04)),
)
XSHELLS = (
    ((0.36, 0.29, 0.26, 0.15), (0.90, 0.64, 0.51, 0.25), (0.91, 0.66, 0.52, 0.27), (0.98, 0.97, 0.98, 0.93), (0.40, 0.45, 0.51, 0.60)),
    ((0.52, 0.35, 0.24, 0.10), (1.00, 1.00, 1.00, 1.00), (0.98, 0.97, 0.96, 0.94), (0.54, 0.36, 0.25, 0.10)),
)
# the whole tables as we print them, in the paper's form: its rows, its order, two digits
TABLES = {
    "SOD2D": (
        SOD2D,
        """\
Metrics  Nodes                              1     2     4     8
Host     Parallel efficiency             0.06  0.05  0.04  0.04
         ├─ MPI parallel efficiency      0.94  0.88  0.79  0.67
         │  ├─ Communication efficiency  0.95  0.89  0.80  0.68
         │  └─ Load balance              1.00  0.98  0.99  0.99
         └─ Device offload efficiency    0.06  0.05  0.06  0.06
Device   Parallel efficiency             0.87  0.81  0.72  0.59
         ├─ Load balance                 1.00  0.98  0.99  0.99
         ├─ Communication efficiency     0.99  0.99  0.99  0.99
         └─ Orchestration efficiency     0.88  0.84  0.73  0.60""",
    ),
    "FALL3D": (
        FALL3D,
        """\
Metrics  Nodes                              1     2     4     8
Host     Parallel efficiency             0.26  0.16  0.10  0.07
         ├─ MPI parallel efficiency      0.44  0.27  0.16  0.11
         │  ├─ Communication efficiency  0.85  0.83  0.82  0.89
         │  └─ Load balance              0.52  0.32  0.20  0.12
         └─ Device offload efficiency    0.59  0.61  0.63  0.64
Device   Parallel efficiency             0.14  0.08  0.04  0.03
         ├─ Load balance                 0.98  0.97  0.96  0.96
         ├─ Communication efficiency     0.78  0.77  0.76  0.75
         └─ Orchestration efficiency     0.19  0.11  0.06  0.04""",
    ),
    "XSHELLS": (
        XSHELLS,
        """\
Metrics  Nodes                              1     2     4     8
Host     Parallel efficiency             0.36  0.29  0.26  0.15
         ├─ MPI parallel efficiency      0.90  0.64  0.51  0.25
         │  ├─ Communication efficiency  0.91  0.66  0.52  0.27
         │  └─ Load balance              0.98  0.97  0.98  0.93
         └─ Device offload efficiency    0.40  0.45  0.51  0.60
Device   Parallel efficiency             0.52  0.35  0.24  0.10
         ├─ Load balance                 1.00  1.00  1.00  1.00
         ├─ Communication efficiency     0.98  0.97  0.96  0.94
         └─ Orchestration efficiency     0.54  0.36  0.25  0.10""",
    ),
}


def tree(branch: Branch, values: list[float]) -> Node:
    """A tree with values from a printed table, which are taken off the list from the top."""
    value = values.pop(0)
    return Node(branch.metric, branch.label, value, value, value, tuple(tree(child, values) for child in branch.children))


def printed(paper: tuple[tuple[tuple[float, ...], ...], ...]) -> ScalingReport:
    """The report of a printed table: trees without any totals behind them."""
    trees = [(tree(HOST, [row[run] for row in paper[0]]), tree(DEVICE_TALP, [row[run] for row in paper[1]])) for run in range(4)]
    views = [(name, RunPart(name, 0, host, device, None, None)) for name, (host, device) in zip("1248", trees, strict=True)]
    return scaling(views, unit="Nodes")


def within(parent: float, children: list[float]) -> bool:
    """Whether a product can hold, each number having been rounded to two digits."""
    low, high = math.prod(child - 0.005 for child in children), math.prod(child + 0.005 for child in children)
    return low < parent + 0.005 and high > parent - 0.005


@pytest.mark.parametrize("name", TABLES)
def test_the_papers_table_comes_out_whole(name):
    paper, whole = TABLES[name]
    assert table_text(table(printed(paper))) == whole


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("branch", [0, 1], ids=["host", "device"])
def test_in_the_papers_tables_every_parent_is_the_product_of_its_children(name, branch):
    block = printed(TABLES[name][0]).blocks[branch]
    for run in range(4):
        root = block.rows[0].nodes[run]
        for _, node in root.walk():
            if node.children:
                assert within(node.value, [child.value for child in node.children]), (name, run, node.metric)


def test_the_one_number_that_the_extracted_text_lost_is_told_by_its_product():
    # SOD2D on 8 nodes: the text has a communication efficiency of "0.9"; 0.99 x 0.9 x 0.60 is 0.53, printed is 0.59
    assert not within(0.59, [0.99, 0.9, 0.60])
    assert within(0.59, [0.99, 0.99, 0.60])


def test_the_answer_names_the_factor_that_falls_most():
    # SOD2D: orchestration falls to 0.60 / 0.88 = 0.68 of what it was, load balance to 0.99
    assert headline(printed(SOD2D)) == "4 runs"
    assert lost(printed(SOD2D)) == "device parallel efficiency 0.87 to 0.59, orchestration efficiency falls most (0.88 to 0.60)"


# -- scalability --------------------------------------------------------------------------------------------------------


def run(size: int, *, elapsed: int, useful: int, kernel: int, instructions: int | None = None, cycles: int | None = None) -> RunPart:
    """A run on `size` processes, each with a device, all alike: `useful` and `kernel` are sums over them."""
    host = HostTotals(size, elapsed, useful, 0, useful // size, instructions=instructions, cycles=cycles)
    each = kernel // size
    device = DeviceTotals(size, elapsed, kernel, 0, 0, each, each, each, launches=1000 * size, bytes=10**6)
    return view(str(size), elapsed, host, device, "ai")


def values(report: ScalingReport, block: str, metric: str) -> list[float | None]:
    """A row, rounded."""
    rows = next(b.rows for b in report.blocks if b.name == block)
    row = next(r for r in rows if r.metric == metric)
    return [None if v is None else round(v, 6) for v in row.values]


# one process 100 ns, of them 80 useful and 50 in kernels; four processes 40 ns, 100 useful (25 each) and 80 in kernels (20 each)
ONE = run(1, elapsed=100, useful=80, kernel=50, instructions=1600, cycles=800)
FOUR = run(4, elapsed=40, useful=100, kernel=80, instructions=1800, cycles=1200)


def test_strong_scaling_against_the_smallest_run():
    report = scaling([("four", FOUR), ("one", ONE)])
    assert [c.name for c in report.columns] == ["one", "four"]
    # 1,800 instructions for 1,600: by resources to the power 0.08, so the work is the same
    assert (report.kind, report.told.basis, report.told.sure) == ("strong", "instructions", True)
    # 80 / 100; 1600 / 1800 x (1.5 / 2 per cycle) x (12 cycles per ns / 10) = 0.8; times 100 / 160 is 0.5
    assert values(report, "host_scaling", "computation_scalability") == [1, 0.8]
    assert values(report, "host_scaling", "instruction_scaling") == [1, 0.888889]
    assert values(report, "host_scaling", "ipc_scaling") == [1, 0.75]
    assert values(report, "host_scaling", "frequency_scaling") == [1, 1.2]
    assert values(report, "host_scaling", "global_efficiency") == [0.8, 0.5]
    # 50 / 80, which is 1000 launches for 4000 and each 20 ns instead of 50; the parallel efficiency stays 0.5
    assert values(report, "device_scaling", "kernel_time_scaling") == [1, 0.625]
    assert values(report, "device_scaling", "launch_scaling") == [1, 0.25]
    assert values(report, "device_scaling", "launch_time_scaling") == [1, 2.5]
    assert values(report, "device_scaling", "device_global_efficiency") == [0.5, 0.3125]
    assert values(report, "time", "speedup") == [1, 2.5]
    assert values(report, "time", "scaling_efficiency") == [1, 0.625]


def test_stated_weak_scaling_counts_four_times_the_work():
    report = scaling([("one", ONE), ("four", FOUR)], kind="weak")
    assert (report.kind, report.told) == ("weak", None)
    assert values(report, "host_scaling", "computation_scalability") == [1, 3.2]
    assert values(report, "time", "scaling_efficiency") == [1, 2.5]


def test_another_run_may_be_the_reference():
    report = scaling([("one", ONE), ("four", FOUR)], reference="four")
    assert report.reference == 1
    assert values(report, "host_scaling", "computation_scalability") == [1.25, 1]
    assert values(report, "time", "speedup") == [0.4, 1]


@pytest.mark.parametrize(
    ("work", "kind", "basis", "sure"),
    [
        ({"instructions": [100, 105, 110]}, "strong", "instructions", True),
        ({"instructions": [None] * 3, "kernel_time": [100, 200, 390]}, "weak", "kernel_time", True),
        # kernel time doubles from 1 to 4: the power is a half, which is neither; that launches stay 1000 in all settles it
        ({"kernel_time": [100, 140, 200], "launches": [1000, 1000, 1000]}, "strong", "launches", True),
        # as many launches on each device: a divided domain has that in strong scaling too
        ({"kernel_time": [100, 140, 200], "launches": [1000, 2000, 4000]}, "strong", "kernel_time", False),
        # first like strong scaling, then like weak: the runs do not agree
        ({"kernel_time": [100, 101, 400]}, "weak", "kernel_time", False),
        ({}, "strong", "", False),
    ],
)
def test_strong_and_weak_scaling_are_told_from_the_work(work, kind, basis, sure):
    found = detected([1, 2, 4], work)
    assert (found.kind, found.basis, found.sure) == (kind, basis, sure)


@pytest.mark.parametrize(
    ("resources", "work", "kind", "sure"),
    [
        ((1, 16), (1, 2), "strong", True),  # 16 to the 1/4 is 2: as far from 0 as may be
        ((1, 16), (1, 2.01), "strong", False),
        ((1, 4), (1, 2), "strong", False),  # the square root: nearer to neither
        ((1, 4), (1, 2.01), "weak", False),
        ((1, 16), (1, 8), "weak", True),  # 16 to the 3/4
        ((1, 16), (1, 7.96), "weak", False),
        ((1, 16), (1, 32), "weak", True),  # 16 to the 5/4
        ((1, 16), (1, 32.2), "weak", False),
        ((1, 16), (1, 0.5), "strong", True),  # 16 to the -1/4
        ((1, 16), (1, 0.49), "strong", False),
    ],
)
def test_scaling_is_sure_within_a_quarter_of_its_exponent(resources, work, kind, sure):
    found = detected(resources, {"instructions": work})
    assert (found.kind, found.sure) == (kind, sure)
    assert found.exponent == pytest.approx(math.log(work[1]) / math.log(resources[1]))


def test_the_run_that_is_farthest_from_the_reference_says_how_the_work_grows_and_all_must_agree():
    # 8 times the resources, 8 times the work; half the resources, as much work: strong by itself
    found = detected([4, 32, 2], {"instructions": [100, 800, 100]})
    assert (found.kind, found.exponent, found.sure) == ("weak", pytest.approx(1), False)
    assert detected([4, 32, 2], {"instructions": [100, 800, 50]}).sure
    # a quarter of the resources is farther than twice as many
    assert detected([4, 1, 8], {"instructions": [400, 100, 400]}).kind == "weak"
    # a run without a count, and one of as many resources, say nothing
    assert detected([4, 32, 4, 8], {"instructions": [100, 800, 1, None]}) == detected([4, 32], {"instructions": [100, 800]})
    # the reference is the second run: from 32 down to 4 the work shrinks alike
    assert detected([4, 32], {"instructions": [100, 800]}, reference=1).kind == "weak"


def test_launches_count_only_where_they_surely_say_strong_and_a_sure_answer_before_a_doubtful_one():
    assert detected([1, 16], {"launches": [100, 1600]}).basis == ""
    assert detected([1, 16], {"launches": [100, 210]}).basis == ""  # strong, but not surely
    assert detected([1, 16], {"launches": [100, 110]}).basis == "launches"
    doubtful, sure = {"instructions": [100, 400]}, {"kernel_time": [100, 1600]}
    assert detected([1, 16], {**doubtful, **sure}).basis == "kernel_time"
    assert detected([1, 16], {**doubtful, "cycles": [100, 300]}).basis == "instructions"
    nothing = detected([1, 16], {"instructions": [0, 400]})
    assert (nothing.kind, nothing.exponent, nothing.sure) == ("strong", None, False)


@given(
    st.lists(st.tuples(st.integers(1, 64), st.integers(1, 10**9), st.integers(1, 10**12), st.integers(1, 10**12)), min_size=2, max_size=5),
    st.sampled_from(["strong", "weak"]),
)
def test_parents_are_products_and_global_efficiency_is_the_speedup_over_the_resources(runs, kind):
    views = [
        (str(i), run(n, elapsed=each, useful=n * each, kernel=n * each, instructions=i_, cycles=c))
        for i, (n, each, i_, c) in enumerate(runs)
    ]
    report = scaling(views, kind=kind)
    for block in report.blocks:
        for node in block.rows[0].nodes:
            for _, parent in node.walk():
                if parent.children:
                    assert parent.value == pytest.approx(math.prod(child.value for child in parent.children))
    host = next(b for b in report.blocks if b.name == "host_scaling").rows[0].values
    time = next(b for b in report.blocks if b.name == "time").rows[1].values
    # all time is useful here, so what the reference's work needs of the time is what speedup reaches of its ideal
    assert host == pytest.approx(time)


# -- what can't be compared ---------------------------------------------------------------------------------------------


def test_a_run_whose_kernel_time_is_in_doubt_has_bounds_and_no_scaling():
    doubtful = RunPart(
        "4", 40, FOUR.host, bounded(FOUR.device, {"device_parallel_efficiency": (0.5, 0.95)}), FOUR.host_totals, FOUR.device_totals
    )
    report = scaling([("one", ONE), ("four", doubtful)])
    assert values(report, "device", "device_parallel_efficiency") == [0.5, None]
    assert values(report, "device_scaling", "kernel_time_scaling") == [1, None]
    assert "0.50–0.95" in table_text(table(report))


def test_runs_without_counters_or_devices_have_no_such_rows():
    alone = [(str(n), view("run", 100, HostTotals(n, 100, 80 * n, 0, 80), None, "talp")) for n in (1, 2)]
    report = scaling(alone)
    assert [block.name for block in report.blocks] == ["host", "host_scaling", "time"]
    assert [row.metric for row in report.blocks[1].rows] == ["global_efficiency", "host_parallel_efficiency", "computation_scalability"]
    # 80 useful ns became 160 on twice the processes
    assert (report.kind, report.told.basis) == ("weak", "useful_time")


def test_a_run_with_a_device_beside_one_without():
    report = scaling([("gpu", ONE), ("cpu", view("run", 100, HostTotals(1, 100, 80, 0, 80), None, "talp"))])
    assert values(report, "device", "device_parallel_efficiency") == [None, 0.5]
    assert report.columns[0].name == "cpu"


def test_runs_that_count_collectives_differently_are_refused():
    talp = view("run", 100, None, DeviceTotals(1, 100, 50, 10, 0, 50, 60, 60), "talp")
    with pytest.raises(UllageError, match="talp mode"):
        scaling([("a", talp), ("b", ONE)])


def test_no_run_and_an_unknown_reference_are_refused():
    with pytest.raises(UllageError, match="no run to compare"):
        scaling([])
    with pytest.raises(UllageError, match="no run is called 'two'"):
        scaling([("one", ONE)], reference="two")
    with pytest.raises(UllageError, match="2 runs are called 'one'"):
        scaling([("one", ONE), ("one", FOUR)], reference="one")


def test_one_run_is_a_table_of_one_column():
    report = scaling([("one", ONE)])
    assert (report.kind, [block.name for block in report.blocks]) == (None, ["host", "device"])
    assert str(report).endswith("note: one run has nothing to scale against\n")


# -- what is shown ------------------------------------------------------------------------------------------------------


def test_the_scaling_of_two_runs_as_text():
    assert str(scaling([("one", ONE), ("four", FOUR)])) == TWO


TWO = """\
Strong scaling over 2 runs, 1 to 4 devices: scaling efficiency 0.62

Device global efficiency 0.50 to 0.31, kernel-time scaling falls most (1.00 to 0.62).

Metrics                                            one   four
Devices                                              1      4
Processes                                            1      4
Elapsed                                         100 ns  40 ns
Host            Parallel efficiency               0.80   0.62
                ├─ MPI parallel efficiency        0.80   0.62
                │  ├─ Communication efficiency    0.80   0.62
                │  └─ Load balance                1.00   1.00
                └─ Device offload efficiency      1.00   1.00
Device          Parallel efficiency               0.50   0.50
                ├─ Load balance                   1.00   1.00
                ├─ Communication efficiency       1.00   1.00
                │  ├─ Collectives                 1.00   1.00
                │  └─ Copies                      1.00   1.00
                └─ Orchestration efficiency       0.50   0.50
Host scaling    Global efficiency                 0.80   0.50
                ├─ Parallel efficiency            0.80   0.62
                └─ Computation scalability        1.00   0.80
                   ├─ Instruction scaling         1.00   0.89
                   ├─ IPC scaling                 1.00   0.75
                   └─ Frequency scaling           1.00   1.20
Device scaling  Global efficiency                 0.50   0.31
                ├─ Parallel efficiency            0.50   0.50
                └─ Kernel-time scaling            1.00   0.62
                   ├─ Launch-count scaling        1.00   0.25
                   └─ Time-per-launch scaling     1.00   2.50
                Bytes-copied scaling              1.00   1.00
Time            Speedup                           1.00   2.50
                Scaling efficiency                1.00   0.62

note: taken as strong scaling: instructions grow like resources to the power 0.08 from 'one' on
"""


def test_the_record_has_a_row_a_metric_and_null_for_what_is_missing():
    data = record(scaling([("one", ONE), ("cpu", view("run", 50, HostTotals(2, 50, 80, 0, 40), None, "talp"))], kind="strong"))
    assert (data["kind"], data["kind_sure"], data["reference"]) == ("strong", True, "cpu")
    assert data["runs"][0] == {"name": "cpu", "devices": None, "processes": 2, "elapsed_s": 5e-8}
    row = next(r for r in data["rows"] if r["metric"] == "device_parallel_efficiency")
    assert (row["block"], row["values"], row["low"]) == ("device", [None, 0.5], [None, 0.5])


def test_lines_tie_a_row_to_its_parent():
    assert ties([0, 1, 2, 3, 1, 0]) == ["", "├─ ", "│  └─ ", "│     └─ ", "└─ ", ""]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_picture_is_well_formed_and_nothing_leaves_it(width):
    hostile = "<script>alert(1)</script>\x1b[31m" + "x" * 300
    report = scaling([(hostile, ONE), ("four", FOUR)])
    drawn = picture(report, width=width)
    root = ET.fromstring(drawn)
    assert "<script" not in drawn and "\x1b" not in drawn
    top, height = (float(edge) for edge in root.get("viewBox", "").split()[1::2])
    for node in root.iter(f"{SVG}text"):
        long = extent("".join(node.itertext()), float(node.get("font-size", 0))) * 0.87
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        start = x - {"start": 0.0, "middle": long / 2, "end": long}[node.get("text-anchor", "start")]
        assert start > -1 and start + long < width + 1 and top + 8 < y < top + height - 24, "".join(node.itertext())


def test_a_cell_is_the_darker_the_more_is_lost_and_a_gain_has_its_own_colour():
    drawn = ET.fromstring(picture(scaling([("one", ONE), ("four", FOUR)])))
    tints = {
        "".join(cell.find(f"{SVG}title").itertext()): (box.get("class"), float(box.get("fill-opacity", 0)))
        for cell in drawn.iter(f"{SVG}g")
        if (box := cell.find(f"{SVG}rect")) is not None
    }
    # 0.03 + 0.47 x what is lost: 1.00 loses nothing, 0.80 a fifth; 1.20 gains a fifth
    assert tints["Host, Parallel efficiency, one: 0.80"] == ("f-loss", 0.12)
    assert tints["Host, Load balance, one: 1.00"] == ("f-loss", 0.03)
    assert tints["Host scaling, Frequency scaling, four: 1.20"] == ("f-gain", 0.12)


def test_runs_stand_along_the_axis_by_the_logarithm_of_their_resources():
    two = run(2, elapsed=60, useful=90, kernel=60)
    drawn = ET.fromstring(picture(scaling([("one", ONE), ("two", two), ("eight", run(8, elapsed=30, useful=96, kernel=80))])))
    marks = sorted({float(c.get("cx", 0)) for c in drawn.iter(f"{SVG}circle")})
    first, second = (after - before for before, after in pairwise(marks))
    assert second == pytest.approx(2 * first, abs=0.1)


@pytest.mark.parametrize(
    ("long", "shown"),
    [
        # both ends tell them apart: 12 characters, an ellipsis, 11 characters
        ("a-long-name-of-a-folder-on-{}-nodes", "a-long-name-…-on-{}-nodes"),
        # only the middle does: they stay whole
        (
            "a-long-name-of-a-folder-on-{}-nodes-of-the-machine-in-the-cellar",
            "a-long-name-of-a-folder-on-{}-nodes-of-the-machine-in-the-cellar",
        ),
    ],
)
def test_runs_of_long_names_stay_apart(long, shown):
    head = table_text(table(scaling([(long.format(2), ONE), (long.format(4), FOUR)])), width=300).split("\n")[0].split()[1:]
    assert head == [shown.format(2), shown.format(4)]


def test_runs_of_the_same_size_are_taken_to_do_the_same_work():
    report = scaling([("before", ONE), ("after", replace(ONE, elapsed=80))])
    assert (report.kind, report.notes) == (None, ("all runs have the same resources, and are taken to do the same work",))
    assert values(report, "time", "speedup") == [1, 1.25]
    assert headline(report).startswith("2 runs, 1 device: scaling efficiency 1.25")
