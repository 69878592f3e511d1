"""Tasks done side by side: in processes of their own, and in this one beside them."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from ullage.errors import UllageError
from ullage.workers import side_by_side


def whose(number: int) -> tuple[int, int]:
    return number, os.getpid()


def killed(number: int) -> int:
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def divided(number: int) -> float:
    return 1 / number


def test_this_process_is_one_of_the_workers():
    told: list[int] = []
    found = side_by_side(whose, range(40), 2, told.append, with_this_process=True)
    assert [number for number, _ in found] == list(range(40))
    own = [number for number, process in found if process == os.getpid()]
    assert own and own == list(range(own[0], 40))  # from the end
    assert told[-1] == 40 and sorted(told) == told


def test_an_error_in_this_process_ends_the_others():
    with pytest.raises(ZeroDivisionError):
        side_by_side(divided, [1, 1, 1, 0], 2, lambda _: None, with_this_process=True)


@pytest.mark.parametrize("here", [False, True])
def test_a_worker_that_is_killed_is_an_error(here):
    with pytest.raises(UllageError, match="ended from outside"):
        side_by_side(killed, range(40), 2, lambda _: None, with_this_process=here)
