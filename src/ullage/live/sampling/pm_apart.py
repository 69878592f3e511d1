"""PM sampling in a process of its own, so that whatever the driver or CUPTI does there, the program and who runs it go on.

The process writes its readings to a pipe as an Arrow stream, whose last batch says what there is to say; it ends when its own standard
input does: when it is told to, or when whoever began it is gone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.live.sampling.waiting import Ended, Until
from ullage.problems import Problems
from ullage.sources.source import Options
from ullage.tables import SAMPLES

LONGEST = 10 * 365 * 86400.0
PARTING = 2.0  # seconds that the process gets to end when it has nothing more to say
INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")  # what a program gets is nothing for whoever samples beside it
HIDING = "CUDA_VISIBLE_DEVICES"


class Apart:
    """A sampling process, from `batches` to `end`; `notes` says afterwards what was left out.

    It samples the GPUs that this environment shows to CUDA; with `everything` also those that it hides.
    """

    def __init__(
        self, interval: float, *, cupti: Path | None = None, everything: bool = False, environment: Mapping[str, str] | None = None
    ) -> None:
        self.notes: list[str] = []
        given = os.environ if environment is None else environment
        hidden = (*INJECTED, HIDING) if everything else INJECTED
        asked = json.dumps({"interval": interval, "cupti": None if cupti is None else str(cupti)})
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, asked],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={name: value for name, value in given.items() if name not in hidden},
        )  # fmt: skip

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the readings as they come. Raises UllageError when no GPU can be sampled, or the process dies."""
        said: dict[str, Any] = {}
        try:
            with pa.ipc.open_stream(self._process.stdout) as stream:
                while "notes" not in said:
                    batch, words = stream.read_next_batch_with_custom_metadata()
                    said = json.loads(words["said"]) if words and "said" in words else {}
                    if batch.num_rows:
                        yield batch
        except (StopIteration, pa.ArrowException, OSError, ValueError):
            raise UllageError(f"the process that samples the GPUs died ({self._left()})", "take NVML's figures: --counters gpm") from None
        finally:
            self.end()
            self._left()
        self.notes = [harmless(str(note), 1000) for note in said["notes"]]
        if said["refused"]:
            raise UllageError(harmless(str(said["refused"]), 1000))

    def end(self) -> None:
        """Have it read once more, and end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def _left(self) -> str:
        """Wait until the process is gone, and say how it went."""
        try:
            code = self._process.wait(PARTING)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit {code}"


def _sample(asked: Mapping[str, Any], out: IO[bytes], ended: threading.Event) -> None:
    """Write readings until the end, and then what there is to say."""
    from ullage.cupti.library import find
    from ullage.live.sampling import pm

    problems, refused = Problems(), ""
    with pa.ipc.new_stream(out, SAMPLES) as stream:
        try:
            library = find(asked["cupti"])
            with pm.opened(Options(interval=asked["interval"]), problems, socket.gethostname(), library=library) as machine:
                until = Until(ended, machine.shortest)
                for batch in machine.watched(Options(watch=LONGEST, interval=asked["interval"]), sleep=until.sleep):
                    stream.write_batch(batch)
        except Ended:
            pass
        except UllageError as error:
            refused = error.problem
        except Exception as error:  # whoever began this hears of it, and goes on
            refused = f"PM sampling ended: {type(error).__name__}: {error}"
        said = json.dumps({"refused": refused, "notes": [note for note in problems.lines() if note != refused]})
        stream.write_batch(pa.RecordBatch.from_pylist([], SAMPLES), custom_metadata={"said": said})


def main(asked: str) -> None:
    """Sample until the standard input ends; what a library prints goes to the standard error, not between the readings."""
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=watch, daemon=True, name="ullage end").start()
    with os.fdopen(os.dup(1), "wb", buffering=0) as out:
        os.dup2(2, 1)
        with suppress(BrokenPipeError):
            _sample(json.loads(asked), out, ended)


if __name__ == "__main__":
    main(sys.argv[1])
