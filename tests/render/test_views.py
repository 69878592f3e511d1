"""One view of an answer, a printer a form: every form says the same, and foreign words harm none of them."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ullage
from tests.golden.canonical import lines_of_page
from ullage.cli.options import give
from ullage.errors import UllageError
from ullage.views.csv import chosen_table, table_csv
from ullage.views.document import schema_name
from ullage.views.files import FORMS, write_answer
from ullage.views.html import html
from ullage.views.markdown import markdown
from ullage.views.markup import Markup
from ullage.views.notation import BAR, COUNT, FACTOR, GPU_HOURS, KERNEL, PATH, PERCENT_1, WORDS
from ullage.views.notebook import notebook
from ullage.views.shown import ShownByView
from ullage.views.text import table_text, text
from ullage.views.view import Cell, Column, Fact, Headline, Item, ItemList, Paragraph, Picture, Section, Table, View, words_of

HOSTILE = ("<script>alert(1)</script>", "\x1b[31mred\u202e", "a|b *c* _d_ `e`", "[x](javascript:alert(1))", "=1+1", "@all", "näht")
COLUMNS = (Column("job"), Column("GPUs", COUNT), Column("OFU", PERCENT_1), Column("why"))


def view(rows=(), **given):
    """Return a view with one table of jobs, and what else is given for it."""
    table = Table("jobs", COLUMNS, [*rows], **given)
    return View(
        "fleet", "Fleet report", Headline("OFU 31.4 %", " of 9 GPU-hours", aside="all trusted"), sections=[Section("jobs", "Jobs", [table])]
    )


def rows_of(page):
    return [[cell.strip() for cell in line.split("|")[1:]] for line in lines_of_page(page) if line.startswith("| ")]


def test_every_form_begins_with_the_answer():
    made = view([["a", 1, 0.5, ""]])
    assert text(made).startswith("OFU 31.4 % of 9 GPU-hours (all trusted)\n")
    assert markdown(made).startswith("**OFU 31.4 %** of 9 GPU-hours (all trusted)\n")
    assert lines_of_page(html(made))[0].endswith("OFU 31.4 % of 9 GPU-hours – Ullage")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(HOSTILE), st.integers(0, 10**6), st.none() | st.floats(0, 1), st.sampled_from(HOSTILE)), max_size=12)
)
def test_every_form_holds_the_same_cells(rows):
    made = view([list(row) for row in rows])
    told = [[words_of(value, column) for value, column in zip(row, COLUMNS, strict=True)] for row in rows]
    assert [[*row] for row in rows_of(html(made))[1:]] == [
        [re.sub(r"\s+", " ", cell).strip() for cell in "|".join(row).split("|")] for row in told
    ]
    for row in told:
        for shown in row[1:3]:
            assert shown in text(made) and shown in markdown(made)
    written = [*csv.reader(io.StringIO(table_csv(made.tables["jobs"])))]
    assert [row[1:3] for row in written[1:]] == [[str(count), "" if ofu is None else repr(ofu)] for _, count, ofu, _ in rows]


class Tags(HTMLParser):
    """Collects the names of a page's elements."""

    def __init__(self, page):
        super().__init__()
        self.names = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)


@pytest.mark.parametrize("word", HOSTILE)
def test_foreign_words_stay_words(word):
    made = View(
        "x", word, Headline(word, word, word, word), word, [word], [Fact(word, word, note=word)],
        [Section("s", word, [Table("t", [Column(word), Column(word)], [[word, Cell(1.0, word)]], note=word), Paragraph(word)], word),
         Section("l", word, [ItemList([Item(word, word, [word])], word)])],
        [word], word, word, [word],
    )  # fmt: skip
    harmless = View(
        "x", "w", Headline("w", "w", "w", "w"), "w", ["w"], [Fact("w", "w", note="w")],
        [Section("s", "w", [Table("t", [Column("w"), Column("w")], [["w", Cell(1.0, "w")]], note="w"), Paragraph("w")], "w"),
         Section("l", "w", [ItemList([Item("w", "w", ["w"])], "w")])],
        ["w"], "w", "w", ["w"],
    )  # fmt: skip
    assert Tags(html(made)).names == Tags(html(harmless)).names
    shown = re.sub("`[^`]*`", "", markdown(made))  # what stands as code is shown as it is
    assert "<script>alert" not in shown and not re.search(r"(?<!\\)\]\(", shown) and "@all" not in shown
    assert Tags(notebook(made)).names == Tags(notebook(harmless)).names
    assert "\x1b" not in html(made) + notebook(made)
    assert not re.search(r"^=", table_csv(made.tables["t"]), re.MULTILINE)


def test_what_is_not_known_is_a_dash_and_nothing_in_csv():
    made = view([["a", None, float("nan"), "x"]])
    assert rows_of(html(made))[1] == ["a", "–", "–", "x"]
    assert table_csv(made.tables["jobs"]).splitlines()[1] == "a,,,x"


def test_a_terminal_shows_a_part_a_file_all_and_says_how_to_see_more():
    rows = [[f"job {number}", number, 0.5, ""] for number in range(30)]
    made = view(rows, brief=4, elsewhere="--top shows them")
    assert text(made).count("\njob ") == 4 + 1 and "… 26 more; --top shows them" in text(made)
    assert text(made, whole=True).count("\njob ") == 30 + 1 and "more" not in text(made, whole=True)
    assert "… 26 more" in markdown(made)
    assert "… 1 more" in html(view(rows, page=29))
    assert "… 1 more" not in html(view(rows, page=30))
    some = view(rows, chosen=[0, 7])
    assert "job 7" in text(some) and "job 1 " not in text(some) and "… 28 more" in text(some)


def test_words_stand_left_and_numbers_right():
    shown = text(view([["a", 7, 0.5, "because"], ["longer", 1234, 0.25, "x"]])).splitlines()[2:]
    assert shown == ["job      GPUs     OFU  why", "a           7  50.0 %  because", "longer  1,234  25.0 %  x"]


def test_a_page_has_pictures_and_what_they_draw_stands_in_a_table_elsewhere():
    drawn = Table("chain", [Column("factor"), Column("", BAR), Column("value", FACTOR)], [["clock", 0.5, 0.5]], drawn=True)
    made = View(
        "x", "X", Headline("31 %"), sections=[Section("chain", "Chain", [Picture(lambda width: Markup(f"<svg>{width}</svg>")), drawn])]
    )
    assert rows_of(html(made)) == [] and "<svg>880</svg>" in html(made) and "<svg>360</svg>" in html(made)
    assert "clock   ██████████··········   0.50" in text(made) and "| clock |" in markdown(made)


def test_details_and_long_sections_go_where_they_can_be_found():
    tables = [Table(name, [Column(name)], [["x"]]) for name in ("models", "groups", "ledger")]
    sections = [
        Section("models", "Models", tables[:1], detail=True),
        Section("groups", "Groups", tables[1:2], long=True),
        Section("ledger", "Ledger", tables[2:]),
    ]
    made = View("x", "X", Headline("31 %"), sections=sections)
    assert "models" not in text(made) and text(made).index("groups") < text(made).index("ledger")
    page = html(made)
    assert page.index('id="models"') < page.index('id="ledger"') < page.index('id="groups"')


def test_a_section_without_anything_to_show_has_no_heading():
    empty = [Section("a", "Alpha", [Table("t", [Column("x")], [])]), Section("b", "Beta", [Paragraph("")])]
    made = View("x", "X", Headline("31 %"), sections=[*empty, Section("c", "Gamma", [Paragraph("said")])])
    for form in (html(made), markdown(made)):
        assert "Alpha" not in form and "Beta" not in form and "Gamma" in form
    assert text(made) == "31 %\n\nsaid\n"


ADVICE = ItemList(
    [Item("fuse kernels", "https://docs.pytorch.org/a?b=1#c", ["1: its bytes need 63 %"]), Item("read", "docs/x.md")], "what to do"
)


def test_a_list_links_addresses_and_a_terminal_shows_them_below():
    made = View("x", "X", Headline("31 %"), sections=[Section("do", "To do", [ADVICE, ItemList([Item("more")], "further", detail=True)])])
    assert text(made) == (
        "31 %\n\nwhat to do:\n  fuse kernels\n    1: its bytes need 63 %\n    https://docs.pytorch.org/a?b=1#c\n  read\n    docs/x.md\n"
    )
    for page in (html(made), notebook(made)):
        assert 'fuse kernels: <a href="https://docs.pytorch.org/a?b=1#c">' in page and "read: docs/x.md" in page
        assert page.count("href") == 1
    assert "further" in html(made) and "further" not in notebook(made) + markdown(made)
    linked = "- fuse kernels ([source](https://docs.pytorch.org/a?b=1#c))\n  - 1: its bytes need 63 %\n- read (docs/x.md)"
    assert f"what to do:\n\n{linked}" in markdown(made)


@pytest.mark.parametrize(
    "word", ["javascript:alert(1)", "https://a.b/) [x](c", 'https://a"onload=', "https://ü.de", "http://a.b", "https://a b"]
)
def test_what_is_no_plain_address_is_not_linked(word):
    made = View("x", "X", Headline("31 %"), sections=[Section("do", "To do", [ItemList([Item("a", word)])])])
    assert "href" not in html(made) and "](" not in markdown(made).replace("\\](", "").replace("\\]", "")


def test_what_an_answer_rests_on_stands_below_it():
    made = View("x", "X", Headline("31 %"), basis=["telemetry: 4 GPUs", "trace: 2 files"], lede=["So it is."])
    assert text(made) == "31 %\ntelemetry: 4 GPUs\ntrace: 2 files\n\nSo it is.\n"
    assert markdown(made) == "**31 %**\n\n- telemetry: 4 GPUs\n- trace: 2 files\n\nSo it is.\n"
    for page in (html(made), notebook(made)):
        assert "telemetry: 4 GPUs; trace: 2 files" in page


def test_a_notebook_shows_what_a_terminal_does_and_pictures():
    table = Table("jobs", COLUMNS, [[f"job {number}", 1, 0.5, ""] for number in range(30)], brief=4, note="of all")
    parts = [Picture(lambda width: Markup(f"<svg>{width}</svg>")), table]
    hidden = Section("detail", "Detail", [Table("d", [Column("x")], [["hidden"]])], detail=True)
    page = notebook(View("x", "X", Headline("31 %"), facts=[Fact("GPUs", 4, COUNT)], sections=[Section("jobs", "Jobs", parts), hidden]))
    assert "<b>31 %</b>" in page and "GPUs 4" in page and "<svg>880</svg>" in page and "job 3" in page and "of all; … 26 more" in page
    assert "job 4" not in page and "hidden" not in page and "<script" not in page and "<!doctype" not in page


class Shown(ShownByView, view=__name__):
    """An answer whose view this module makes, of its rows."""

    def __iter__(self):
        yield ["a", 1, 0.5, "x"]


def record(_):
    return {"ofu": 0.5}


def test_an_answer_shows_itself():
    assert str(Shown()) == text(view(Shown()))
    assert Shown()._repr_html_() == notebook(view(Shown())) and Shown()._repr_markdown_() == markdown(view(Shown()))
    assert Shown().json() == {"schema": "ullage.fleet/1", "version": ullage.__version__, "ofu": 0.5}


def test_every_json_document_says_first_what_it_is_and_who_made_it(tmp_path, capsys):
    head = f'{{\n  "schema": "ullage.fleet/1",\n  "version": "{ullage.__version__}",\n  "ofu": 0.5\n}}'
    path = tmp_path / "answer.json"
    write_answer(path, view(), lambda: {"ofu": 0.5})
    give(view(), lambda: {"ofu": 0.5}, as_json=True)
    assert path.read_text() == head and capsys.readouterr().out == head + "\n"
    assert schema_name("trace-gemms") == "ullage.trace-gemms/1"


def test_a_table_is_chosen_by_name():
    made = view([["a", 1, 0.5, "x"]])
    assert chosen_table(made) is chosen_table(made, "jobs")
    with pytest.raises(UllageError, match="no table 'users'"):
        chosen_table(made, "users")
    with pytest.raises(UllageError, match="has no table"):
        chosen_table(View("x", "X", Headline("31 %")))


def test_units_stand_in_the_heads_of_csv():
    table = Table(
        "t",
        [Column("job"), Column("ullage, GPU-hours", GPU_HOURS), Column("lost", GPU_HOURS), Column("OFU", FACTOR)],
        [["=a", 1.5, 2.5, 0.25]],
    )
    assert table_csv(table) == 'job,"ullage, GPU-hours",lost (GPU-hours),OFU\r\n\'=a,1.5,2.5,0.25\r\n'
    assert WORDS.unit == ""


@pytest.mark.parametrize("ending", FORMS)
def test_a_file_holds_what_its_ending_says(ending, tmp_path):
    made, path = view([["a", 1, 0.5, "x"]]), tmp_path / f"answer{ending.upper()}"
    write_answer(path, made, lambda: {"ofu": 0.5})
    first = {".json": b"{\n", ".md": b"**OFU", ".csv": b"job,", ".txt": b"OFU 31", ".parquet": b"PAR1", ".arrow": b"ARROW1"}
    assert path.read_bytes().startswith(first.get(ending, b"<!doctype html>"))


def test_a_form_that_an_answer_alone_has_goes_first_and_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "answer.csv"
    write_answer(path, view(), dict, {".csv": lambda: b"x\n"})
    assert path.read_bytes() == b"x\n"
    with pytest.raises(UllageError, match="has no table"):
        write_answer(path, View("x", "X", Headline("31 %")), dict)
    assert path.read_bytes() == b"x\n" and [*tmp_path.iterdir()] == [path]
    with pytest.raises(UllageError, match=r"no form '\.pdf'"):
        write_answer(tmp_path / "a.pdf", view(), dict)
    with pytest.raises(UllageError, match="can't be written"):
        write_answer(tmp_path / "no" / "a.md", view(), dict)


def grid():
    """Return a table as papers print it: two lines, of which one is measured and published, under labels of two levels."""
    columns = [
        Column("types"), Column("GPU"), Column("B/clk", COUNT, over=("SS", "zero")),
        Column("TFLOP/s", COUNT, over=("SS", "random")), Column("B/clk", COUNT, over=("RS", "zero")),
    ]  # fmt: skip
    rows = [
        ["FP16", "H200", 1, Cell(700, aside="71 %", tip="at 1,755 MHz"), 3],
        ["FP16", "H800, paper", 4, 5, None],
        ["TF32", "H200", 7, 8, 9],
    ]
    return Table("grid", columns, rows, grid=1, over=("operands", "data"))


def test_labels_spread_over_the_columns_of_a_grid_and_names_stand_once():
    made = View("x", "X", Headline("31 %"), sections=[Section("g", "Grid of products", [grid()], headed=True)])
    assert text(made, width=120).split("\n")[2:] == [
        "Grid of products",
        "operands:                  SS           RS",
        "data:                zero    random   zero",
        "types  GPU          B/clk   TFLOP/s  B/clk",
        "FP16   H200             1  700 71 %      3",
        "       H800, paper      4    5           –",
        "TF32   H200             7    8           9",
        "",
    ]
    heads = re.findall(r"<thead>(.*?)</thead>", html(made))[0]
    assert re.findall(r'<th colspan="(\d)" scope="\w+">(\w+)', heads) == [
        ("2", "operands"), ("2", "SS"), ("1", "RS"), ("2", "data"), ("1", "zero"), ("1", "random"), ("1", "zero")
    ]  # fmt: skip
    assert '<td title="at 1,755 MHz">700<small class="more"> 71 %</small></td>' in html(made) and 'class="sorts"' not in html(made)
    assert "| types | GPU | SS zero: B/clk | SS random: TFLOP/s | RS zero: B/clk |" in markdown(made)
    assert "| FP16 | H800, paper |" in markdown(made) and "| 700 71 % |" in markdown(made)
    assert table_csv(grid()).splitlines()[2] == 'FP16,"H800, paper",4,5,'


@pytest.mark.parametrize(("width", "blocks"), [(42, 1), (41, 2), (30, 3)])
def test_a_grid_that_is_wider_than_the_terminal_goes_on_below_and_labels_keep_what_is_theirs(width, blocks):
    shown = table_text(grid(), width=width)
    assert shown.count("types") == blocks
    labels = [line.split()[1:] for line in shown.splitlines() if line.startswith("operands")]
    assert labels == {1: [["SS", "RS"]], 2: [["SS"], ["RS"]], 3: [["SS"], ["SS"], ["RS"]]}[blocks]


def test_a_terminal_cuts_words_where_their_column_has_room_for_fewer():
    name = "a" * 100
    table = Table("t", [Column("kernel", room=60), Column("at", room=9), Column("why")], [[name, name, name]])
    kernel, at, why = table_text(table, width=200).splitlines()[1].split()
    assert (len(kernel), len(at), len(why)) == (60, 9, 100)
    assert len(table_text(Table("t", [Column("kernel")], [[name]])).splitlines()[1]) == 48


TREE = Table(
    "efficiencies",
    [Column("", key="tree"), Column("", key="efficiency"), Column("", FACTOR, key="value"), Column("low", FACTOR, detail=True)],
    [
        ["Host", "Parallel", Cell(0.5, level=0.5), 0.4],
        ["Host", Cell("Offload", depth=1), Cell(0.5, level=0.5), 0.5],
        ["Device", "Parallel", Cell(0.9, level=0.9), 0.9],
        ["Device", Cell("Balance", depth=1), Cell(None, "?"), 0.9],
        ["Device", Cell("Communication", depth=1), Cell(0.9, level=0.9), 0.9],
        ["Device", Cell("Copies", depth=2), Cell(0.9, level=0.9), 0.9],
    ],
    grid=1,
)  # fmt: skip
DRAWN = """\
Host    Parallel          0.50
        └─ Offload        0.50
Device  Parallel          0.90
        ├─ Balance           ?
        └─ Communication  0.90
           └─ Copies      0.90"""


def test_a_tree_has_its_lines_in_a_terminal_indents_on_a_page_and_plain_rows_in_csv():
    made = View("x", "X", Headline("31 %"), sections=[Section("trees", "Trees", [TREE])])
    assert table_text(TREE) == DRAWN
    assert "\n".join(f"    {line}" for line in DRAWN.split("\n")) in markdown(made)
    assert 'class="sorts"' not in html(made) and ">&emsp;&emsp;Copies<" in html(made)  # sorted by a click it were no tree
    assert table_csv(TREE).splitlines()[4] == "Device,Balance,,0.9"


def test_a_terminal_colours_a_cell_by_the_efficiency_that_it_shows_and_stays_aligned():
    def marked(cell, level):
        return cell if level is None else f"<{cell}>"

    assert table_text(TREE, paint=marked).replace("<", "").replace(">", "") == DRAWN
    assert "Communication  <0.90>" in table_text(TREE, paint=marked)


def test_a_total_stands_below_all_rows_in_every_form_but_csv():
    table = Table("t", [Column("cause"), Column("share", PERCENT_1)], [["a", 0.6], ["b", 0.4]], brief=1, last=[["all", 1.0]])
    made = View("x", "X", Headline("31 %"), sections=[Section("s", "S", [table])])
    assert table_text(table).splitlines()[1:] == ["a       60.0 %", "all    100.0 %", "… 1 more"]
    assert "| all | 100.0 % |" in markdown(made) and "<tfoot><tr><th" in html(made)
    assert table_csv(table).splitlines()[1:] == ["a,0.6", "b,0.4"]


def test_a_table_fits_the_terminal_by_shorter_names_while_any_can_be_shorter():
    columns = [Column("kernel", KERNEL, room=60), Column("code", PATH, room=60), Column("why"), Column("share", PERCENT_1)]
    table = Table("t", columns, [["void " + "k" * 90 + "(int)", "a/" + "b" * 90, "w" * 30, 0.5]], title="Kernels by name")
    for width in (110, 95, 80, 60):
        lines = table_text(table, width=width).splitlines()
        assert max(map(len, lines)) == max(width, 69) and lines[0].startswith("kernels by name")
        assert "k…" in lines[1] and "…b" in lines[1] and "w" * 30 in lines[1]
    assert max(map(len, table_text(table, width=200).splitlines())) == 60 + 60 + 30 + 6 + 6
    page = html(View("x", "X", Headline("31 %"), sections=[Section("s", "S", [table])]))
    assert "<h3>Kernels by name</h3>" in page and f'title="void {"k" * 90}(int)">{"k" * 90}</th>' in page


def test_what_is_detail_a_terminal_leaves_out_and_a_page_and_csv_have():
    detail = Table("d", [Column("much")], [["x"]], detail=True)
    made = View("x", "X", Headline("31 %"), sections=[Section("s", "S", [detail, Table("t", [Column("job")], [["a"]])])])
    assert "much" not in text(made) and "much" not in markdown(made) and ">much<" in html(made)
    assert "low" not in table_text(TREE) and table_csv(TREE).startswith("tree,efficiency,value,low")


def test_a_terminal_has_the_short_words_of_a_cell_and_other_forms_the_whole():
    made = view([[Cell("load balance × communication", short="load balance …"), 1, 0.5, ""]])
    assert "load balance …" in text(made) and "×" not in text(made)
    for form in (html(made), markdown(made), table_csv(made.tables["jobs"])):
        assert "load balance × communication" in form and "…" not in form


def test_a_last_column_goes_on_below_where_it_wraps():
    table = Table("t", [Column("chip"), Column("GPUs", wraps=True)], [["GH100", "H100 SXM, H100 NVL, H200"], ["AD102", "L40"]])
    assert table_text(table, width=21).splitlines() == ["chip   GPUs", "GH100  H100 SXM, H100", "       NVL, H200", "AD102  L40"]
    assert table_text(table, width=40).splitlines()[1] == "GH100  H100 SXM, H100 NVL, H200"


def test_facts_without_heads_have_no_line_for_them():
    made = View("x", "X", Headline("H100"), sections=[Section("f", "Facts", [Table("f", [Column(""), Column("")], [["SMs", "132"]])])])
    assert text(made) == "H100\n\nSMs  132\n" and "<thead>" not in html(made) and 'class="sorts"' not in html(made)
