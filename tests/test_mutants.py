"""`tools/mutants.py`: a change of a module is what its tests meet, in a warm process as in a new one."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tools"


def tool(name="mutants"):
    sys.path.insert(0, str(TOOLS))
    try:
        spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
        sys.modules[name] = found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
    finally:
        sys.path.remove(str(TOOLS))
    return found


# each change of the first meets the doctests of the module: None where its functions are not all of it
OUTCOMES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from warm_tests import Asked, Bare, Changed, with_collected
root, path, changes = Path(sys.argv[1]).parent, sys.argv[2], json.loads(sys.argv[3])
bare, told, text = Bare(root), [], Path(path).read_text()

def work(collected):
    asked = [Asked(test, collected.reached(test).seconds) for test in collected.items if test.startswith("src/")]
    for old, new in changes:
        changed = Changed(path, text, text.replace(old, new, 1))
        outcomes = [collected.outcome(changed, asked), bare.outcome(changed, asked)]
        told.append([None if one is None else [one.failed, one.stopped] for one in outcomes])

# with a file of tests/, so that its conftest.py counts
status = with_collected(root, [path, "tests/test_mutants.py"], [path], work)
bare.close()
assert status == 0, status
print(json.dumps(told))
"""


def test_a_change_meets_the_same_tests_in_a_warm_process_as_in_a_new_one():
    pytest.importorskip("coverage", reason="Coverage is an optional library: pip install 'ullage[mutants]'")
    path = ROOT / "src/ullage/metrics/ofu.py"
    changes = {
        "nothing": ("", ""),
        "an equation": ("tensor_active * ratio(", "tensor_active + ratio("),
        "no end": ("return tensor_active * ratio(", "while True: tensor_active * ratio("),
        "what runs at import": ("from ullage", "raise SystemError  # "),
    }
    text = path.read_text()
    assert all(old in text for old, _ in changes.values())
    command = [sys.executable, "-c", OUTCOMES, str(TOOLS), str(path), json.dumps(list(changes.values()))]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    outcomes = dict(zip(changes, json.loads(ended.stdout.splitlines()[-1]), strict=True))
    assert outcomes["nothing"] == [["", False], ["", False]]
    warm, new = outcomes["an equation"]
    assert warm == new and warm[0].startswith("src/ullage/metrics/ofu.py::")
    assert outcomes["no end"] == [["the processor's time", True]] * 2
    # a module that cannot be imported: no function of it changed, and the new process finds no test in it
    assert outcomes["what runs at import"][1] == ["the collection (status 4)", False]


def test_changed_functions_are_told_by_their_place():
    warm = tool("warm_tests")
    before = "def one(x):\n    return [y + 1 for y in x]\n\nlow, high = (lambda x: x < 1), (lambda x: x > 1)\n"
    inside = warm.changed_codes(warm.Changed("a.py", before, before.replace("+", "-")))
    assert [name for name, _, _ in inside] == ["<module>", "one"]  # the comprehension is a part of `one`
    # two lambdas of one line: the second one begins elsewhere once the first is longer, so the module is imported anew
    assert warm.changed_codes(warm.Changed("a.py", before, before.replace("<", "<="))) is None
    assert [name for name, _, _ in warm.changed_codes(warm.Changed("a.py", before, before.replace("x > 1", "x > 2")))] == [
        "<module>",
        "<lambda>",
    ]
    # a function more, and a name from around the function that it did not use before
    assert warm.changed_codes(warm.Changed("a.py", before, before + "def two():\n    pass\n")) is None
    nested = "def one(x):\n    def two():\n        return 1\n    return two, x\n"
    assert warm.changed_codes(warm.Changed("a.py", nested, nested.replace("return 1", "return x"))) is None


def test_a_change_meets_the_tests_that_run_its_statement():
    mutants = tool()
    text = mutants.modules()["ullage.metrics.metric"].read_text().splitlines()
    [line] = [number for number, one in enumerate(text, 1) if "return np.divide(part, whole" in one]
    assert mutants.statement("ullage.metrics.metric", line) == {line}
    [head] = [number for number, one in enumerate(text, 1) if one.startswith("def ratio(")]
    assert mutants.statement("ullage.metrics.metric", head) == set(range(head, head + 1))
    # a constant runs at import: what uses its name is what tests can notice
    steps = mutants.modules()["ullage.metrics.steps"].read_text().splitlines()
    [constant] = [number for number, one in enumerate(steps, 1) if one.startswith("FASTEST = ")]
    [use] = [number for number, one in enumerate(steps, 1) if "(FASTEST if" in one]
    users = mutants.users("ullage.metrics.steps", constant)
    assert use in users and len(users) < 30


def test_the_interval_of_a_share_is_wilsons():
    interval = tool().interval
    # 36 of 40: (0.9 + 1.9208/40 ± 1.96·√(0.09/40 + 0.9604/1600)) / (1 + 3.8416/40) = (0.94802 ± 0.10464) / 1.09604
    assert interval(36, 40) == pytest.approx((0.76948, 0.96042), abs=1e-5)
    assert interval(0, 0) == (0, 1) and interval(5, 5)[1] == 1 and interval(0, 5)[0] == 0


def test_the_table_counts_apart_what_was_judged_equivalent_and_what_a_limit_stopped():
    pytest.importorskip("cosmic_ray", reason="Cosmic Ray is an optional library: pip install 'ullage[mutants]'")
    mutants = tool()
    results = [("noticed", "tests/test_ofu.py::test")] * 3 + [("not noticed", ""), ("equivalent", "")]
    results += [("stopped", "the clock"), ("stopped", "the processor's time"), ("stopped", "the processor's time")]
    rows = mutants.table([mutants.Result("ullage.metrics.ofu", 1, "", "", "", result, 0, by, 0.0) for result, by in results])
    # 3 of the 4 that were judged by tests: 75 %; a limit is no test
    assert rows[2].startswith("| metrics.ofu | ") and rows[2].endswith(" | 8 | 1 | 3 | 3 | 75 % [30, 95] |")
    said = "Stopped, and neither noticed nor not: 1 by the clock and 2 by the processor's time."
    assert rows[-1] == f"Each module weighed by its changes: 75.0 %. {said}"


def test_a_slow_test_keeps_no_quick_one_behind_it_from_being_asked():
    mutants = tool()
    asked = [mutants.Asked(name, seconds) for name, seconds in (("a", 1), ("slow", 8), ("b", 2), ("c", 8), ("d", 1))]
    assert [one.test for one in mutants.within_patience(asked, 12)] == ["a", "slow", "b", "d"]  # 1 + 8 + 2 + 1
    assert [one.test for one in mutants.within_patience(asked, 11)] == ["a", "slow", "b"]


def test_every_listed_test_file_and_equivalent_change_exists():
    mutants = tool()
    listed = json.loads(mutants.LISTED.read_text())
    assert set(listed) <= set(mutants.modules())
    assert all((ROOT / file).is_file() for files in listed.values() for file in files)
    for one in json.loads(mutants.EQUIVALENT.read_text()):
        assert set(one) == {"module", "was", "becomes", "why"} and len(one["why"]) > 20
        lines = [line.strip() for line in mutants.modules()[one["module"]].read_text().splitlines()]
        assert one["was"] in lines, f"{one['module']} no longer holds: {one['was']}"


def test_modules_of_the_table_meet_its_tests_alone():
    mutants = tool()
    for module, names in mutants.OWN_TESTS.items():
        doctests, *tests = mutants.tests_of(module)
        assert (ROOT / doctests).is_file() and mutants.far(module) == []
        assert tests == [f"tests/{name}" for name in names]
        assert all((ROOT / test).is_file() for test in tests)


def test_the_modules_that_compute_have_tests_and_changes():
    pytest.importorskip("cosmic_ray", reason="Cosmic Ray is an optional library: pip install 'ullage[mutants]'")
    mutants = tool()
    chosen = mutants.chosen([])
    assert {"ullage.sums.windows", "ullage.metrics.ofu", "ullage.audit.trust"} <= set(chosen) and all(map(mutants.tests_of, chosen))
    [module] = mutants.chosen(["metrics.ofu"])
    drawn = mutants.mutants([module], 1, 6)
    assert drawn == mutants.mutants([module], 1, 6) and len({one.text for one in drawn}) == len(drawn) == 6
    assert all(one.text != mutants.modules()[module].read_text() and one.was != one.becomes for one in drawn)


@pytest.mark.parametrize(
    ("before", "after", "computes"),
    [
        ("x = zip(a, b, strict=True)", "x = zip(a, b, strict=False)", False),
        ("@dataclass(frozen=True)\nclass A: pass", "@dataclass(frozen=False)\nclass A: pass", False),
        ("x: int | None = 1", "x: int & None = 1", False),
        ("def f(a, *, b=1): return a", "def f(a, /, b=1): return a", False),
        ("def f(a): assert a and b; return a", "def f(a): assert a or b; return a", False),
        ("def f(a): return a and b", "def f(a): return a or b", True),
        ("x = f(1, keep=True)", "x = f(1, keep=False)", True),
    ],
)
def test_what_only_guards_or_annotates_is_no_change(before, after, computes):
    computing = tool()._computing
    assert (computing(before) != computing(after)) is computes
