"""The rules for AMD's device-metrics-exporter, by Prometheus' own engine: beside what is worked out by hand, and beside Ullage's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import ask
from tests.fleet.servers import program
from tests.rules.drawn_fleet import SCRAPE, STEP
from tests.rules.evaluation import GivenSeries, PromtoolInput
from tests.rules.test_recorded_values import COMPARED, START, by_what_both_tell, own_sums
from ullage.gpus.chip import find
from ullage.questions.rules import rules
from ullage.rules.readings import metric_alias

MODEL = "AMD Instinct MI300X OAM"  # as the exporter has it; the chip's name has no form of a board
DIES, SCRAPES, GPUS = 8, 16, 3
PERCENT = 3.125  # whose multiples are ratios that single precision, the store's, holds to the last digit
GAUGES = {
    "gpu_prof_tensor_active_percent": (1, 18, PERCENT),
    "gpu_prof_sm_active": (18, 28, PERCENT),
    "gpu_prof_gui_util_percent": (28, 33, PERCENT),
    "gpu_gfx_activity": (30, 33, PERCENT),
    "gpu_umc_activity": (1, 20, PERCENT),
    "gpu_package_power": (200, 740, 1),
}


def labels(gpu: int, **more: str) -> dict[str, str]:
    return {"gpu_id": str(gpu), "gpu_uuid": f"uuid-{gpu}", "hostname": "n1", "card_series": MODEL, "job_id": "7"} | more


def scraped(draw: np.random.Generator) -> list[GivenSeries]:
    """Return what an exporter of three GPUs tells at each scrape, as input of promtool (a value each `STEP`)."""
    found = []

    def add(name: str, own: dict[str, str], values: np.ndarray) -> None:
        written = [text for value in values for text in (f"{value:g}", *["_"] * (SCRAPE // STEP - 1))]
        found.append(GivenSeries(name, own, written))

    for gpu in range(GPUS):
        for name, (low, high, unit) in GAUGES.items():
            add(name, labels(gpu), unit * draw.integers(low, high, SCRAPES))
        for die in range(DIES):
            own = labels(gpu, clock_type="GPU_CLOCK_TYPE_SYSTEM", clock_index=str(die))
            add("gpu_clock", own, 16 * draw.integers(50, 130, SCRAPES))  # the mean of eight: an even number of MHz
        add("gpu_clock", labels(gpu, clock_type="GPU_CLOCK_TYPE_MEMORY", clock_index="8"), np.full(SCRAPES, 1300))
        add("gpu_clock", labels(gpu, clock_type="GPU_CLOCK_TYPE_VIDEO", clock_index="9"), np.full(SCRAPES, 40))
    return found


def page(series: list[GivenSeries]) -> str:
    """Return the same as exporters print it, scrape by scrape."""
    lines = []
    for scrape in range(SCRAPES):
        lines.append(f"# time {START + scrape * SCRAPE}")
        lines += [f"{one.selector} {one.values[scrape * (SCRAPE // STEP)]}" for one in series]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def rule_text() -> str:
    return str(rules(dialect="amd"))


@pytest.mark.parametrize("seed", range(3))
def test_the_rules_give_what_ullage_itself_gives(seed: int, rule_text: str, tmp_path: Path) -> None:
    series = scraped(np.random.default_rng(seed))
    own = own_sums(page(series), tmp_path)
    end = (SCRAPES - 1) * SCRAPE
    over = {what: f"sum_over_time(job:ullage_{what}:sum[{end + 1}s]) * {SCRAPE}" for what in COMPARED}
    found = PromtoolInput(tmp_path, rule_text, series, step=STEP).evaluate([*over.values()], [end])
    for what, expression in over.items():
        told, true = (by_what_both_tell(one) if what == "loss_gpus" else one for one in (found[expression, end], dict(own[what])))
        assert true, what
        assert told == pytest.approx(true, rel=1e-9, abs=1e-7), what


def test_the_clock_of_a_gpu_is_the_mean_of_its_dies_and_no_other_clock(rule_text: str, tmp_path: Path) -> None:
    # dies at 1050 and 2100 MHz: half of the cycles at 0.75 of the tensor clock
    series = [GivenSeries("gpu_prof_tensor_active_percent", labels(0), ["50"] * 3)]
    for index, (kind, value) in enumerate([("system", "1050"), ("system", "2100"), ("memory", "1300"), ("video", "40")]):
        series.append(GivenSeries("gpu_clock", labels(0, clock_type=f"GPU_CLOCK_TYPE_{kind.upper()}", clock_index=str(index)), [value] * 3))
    found = PromtoolInput(tmp_path, rule_text, series).evaluate(["fleet:ullage_ofu:ratio", "gpu:ullage_sm_clock:hertz"], [30])
    assert [*found["gpu:ullage_sm_clock:hertz", 30].values()] == [1575e6]
    assert [*found["fleet:ullage_ofu:ratio", 30].values()] == [pytest.approx(0.5 * 1575e6 / find(MODEL).tensor_clock)]


def test_prometheus_takes_the_file_and_its_own_tests_pass(rule_text: str, tmp_path: Path) -> None:
    tests = ask("rules", "--dialect", "amd", "--tests")
    assert (tests.code, tests.err) == (0, "")
    (tmp_path / "ullage.rules.yml").write_text(rule_text)
    (tmp_path / "tests.yml").write_text(tests.out)
    for words in (("check", "rules", "ullage.rules.yml"), ("test", "rules", "tests.yml")):
        done = subprocess.run([program("promtool"), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def test_labels_that_are_given_go_before_those_of_the_dialect() -> None:
    text = str(rules(dialect="amd", host_label="node", alerts=False))
    assert '"host", "", "node"' in text and '"model", "", "card_series"' in text and '"hostname"' not in text


def test_a_clock_that_is_told_by_a_label_can_be_named_in_any_dialect() -> None:
    assert metric_alias("memory_clock", "amd_gpu_clock").matchers == 'clock_type=~"(?i)(memory|gpu_clock_type_memory|mem)"'
    assert 'amd_gpu_clock{clock_type=~"(?i)(system|gpu_clock_type_system|sm)"}' in str(rules(metrics={"sm_clock": "amd_gpu_clock"}))
