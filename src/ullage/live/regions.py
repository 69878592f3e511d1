"""Regions in user code: `with ullage.region("forward"):`, or `@ullage.region("forward")`, named parts of what a thread does.

Where nothing records, a region costs a few hundred nanoseconds and does nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from threading import Lock, get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ullage.live import session

if TYPE_CHECKING:
    from ullage.cupti.recorder import Recorder
    from ullage.live.process_tree import ProcessTree

    _Open = dict[int, list[tuple[Recorder, int]]]  # by thread: what an object began there, and who records it

F = TypeVar("F", bound=Callable[..., Any])
_making = Lock()


class region:  # noqa: N801 - used as a statement
    """A named part of a program: a context manager and a decorator, nested and entered again as one likes, on any thread.

    As a decorator it lasts as long as each call of the function; of an `async` function until its result is there, waiting included;
    of a generator, plain or asynchronous, only while the generator itself runs. Exceptions pass through.

    >>> with region("forward"):
    ...     answer = 6 * 7
    >>> @region("loss")
    ... def loss(x):
    ...     return x - 1
    >>> loss(answer)
    41
    """

    __slots__ = ("_open", "name")

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f'a region has a name: region("forward"), @region("forward"); {name!r} is none')
        self.name = name
        self._open: _Open | None = None  # made when it is needed: most regions are in programs that nothing records

    def __enter__(self) -> region:
        recorder = session.recorder
        if recorder is not None:
            self._begin(recorder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._open is not None:
            self._end(self._open)

    def _begin(self, recorder: Recorder) -> None:
        if self._open is None:
            with _making:  # of two threads that come first one makes it
                self._open = {} if self._open is None else self._open
        serial = recorder.begin(self.name)
        self._open.setdefault(get_ident(), []).append((recorder, serial))

    def _end(self, begun: _Open) -> None:
        mine = begun.get(get_ident())
        if mine:
            recorder, serial = mine.pop()
            if not mine:
                begun.pop(get_ident(), None)
            recorder.end(serial)

    def __call__(self, function: F) -> F:
        """Return the function with this region around each of its calls."""
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"a region is put around a function, not around {function!r}")
        for fits, wrap in _WRAPPERS:
            if fits(function):
                return functools.wraps(function)(wrap(self.name, function))  # type: ignore[return-value]
        return functools.wraps(function)(_called(self.name, function))  # type: ignore[return-value]

    def tree(self, *, all_ranks: bool = False) -> ProcessTree:
        """Return the trees of all that happened in regions of this name so far, this moment included; with `all_ranks` of all ranks whose
        recordings lie in this run's folder. Never raises: see its notes."""
        return session.tree(self.name, all_ranks=all_ranks)

    def __repr__(self) -> str:
        return f"region({self.name!r})"


def _called(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with region(name):
            return function(*args, **kwargs)

    return called


def _awaited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        with region(name):
            return await function(*args, **kwargs)

    return awaited


def _generated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def generated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        steps = function(*args, **kwargs)
        step, given = steps.send, None
        while True:
            with region(name):
                try:
                    made = step(given)
                except StopIteration as end:
                    return end.value
            try:
                step, given = steps.send, (yield made)
            except GeneratorExit:
                with region(name):
                    steps.close()
                raise
            except BaseException as error:  # the generator's to handle
                step, given = steps.throw, error

    return generated


def _generated_async(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    async def generated(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        steps = function(*args, **kwargs)
        step, given = steps.asend, None
        while True:
            with region(name):
                try:
                    made = await step(given)
                except StopAsyncIteration:
                    return
            try:
                step, given = steps.asend, (yield made)
            except GeneratorExit:
                with region(name):
                    await steps.aclose()
                raise
            except BaseException as error:  # the generator's to handle
                step, given = steps.athrow, error

    return generated


_WRAPPERS = (
    (inspect.isasyncgenfunction, _generated_async),
    (inspect.iscoroutinefunction, _awaited),
    (inspect.isgeneratorfunction, _generated),
)
