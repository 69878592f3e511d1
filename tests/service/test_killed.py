"""Killed at any moment, a service has lost nothing and counted nothing twice: its sums are those of a loop over the seconds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.seeds import some
from tests.service.killed_service import killed_followers, killed_services
from tests.service.soak import memory_line, soak


def test_what_follows_a_database_is_killed_and_every_reading_lies_in_the_store_once(tmp_path: Path) -> None:
    met = killed_followers(tmp_path, 4, random.Random(0))
    assert sum(met.values()) >= 4


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_what_follows_a_database_is_killed_at_a_hundred_moments(tmp_path: Path, seed: int) -> None:
    met = killed_followers(tmp_path, 100, random.Random(seed), longest_s=2.0)
    assert "a part without its roll-up" in met  # what else is met depends on how busy the machine is


@pytest.mark.full
def test_a_service_is_killed_at_a_hundred_moments_and_answers_what_the_seconds_say(tmp_path: Path) -> None:
    met = killed_services(tmp_path, 100, random.Random(0))
    assert "a part without its roll-up" in met


@pytest.mark.parametrize("seed", some(range(300), quick=20))
def test_a_line_through_memory_finds_its_slope_within_its_error(seed: int) -> None:
    pick, slope = random.Random(seed), random.Random(seed).choice([0.0, 0.5, 3.0])
    hours = [step / 100 for step in range(2400)]
    # a saw-tooth, noise, and a start that is no steady state
    level = [300 + slope * at + 20 * (at * 7 % 1) + pick.gauss(0, 5) - 150 * (at < 4) for at in hours]
    line = memory_line(hours, level)
    assert abs(line.slope - slope) < 3 * line.error and line.error < 0.5
    assert line.flat == (line.slope - line.error <= line.level * 0.01 / 24)


@pytest.mark.full
def test_a_simulated_day_loses_nothing(tmp_path: Path) -> None:
    found = soak(tmp_path, 20, 24.0, 300.0)
    assert found.memory.flat and found.peak_mb < 1000, found.memory
