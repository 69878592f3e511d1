"""Tests that ask for a process of their own have one, and what fails there fails."""

from __future__ import annotations

import os

import pytest

from tests.conftest import OWN_PROCESS

pytestmark = [pytest.mark.full, pytest.mark.own_process]


def test_it_is_another_process() -> None:
    assert os.environ[OWN_PROCESS] == "1"


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_what_fails_there_fails_here() -> None:
    raise AssertionError("on purpose")
