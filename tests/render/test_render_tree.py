"""The picture of the trees: every factor with its value, how sure it is, and how the factors multiply."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.metrics.host import HOST
from ullage.metrics.tree import DEVICE_AI, DEVICE_TALP, Node, bounded, evaluate
from ullage.render.svg.tree import tree
from ullage.views.draw import NARROW, WIDE, extent

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>alert("1")</script>\x1b[31m\u202e'

# TALP paper, use case 4: rank 0 is useful for 670 ms and offloads for 330, rank 1 for 45 and 55; devices run 330 and 33 ms
HOST_4 = evaluate(HOST, {"useful_time": 715, "offload_time": 385, "processes": 2, "elapsed": 1000, "off_time": 0, "max_busy_time": 1000})
TIMES = {"kernel_time": 363, "devices": 2, "elapsed": 1000, "max_kernel_time": 330, "max_active_time": 330}
DEVICE_4 = evaluate(DEVICE_TALP, TIMES)
DEEP = evaluate(DEVICE_AI, TIMES | {"max_kernel_collective_time": 330, "max_kernel_transfer_time": 330})
DOUBTED = bounded(DEVICE_4, {"orchestration_efficiency": (0.02, 0.99), "device_load_balance": (0.5, 0.6)})


def words(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_trees_of_use_case_4_say_what_the_paper_says() -> None:
    # 0.36 = 0.55 (1.00 × 0.55) × 0.65 and 0.18 = 0.55 × 1.00 × 0.33
    drawn = words(tree(HOST_4, DEVICE_4))
    assert [w for w in drawn if w.endswith(" %")] == ["36 %", "55 %", "100 %", "55 %", "65 %", "18 %", "55 %", "100 %", "33 %"]
    # three products: of 2, of 2 and of 3 factors
    assert (drawn.count("="), drawn.count("×")) == (3, 4)


def test_what_is_in_doubt_is_not_stated() -> None:
    drawn = tree(None, DOUBTED)
    assert "cannot tell" in words(drawn) and "33 %" not in words(drawn) and "2–99 %" in words(drawn)
    assert "50–60 %" in words(drawn) and "55 %" in words(drawn)  # near enough to be stated, with its bounds
    hatched = [n for n in ET.fromstring(drawn).iter(f"{SVG}rect") if n.get("fill", "").startswith("url(")]
    assert len(hatched) == 2


def test_shares_of_the_loss_stand_below_the_factors() -> None:
    drawn = words(tree(HOST_4, None, shares={"host_load_balance": 0.58, "device_offload_efficiency": 0.42}))
    assert [w for w in drawn if "loss" in w] == ["58 % of the loss", "42 % of the loss"]


def test_a_value_that_does_not_exist_is_a_dash() -> None:
    assert "–" in words(tree(Node("a", "A", None, None, None), None))
    assert "no efficiency can be computed" in words(tree(None, None))


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(("host", "device"), [(HOST_4, DEEP), (HOST_4, DOUBTED), (None, DEEP), (HOST_4, None), (None, None)])
def test_no_text_leaves_its_tree_or_meets_another(host: Node | None, device: Node | None, width: int) -> None:
    drawn = tree(host, device, width=width, title="Efficiency")
    assert drawn == tree(host, device, width=width, title="Efficiency")
    root = ET.fromstring(drawn)
    top, height = (float(edge) for edge in root.get("viewBox", "").split()[1::2])
    lines: dict[float, list[tuple[float, float]]] = {}
    for node in root.iter(f"{SVG}text"):
        long = extent("".join(node.itertext()), float(node.get("font-size", 0))) * 0.87  # `extent` errs on the wide side
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        start = x - {"start": 0.0, "middle": long / 2, "end": long}[node.get("text-anchor", "start")]
        assert start > -1 and start + long < width + 1 and top + 8 < y < top + height - 20, "".join(node.itertext())
        lines.setdefault(y, []).append((start, start + long))
    for placed in lines.values():
        placed.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(placed))


@given(st.text(), st.none() | st.floats(0, 1) | st.sampled_from([float("nan"), float("inf"), 1.5]))
def test_any_name_and_number_gives_a_well_formed_tree(name: str, value: float | None) -> None:
    for label in (name, HOSTILE + name):
        drawn = tree(Node("a", label, value, value, value, (Node("b", label, value, 0.0, value),)), None, title=label)
        ET.fromstring(drawn)
        assert "<script" not in drawn and not re.search(r'"(nan|-?inf)"', drawn)
