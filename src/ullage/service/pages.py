"""The pages of the service: what each asks, what stands around it, and where names lead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from ullage.errors import harmless
from ullage.questions.fleet_map import OWNER_KEYS
from ullage.reports.fleet.request import KEYS
from ullage.service.live_script import LIVE_SCRIPT
from ullage.service.served import OF_FLEET, PAGE_HOURS, AskedQuestion
from ullage.views.markup import Child, Markup, element, join
from ullage.views.page import PageFrame
from ullage.views.view import Headline, View


@dataclass(frozen=True)
class ServicePage:
    """A page: its address, what the navigation calls it, the question that it asks with some words, and which sections it shows."""

    path: str
    title: str
    name: str
    words: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[str, ...] = ()


_GROUPS = ("by-group", "every-group")
PAGES = (
    ServicePage("/", "Fleet", "fleet"),
    ServicePage("/jobs", "Jobs", "fleet", {"by": "job"}, _GROUPS),
    ServicePage("/users", "Users", "fleet", {"by": "user"}, _GROUPS),
    ServicePage("/hosts", "Hosts", "fleet", {"by": "host"}, _GROUPS),
    ServicePage("/map", "Map", "fleet-map", {}, ("gpus",)),
    ServicePage("/causes", "Causes", "fleet-map", {}, ("owners",)),
    ServicePage("/watch", "Changes", "watch"),
    ServicePage("/trust", "Trust", "fleet", {}, ("trust", "noise")),
    ServicePage("/hardware", "Hardware", "gpus"),
    ServicePage("/equations", "Equations", "metrics"),  # at /metrics a Prometheus reads
    ServicePage("/doctor", "Doctor", "doctor"),
)


@dataclass(frozen=True)
class PageState:
    """What every page says of where its numbers come from: in words, and whether that gives rise to doubt.

    `first` is the time (ISO) of the first sample; "" where there is none. With `alerts` there is a page of them, with `uploads` one that
    takes profiles.
    """

    words: Sequence[str] = ()
    doubts: Sequence[str] = ()
    first: str = ""
    alerts: bool = False
    uploads: bool = False


ALERTS = ServicePage("/alerts", "Alerts", "alerts")  # where the service raises any
UPLOAD = ServicePage("/upload", "Upload", "upload")  # where it takes profiles


def frame_of(
    path: str, query: Sequence[tuple[str, str]], request: AskedQuestion | None, state: PageState, version: str = "", largest: int = 0
) -> PageFrame:
    """Return what stands around the page at an address: the pages, the state of the source, the form, and the same answer's other forms.

    A page of a `version` of the store hears of later ones; one that takes a profile takes so many bytes as the `largest`.
    """
    kept = tuple(pair for pair in query if pair[0] in _CARRIED)
    top = element(
        "header",
        element("a", "Skip to the report", href="#report", class_="skip"),
        element(
            "nav",
            [_link(page, path, kept) for page in (*PAGES, *([ALERTS] if state.alerts else []), *([UPLOAD] if state.uploads else []))],
            aria_label="Pages",
        ),
        [element("p", doubt, class_="doubt", role="status") for doubt in state.doubts],
        element("p", _source_words(state), *_window_words(path, query, request, state)) if state.words else None,
        _form(path, query, request) if request is not None and request.name in OF_FLEET else None,
        _forms_line(request, query) if request is not None else None,
        class_="site",
        data_version=version or None,
        data_upload=largest or None,
    )
    return PageFrame(top, _address_in(kept), LIVE_SCRIPT)


def _source_words(state: PageState) -> Markup:
    return element("span", " ".join(state.words), class_="source")


def whole_window_frame() -> PageFrame:
    """Return the frame of a page of which no time is said, without what stands above it."""
    return PageFrame(Markup(""), _address_in(()), LIVE_SCRIPT)


def _window_words(path: str, query: Sequence[tuple[str, str]], request: AskedQuestion | None, state: PageState) -> Sequence[Child]:
    """Return what is said of a page whose window nobody chose: which it is, and where all of the store is."""
    if request is None or not request.up_to_last_sample:
        return ()
    whole = element("a", "all of it", href=_with(path, [*query, ("since", state.first)])) if state.first else None
    return (f" This page shows the last {PAGE_HOURS} hours of that", *([": ", whole, "."] if whole else ["."]))


_CARRIED = ("since", "until")  # words that stay when one goes from page to page


def _link(page: ServicePage, path: str, kept: Sequence[tuple[str, str]]) -> Markup:
    words = kept if page.name in OF_FLEET else ()
    return element("a", page.title, href=_with(page.path, words), aria_current="page" if page.path == path else None)


def _with(path: str, query: Iterable[tuple[str, str]]) -> str:
    written = urlencode(list(query))
    return f"{path}?{written}" if written else path


@dataclass(frozen=True)
class _address_in:  # noqa: N801 - it is called like a function
    """Where a name leads, in the window that the page is of."""

    kept: tuple[tuple[str, str], ...]

    def __call__(self, kind: str, name: str) -> str | None:
        if kind == "job":
            return _with(f"/job/{quote(name, safe='')}", self.kept)
        if kind in ("user", "host"):
            return _with("/", [(kind, name), *self.kept])
        if kind in ("namespace", "cluster"):
            return None if {*name} & _NOT_QUOTED else _with("/", [("where", f'{kind}="{name}"'), *self.kept])
        return _with("/hardware", [("name", name)]) if kind == "model" else None


_NOT_QUOTED = {'"', "*", "?", "\\"}  # what a name in a condition can't say of itself


def _form(path: str, query: Sequence[tuple[str, str]], request: AskedQuestion) -> Markup:
    said = dict(query)
    shown = ("where", "since", "until", "by", "against")
    others = [element("input", type="hidden", name=name, value=value) for name, value in query if name not in shown]
    by, keys = said.get("by", ""), KEYS if request.name == "fleet" else OWNER_KEYS
    options = [element("option", key or "as it fits", value=key, selected="" if key == by else None) for key in ("", *keys)]
    fields: list[Child] = [
        element("label", "Part of the fleet", _input("where", said.get("where", ""), "user=ann and model=H100")),
        element("label", "From", _input("since", said.get("since", ""), "24h")),
        element("label", "Until", _input("until", said.get("until", ""), "now")),
    ]
    if path == "/":
        fields.append(element("label", "Beside", _input("against", said.get("against", ""), "7d")))
    if path != "/map" and ("by" not in dict(request.words) or "by" in said or path == "/"):
        fields.append(element("label", "By", element("select", options, name="by")))
    return element("form", others, fields, element("button", "Show", type="submit"), method="get", action=path, role="search")


def _input(name: str, value: str, example: str) -> Markup:
    return element("input", name=name, value=harmless(value, 1000), placeholder=example, maxlength="1000", autocomplete="off")


def _forms_line(request: AskedQuestion, query: Sequence[tuple[str, str]]) -> Markup:
    """Return a line with the addresses of the same answer for programs."""
    path, words = api_address(request), [pair for pair in query if pair[0] not in ("form", "only")]
    fixed = [(word, value) for word, value in request.words if word not in dict(words) and word != "id" and isinstance(value, str)]
    links = [
        element("a", form, href=_with(path, [*fixed, *words, *([("form", form)] if form != "json" else [])]))
        for form in ("json", "csv", "markdown", "text")
    ]
    return element("p", "The same answer as ", join([join([", ", link]) if number else link for number, link in enumerate(links)]))


def api_address(request: AskedQuestion) -> str:
    """Return where the API gives the answer to a request, its query aside."""
    job = dict(request.words).get("id") if request.name == "job" else None
    return f"/api/v1/{request.served.path}" + (f"/{quote(str(job), safe='')}" if job else "")


def no_answer_view(problem: str, hint: str) -> View:
    """Return what a page says that has no answer: what is wrong, and what to do."""
    return View(kind="error", subject="No answer", headline=Headline(harmless(problem, 600)), lede=[harmless(hint, 600)] if hint else ())
