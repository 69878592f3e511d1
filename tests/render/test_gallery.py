"""The gallery notebook runs in a real kernel, and what it keeps is what its cells show."""

from __future__ import annotations

from pathlib import Path

import nbformat
from docs.gallery import NOTEBOOK, executed


def test_the_gallery_runs_and_shows_what_it_keeps(tmp_path: Path) -> None:
    kept, made = (_kinds(book) for book in (nbformat.read(NOTEBOOK, as_version=4), executed(NOTEBOOK, tmp_path)))
    assert sum("text/html" in kinds for outputs in made for kinds in outputs) >= 6
    assert kept == made, "run `python docs/gallery.py` to keep what the notebook shows now"


def _kinds(book: nbformat.NotebookNode) -> list[list[list[str]]]:
    """Return in which forms each cell shows each of its outputs."""
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    return [[sorted(out.get("data", {})) for out in cell.outputs if out.output_type != "stream"] for cell in cells]
