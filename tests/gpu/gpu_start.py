"""Starts a check of `gpu/` on the GPU in simulated time, in place of `gpu.alone`, with planted faults.

ULLAGE_TEST_FAULTS is a JSON object from a check's name (or "identify", "probe") to a fault; ULLAGE_TEST_RUNS a file that gets the name of
each check that has begun. A fault happens in the check's own process, as it would on a GPU.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "src")]


def fault_of(name):
    """Return the fault that is planted for a check, "" for none."""
    return json.loads(os.environ.get("ULLAGE_TEST_FAULTS", "{}")).get(name, "")


def note(name):
    """Write down that a check has begun."""
    if path := os.environ.get("ULLAGE_TEST_RUNS"):
        with Path(path).open("a") as file:
            file.write(f"{name}\n")


def suffer(fault, check):
    """Do what the fault is, before the check or in its place."""
    if fault == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    elif fault == "hang and leave a process":
        subprocess.Popen(["sleep", "601"], start_new_session=True)
        time.sleep(600)
    elif fault == "crash":
        print("a word before the end", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "end without a word":
        os._exit(0)
    elif fault == "missing module":
        sys.modules["no_such_library"] = None
        check.function = _broken(lambda: __import__("no_such_library"))
    elif fault == "raise":
        check.function = _broken(lambda: 1 / 0)
    elif fault == "half and hang":
        check.function = _half


def _broken(act):
    def function(machine):
        act()

    return function


def _half(machine):
    """Find something, keep it, and hang: a check of cycle counters, whose columns and answers it has."""
    from gpu.check import CHECKS, Findings

    row = dict.fromkeys(CHECKS["cycle_counters"].columns, 1.0)
    machine.room.keep(Findings(settings={"sms": 132}, answers={"units": 1}, rows=[row]))
    time.sleep(600)


class Changeable:
    """A check whose function may be replaced."""

    function = None


def main():
    """Run a check on the simulated GPU."""
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    name = "identify" if "--identify" in sys.argv else "probe" if "--probe" in sys.argv else names[0]
    fault = fault_of(name)
    note(name)
    if name == "probe":
        suffer(fault, Changeable())
        return 1 if fault == "refuse" else 0
    from dataclasses import replace

    from gpu.alone import main as alone
    from gpu.check import CHECKS, find_check

    from tests.gpu.gpu_double import World

    changeable = Changeable()
    if name == "identify":
        suffer(fault, changeable)
        if fault == "no GPU":
            from gpu import alone as module

            module.machine = lambda: _no_gpu()
            return alone(sys.argv[1:])
    else:
        find_check(name)
        suffer(fault, changeable)
        if changeable.function is not None:
            CHECKS[name] = replace(CHECKS[name], function=changeable.function)
    world = World()
    if fault == "full disk":  # any file ends after 400 bytes, as on a disk that is full
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
    return alone(sys.argv[1:], opened=world.machine())


def _no_gpu():
    from ullage.errors import UllageError

    raise UllageError("NVML finds no GPU", "a container must be started with `--gpus all`")


if __name__ == "__main__":
    sys.exit(main())
