"""The gallery notebook runs in a real kernel, and what it keeps is what its cells show."""

from __future__ import annotations

from pathlib import Path

import nbformat
from docs.gallery import NOTEBOOK, executed


def test_the_gallery_runs_and_shows_what_it_keeps(tmp_path: Path) -> None:
    kept, made = (_shown(book) for book in (nbformat.read(NOTEBOOK, as_version=4), executed(NOTEBOOK, tmp_path)))
    assert sum("text/html" in shown for outputs in made for shown in outputs) >= 6
    assert kept == made, "run `python docs/gallery.py` to keep what the notebook shows now"


def _shown(book: nbformat.NotebookNode) -> list[list[dict[str, str]]]:
    """Return the forms in which each cell shows each of its outputs; of those that are words, the words."""
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    return [[_words(out) for out in cell.outputs] for cell in cells]


def _words(out: nbformat.NotebookNode) -> dict[str, str]:
    forms = {"stream": out.text} if out.output_type == "stream" else out.data
    return {kind: words if kind in ("stream", "text/plain", "text/markdown") else "" for kind, words in forms.items()}
