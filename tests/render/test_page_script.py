"""What a page does in a real browser and a still picture does not: rows and columns are chosen, values told, a timeline seen closer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.sample_reports import group, report
from tests.traces.drawn_runs import use_case_4
from ullage.render.fleet import view
from ullage.render.svg.timeline import timeline
from ullage.views.html import html
from ullage.views.notation import GPU_HOURS
from ullage.views.view import Column, Fact, Finding, FindingPlace, Headline, Picture, Section, Table, View

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no page was opened in a real browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(os.environ.get("ULLAGE_AXE") or Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js")
REPORT = report(groups=[group(f"job-{number}", ofu=number / 100) for number in range(12)])


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = view(REPORT)
    lanes = Section("lanes", "Lanes", [Picture(lambda width: timeline(use_case_4(), width=width, standalone=False))])
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(html(replace(made, sections=[*made.sections, lanes])), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(document: Path) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: no page was opened in a real browser")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=300_000)
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.set_default_timeout(300_000)
        wrong: list[str] = []
        opened.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.goto(document.as_uri())
        yield opened
        assert wrong == []
        browser.close()


def shown(page: Any) -> list[str]:
    return [str(name) for name in page.locator("section:has(#every-group) tbody tr:visible th").all_text_contents()]


def test_a_filter_leaves_the_rows_with_each_of_its_words_and_sorting_keeps_it(page: Any) -> None:
    section = page.locator("section:has(#every-group)")
    section.locator("input[type=search]").fill("1 JOB-1")
    assert shown(page) == ["job-1", "job-10", "job-11"]
    assert section.locator(".tools [role=status]").text_content() == "3 of 12 rows"
    section.locator("thead button", has_text="job").click()
    section.locator("thead button", has_text="job").click()
    assert shown(page) == ["job-11", "job-10", "job-1"]
    section.locator("input[type=search]").fill("")
    assert len(shown(page)) == 12 and section.locator(".tools [role=status]").text_content() == ""


def test_a_column_goes_and_comes_back_by_keys_and_names_stay(page: Any) -> None:
    section = page.locator("section:has(#every-group)")
    before = section.locator("thead th:visible").all_text_contents()
    section.locator("summary").press("Enter")
    section.get_by_label("GPU-hours", exact=True).press("Space")
    after = section.locator("thead th:visible").all_text_contents()
    assert after == [name for name in before if name != "GPU-hours"]
    assert section.locator("tbody tr").first.locator("> :visible").count() == len(after)
    section.get_by_label("GPU-hours", exact=True).press("Space")
    assert section.locator("thead th:visible").all_text_contents() == before
    assert section.get_by_label("job", exact=True).count() == 0  # what names the rows can't go


def test_a_time_course_tells_the_values_of_a_step_by_keys_and_by_the_pointer(page: Any) -> None:
    figure = page.locator("section:has(#over-time) .page")
    slider, said = figure.locator("input[type=range]"), figure.locator("output")
    first, last = REPORT.course[0], REPORT.course[-1]
    slider.press("Home")
    assert f"OFU {first.ofu * 100:.1f} %" in str(said.text_content()) and "GPU utilization" in str(said.text_content())  # type: ignore[operator]
    assert slider.get_attribute("aria-valuetext") == said.text_content()
    svg = figure.locator("svg")
    box = svg.bounding_box()
    svg.hover(position={"x": box["width"] - 18, "y": 100})
    assert f"OFU {last.ofu * 100:.1f} %" in str(said.text_content())  # type: ignore[operator]
    assert int(slider.input_value()) == len(REPORT.course) - 1


def test_a_timeline_is_seen_closer_by_buttons_and_where_it_is_dragged_over_and_whole_again(page: Any) -> None:
    figure = page.locator("section:has(#lanes) .page")
    told = figure.locator("[role=status]")
    figure.get_by_role("button", name="Closer").press("Enter")
    begin, end = (float(str(word).split(" ")[0]) for word in str(told.text_content()).split(" to "))
    whole = figure.locator("svg").get_attribute("data-zoom").split(" ")
    low, high = float(whole[2]), float(whole[3])
    unit = 1e9 if " s" in str(told.text_content()) else 1e6 if " ms" in str(told.text_content()) else 1e3
    assert (begin * unit, end * unit) == pytest.approx((low + (high - low) / 4, high - (high - low) / 4), rel=2e-3)
    figure.get_by_role("button", name="All").click()
    assert told.text_content() == ""
    figure.scroll_into_view_if_needed()
    box = figure.locator("svg").bounding_box()
    left, right = (box["x"] + float(edge) * box["width"] / 880 for edge in whole[:2])
    y = box["y"] + box["height"] / 2
    page.mouse.move(left + (right - left) / 2, y)
    page.mouse.down()
    page.mouse.move(right, y, steps=2)
    page.mouse.up()
    begin = float(str(told.text_content()).split(" ")[0])
    assert begin * unit == pytest.approx((low + high) / 2, rel=0.01)
    figure.locator("svg").dblclick(position={"x": 400, "y": 5})
    assert told.text_content() == ""


def test_in_print_and_without_the_script_there_is_nothing_to_press(page: Any, document: Path) -> None:
    assert page.locator(".tools:visible").count() >= 3
    page.emulate_media(media="print")
    assert page.locator(".tools:visible").count() == 0
    page.emulate_media(media="screen")
    assert 'class="tools"' not in document.read_text(encoding="utf-8")


def test_the_first_screen_has_the_headline_the_chain_with_owners_and_the_findings(page: Any, document: Path, tmp_path: Path) -> None:
    place = FindingPlace(job="100071", job_name="llama-70b-pretrain", host="node0031", index=0)
    one = Finding(place, "radia", 48.8, "high", [Fact("busy", "85 %")], "see what else its host does", title="straggler", weeks=1 / 7)
    path = tmp_path / "first.html"
    path.write_text(html(replace(view(REPORT), findings=[one] * 7)), encoding="utf-8")
    page.goto(path.as_uri())
    page.set_viewport_size({"width": 1200, "height": 900})
    seen = {
        what: page.locator(where).last.bounding_box()
        for what, where in {
            "headline": "h1",
            "owner": "figure .page text:has-text('power, cooling')",
            "finding": "section:has(#findings) li summary",
        }.items()
    }
    assert all(box["height"] > 0 and box["y"] >= 0 and box["y"] + box["height"] <= 900 for box in seen.values()), seen
    advice = page.get_by_text("do: see what else its host does").first
    assert not advice.is_visible()
    page.locator("summary").first.press("Enter")
    assert advice.is_visible()
    page.emulate_media(media="print")
    assert page.get_by_text("do: see what else its host does").last.is_visible(), "a fold hides nothing on paper"
    page.emulate_media(media="screen")
    page.goto(document.as_uri())


def test_on_a_phone_long_headings_stand_in_few_lines(page: Any, document: Path, tmp_path: Path) -> None:
    headings = ["team", "GPU-hours", "of them held idle", "cost of all hours at the prices paid, EUR", "of it held idle, EUR"]
    columns = [Column(headings[0]), *(Column(heading, GPU_HOURS) for heading in headings[1:])]
    bill = Table("bill", columns, [["vision", 1639.0, 98.6, 3154.0, 190.5]])
    (tmp_path / "bill.html").write_text(html(View("fleet", "Bill", Headline("EUR 3,154"), sections=[Section("bill", "Bill", [bill])])))
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto((tmp_path / "bill.html").as_uri())
    lines = """heads => heads.map(head => {
        const words = document.createRange();
        words.selectNodeContents(head.querySelector('button') ?? head);
        return new Set([...words.getClientRects()].filter(one => one.width).map(one => Math.round(one.bottom))).size;
    })"""
    counted = page.locator("thead th").evaluate_all(lines)
    assert max(counted) <= 4 and counted[2] == counted[4] == 2, counted
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto(document.as_uri())


def test_everybody_can_use_what_the_script_adds(page: Any) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(found => found.violations.map(one => one.id + ': ' + one.nodes.map(n => n.html).join(' ')))")
    assert found == []
