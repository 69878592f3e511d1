"""Answers that show themselves: text when printed, tables and pictures in a notebook."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from ullage.views.document import document
from ullage.views.view import View


class ShownByView:
    """An answer whose `view` a module of that name makes. It lies above the answer, and is imported when the answer is to be seen.

    `class FleetReport(ShownByView, view="ullage.render.fleet")`: print(report) gives what the command prints, and a notebook
    shows the report. "ullage.render.counters:chips" names that module's `chips_view`.
    """

    view_module: ClassVar[str]

    def __init_subclass__(cls, view: str = "") -> None:
        if view:
            cls.view_module = view

    def __str__(self) -> str:
        """Return the answer as text."""
        from ullage.views.text import text

        return text(self._view())

    def json(self) -> dict[str, Any]:
        """Return the answer as the plain data that the command prints as JSON."""
        data: dict[str, Any] = self._maker("record")(self)
        return document(self._view().kind, data)

    def _repr_html_(self) -> str:
        from ullage.views.notebook import notebook

        return notebook(self._view())

    def _repr_markdown_(self) -> str:
        from ullage.views.markdown import markdown

        return markdown(self._view())

    def _view(self) -> View:
        made: View = self._maker("view")(self)
        return made

    def _maker(self, what: str) -> Any:
        module, _, part = self.view_module.partition(":")
        return getattr(import_module(module), f"{part}_{what}" if part else what)
