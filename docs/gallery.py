"""Run the gallery notebook, and keep what it shows: python docs/gallery.py (`ullage` with its `dev` extra)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "examples" / "gallery.ipynb"


def executed(notebook: Path, folder: Path) -> Any:
    """Return a notebook with what its cells show, run in a folder by this Python. Raises CellExecutionError where a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    node = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(folder)}}
    # what a program prints in two turns, on a busy machine, is one output
    client = NotebookClient(node, timeout=300, kernel_name="python3", resources=resources, record_timing=False, coalesce_streams=True)
    # the `ullage` of this interpreter, whatever others the machine has
    client.execute(env={**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])})
    return node


if __name__ == "__main__":
    import nbformat

    with tempfile.TemporaryDirectory() as scratch:
        nbformat.write(executed(NOTEBOOK, Path(scratch)), NOTEBOOK)  # type: ignore[no-untyped-call]
    print(f"wrote {NOTEBOOK}")
