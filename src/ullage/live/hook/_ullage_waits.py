"""The host's share of PyTorch's collectives: how long a rank stands in `torch.distributed`, by operation.

A collective of gloo runs on the host and keeps its caller until all ranks have come; one of NCCL only keeps it while it is launched,
or in `wait` and `barrier`. What a thread does of CUDA inside counts as waiting too, not twice. What PyTorch
does without Python is not seen: DistributedDataParallel on gloo waits inside `backward`.

This runs inside any Python from 3.8 on that `ullage run` starts, with PyTorch or without: what it needs it imports when PyTorch comes.
"""

from __future__ import annotations

import os
import sys

MPI = 1  # HostKind.MPI
# Which functions of which module wait; those of the first are given out by torch.distributed as well.
CALLS = {
    "torch.distributed.distributed_c10d": (
        "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_coalesced",
        "all_gather_single", "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object",
        "monitored_barrier", "recv", "recv_object_list", "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor",
        "scatter", "scatter_object_list", "send", "send_object_list", "batch_isend_irecv", "init_process_group", "new_group",
        "new_subgroups", "split_group", "destroy_process_group",
    ),
    "torch.distributed": ("_broadcast_coalesced", "_verify_params_across_processes"),  # DistributedDataParallel's
    "torch.distributed._functional_collectives": ("wait_tensor",),
}  # fmt: skip

# Variables by which launchers tell a process its rank; the recorder reads them itself.
TOLD = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "RANK", "SLURM_PROCID")

TYPE_CHECKING = False  # typing takes 5 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any


def recorder() -> Any:
    """Return the recorder in this process; loaded when something is recorded. Raises OSError where it can't be had."""
    import ctypes

    library = ctypes.CDLL(os.environ["ULLAGE_RECORDER"])
    library.ullage_now.restype = ctypes.c_uint64
    library.ullage_host.argtypes = (ctypes.c_uint16, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    library.ullage_host.restype = None
    library.ullage_note.argtypes, library.ullage_note.restype = (ctypes.c_char_p,), None
    if hasattr(library, "ullage_wait_begin"):
        library.ullage_wait_begin.argtypes, library.ullage_wait_begin.restype = (ctypes.c_char_p,), None
        library.ullage_wait_end.argtypes, library.ullage_wait_end.restype = (), None
    return library


class Waits:
    """`begin` and `end` tell the recorder when a thread waits, so that it knows of a rank that hangs.

    They nest: `broadcast_object_list` calls `broadcast`, and only the outer one counts. A recorder without functions for that is told
    when a wait is over.
    """

    def __init__(self, library: Any) -> None:
        import threading

        self._library = library
        self._of = threading.local()
        self.begin: Callable[[bytes], object] = getattr(library, "ullage_wait_begin", self._begin)
        self.end: Callable[[], object] = getattr(library, "ullage_wait_end", self._end)

    def _begin(self, name: bytes) -> None:
        depth: int = getattr(self._of, "depth", 0)
        self._of.depth = depth + 1
        if depth == 0:
            self._of.since = name, self._library.ullage_now()

    def _end(self) -> None:
        self._of.depth -= 1
        if self._of.depth == 0:
            name, start = self._of.since
            self._library.ullage_host(MPI, name, start, self._library.ullage_now(), 0)


def timed(
    function: Callable[..., Any],
    name: str,
    waits: Waits,
    compiling: Callable[[], bool] = lambda: False,
) -> Callable[..., Any]:
    """Return a function that records when it ran; its own result and its exceptions pass through.

    While `compiling`, torch.compile looks through it and sees the function itself.
    """
    import functools

    word = name.encode()

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return function(*args, **kwargs)
        waits.begin(word)
        try:
            return function(*args, **kwargs)
        finally:
            waits.end()

    return measured


def wrap(module: Any, names: tuple[str, ...], library: Any, waits: Waits) -> None:
    """Put the timed functions in place of the module's own."""
    compiling = _compiling()
    for name in names:
        function = getattr(module, name, None)
        if callable(function) and not hasattr(function, "_ullage"):
            measured = timed(function, name.lstrip("_"), waits, compiling)
            measured._ullage = True  # type: ignore[attr-defined]
            setattr(module, name, measured)
    work = getattr(module, "Work", None) if "barrier" in names else None
    if work is not None and hasattr(work, "wait"):
        work.wait = timed(work.wait, "wait", waits, compiling)
    if hasattr(module, "init_process_group") and not any(os.environ.get(name) for name in TOLD):
        module.init_process_group = telling(module.init_process_group, module, library)


def telling(begin: Callable[..., Any], module: Any, library: Any) -> Callable[..., Any]:
    """Return an init_process_group that tells the recording which rank this is, as no launcher did."""
    import contextlib
    import functools

    @functools.wraps(begin)
    def begun(*args: Any, **kwargs: Any) -> Any:
        result = begin(*args, **kwargs)
        with contextlib.suppress(Exception):
            library.ullage_note(b'{"rank": %d, "ranks": %d}' % (module.get_rank(), module.get_world_size()))
        return result

    return begun


def _compiling() -> Callable[[], bool]:
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


class Finder:
    """Wraps PyTorch's modules as soon as each is loaded."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._with: tuple[Any, Waits] | None = None

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        """Find the module as the others do, and have its loader wrap it afterwards."""
        if fullname not in CALLS or fullname in self._busy:
            return None
        from importlib.util import find_spec

        self._busy.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._busy.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._and_wrap(spec.loader.exec_module, fullname)  # type: ignore[method-assign, assignment]
        return spec

    def _and_wrap(self, execute: Callable[[Any], None], name: str) -> Callable[[Any], None]:
        def executed(module: Any) -> None:
            execute(module)
            try:
                if self._with is None:
                    library = recorder()
                    self._with = library, Waits(library)
                wrap(module, CALLS[name], *self._with)
            except Exception:  # noqa: S110 - the program matters more than what it tells us
                pass

        return executed


def install() -> None:
    """Wait for PyTorch to be loaded."""
    if os.environ.get("ULLAGE_RECORDER"):
        sys.meta_path.insert(0, Finder())
