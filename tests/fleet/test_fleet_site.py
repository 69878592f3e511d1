"""`ullage fleet --out FOLDER`: an index and a page for each job, user and host, linked, whatever their names are."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.command_line import ask
from ullage.views.site import file_stem

T = 1_786_320_000
HEAD = "timestamp,gpu,model,host,job,user,tensor_active,sm_clock,sm_active\n"
JOBS = ["../../etc", "<script>alert(1)</script>", "Ann", "ann", "con", "a b&c?d#e"]
USERS = ["ann", "ann", "Ann", "..", "ann", '"><img src=x onerror=alert(1)>']


class Links(HTMLParser):
    """Where a page leads, what it would load, and what runs in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "href" in found:
            (self.leads if tag == "a" else self.loads).append(found["href"])
        self.loads += [found[name] for name in ("src", "srcset", "data", "poster") if name in found]
        self.handlers += [name for name in found if name.startswith("on")]


def written(folder: Path) -> Path:
    file = folder / "samples.csv"
    rows = [
        f'{T + 60 * n},GPU-{g},H100 SXM,node/{g // 4},{quoted(JOBS[g])},{quoted(USERS[g])},{0.1 * (g + 1):.1f},1830,0.9\n'
        for n in range(30)
        for g in range(len(JOBS))
    ]  # fmt: skip
    file.write_text(HEAD + "".join(rows))
    return file


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    said = ask("fleet", written(folder), "--out", folder / "site", "--price", "2")
    assert (said.code, said.out) == (0, "")
    assert said.err.endswith(f"wrote {folder / 'site' / 'index.html'}\n")
    return folder / "site"


def test_there_is_an_index_and_a_page_for_each_job_user_and_host(site: Path) -> None:
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {"index.html", "jobs.html", "users.html", "hosts.html", "jobs/ann.html", "users/ann.html"} < pages
    counts = [len([page for page in pages if page.startswith(f"{kind}/")]) for kind in ("jobs", "users", "hosts")]
    assert counts == [len(JOBS), len(set(USERS)), 2] and len(pages) == 4 + sum(counts)
    assert len({page.casefold() for page in pages}) == len(pages)


def test_whatever_a_name_is_its_file_lies_in_the_folder_and_its_page_says_it_as_text(site: Path) -> None:
    assert [path for path in site.parent.rglob("*") if path.is_file() and site not in path.parents] == [site.parent / "samples.csv"]
    page = (site / "jobs" / f"{file_stem(JOBS[1])}.html").read_text()
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    for path in site.rglob("*.html"):
        assert Links(path).handlers == [] and Links(path).loads == []


def test_every_link_leads_to_a_page_of_the_site_or_a_section_of_its_own_page(site: Path) -> None:
    for path in site.rglob("*.html"):
        for link in Links(path).leads:
            place, _, section = link.partition("#")
            target = path if not place else (path.parent / place).resolve()
            assert target.is_relative_to(site) and target.is_file(), link
            assert not section or f'id="{section}"' in target.read_text()
    rows = Links(site / "jobs.html").leads
    assert {f"jobs/{file_stem(name)}.html" for name in JOBS} < set(rows)


def test_a_page_says_what_the_command_on_it_says_and_names_that_and_the_next(site: Path) -> None:
    source = site.parent / "samples.csv"
    page = site / "jobs" / f"{file_stem('con')}.html"
    job = ask("job", "con", source, "--price", "2")
    ofu = re.match(r"Job con: (OFU [\d.]+ %)", job.out)
    assert ofu is not None
    text = page.read_text()
    assert f"<title>Job con: {ofu[1]} of" in text
    assert f"The same report: <code>ullage job con {source} --price 2</code>" in text
    assert f"Next: <code>ullage waterfall {source} --job con</code>" in text
    user = (site / "users" / "ann.html").read_text()
    assert f"<code>ullage fleet {source} --user ann --price 2</code>" in user and "User ann" in user


def test_pages_of_files_send_no_form_and_load_nothing(site: Path) -> None:
    (policy,) = {html.unescape(re.findall(r'Policy" content="([^"]*)"', path.read_text())[0]) for path in site.rglob("*.html")}
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and policy.endswith("form-action 'none'")


def test_of_more_rows_than_top_the_worst_have_pages_and_the_site_says_how_many_have_none(site: Path) -> None:
    folder = site.parent / "small"
    assert ask("fleet", site.parent / "samples.csv", "--out", folder, "--top", "1").code == 0
    assert [path.name for path in (folder / "jobs").iterdir()] == [f"{file_stem('../../etc')}.html"]  # a tenth of the tensor activity
    assert "Pages: 1 of 6 jobs, 1 of 4 users, 1 of 2 hosts." in (folder / "index.html").read_text()
    again = ask("fleet", site.parent / "samples.csv", "--out", folder, "--top", "0")
    assert again.code == 0 and not [*folder.rglob("jobs/*.html")]  # the pages before are gone
    (folder / "index.html").write_text("mine")
    (folder / ".ullage-killed").mkdir()
    (folder / ".ullage-killed" / ".ullage-lock").touch()  # a run that was killed
    refused = ask("fleet", site.parent / "samples.csv", "--out", folder, "--top", "0")
    assert "was interrupted: its unfinished files are removed" in refused.err and not (folder / ".ullage-killed").exists()
    assert refused.code == 1 and "was changed since" in refused.err and (folder / "index.html").read_text() == "mine"


def test_what_a_folder_can_not_hold_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    scrapes = tmp_path / "scrapes"
    scrapes.mkdir()
    for words, why in (
        (["--out", scrapes], "is read"),
        (["--out", scrapes / "site"], "is read"),
        (["--out", tmp_path / "site", "--json"], "leave out --only and --json"),
        (["--out", tmp_path / "site", "--by", "user"], "leave out --by and --against"),
    ):
        said = ask("fleet", scrapes, *words)
        assert said.code in (1, 2) and why in said.err
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("name", ["4711", "llama-70b_3", "a.b"])
def test_a_plain_name_is_its_file(name: str) -> None:
    assert file_stem(name) == name


def test_no_two_names_have_one_file_where_upper_and_lower_case_are_one() -> None:
    names = ["Ann", "ann", "ANN", "con", "con.x", "..", ".", "", "a/b", "a\\b", "a.", "\x00", "é", "e\u0301", "x" * 300, "-rf"]
    names += ["ann-17239b6e2501"]
    stems = [file_stem(name) for name in names]
    assert len({stem.casefold() for stem in stems}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,59}", stem) for stem in stems)
    assert not {"con", "con.x"} & {*stems}  # which Windows takes for a device
