"""The service as an ASGI application: addresses, and what each answers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

import ullage
from ullage.errors import NoSuchNameError, UllageError, harmless
from ullage.service.access import Access, GivenRole
from ullage.service.alerting import Alerting, acknowledge, alerts_document, alerts_view, attach_profile, silence
from ullage.service.answers import PATIENCE, SLOW, Answer, AnswerBook, BeingMadeError, BusyError, NotReadyError
from ullage.service.exposition import OPENMETRICS, PLAIN, MetricFamily, fleet_families, own_families, total_families, written
from ullage.service.guard import REMOTE_WRITE, UPLOADS, largest_body
from ullage.service.kept_page import keep_page, restored_page
from ullage.service.live import LivePages
from ullage.service.openapi import openapi_document
from ullage.service.packing import AnswerPacker
from ullage.service.pages import PAGES, ServicePage, frame_of, no_answer_view
from ullage.service.pseudonyms import Pseudonyms
from ullage.service.recent_samples import RecentSamples
from ullage.service.remote_write import RemoteWriteReceiver
from ullage.service.reported import keep_reported, read_reported_speed
from ullage.service.responses import (
    KINDS,
    SEND_TOKEN,
    BadRequestError,
    NotAllowedError,
    json_response,
    problem_response,
    role_of_request,
    status_of_error,
)
from ullage.service.served import FORMS, SERVED, AskedQuestion, ReadPlace, request_of
from ullage.service.state import ServiceState
from ullage.service.totals import TotalsBook
from ullage.service.uploads import (
    LARGEST_UPLOAD,
    RECEIVE_S,
    WAITING,
    TooLargeError,
    UploadBook,
    UploadRefusedError,
    UploadReport,
    same_origin,
    upload_view,
)
from ullage.service.weekly import WeeklyReports
from ullage.service.workers import BesideWorkers
from ullage.sources.running_service import SAMPLES_PATH, SERVICE
from ullage.views.declared import iso
from ullage.views.html import html

LONGEST_QUERY = 4_000  # characters
METRICS_WINDOW = "24h"  # that gauges are over
AGAIN = 10  # s after which to ask again where there is nothing yet
METRICS_LIMIT = 5.0  # s; a scrape waits for 10 s by default
_OTHER = "ask with another token"
_BY_ITSELF = "This page reloads by itself until there is an answer."
_NO_JOB = ("there is no such job among those that this token lets one see", "")
_JOB_PAGE = ServicePage("/job", "Job", "job")
_TAKEN = {page.path for page in PAGES} | {"/metrics", "/job"}
_PLAIN = [ServicePage(f"/{one.path}", one.name.capitalize(), one.name) for one in SERVED.values() if f"/{one.path}" not in _TAKEN]
Handler = Callable[[HttpRequest], Awaitable[Response]]


@dataclass
class Service:
    """What the addresses answer from: the answers, the state of the source, and the words of every question that says no others."""

    book: AnswerBook
    state: ServiceState
    words: Mapping[str, Any] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    totals: TotalsBook | None = None
    kept_page: Path | None = None  # the file with the first page as it was made last
    patience: float = 2.0  # s that a page is waited for where there is none yet: then it says that it is being computed
    alerting: Alerting | None = None
    uploads: UploadBook | None = None
    receiver: RemoteWriteReceiver | None = None
    weekly: WeeklyReports | None = None
    pseudonyms: Pseudonyms | None = None
    statuses: dict[int, int] = field(default_factory=dict)  # answers by HTTP status
    packer: AnswerPacker = field(default_factory=AnswerPacker)
    reading: BesideWorkers = field(default_factory=lambda: BesideWorkers("uploads", WAITING + 2))  # of profiles; they wait for a process
    live: LivePages = field(init=False)
    recent: RecentSamples = field(init=False)
    gauges: tuple[Answer | None, Sequence[MetricFamily]] = (None, ())  # the last answer that a scrape was of, as gauges

    def __post_init__(self) -> None:
        self.live, self.recent = LivePages(self.book, self.state), RecentSamples(self.state.store)
        if self.kept_page is not None and (before := restored_page(self.kept_page, self.first_page)) is not None:
            self.book.restore(self.first_page, before)

    @property
    def first_page(self) -> AskedQuestion:
        """What the first page asks."""
        return AskedQuestion("fleet").with_words(self.words).in_window()

    async def make_first_page(self) -> None:
        """Make the first page anew if it is not true, and keep it for the next start. Raises what the question does."""
        before = self.book.kept(self.first_page)
        await self.book.make(self.first_page)
        answer = self.book.kept(self.first_page)
        if self.kept_page is None or answer is None or answer is before or answer.took < SLOW:
            return
        file, shown = self.kept_page, [page.sections for page in PAGES if page.name == "fleet" and not page.words]
        await self.book.counting(lambda: keep_page(file, self.first_page, answer, shown))

    @property
    def routes(self) -> list[Route]:
        """Every address."""
        now = self.state.clock
        fixed = [
            Route("/healthz", self.healthz),
            Route("/favicon.ico", _no_picture),  # browsers ask for it by themselves
            Route("/readyz", self.readyz),
            Route("/openapi.json", self.openapi),
            Route("/metrics", self.metrics),
            Route("/events", self.events),
            Route(SAMPLES_PATH, self.samples),
            Route("/api/v1/reported", self.reported, methods=["POST"]),
            Route(REMOTE_WRITE, self.remote_write, methods=["POST"]),
            Route("/alerts", self.alerts),
            Route("/api/v1/alerts", self.alerts_api),
            Route("/api/v1/alerts/acknowledge", self._keeping(lambda one, body: acknowledge(one.book, body)), methods=["POST"]),
            Route("/api/v1/alerts/profile", self._keeping(lambda one, body: attach_profile(one.book, body, now())), methods=["POST"]),
            Route("/api/v1/silences", self._keeping(lambda one, body: silence(one.book, body, now())), methods=["POST"]),
            Route("/upload", self.upload_page),
            Route("/upload/{id}", self.uploaded),
            Route(UPLOADS, self.upload, methods=["POST"]),
            Route("/api/v1/uploads/{id}", self.uploaded_api),
            Route("/api/v1/job/{id:path}", self._api("job")),
            Route("/job/{id:path}", self._page(_JOB_PAGE)),
        ]
        api = [Route(f"/api/v1/{one.path}", self._api(one.name)) for one in SERVED.values() if one.name != "job"]
        own = [Route(page.path, self._page(page)) for page in PAGES]
        return [*fixed, *api, *own, *(Route(page.path, self._page(page)) for page in _PLAIN)]

    async def healthz(self, _: HttpRequest) -> Response:
        """Say that the process serves."""
        return json_response({"alive": True, "service": SERVICE, "version": ullage.__version__})

    async def readyz(self, _: HttpRequest) -> Response:
        """Say whether there is an answer, and if not, why not."""
        because = self.state.unready()
        window = self.state.store.window()
        said = {"ready": not because, "because": because or None, "samples_until": iso(window[1]) if window else None}
        return json_response(said, 503 if because else 200, {"Retry-After": f"{AGAIN}"} if because else {})

    async def openapi(self, http: HttpRequest) -> Response:
        """Describe the API."""
        there = [one is not None for one in (self.alerting, self.uploads, self.receiver)]
        return await self._packed(http, lambda: openapi_document(*there).encode(), "json")

    async def metrics(self, http: HttpRequest) -> Response:
        """Say for a Prometheus how full the fleet is, and how the service is."""
        if role_of_request(http).part is not None:
            return problem_response(403, "metrics are of the whole fleet, and this token is for a part of it", _OTHER)
        families = [*own_families(self.state, self.book, self.statuses)]
        if not self.state.unready():
            try:
                recent = AskedQuestion("fleet", (("since", METRICS_WINDOW),), up_to_last_sample=True).with_words(self.words)
                answer = await self.book.get(recent, METRICS_LIMIT)
                families += await self.book.beside(lambda: self._gauges_of(answer))
            except (UllageError, BusyError):
                pass  # what the service says of itself tells it
            families += total_families(self.totals) if self.totals is not None else ()
        plain = "text/plain" in (accepted := http.headers.get("accept", "")) and "application/openmetrics-text" not in accepted
        return Response(written(families, openmetrics=not plain), headers={"Content-Type": PLAIN if plain else OPENMETRICS})

    async def samples(self, http: HttpRequest) -> Response:
        """Give the samples of the last minutes that may be seen."""
        if because := self.state.unready():
            return problem_response(503, because, "", {"Retry-After": f"{AGAIN}"})
        part = role_of_request(http).part
        try:
            return await self._packed(http, lambda: self.recent.file(part), "parquet")
        except UllageError as error:
            return problem_response(422, error.problem, error.hint)

    async def events(self, http: HttpRequest) -> Response:
        """Tell a page that stays open what is new."""
        if self.live.full:
            return problem_response(
                503,
                f"{self.live.most} pages are kept up to date already, and this one is not",
                "reload it to see what is new",
                {"Retry-After": "60"},
            )
        try:
            role = role_of_request(http)
            return self.live.stream(self._page_request(http.query_params.get("page", "/"), role), role)
        except UllageError as error:
            return problem_response(status_of_error(error), error.problem, error.hint)

    def _page_request(self, address: str, role: GivenRole) -> AskedQuestion:
        """Return what the page at an address asks. Raises BadRequestError for an address without a page that changes."""
        path, _, query = address.partition("?")
        page, named = _page_at(path), {"id": unquote(path.removeprefix("/job/"))} if path.startswith("/job/") else {}
        if page is None or not SERVED[page.name].place or len(query) > LONGEST_QUERY:
            raise BadRequestError(f"the page {harmless(address, 200)} does not change")
        return self._request_of(page.name, parse_qsl(query, keep_blank_values=True), named, page.words, role).in_window()

    def _gauges_of(self, answer: Answer) -> Sequence[MetricFamily]:
        """Return the gauges of an answer, made once: of a large fleet that takes longer than all else in a scrape."""
        made, families = self.gauges
        if made is not answer:
            families = tuple(fleet_families(answer.data()))
            self.gauges = (answer, families)
        return families

    async def reported(self, http: HttpRequest) -> Response:
        """Keep what a job says of itself."""
        if not role_of_request(http).acts:
            return problem_response(403, "only who has a token that lets one act may report", SEND_TOKEN)
        try:
            said = read_reported_speed(await http.body())
            said.speed()
        except UllageError as error:
            return problem_response(400, error.problem, error.hint)
        if because := self.state.unready():
            return problem_response(503, because, "", {"Retry-After": "60"})
        if self.pseudonyms is not None and "job" in self.pseudonyms.fields:
            said = msgspec.structs.replace(said, job=self.pseudonyms.of("job", said.job))
        try:
            await self.book.beside(lambda: keep_reported(self.state.store.kept_reports, said))
        except UllageError as error:
            return problem_response(503, error.problem, error.hint, {"Retry-After": "60"})
        return json_response({"kept": True, "job": said.job})

    async def remote_write(self, http: HttpRequest) -> Response:
        """Take samples that a Prometheus sends."""
        if self.receiver is None:
            return problem_response(404, "this service takes no samples", "the setting `remote_write = true` makes it")
        return await self.receiver.answer(http)

    async def alerts(self, http: HttpRequest) -> Response:
        """Show the alerts."""
        if role_of_request(http).part is not None:
            return self._no_answer(http, None, 403, _ALERTS_OF_ALL, _OTHER)
        if self.alerting is None:
            return self._no_answer(http, None, 404, *_NO_ALERTS)
        book, now = self.alerting.book, self.state.clock()
        frame = frame_of(http.url.path, (), None, self.state.page_state())
        return Response(await self.book.beside(lambda: html(alerts_view(book, now), frame)), media_type=KINDS["html"])

    async def alerts_api(self, http: HttpRequest) -> Response:
        """Give the alerts, and the silences."""
        if role_of_request(http).part is not None:
            return problem_response(403, _ALERTS_OF_ALL, _OTHER)
        if self.alerting is None:
            return problem_response(404, *_NO_ALERTS)
        book, now = self.alerting.book, self.state.clock()
        return json_response(await self.book.beside(lambda: alerts_document(book, now)))

    def _keeping(self, keep: Callable[[Alerting, bytes], dict[str, Any]]) -> Handler:
        """Return what keeps what a request says of alerts, for who may act."""

        async def answer(http: HttpRequest) -> Response:
            if not role_of_request(http).acts:
                return problem_response(403, "only who has a token that lets one act may change alerts", SEND_TOKEN)
            alerting = self.alerting
            if alerting is None:
                return problem_response(404, *_NO_ALERTS)
            body = await http.body()
            try:
                return json_response(await self.book.beside(lambda: keep(alerting, body)))
            except UllageError as error:
                return problem_response(404 if isinstance(error, NoSuchNameError) else 400, error.problem, error.hint)

        return answer

    async def upload_page(self, http: HttpRequest) -> Response:
        """Show the page where profiles are dropped."""
        if self.uploads is None:
            return self._no_answer(http, None, 404, *_NO_UPLOADS)
        frame = frame_of(http.url.path, (), None, self.state.page_state(), largest=LARGEST_UPLOAD)
        return Response(html(upload_view(), frame), media_type=KINDS["html"])

    async def upload(self, http: HttpRequest) -> Response:
        """Take a profile, and say where its report is."""
        if self.uploads is None:
            return problem_response(404, *_NO_UPLOADS)
        if not (role_of_request(http).acts or self.access.everybody):
            return problem_response(403, "only who has a token that lets one act may send a profile", "")
        if not same_origin(http.headers):
            hint = f"curl --data-binary @FILE -H '{_PROFILE}' …{UPLOADS}"
            return problem_response(415, "a profile is sent as application/octet-stream", hint)
        book = self.uploads
        try:
            with book.place(), tempfile.TemporaryFile() as profile:
                async with asyncio.timeout(RECEIVE_S):
                    async for part in http.stream():
                        profile.write(part)
                profile.flush()
                name = await asyncio.wrap_future(self.reading.begin(lambda: book.report_on(profile)))
        except TimeoutError:
            return problem_response(408, f"the profile took longer than {RECEIVE_S:.0f} s to come", "")
        except OSError as error:
            return problem_response(503, f"the profile can't be kept while it is read: {error.strerror}", "")
        except UploadRefusedError as error:
            return problem_response(503, error.problem, error.hint, {"Retry-After": "60"})
        except UllageError as error:
            return problem_response(422, error.problem, error.hint)
        return json_response({"id": name, "page": f"/upload/{name}", "document": f"{UPLOADS}/{name}"})

    async def uploaded(self, http: HttpRequest) -> Response:
        """Show the report on a profile."""
        try:
            report = self._upload_report(http)
        except NoSuchNameError as error:
            return self._no_answer(http, None, 404, error.problem, error.hint)
        frame = frame_of(http.url.path, (), None, self.state.page_state())
        return await self._packed(http, lambda: report.framed(frame), "html")

    async def uploaded_api(self, http: HttpRequest) -> Response:
        """Give the report on a profile."""
        try:
            report = self._upload_report(http)
        except NoSuchNameError as error:
            return problem_response(404, error.problem, error.hint)
        return await self._packed(http, lambda: report.document, "json")

    def _upload_report(self, http: HttpRequest) -> UploadReport:
        if self.uploads is None:
            raise NoSuchNameError(*_NO_UPLOADS)
        return self.uploads.report(http.path_params["id"])

    async def _packed(self, http: HttpRequest, written: Callable[[], bytes], form: str) -> Response:
        response: Response = await self.book.beside(lambda: self.packer.response(written(), KINDS[form], {}, http.headers))
        return response

    def _api(self, name: str) -> Handler:
        async def answer(http: HttpRequest) -> Response:
            form, only = http.query_params.get("form", "json"), http.query_params.get("only", "")
            try:
                _check_form(form, only)
                request = self._request(name, http, {})
                answer = await self._answer(http, request)
                if form == "html":
                    return await self._drawn(answer, request, http, ())
                return await self._whole(http, lambda: answer.written(form, only), form, answer)
            except UllageError as error:
                return problem_response(status_of_error(error), error.problem, error.hint)
            except BusyError as error:
                return problem_response(503, error.problem, error.hint, {"Retry-After": f"{error.again}"})

        return answer

    def _page(self, page: ServicePage) -> Handler:
        async def answer(http: HttpRequest) -> Response:
            request = None
            try:
                request = self._request(page.name, http, page.words).in_window()
                return await self._drawn(await self._answer(http, request, self.patience), request, http, page.sections)
            except UllageError as error:
                return self._no_answer(http, request, status_of_error(error), error.problem, error.hint)
            except (BeingMadeError, NotReadyError) as error:
                return self._being_made(http, request, error)
            except BusyError as error:
                return self._no_answer(http, request, 503, error.problem, error.hint, error.again)

        return answer

    def _request(self, name: str, http: HttpRequest, more: Mapping[str, Any]) -> AskedQuestion:
        """Return what an address asks. Raises BadRequestError for one that asks nothing that can be answered."""
        if len(http.url.query) > LONGEST_QUERY:
            raise BadRequestError(f"the query of an address has at most {LONGEST_QUERY:,} characters")
        return self._request_of(name, http.query_params.multi_items(), http.path_params, more, role_of_request(http))

    def _request_of(
        self, name: str, query: Iterable[tuple[str, str]], named: Mapping[str, str], more: Mapping[str, Any], role: GivenRole
    ) -> AskedQuestion:
        """Return what is asked, of what the role may see. Raises BadRequestError, and NotAllowedError for what is of the whole fleet."""
        if not role.may_ask(name):
            raise NotAllowedError(f"{SERVED[name].path} is of the whole fleet, and this token is for a part of it", _OTHER)
        pairs = [pair for pair in query if pair[0] not in ("form", "only")]
        try:
            request = request_of(name, pairs, **named).with_words(dict(more)).with_words(self.words)
            request.asked(ReadPlace(prices=self.state.store.place.prices), self.state.store.now_ms())
        except UllageError as error:
            raise BadRequestError(error.problem, error.hint) from error
        return role.within_part(request)

    async def _answer(self, http: HttpRequest, request: AskedQuestion, patience: float | None = None) -> Answer:
        """Return the answer, if it may be seen; a job of others is like one that is not there."""
        role = role_of_request(http)
        if SERVED[request.name].place and (because := self.state.unready()):
            raise NotReadyError(f"there is nothing to show yet: {because}", AGAIN, "/readyz says when there is an answer")
        try:
            answer = await self.book.get(request, patience=patience)
        except NoSuchNameError:
            if role.part is None:
                raise
            raise NoSuchNameError(*_NO_JOB) from None
        if request.name == "job" and role.part is not None and not role.sees_job(await self.book.beside(answer.data)):
            raise NoSuchNameError(*_NO_JOB)
        return answer

    async def _drawn(self, answer: Answer, request: AskedQuestion, http: HttpRequest, sections: tuple[str, ...]) -> Response:
        state = self.state.page_state()
        if answer.version not in ("", self.state.store.version()) and (answer.restored or answer.took > PATIENCE):
            when = iso(round(answer.made * 1000))[11:16]
            state = replace(state, doubts=[*state.doubts, f"This page was computed at {when} UTC; a newer one is being computed."])
        frame = frame_of(http.url.path, http.query_params.multi_items(), request, state, answer.version if _page_at(http.url.path) else "")
        return await self._whole(http, lambda: answer.page(sections, frame), "html", answer)

    async def _whole(self, http: HttpRequest, written: Callable[[], bytes], form: str, answer: Answer) -> Response:
        """Return an answer; its headers say whether it is of all that was asked for, and of the store as it is now."""
        current = answer.version in ("", self.state.store.version())
        said = {"Ullage-Complete": str(answer.complete).lower(), "Ullage-Current": str(current).lower()}
        response: Response = await self.book.beside(lambda: self.packer.response(written(), KINDS[form], said, http.headers))
        return response

    def _no_answer(
        self,
        http: HttpRequest,
        request: AskedQuestion | None,
        status: int,
        problem: str,
        hint: str,
        again: int | None = None,
        *,
        looks: bool = False,
    ) -> Response:
        """Return a page without an answer; one that `looks` asks again by itself."""
        frame = frame_of(http.url.path, http.query_params.multi_items(), request, self.state.page_state())
        headers = {} if again is None else {"Retry-After": f"{again}"} | ({"Refresh": f"{again}"} if looks else {})
        return Response(html(no_answer_view(problem, hint), frame), status, headers, media_type=KINDS["html"])

    def _being_made(self, http: HttpRequest, request: AskedQuestion | None, error: BusyError) -> Response:
        """Return a page that looks again by itself, and says how far it is."""
        before = request and isinstance(error, BeingMadeError) and self.book.kept(request)
        usual = f", of about {before.took:.0f} s" if before else ""
        return self._no_answer(http, request, 503, f"{error.problem}{usual}", _BY_ITSELF, error.again, looks=True)

    async def missing(self, http: HttpRequest, _: Exception) -> Response:
        """Answer where there is nothing."""
        if http.url.path.startswith("/api/"):
            return problem_response(404, f"there is nothing at {harmless(http.url.path)}", "/openapi.json lists what there is")
        return self._no_answer(http, None, 404, f"there is no page {harmless(http.url.path)}", "")

    async def broken(self, *_: object) -> Response:
        """Answer where the service itself failed: its log says how."""
        return problem_response(500, "the service failed to answer; its log says why", "")


def application(service: Service) -> Starlette:
    """Return the service as an ASGI application."""
    handlers: dict[Any, Any] = {404: service.missing, 405: _not_allowed, 500: service.broken}
    handlers |= {TooLargeError: _too_large, ClientDisconnect: _gone}
    return Starlette(routes=service.routes, exception_handlers=handlers)


_NO_ALERTS = ("this service raises no alerts", "the setting `alert_every` makes it")
_NO_UPLOADS = ("this service takes no profiles", 'the setting `uploads = "on"` makes it')
_PROFILE = "Content-Type: application/octet-stream"
_ALERTS_OF_ALL = "alerts are of the whole fleet, and this token is for a part of it"


def _page_at(path: str) -> ServicePage | None:
    """Return the page at a path; None where there is none."""
    return _JOB_PAGE if path.startswith("/job/") else next((page for page in (*PAGES, *_PLAIN) if page.path == path), None)


async def _no_picture(_: HttpRequest) -> Response:
    return Response(status_code=204, headers={"Cache-Control": "max-age=604800"})


async def _too_large(http: HttpRequest, _: Exception) -> Response:
    return problem_response(413, f"a request may send {largest_body(http.url.path):,} bytes", "send less")


async def _gone(*_: object) -> Response:
    return Response(status_code=499)  # nobody reads it: whoever asked has gone


async def _not_allowed(http: HttpRequest, _: Exception) -> Response:
    return problem_response(405, f"{harmless(http.method, 20)} is of no use here", "/openapi.json says what is")


def _check_form(form: str, only: str) -> None:
    if form not in FORMS:
        raise BadRequestError(f"form must be one of {', '.join(FORMS)}, not '{harmless(form, 60)}'")
    if only and form in ("json", "html"):
        raise BadRequestError("JSON and pages hold every table", "leave out only, or ask for the form csv")
