"""Every page of the service in a real browser: nothing fails, nothing is fetched from elsewhere, everybody can read and reach it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.command_line import ask
from tests.fleet.servers import wait_for
from tests.service.running import Client, hour, service, small_store
from ullage.service import server
from ullage.service.pages import PAGES
from ullage.service.settings import ServiceSettings
from ullage.store.store import Store

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no page was opened in a real browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
# axe-core, from npm: `npm install --no-save axe-core` in the repository's folder, or named by ULLAGE_AXE
AXE = Path(os.environ.get("ULLAGE_AXE") or Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js")
PATHS = (
    *(page.path for page in PAGES),
    *("/upload", "/job/4711", "/store/info", "/?since=30m&against=30m&by=user", "/?where=user=ann", "/nowhere"),
)
QUICK = ("/", "/job/4711", "/map")
EVERY = [path if path in QUICK else pytest.param(path, marks=pytest.mark.full) for path in PATHS]
SIZES = {"page": (1440, 900), "phone": (390, 844)}
# words of the heads of tables that stand in two lines
BROKEN_WORDS = """(() => { const found = []
for (const head of document.querySelectorAll('thead th')) {
  const texts = document.createTreeWalker(head, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/[^\\s-]+/g)) {
    const range = document.createRange()
    range.setStart(texts.currentNode, word.index)
    range.setEnd(texts.currentNode, word.index + word[0].length)
    if (new Set([...range.getClientRects()].map(one => Math.round(one.top))).size > 1) found.push(word[0])
  } }
return found })()"""
HOSTILE = "\"><img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    place = small_store(tmp_path_factory.mktemp("browsed"))
    Store.open(place).append([hour(job=HOSTILE, user=HOSTILE, host="<b>n3</b>")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(place.parent / "home"))
        with service(ServiceSettings(source=str(place), answer_limit="600s")) as asking:
            yield asking


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: no page was opened in a real browser")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=300_000)
        yield made
        made.close()


class Visit:
    """A page that was opened, and what went wrong meanwhile."""

    def __init__(self, browser: Any, client: Client, path: str, size: str = "page", scheme: str = "light") -> None:
        width, height = SIZES[size]
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.context.set_default_timeout(300_000)
        self.page, self.wrong, self._here = self.context.new_page(), list[str](), f"http://127.0.0.1:{client.port}"
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda asked: None if asked.url.startswith(self._here + "/") else self.wrong.append(asked.url))
        self.status = self.page.goto(self._here + path).status
        if self.status != 200:  # which the browser says on its console, too
            self.wrong = [said for said in self.wrong if f"status of {self.status}" not in said]

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def axe() -> str:
    if not AXE.is_file():
        pytest.skip(f"axe-core is not at {AXE}: no page was looked through for what keeps people from reading it")
    return AXE.read_text(encoding="utf-8")


def violations(visit: Visit) -> list[tuple[str, str]]:
    visit.page.evaluate(axe())
    found = visit.page.evaluate("axe.run()")["violations"]
    return [(one["id"], node["html"][:200]) for one in found if one["impact"] in ("serious", "critical") for node in one["nodes"]]


@pytest.mark.parametrize("path", EVERY)
def test_a_page_has_nothing_wrong_in_light_and_dark_on_a_screen_on_a_phone_and_on_paper(client: Client, browser: Any, path: str) -> None:
    for size, scheme in (("page", "light"), ("page", "dark"), ("phone", "light"), ("phone", "dark")):
        with Visit(browser, client, path, size, scheme) as visit:
            assert visit.page.locator("h1").count() == 1 and visit.page.title() != "pwned"
            assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, size)
            visit.page.emulate_media(media="print")
            assert not visit.page.locator("header.site").is_visible() and visit.page.locator("h1").is_visible()
            assert visit.wrong == [], (path, size, scheme)


@pytest.mark.parametrize("path", [path if path == "/" else pytest.param(path, marks=pytest.mark.full) for path in PATHS])
def test_nothing_on_a_page_keeps_people_from_reading_it(client: Client, browser: Any, path: str) -> None:
    axe()
    for size, scheme in (("page", "light"), ("page", "dark"), ("phone", "light"), ("phone", "dark")):
        with Visit(browser, client, path, size, scheme) as visit:
            assert violations(visit) == [], (path, size, scheme)


def test_what_keeps_people_from_reading_a_page_would_be_found(client: Client, browser: Any) -> None:
    with Visit(browser, client, "/nowhere") as visit:
        visit.page.evaluate("document.querySelector('main p').style.color = '#e8e8e8'")
        visit.page.evaluate("document.querySelector('main').append(new Image())")
        assert {name for name, _ in violations(visit)} == {"color-contrast", "image-alt"}


def test_the_keyboard_reaches_every_link_field_and_table_in_their_order(client: Client, browser: Any) -> None:
    with Visit(browser, client, "/") as visit:
        page = visit.page
        every = "[...document.querySelectorAll('a, button, input:not([type=hidden]), select, summary, .scroll')]"
        seen = f"{every}.filter(one => one.checkVisibility())"  # not the picture for a phone, nor what is folded
        wanted = page.evaluate(f"{seen}.map((one, at) => one.dataset.at = `${{at}}`)")
        reached = []
        for _ in wanted:
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.dataset.at"))
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", reached[-1]
        assert reached == wanted
        # the first stop leads past the navigation
        page.evaluate("document.activeElement.blur()")
        page.goto(page.url)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/#report")  # a browser follows a link in its own time
        assert visit.wrong == []


def test_the_form_and_the_links_lead_to_what_they_say(client: Client, browser: Any) -> None:
    with Visit(browser, client, "/") as visit:
        page = visit.page
        page.get_by_label("Part of the fleet").fill("user=bob")
        page.locator("select[name=by]").select_option("host")
        page.get_by_role("button", name="Show").click()
        page.wait_for_url("**/?where=user*")
        assert "by=host" in page.url and page.get_by_label("Part of the fleet").input_value() == "user=bob"
        assert page.locator("main").get_by_role("link", name="n2").count() > 0 and page.get_by_role("link", name="n1").count() == 0
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.wait_for_url("**/jobs*")
        page.locator("main").get_by_role("link", name="4711").first.click()
        page.wait_for_url("**/job/4711*")
        assert page.locator("h1").inner_text().startswith("Job 4711") and visit.wrong == []


def test_a_hostile_name_leads_to_its_own_page_and_stays_text(client: Client, browser: Any) -> None:
    with Visit(browser, client, f"/job/{quote(HOSTILE, safe='')}") as visit:
        assert visit.status == 200 and "onerror" in visit.page.locator("h1").inner_text()
        assert visit.page.title() != "pwned" and visit.page.locator("img").count() == 0 and visit.wrong == []


@pytest.mark.parametrize("path", EVERY)
def test_no_table_is_cut_on_paper(client: Client, browser: Any, path: str) -> None:
    with Visit(browser, client, path) as visit:
        visit.page.emulate_media(media="print")
        visit.page.set_viewport_size({"width": 673, "height": 986})  # A4 within our margins
        ends = visit.page.evaluate("[...document.querySelectorAll('table')].map(one => one.getBoundingClientRect().right)")
        assert all(end <= 674 for end in ends), ends
        assert visit.page.evaluate(BROKEN_WORDS) == []
        # Chromium repeats no head on further pages in which a box of its own stands, such as a button
        displays = "[...document.querySelectorAll('thead button')].map(one => getComputedStyle(one).display)"
        assert set(visit.page.evaluate(displays)) <= {"contents"}


def test_on_a_phone_a_row_keeps_its_name_when_its_table_is_moved(client: Client, browser: Any) -> None:
    with Visit(browser, client, "/", "phone") as visit:
        moved = "[...document.querySelectorAll('.scroll')].filter(one => (one.scrollLeft = 100) && one.scrollLeft > 50)"
        places = visit.page.evaluate(
            f"{moved}.map(one => one.querySelector('tbody tr').firstChild.getBoundingClientRect().left - one.getBoundingClientRect().left)"
        )
        assert places and all(abs(place) < 1 for place in places), places


@pytest.mark.full
def test_an_open_page_shows_a_new_headline_by_itself(tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(server, "LOOK", 0.05)
    place = small_store(tmp_path)
    with service(ServiceSettings(source=str(place), answer_limit="600s")) as asking:
        asking.running.service.live.every = 0.0
        with Visit(browser, asking, "/") as visit:
            page, before = visit.page, visit.page.locator("h1 strong").inner_text()
            Store.open(place).append([hour(start=120, tensor_active=0.7)])
            wait_for(lambda: page.locator("h1 strong").inner_text() != before)  # no function of ours may wait in a page with our policy
            after = page.locator("h1 strong").inner_text()
            assert page.locator(".site .newer").count() == 1 and page.evaluate("document.querySelectorAll('h1').length") == 1
            page.get_by_role("link", name="reload the page").click()
            page.wait_for_selector(".site .newer", state="detached")
            assert page.locator("h1 strong").inner_text() == after and visit.wrong == []


def shown(page: Any) -> str:
    return str(page.locator(".heat [role=status]").inner_text())


def test_the_keyboard_goes_from_gpu_to_gpu_on_the_map_and_on_to_a_host(client: Client, browser: Any) -> None:
    # hosts <b>n3</b>, n1, n2 in order of their names, four GPUs each: a strip a host, all in one band
    with Visit(browser, client, "/map") as visit:
        page, canvas = visit.page, visit.page.locator(".heat canvas")
        canvas.focus()
        assert shown(page).startswith("<b>n3</b>, GPU 0: OFU 5")
        for key, says in (
            ("ArrowRight", "n1, GPU 0"), ("ArrowDown", "n1, GPU 1"), ("End", "n2, GPU 1"), ("ArrowRight", "n2, GPU 1"),
            ("Home", "<b>n3</b>, GPU 1"), ("ArrowUp", "<b>n3</b>, GPU 0"), ("ArrowUp", "<b>n3</b>, GPU 0"), ("End", "n2, GPU 0"),
        ):  # fmt: skip
            page.keyboard.press(key)
            assert shown(page).startswith(says), key
        # a pointer finds the same cells, and a dark screen other colours
        size = canvas.bounding_box()
        page.mouse.move(size["x"] + 22 + 5, size["y"] + 18 + 2 * 22 + 5)
        assert shown(page).startswith("n1, GPU 2: OFU 5")
        drawn = "document.querySelector('canvas').toDataURL()"
        light = page.evaluate(drawn)
        page.emulate_media(color_scheme="dark")
        wait_for(lambda: page.evaluate(drawn) != light)
        page.keyboard.press("Enter")
        page.wait_for_url("**/?host=n1*")
        assert visit.wrong == []


def test_the_map_is_a_table_for_who_reads_it_and_an_area_leads_to_its_owner(client: Client, browser: Any) -> None:
    with Visit(browser, client, "/map") as visit:
        page = visit.page
        page.locator(".heat summary").focus()
        page.keyboard.press("Enter")
        assert page.locator(".heat tbody tr").count() == 3 and page.locator(".heat tbody td").first.inner_text() == "50 %"
        page.get_by_role("link", name="Causes", exact=True).click()
        page.wait_for_url("**/causes")
        page.locator(".page svg a text", has_text="bob").first.click()
        page.wait_for_url("**/?user=bob*")
        page.go_back()
        part = page.locator(".page svg a", has_text="tensor issue").first
        part.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**#where")
        assert visit.wrong == []


def test_a_profile_that_is_dropped_gives_its_report(client: Client, browser: Any, tmp_path: Path) -> None:
    assert ask("simulate", "trace", "--ranks", "1", "--steps", "2", "--out", str(tmp_path / "made")).code == 0
    (profile,) = (tmp_path / "made").glob("training*.json")
    (tmp_path / "none").write_text("no profile")
    with Visit(browser, client, "/upload") as visit:
        page, said = visit.page, visit.page.locator("section [role=status]")
        page.locator("input[type=file]").set_input_files(tmp_path / "none")
        wait_for(lambda: "unknown format" in said.inner_text())
        visit.wrong = [one for one in visit.wrong if "status of 422" not in one]  # a browser tells its console of each
        page.locator("input[type=file]").set_input_files(profile)
        page.wait_for_url("**/upload/*")
        assert "parallel efficiency" in page.locator("h1").inner_text() and visit.wrong == []


def test_a_page_that_is_asked_for_again_keeps_its_policy(client: Client, browser: Any) -> None:
    with Visit(browser, client, "/jobs") as visit:
        statuses = []
        visit.page.on("response", lambda answer: statuses.append(answer.status))
        visit.page.reload()
        assert visit.page.locator("thead button").count() > 0 and visit.wrong == []
        assert statuses[0] in (200, 304)


def test_a_table_sorts_by_keyboard(client: Client, browser: Any) -> None:
    with Visit(browser, client, "/jobs") as visit:
        page = visit.page
        head = page.locator("table.sorts thead button").first
        head.focus()
        page.keyboard.press("Enter")
        assert page.locator("table.sorts thead th[aria-sort=ascending]").count() == 1
        names = page.locator("table.sorts").first.locator("tbody tr th").all_inner_texts()
        assert len(names) == 3 and names == sorted(names, key=str.casefold)
