"""The HTML report: the answer first, everything foreign harmless, nothing fetched, and it works in a real browser."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.sample_reports import HOSTILE, agreement_of, chain, empty, group, report
from ullage.audit.trust import Verdict
from ullage.metrics.clocks import SamplingNoise
from ullage.render.fleet import view
from ullage.reports.fleet.agreement import Comparison
from ullage.reports.fleet.bills import FleetMoney
from ullage.reports.fleet.fleet import FleetReport
from ullage.views.html import html as page
from ullage.views.view import Fact, Finding, FindingPlace

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Reading(HTMLParser):
    """What a document holds: its text, its tags in order, and whether every tag was closed."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.text, self.tags, self.open, self.attributes = "", [], [], []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def html(made: FleetReport) -> str:
    return page(view(made))


def text(made: FleetReport) -> str:
    return re.sub(r"\s+", " ", Reading(html(made)).text)


def test_the_answer_comes_first() -> None:
    assert text(report()).lstrip().startswith("OFU 31.4 % of 86,016 GPU-hours – Ullage")  # the title of the window
    opening = text(report())[:420]
    assert "2026-08-10 00:00 to 2026-08-17 00:00 UTC" in opening
    assert "OFU 31.4 % of 86,016 GPU-hours (99.2 % of them trusted)" in opening
    assert "“GPU utilization” says 68 %. 58,561 GPU-hours fall short of full, worth 146,402 at the price given." in opening


def test_the_page_shows_the_command_that_gives_the_same_report() -> None:
    assert "<code>ullage fleet week.parquet --by job --price 2.5 --out report.html</code>" in html(report())


def test_the_same_report_gives_the_same_bytes() -> None:
    assert html(report()) == html(report())


@pytest.mark.parametrize("made", [report(), empty()], ids=["rich", "empty"])
def test_every_tag_is_closed_and_every_id_is_its_own(made: FleetReport) -> None:
    reading = Reading(html(made))
    ids = [value for name, value in reading.attributes if name == "id"]
    assert reading.open == [] and len(ids) == len(set(ids))
    named = {word for name, value in reading.attributes if name == "aria-labelledby" for word in (value or "").split()}
    assert named <= set(ids)


def test_the_document_loads_nothing() -> None:
    document = html(report())
    assert set(re.findall(r"https?://[^\"'<\s]*", document)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href|srcset|action)=|@import|@font-face|url\((?!#)", document)
    assert not {"link", "img", "iframe", "object", "embed", "form", "base"} & set(Reading(document).tags)


def test_only_our_style_and_script_are_allowed_by_their_hashes() -> None:
    document = html(report())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', document)
    assert policy is not None
    allowed = policy.group(1).replace("&#x27;", "'")
    assert allowed.startswith("default-src 'none';") and "unsafe" not in allowed
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", document, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in allowed
    assert not re.search(r'\sstyle="|\son[a-z]+="', document)


def hostile(name: str) -> FleetReport:
    return report(
        by=name,
        groups=[group(name)],
        models=[group(name)],
        method=name,
        doubtful_series=[Verdict(name, name, name, 1.0)],
        findings=[Finding(FindingPlace(name, name, name, name, name, 1, name), name, 1.0, "low", (Fact(name, name),), name, title=name)],
        verdicts={name: (1, 1.0)},
        agreement=agreement_of([Comparison(name, 8, 0.5, 0.3, 0.6)]),
        notes=[name],
        command=name,
    )


def test_hostile_names_come_out_as_text() -> None:
    document = html(hostile(HOSTILE))
    assert document.count("<script") == 1 and "alert(&quot;1&quot;)" in document
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e]", document)
    document.encode("utf-8")  # no lone surrogate


@settings(max_examples=50)
@given(st.text(st.characters()))
def test_no_name_adds_a_tag_or_an_attribute(name: str) -> None:
    plain, found = Reading(html(hostile("plain"))), Reading(html(hostile("<script " + name)))
    assert found.tags.count("script") == 1
    assert {n for n, _ in found.attributes} == {n for n, _ in plain.attributes}
    assert set(found.tags) == set(plain.tags)


def test_nothing_known_is_told_as_such_and_never_as_zero() -> None:
    shown = text(empty())
    assert "OFU unknown for 0 GPU-hours" in shown and "OFU 0" not in shown
    assert "nan" not in shown.lower() and "None" not in shown


def test_numbers_that_are_not_numbers_are_dashes() -> None:
    nan = float("nan")
    shown = text(
        report(
            ofu=nan,
            ullage=nan,
            power=nan,
            money=FleetMoney(cost=nan, ullage_cost=nan),
            gpu_util=float("inf"),
            groups=[group("a", ofu=nan)],
            noise=[SamplingNoise(5, 5, nan, nan)],
        )
    )
    assert not re.search(r"\b(nan|inf)\b", shown, re.IGNORECASE)


def rows(document: str, section: str) -> int:
    start = document.index(f'aria-labelledby="{section}"')
    return document[start : document.index("</section>", start)].count("<tr>") - 1


def test_five_hundred_groups_are_listed_and_the_rest_is_counted() -> None:
    document = html(report(groups=[group(f"job-{n}") for n in range(1234)]))
    assert rows(document, "every-group") == 500 and "… 734 more" in document


def test_fifty_findings_are_listed_and_the_rest_is_counted() -> None:
    many = [Verdict(f"GPU-{n}", "stale", "repeats", 1.0) for n in range(2_000)]
    document = html(report(doubtful_series=many))
    assert rows(document, "trust") == 50 and "… 1,950 more" in document


def test_a_table_has_a_column_for_each_factor_that_anybody_has() -> None:
    document = html(report(groups=[group("with"), group("without", tree=chain(0.3, sm=False))]))
    table = document[document.index('aria-labelledby="every-group"') :]
    heads = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", table[: table.index("</thead>")])
    assert heads[3:-2] == ["load balance", "activity", "SM fill", "SM fill × tensor issue", "tensor issue", "clock"]


def test_table_three_has_spreads_and_a_single_job_has_none() -> None:
    document = html(report())
    assert "31.2 ± 8.1" in document and "2.1 ± 1.3" in document
    assert ">54.3</td>" in document  # one job of 288 GPUs


def test_what_nobody_reported_has_no_section() -> None:
    document = html(report(agreement=None, noise=[], notes=[]))
    assert not {"agreement", "noise", "notes"} & set(re.findall(r'<h2 id="([a-z-]+)"', document))


def test_an_exact_group_in_a_sampled_report_is_marked() -> None:
    shown = text(report(groups=[group("a", method="exact"), group("b")]))
    assert "30.0 %*" in shown and "OFU marked * is exact" in shown


# -- a real browser ---------------------------------------------------------------------------------------------------


def browse(document: str, folder: Path, *arguments: str) -> str:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: the report was not opened in a real browser")
    page = folder / "report.html"
    page.write_text(document, encoding="utf-8")
    quiet = (
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
    )
    command = [CHROMIUM, "--headless", *quiet, "--disable-sync", f"--user-data-dir={folder / 'profile'}", *arguments, page.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return done.stdout.decode("utf-8")


PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("width", "scheme"), [(1280, 1), (1280, 0), (400, 1)], ids=["light", "dark", "phone"])
def test_a_browser_draws_the_report(tmp_path: Path, width: int, scheme: int) -> None:
    shot = tmp_path / "report.png"
    browse(
        html(report()), tmp_path, f"--screenshot={shot}", f"--window-size={width},3000", f"--blink-settings=preferredColorScheme={scheme}"
    )
    head = shot.read_bytes()
    # a PNG says its size in bytes 16 to 24; an empty page of this size is far below 50 kB
    assert head[:8] == PNG and int.from_bytes(head[16:20], "big") == width and len(head) > 50_000


def test_in_a_browser_the_policy_lets_our_script_run_and_hostile_text_stays_text(tmp_path: Path) -> None:
    name = "<img src=x onerror=\"document.body.id='pwned'\"><script>document.body.id='pwned'</script>"
    seen = browse(html(hostile(name)), tmp_path, "--dump-dom")
    assert "<body>" in seen and 'id="pwned"' not in seen.replace("&quot;", "")
    assert '<button type="button">GPU-hours</button>' in seen  # the script made the heads clickable


# A page that clicks on its own table: our script, then the heads in turn, and the order of rows after each click.
CLICKS = """
const table = document.querySelector('section[aria-labelledby="every-group"] table'), told = [];
for (const at of [0, 0, 2, 2, 2]) {
  table.tHead.rows[0].cells[at].querySelector("button").click();
  told.push([...table.tBodies[0].rows].map(row => row.cells[0].textContent).join(" "));
}
document.body.textContent = told.join("; ");
"""


def test_in_a_browser_a_click_sorts_a_second_turns_and_a_third_restores(tmp_path: Path) -> None:
    made = report(groups=[group("b", gpu_hours=900.0), group("c", gpu_hours=10_000.0), group("a", gpu_hours=20.0)])
    document = html(made).replace("</script>", f"{CLICKS}</script>")
    document = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*/>', "", document)  # the clicks are not ours
    seen = browse(document, tmp_path, "--dump-dom")
    # by name up, by name down; then by GPU-hours: most first, least first, and as the report had it
    assert "a b c; c b a; c b a; a b c; b c a" in seen
