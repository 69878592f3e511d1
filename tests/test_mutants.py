"""`tools/mutants.py`: a change of a module is what its tests meet, whichever way they import it."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "mutants.py"


def tool():
    spec = importlib.util.spec_from_file_location("mutants", TOOL)
    sys.modules["mutants"] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize(
    ("old", "new", "noticed"),
    [("", "", False), ("tensor_active * ratio(", "tensor_active + ratio(", True), ("import", "raise SystemError  #", True)],
)
@pytest.mark.parametrize("where", ["doctests", "tests"])
def test_a_change_is_noticed_by_doctests_and_by_tests(where, old, new, noticed):
    mutants = tool()
    before = mutants.modules()["ullage.metrics.ofu"].read_text()
    assert old in before
    doctests, *tests = mutants.near("ullage.metrics.ofu")
    chosen = [doctests] if where == "doctests" else [test for test in tests if test.endswith("test_metrics.py")]
    asked = json.dumps({"module": "ullage.metrics.ofu", "text": before.replace(old, new, 1), "tests": chosen})
    ended = subprocess.run([sys.executable, TOOL, "--one"], input=asked.encode(), cwd=TOOL.parents[1], capture_output=True, timeout=300)
    assert (ended.returncode != 0) is noticed, ended.stdout.decode()


def test_modules_of_the_table_meet_its_tests_alone():
    mutants = tool()
    for module, names in mutants.OWN_TESTS.items():
        doctests, *tests = mutants.near(module)
        assert (TOOL.parents[1] / doctests).is_file() and mutants.far(module) == []
        assert tests == [f"tests/{name}" for name in names]
        assert all((TOOL.parents[1] / test).is_file() for test in tests)


def test_the_modules_that_compute_have_tests_and_changes():
    pytest.importorskip("cosmic_ray", reason="Cosmic Ray is an optional library: pip install 'ullage[mutants]'")
    mutants = tool()
    chosen = mutants.chosen([])
    assert {"ullage.sums.windows", "ullage.metrics.ofu", "ullage.audit.trust"} <= set(chosen) and all(map(mutants.near, chosen))
    [module] = mutants.chosen(["metrics.ofu"])
    drawn = list(mutants.mutants([module], random.Random(1)))
    assert len({one.text for one in drawn}) == len(drawn) > 5
    assert all(one.text != mutants.modules()[module].read_text() for one in drawn)
