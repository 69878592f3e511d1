"""Killed at any moment, a service has lost nothing and counted nothing twice: its sums are those of a loop over the seconds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.service.killed_service import killed_followers, killed_services


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
