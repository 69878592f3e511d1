"""An answer described once, as data, before any form: a printer a form makes text, a page, Markdown or CSV of it.

No form computes a number: what a form shows stands here, as a value with its notation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ullage.views.markup import Markup
from ullage.views.notation import AS_GIVEN, WORDS, MoneyTerms, Notation

Value = str | int | float | None
Look = Literal["", "doubt", "strong"]
Confidence = Literal["high", "medium", "low"]


BRIEF = 20  # rows that a terminal shows
PAGE = 500  # and a page


@dataclass(frozen=True)
class Cell:
    """A value that is written in its own words (`words`, else by its column's notation), or looks different.

    `aside` stands beside it, smaller (a share); `tip` shows on a page, by hovering. `depth` is how deep it hangs in a tree
    that its column draws, parents first. A terminal colours it by the efficiency that it shows (`level`), and has the
    `short` words in its place where there are any.
    """

    value: Value
    words: str = ""
    look: Look = ""
    aside: str = ""
    tip: str = ""
    depth: int = 0
    level: float | None = None
    short: str = ""


@dataclass(frozen=True)
class Column:
    """A column: its heading, how its values are written, and its `key` in CSV (the heading where none is given).

    A terminal shows `room` characters of a word, and fewer where the table is wider than the terminal (0: 48 of what
    names a row). What is `detail` it leaves out; the last column goes on below where it `wraps`. Labels stand `over` the
    column, and over the neighbours that have the same. Where its words are `names_of` something (jobs: "job"), a site of pages leads
    from each to a page of its own.
    """

    heading: str
    notation: Notation = WORDS
    key: str = ""
    room: int = 0
    over: Sequence[str] = ()
    detail: bool = False
    wraps: bool = False
    names_of: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of values, a value a column; the first column names its row.

    A terminal shows the first `brief` rows, or those whose numbers `chosen` names; `elsewhere` says how to see the
    others. A page shows the first `page`, and sorts by a click. The `last` rows, a total or a rest, stand below in both,
    and so does the `note`. What is `drawn` by a picture beside it a page leaves out, what is `detail` a terminal. The
    `title` is a heading on a page; in a terminal it heads the names of the rows.

    A `grid` is a table as papers print it: its first `grid` columns name a line, and are written once for all rows that
    share them; a terminal continues it below where it is wider, and no page sorts it. `over` names the labels that stand
    over its columns, a row each. Of a table that is a `heat` map every number is a ratio of one thing, a column a place: a page draws it.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value | Cell]]
    title: str = ""
    brief: int = BRIEF
    page: int = PAGE
    chosen: Sequence[int] | None = None
    elsewhere: str = ""
    note: str = ""
    drawn: bool = False
    grid: int = 0
    over: Sequence[str] = ()
    detail: bool = False
    last: Sequence[Sequence[Value | Cell]] = ()
    heat: bool = False

    def __repr__(self) -> str:
        return f"<table '{self.name}': {len(self.rows)} × {len(self.columns)}>"

    def __str__(self) -> str:
        """Return all rows as text."""
        from ullage.views.text import table_text

        return table_text(self, whole=True)

    def _repr_html_(self) -> str:
        from ullage.views.notebook import notebook_table

        return notebook_table(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table for pandas, Polars, DuckDB and whatever else reads Arrow's C stream, as `arrow_table` makes it."""
        from ullage.views.arrow import arrow_table

        return arrow_table(self).__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class Picture:
    """A picture: `draw` makes it for a width in pixels. A terminal shows none: what it says stands in a table, too.

    On a site of pages one that is `linked` is made for a width and what says where a name leads.
    """

    draw: Callable[[int], Markup]
    linked: Callable[[int, Callable[[str, str], str | None]], Markup] | None = None


@dataclass(frozen=True)
class Paragraph:
    """A sentence or more; or lines in a layout of their own (a tree, an equation), which are `kept` as they stand.

    What is `drawn` by a picture beside it a page leaves out. Where it counts what is left out, `elsewhere` says how one at a
    terminal sees that; a page names the answer's JSON form instead.
    """

    text: str
    kept: bool = False
    drawn: bool = False
    elsewhere: str = ""

    @property
    def words(self) -> str:
        """What it says at a terminal."""
        return "; ".join(filter(None, (self.text, self.elsewhere)))


@dataclass(frozen=True)
class Item:
    """One of a list: what it says, `remarks` below it, and its `source`: an address, which a page links, or words.
    With "#name" the text leads to the section of that name. The `lead` stands before the text, strong on a page. On a site of pages it
    `leads_to` a page of what is named, such as ("job", "4711")."""

    text: str
    source: str = ""
    remarks: Sequence[str] = ()
    lead: str = ""
    leads_to: tuple[str, str] | None = None

    @property
    def words(self) -> str:
        """What it says in one line, for forms that know no strong words."""
        return f"{self.lead}: {self.text}" if self.lead else self.text


@dataclass(frozen=True)
class ItemList:
    """A list under a title of its own, if it has one. What is `detail` a terminal leaves out; what is `ranked` a page numbers, and of what
    is `folded` it shows remarks when they are asked for."""

    items: Sequence[Item]
    title: str = ""
    detail: bool = False
    ranked: bool = False
    folded: bool = False


Part = Table | Picture | Paragraph | ItemList


@dataclass(frozen=True)
class Section:
    """What belongs together under a heading: `how` says how to read it.

    A terminal shows headings only where they are asked for (`headed`): tables speak for themselves. What is `detail` it
    leaves out. On a page one that `opens` it stands on the first screen, before the findings, and a section that is `long` comes after all
    that are not.
    """

    name: str
    title: str
    parts: Sequence[Part]
    how: str = ""
    detail: bool = False
    long: bool = False
    headed: bool = False
    opens: bool = False


@dataclass(frozen=True)
class Fact:
    """A key figure: what it is, its value, and a note."""

    name: str
    value: Value
    notation: Notation = WORDS
    note: str = ""


@dataclass(frozen=True)
class FindingPlace:
    """Where a finding is: as much of it as is known and fits. `index` is the GPU's number on its host, `gpu` its UUID.

    Without a `job`, `job_name` and `gpus` are of a kind of jobs: their name, and the number of GPUs of each.
    """

    cluster: str | None = None
    job: str | None = None
    job_name: str | None = None
    user: str | None = None
    host: str | None = None
    index: int | None = None
    gpu: str | None = None
    mig: str | None = None
    model: str | None = None
    region: str | None = None
    kernel: str | None = None
    gpus: int | None = None

    def __str__(self) -> str:
        """Return where it is, as people look for it.

        >>> str(FindingPlace(job="4711", job_name="llama", host="node-7", index=3, gpu="GPU-5f1c"))
        'job 4711 (llama), node-7 GPU 3'
        >>> str(FindingPlace(cluster="east")), str(FindingPlace(gpu="GPU-5f1c"))
        ('cluster east', 'GPU-5f1c')
        >>> str(FindingPlace(job_name="llama", gpus=64, user="ada"))
        'jobs named llama on 64 GPUs, user ada'
        """
        named = f"jobs named {self.job_name} on {self.gpus:,} GPUs" if self.job_name and self.gpus else ""
        job = f"job {self.job}{f' ({self.job_name})' if self.job_name else ''}" if self.job else named
        number = None if self.index is None else f"GPU {self.index}"
        device = " ".join(filter(None, [self.host, number, f"instance {self.mig}" if self.mig else None]))
        words = [
            job,
            f"user {self.user}" if self.user else "",
            device or self.gpu,
            self.model,
            f"region {self.region}" if self.region else "",
            f"kernel {self.kernel}" if self.kernel else "",
        ]
        return ", ".join(filter(None, words)) or (f"cluster {self.cluster}" if self.cluster else "")


@dataclass(frozen=True)
class Finding:
    """What is worth doing: where, whose it is, what it costs (in the window of the answer), how sure it is, the evidence, and what to do.

    `kind` is the key of its kind and `title` what a person reads; `part` says which part of the ullage its GPU-hours are. `weeks` is how
    many weeks the window is long, None where it is too short to speak of weeks. `money` is None where prices are not given, and is in what
    the `terms` say. The
    `next_command` says more of where it is ("": there is none).
    """

    where: FindingPlace
    owner: str
    gpu_hours: float
    confidence: Confidence
    evidence: Sequence[Fact]
    advice: str
    money: float | None = None
    terms: MoneyTerms = AS_GIVEN
    kind: str = ""
    title: str = ""
    part: str = ""
    weeks: float | None = None
    next_command: str = ""

    @property
    def weekly_gpu_hours(self) -> float | None:
        """What it costs in a week like this window."""
        return self.gpu_hours / self.weeks if self.weeks else None

    @property
    def weekly_money(self) -> float | None:
        """The money that it costs in a week like this window."""
        return self.money / self.weeks if self.weeks and self.money is not None else None


@dataclass(frozen=True)
class Headline:
    """The answer in one line: `before` it that it is partial, what is `strong`, of what it is true, what doubts it."""

    strong: str
    rest: str = ""
    before: str = ""
    aside: str = ""

    def __str__(self) -> str:
        return f"{self.before}{self.strong}{self.rest}{f' ({self.aside})' if self.aside else ''}"


@dataclass(frozen=True)
class View:
    """An answer: what it is of (`subject`, `window`), its headline, what it rests on (`basis`: a line a source, or a
    convention), a sentence or two (`lede`), what is worth doing (`findings`, in order of
    what it is worth), key figures, sections, notes, the command that asks again, and the `next_command`, of the report that it leads to."""

    kind: str
    subject: str
    headline: Headline
    window: str = ""
    lede: Sequence[str] = ()
    facts: Sequence[Fact] = ()
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    command: str = ""
    next_command: str = ""
    closing: str = ""
    basis: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    tables: dict[str, Table] = field(init=False, repr=False)

    def alone(self, name: str) -> View:
        """Return the answer with one of its tables only, all rows of it. Raises UllageError for a table that it has not."""
        from ullage.views.csv import chosen_table

        table = chosen_table(self, name)
        whole = replace(table, brief=len(table.rows), page=len(table.rows), chosen=None, drawn=False, detail=False, elsewhere="")
        apart = Section(name, table.title, ())  # findings are a list in their section
        section = next((section for section in self.sections if any(part is table for part in section.parts)), apart)
        return replace(self, sections=[replace(section, parts=[whole], detail=False)], facts=(), findings=(), lede=())

    def __post_init__(self) -> None:
        found = [part for section in self.sections for part in section.parts if isinstance(part, Table)]
        if self.findings:
            from ullage.views.findings import findings_table

            found.append(findings_table(self.findings))
        object.__setattr__(self, "tables", {table.name: table for table in found})


def cell_of(value: Value | Cell) -> Cell:
    """Return a value as a cell."""
    return value if isinstance(value, Cell) else Cell(value)


def words_of(value: Value | Cell, column: Column) -> str:
    """Return what a cell says, in words of its own or in its column's notation."""
    cell = cell_of(value)
    return cell.words or column.notation.words(cell.value)


def all_words_of(value: Value | Cell, column: Column) -> str:
    """Return what a cell says, with what stands beside it."""
    return " ".join(filter(None, (words_of(value, column), cell_of(value).aside)))


def heading_of(column: Column) -> str:
    """Return a column's heading with the labels that stand over it, for a form that has one line of them."""
    return ": ".join(filter(None, (" ".join(column.over), column.heading)))


def named_before(table: Table, row: Sequence[Value | Cell], before: Sequence[Value | Cell] | None) -> bool:
    """Return whether a grid's row has the names of the one before it, which are then not written again."""
    return (
        before is not None
        and table.grid > 0
        and all(cell_of(one).value == cell_of(other).value for one, other in zip(row[: table.grid], before[: table.grid], strict=True))
    )


def draws_tree(table: Table) -> bool:
    """Return whether a column of a table draws a tree."""
    return any(cell_of(value).depth for row in table.rows for value in row)


def brief(table: Table, *, whole: bool = False) -> Table:
    """Return what a short form shows of a table: its columns, and the first or the chosen rows of it, all of them for the `whole`."""
    every = range(len(table.rows))
    rows = every if whole else every[: table.brief] if table.chosen is None else table.chosen
    kept = [number for number, column in enumerate(table.columns) if not column.detail]
    return replace(
        table,
        columns=[table.columns[number] for number in kept],
        rows=[[table.rows[row][number] for number in kept] for row in rows],
        last=[[row[number] for number in kept] for row in table.last],
    )


def rows_left_out(table: Table, shown: int) -> str:
    """Return in a line how many rows a form lacks that shows so many; "" where it shows all."""
    more = len(table.rows) - shown
    return f"… {more:,} more{f'; {table.elsewhere}' if table.elsewhere else ''}" if more > 0 else ""
