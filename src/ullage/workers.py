"""One task done for many inputs side by side, in processes that end with the one that began them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

from ullage.errors import UllageError

Input = TypeVar("Input")
Output = TypeVar("Output")

_AHEAD = 2  # inputs that wait for each worker, or are with it, while this process is busy with one of its own


def side_by_side(
    task: Callable[[Input], Output], inputs: Sequence[Input], workers: int, done: Callable[[int], None], *, with_this_process: bool = False
) -> list[Output]:
    """Return what a module's function makes of each input, in their order; `done` is told how many there are so far.

    With `with_this_process` this process is one of the `workers`: it takes inputs from the end until all are taken.
    When this process is interrupted its workers end at once. Raises UllageError when a worker was killed.
    """
    before = set(multiprocessing.active_children())
    others = max(workers - with_this_process, 1)
    pool = ProcessPoolExecutor(others, multiprocessing.get_context("spawn"), _begin)
    futures: list[Future[Output]] = []
    own: list[Output] = []  # the last one first
    try:
        while (left := len(inputs) - len(futures) - len(own)) > 0:
            room = others * _AHEAD - sum(not future.done() for future in futures) if with_this_process else left
            with _no_main():
                futures += [pool.submit(task, each) for each in inputs[len(futures) : len(futures) + min(room, left)]]
            if room < left:
                own.append(task(inputs[-1 - len(own)]))
                done(len(own) + sum(future.done() for future in futures))
        for count, _ in enumerate(as_completed(futures), 1 + len(own)):
            done(count)
        found = [future.result() for future in futures] + own[::-1]
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        if isinstance(error, BrokenExecutor):
            raise UllageError(
                "a process that read a file was ended from outside, perhaps for want of memory", "read fewer files at a time: --workers 1"
            ) from error
        raise
    pool.shutdown()
    return found


@contextmanager
def _no_main() -> Iterator[None]:
    """Keep the workers from running the user's script once more: they need none of it."""
    main = sys.modules["__main__"].__dict__
    kept: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(kept)


def _begin() -> None:
    """Leave Ctrl-C to the process that began this one, and end when that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
