"""A device's state put aside and brought back, so that the same kernels can run once more on the same data (CUPTI's libcheckpoint)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

from ullage.cupti.driver import current_context
from ullage.cupti.library import library_path
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError, harmless

T = TypeVar("T")

NAME = "libcheckpoint.so"
NONE_OF_IT = (1 << 64) - 1  # of a reserve: use no memory of this sort at all (cupti_checkpoint.h: -1)
ONLY_CHANGED = 1  # CUPTI_CHECKPOINT_OPT_TRANSFER
OUT_OF_MEMORY = 8
_INSTALL = "pip install 'ullage[cupti]' brings it, beside libcupti"
_ROOM = "it needs as much room as the GPU's memory in use, in the GPU, the host and then the file system: free some, or reserve less"


class Handle(ctypes.Structure):
    """CUpti_Checkpoint (cupti_checkpoint.h), 48 bytes, the same in CUDA 12.0 to 13.5."""

    _fields_: ClassVar = [
        ("size", ctypes.c_size_t),
        ("context", ctypes.c_void_p),
        ("reserve_device", ctypes.c_size_t),
        ("reserve_host", ctypes.c_size_t),
        ("overwrite", ctypes.c_uint8),
        ("optimizations", ctypes.c_uint8),
        ("private", ctypes.c_void_p),
    ]


class Checkpoint:
    """The state of a context's device, saved on entering a `with` (or by `save`), brought back by `restore`, freed once on leaving.

    What is restored is the device's, pinned and managed memory; not caches and clocks, and nothing of the host's: a first pass after a
    restore may run slower than the program would. Between save and restore launch kernels and copy memory, nothing else: allocating,
    freeing, capturing a stream and building a graph have not been tried by NVIDIA, and a failure there may pass unnoticed (guide,
    2.11.2). Several checkpoints may live side by side, each with all the room it needs.

    `context` is a CUcontext, None for the one that is current when the state is saved. `reserve_device` and `reserve_host` in MB stay
    free for the program (`NONE_OF_IT`: none of that memory is used). `overwrite` allows to save again over a saved state, with the first
    one's options. `only_changed` restores only memory that has changed; then all restores must be at one place of the program. `path`
    names libcheckpoint.so; without it the one beside libcupti is taken. Raises UllageError without that and without a context, and
    CuptiError where CUPTI refuses.

        with Checkpoint() as saved:
            kernel()
            saved.restore()
            kernel()
    """

    def __init__(
        self,
        context: int | None = None,
        *,
        reserve_device: int = 0,
        reserve_host: int = 0,
        overwrite: bool = False,
        only_changed: bool = False,
        path: Path | None = None,
    ) -> None:
        for name, value in (("reserve_device", reserve_device), ("reserve_host", reserve_host)):
            if not 0 <= value <= NONE_OF_IT:
                raise UllageError(f"{name} of {value} MB can't be", "0 reserves nothing; checkpoint.NONE_OF_IT uses no such memory")
        self.saved = False
        self._overwrite = overwrite
        self._library = _loaded(path)
        self._handle = Handle(
            size=ctypes.sizeof(Handle),
            context=context,
            reserve_device=reserve_device,
            reserve_host=reserve_host,
            overwrite=overwrite,
            optimizations=ONLY_CHANGED if only_changed else 0,
        )

    def save(self) -> None:
        """Put the device's state aside."""
        if self.saved and not self._overwrite:
            raise UllageError("this checkpoint holds a state already", "free it first, or make it with overwrite=True")
        if self._handle.context is None:  # libcheckpoint finds no current one by itself: it answers NOT_INITIALIZED (CUDA 13.0, driver 580)
            self._handle.context = current_context()
        self._call("cuptiCheckpointSave", "saving the GPU's state")
        self.saved = True

    def restore(self) -> None:
        """Bring the saved state back; may be called any number of times."""
        if not self.saved:
            raise UllageError("this checkpoint holds no state", "save it first")
        self._call("cuptiCheckpointRestore", "restoring the GPU's state")

    def free(self) -> None:
        """Give the room back; a second call does nothing."""
        if self.saved:
            self.saved = False
            self._call("cuptiCheckpointFree", "freeing a checkpoint")

    def __enter__(self) -> Checkpoint:
        self.save()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.free()
        except CuptiError:
            if kind is None:  # otherwise the body's own error is the one to be told
                raise

    def _call(self, name: str, doing: str) -> None:
        code = int(getattr(self._library, name)(ctypes.byref(self._handle)))
        if code == OUT_OF_MEMORY:
            error = CuptiError(doing, code)
            error.hint = _ROOM
            raise error
        if code:
            raise CuptiError(doing, code)


def replay(run: Callable[[int], T], passes: int, checkpoint: Checkpoint) -> list[T]:
    """Return what `run(number)` gave in each of `passes` passes, numbered from 0, each from the same state of the device.

    The state is saved before the first pass and restored before every other one; the last one's results stay. With one pass nothing is
    saved. For counters in user replay: `run` launches the kernels, waits for them, and ends the pass.
    """
    if passes < 2:
        return [run(number) for number in range(passes)]
    with checkpoint:
        results = [run(0)]
        for number in range(1, passes):
            checkpoint.restore()
            results.append(run(number))
        return results


def _loaded(path: Path | None) -> ctypes.CDLL:
    place = path or library_path().parent / NAME
    try:
        library = ctypes.CDLL(str(place))
    except OSError as error:
        raise UllageError(f"{harmless(str(place))} can't be loaded: {harmless(str(error))}", _INSTALL) from error
    missing = [one for one in ("cuptiCheckpointSave", "cuptiCheckpointRestore", "cuptiCheckpointFree") if not hasattr(library, one)]
    if missing:
        raise UllageError(f"{harmless(str(place))} is no libcheckpoint: it has no {missing[0]}", _INSTALL)
    return library
