"""The process of the command line: `ullage` and `python -m ullage`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import FrameType, ModuleType

from ullage.cli import main


class ArrowWithoutPandas(MetaPathFinder):
    """Keeps PyArrow from importing pandas with its first array: a quarter of a second, and nothing of ours makes
    a data frame.

    PyArrow asks in C, on behalf of whoever wants an array, and for itself when Ibis first makes a table of one.
    Other libraries that import pandas get it.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        """Refuse pandas to our own modules, which never import it themselves, and to those of PyArrow, which do without."""
        if name == "pandas" and _importer(sys._getframe(1)).startswith(("ullage.", "pyarrow.")):
            raise ModuleNotFoundError("pandas is not used by Ullage", name=name)


def _importer(frame: FrameType | None) -> str:
    """Return the name of the module whose code imports, or calls what does in C."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("importlib", "_frozen_importlib")):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def run_command_line() -> None:
    """Run the command line in a process of its own."""
    sys.meta_path.insert(0, ArrowWithoutPandas())
    gc.set_threshold(50_000, 20, 100)  # a process that ends soon: looking for cycles among what it imports is a twentieth of its time
    main()


if __name__ == "__main__":
    run_command_line()
