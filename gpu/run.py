"""Run every check that needs a GPU: `python3 gpu/run.py`, or `make gpu`.

A plain Python 3.11 or later with NumPy, pyarrow and nvidia-ml-py is enough; Ullage itself is taken from `src/` beside
this folder. Exit: 0 all that could run passed, 1 a check failed or a library is missing, 3 there is no GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = {"numpy": "NumPy", "pyarrow": "pyarrow", "pynvml": "nvidia-ml-py"}


def missing() -> list[str]:
    """Return the names of the libraries without which nothing can be measured."""
    return [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]


def has_device(devices: Path = Path("/dev")) -> bool:
    """Return whether the driver has put a GPU among the devices (natively or in WSL); asked only when a library is missing."""
    return any(devices.glob("nvidia*")) or (devices / "dxg").exists()


def main() -> int:
    """Run the checks and return the exit code."""
    lacking = missing()
    if lacking:
        if not has_device():
            print("no GPU: this machine has no NVIDIA device")
            return 3
        print(f"not measured: no {', no '.join(lacking)} in {sys.executable}; `pip install {' '.join(lacking).lower()}`")
        return 1
    from gpu.session import main as session

    return session(sys.argv[1:])


if __name__ == "__main__":
    sys.path[:1] = [str(ROOT), str(ROOT / "src")]
    sys.exit(main())
