"""Answers that show themselves: text when printed, tables and pictures in a notebook."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from ullage.views.document import document
from ullage.views.view import Table, View


class ShownByView:
    """An answer whose `view` a module of that name makes. It lies above the answer, and is imported when the answer is to be seen.

    `class FleetReport(ShownByView, view="ullage.render.fleet")`: print(report) gives what the command prints, and a notebook
    shows the report. "ullage.render.counters:chips" names that module's `chips_view`.
    """

    view_module: ClassVar[str]

    def __init_subclass__(cls, view: str = "") -> None:
        if view:
            cls.view_module = view
        if "__repr__" not in cls.__dict__:  # before a dataclass makes one that writes out every field
            setattr(cls, "__repr__", ShownByView.__repr__)  # noqa: B010 - a type checker lets nobody assign to a method

    def __repr__(self) -> str:
        """Return the answer in one line."""
        return f"<{type(self).__name__}: {self._view().headline}>"

    def __str__(self) -> str:
        """Return the answer as text."""
        from ullage.views.text import text

        return text(self._view())

    def json(self) -> dict[str, Any]:
        """Return the answer as the plain data that the command prints as JSON."""
        data: dict[str, Any] = self._maker("record")(self)
        return document(self._view().kind, data)

    def table(self, name: str = "") -> Table:
        """Return a table of the answer, the first one without a name; `table_names` lists them.

        pandas, Polars, DuckDB and pyarrow take it as it is: `polars.DataFrame(report.table())`, `pandas.DataFrame.from_arrow(…)`.
        Raises UllageError for a table that the answer has not.
        """
        from ullage.views.csv import chosen_table

        return chosen_table(self._view(), name)

    @property
    def table_names(self) -> list[str]:
        """The names of the answer's tables."""
        return list(self._view().tables)

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
