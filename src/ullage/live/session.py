"""Recording of this process from the inside: begun and ended at run time, or found under `ullage run`.

`recorder` is what records now, None where nothing does; regions look there each time they begin.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.errors import UllageError, harmless
from ullage.live.process_tree import NOTHING, ProcessTree

if TYPE_CHECKING:
    from ullage.cupti.recorder import Recorder
    from ullage.live.all_ranks import AllRanks
    from ullage.live.following import Following
    from ullage.live.recording import Graphs

NOBODY = "nothing records this program: run it by `ullage run`, or call ullage.live.start()"


recorder: Recorder | None = None
_paused: Recorder | None = None  # set aside by `stop`
_following: Following | None = None
_everyone: AllRanks | None = None
_lock = threading.RLock()


def start(
    folder: str | os.PathLike[str] | None = None, *, cuda: bool = True, graphs: Graphs = "nodes", also: Iterable[str] = ()
) -> Path | None:
    """Begin to record this process, or go on after `stop`; return the recording's file (None while nothing is in it).

    `folder` is where (a new temporary one when left out); without `cuda` only regions are recorded. `graphs` and `also` are what
    `ullage run` calls so: graphs by their nodes or each as a `whole`, and further kinds of activity. Under `ullage run` recording has
    begun already; where it goes and what is recorded is settled. Raises UllageError where the recorder can't be had, CUPTI is not there
    (it is not asked for without `cuda`), the folder can't be written, or no kind has such a name. Of a CUPTI that then refuses, trees tell
    in their notes.
    """
    global recorder, _paused
    with _lock:
        if recorder is None and _paused is not None:
            recorder, _paused = _paused, None
            recorder.note({"resumed": time.monotonic_ns()})
            recorder.start()
        elif recorder is None:
            recorder = _begun(folder, _kinds(graphs, also) if cuda else ())
        return recorder.path


def stop() -> Path | None:
    """Stop recording for now, and bring all that is recorded into the file, which is returned; `start` goes on."""
    global recorder, _paused
    with _lock:
        if recorder is None:
            return _paused.path if _paused is not None else None
        _paused, recorder = recorder, None
        _paused.stop()
        _paused.note({"paused": time.monotonic_ns()})
        _paused.flush()
        return _paused.path


def detach() -> Path | None:
    """End the recording and detach CUPTI from the process (guide, 2.3.7); return the file. `start` would begin another one."""
    global recorder, _paused, _following, _everyone
    with _lock:
        ending, recorder, _paused, _following, _everyone = recorder or _paused, None, None, None, None
        if ending is None:
            return None
        path = ending.path
        ending.detach()
        return path


def path() -> Path | None:
    """Return the file that is recorded to, None where nothing is."""
    with _lock:
        found = recorder or _paused
        return found.path if found is not None else None


def _kinds(graphs: Graphs, also: Iterable[str]) -> tuple[int, ...]:
    from ullage.live.recording import kinds

    return kinds(graphs, also)


def _begun(folder: str | os.PathLike[str] | None, kinds: tuple[int, ...]) -> Recorder:
    """Begin to record into a folder (None: a new temporary one): these kinds of CUDA's activity, without any only regions."""
    from ullage.cupti.library import find
    from ullage.cupti.recorder import this_recorder, tracing

    settings = tracing(find(), kinds) if kinds else {"ULLAGE_KINDS": ""}
    found = this_recorder()
    place = Path(tempfile.mkdtemp(prefix="ullage-") if folder is None else folder).absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UllageError(f"{harmless(str(place))} can't be made: {error.strerror}", "give another folder") from error
    found.attach(place, settings)
    return found


def tree(region: str | None = None, *, all_ranks: bool = False) -> ProcessTree:
    """Return the trees of this process as far as they are known now, of the whole or of a region. Never raises: see their notes.

    With `all_ranks` they are of all ranks whose recordings lie in this run's folder, until the last moment that is known of all of them.
    """

    def look(now: int) -> tuple[ProcessTree, ...]:
        from ullage.cupti.recorder import recorded_name

        name = None if region is None else recorded_name(region)
        return _of_all(name) if all_ranks else _of_own(lambda following: (following.tree(name, now=now),))

    return _known(region or "run", look)[0]


def recent(last: int) -> tuple[ProcessTree, ProcessTree]:
    """Return the trees of the last so many ns, and of the whole so far. Never raises: see their notes."""
    found = _known("run", lambda now: _of_own(lambda following: following.recent(last, now=now)))
    return found[0], found[-1]


def _known(name: str, look: Callable[[int], tuple[ProcessTree, ...]]) -> tuple[ProcessTree, ...]:
    """Return the trees that `look` finds at a moment of the monotonic clock, until which all is in the file; else one that says why not."""
    try:
        with _lock:
            recording = recorder or _paused
            if recording is None:
                return (ProcessTree(name, notes=(NOBODY,)),)
            now = time.monotonic_ns()
            recording.flush()
            return look(now) or (ProcessTree(name, notes=(NOTHING,)),)
    except UllageError as error:
        return (ProcessTree(name, notes=(error.problem,)),)
    except ImportError as error:
        return (ProcessTree(name, notes=(f"trees need NumPy and pyarrow in the program's environment: {harmless(str(error))}",)),)
    except Exception as error:  # the program goes on, whatever is wrong here
        return (ProcessTree(name, notes=(f"the recording can't be read: {harmless(f'{type(error).__name__}: {error}')}",)),)


def _of_own(look: Callable[[Following], tuple[ProcessTree, ...]]) -> tuple[ProcessTree, ...]:
    following = _followed()
    if following is None:
        return ()
    following.advance()
    return look(following)


def _of_all(region: str | None) -> tuple[ProcessTree, ...]:
    global _everyone
    where = path()
    if where is None:
        return ()
    from ullage.live.all_ranks import AllRanks, run_folder

    if _everyone is None or _everyone.folder != run_folder(where):
        _everyone = AllRanks(run_folder(where))
    _everyone.look()
    return (_everyone.together(region).tree,)


def _followed() -> Following | None:
    """Return this process' own recording, to be read as it grows; None while there is none."""
    global _following
    where = path()
    if where is None:
        return None
    if _following is None or _following.path != where:
        from ullage.live.following import Following

        _following = Following(where)
    return _following


def _found() -> Recorder | None:
    """Return the recorder that `ullage run` put into this process, None where there is none."""
    library = os.environ.get("ULLAGE_RECORDER")
    if not os.environ.get("ULLAGE_RECORD") or not library:
        return None
    from ullage.cupti.recorder import Recorder

    try:
        return Recorder(Path(library))
    except UllageError:
        return None


def _forked() -> None:
    """A forked child has a recording of its own, which the recorder begins with what the child does; what was read is the parent's."""
    global _following, _everyone, _lock
    _lock, _following, _everyone = threading.RLock(), None, None


recorder = _found()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
