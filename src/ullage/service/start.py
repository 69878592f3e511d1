"""From settings to a service that runs: what is watched, who fills the store, what is kept where."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ullage.alerts.book import AlertBook
from ullage.alerts.outlets import mail_route
from ullage.errors import UllageError, UnreadableError, harmless
from ullage.intake import at_rest
from ullage.live.sampling.reachable import nvml_answers
from ullage.service.access import THIS_MACHINE, Access, GivenRole
from ullage.service.alerting import WINDOW, Alerting, read_outlets
from ullage.service.answers import Answer, AnswerBook, answer_to
from ullage.service.application import Service
from ullage.service.demonstration import Demonstration, MovingDemonstration, MovingPlan
from ullage.service.follow import Follower, FollowPlan
from ullage.service.kept_page import NAME
from ullage.service.logs import ServiceLog
from ullage.service.remote_write import ReceivedSamples, RemoteWriteReceiver
from ullage.service.served import AskedQuestion
from ullage.service.server import Filler, RunningService
from ullage.service.settings import TOKEN, ServiceSettings
from ullage.service.state import ServiceState
from ullage.service.totals import TotalsBook
from ullage.service.uploads import UploadBook, may_upload
from ullage.service.watched import WatchedStore
from ullage.service.weekly import CalendarWeek, WeeklyReports
from ullage.sources.source import Options
from ullage.store.bucket import is_bucket
from ullage.store.store import Store
from ullage.views.declared import iso
from ullage.written_values import expanded_path, seconds

TOTALS, REPORTED, ALERTS = "counted.json", "reported", "alerts.sqlite"  # beside a store that others fill
_SIMULATED = "This is a simulated fleet: no source was named, and this machine has no GPU that could be watched."
_LOCAL = "This machine's GPUs: no source was named."


def running_service(settings: ServiceSettings, log: ServiceLog, moving: MovingPlan | None = None) -> RunningService:
    """Return the service that settings ask for, or of a simulated fleet whose time runs; whatever fills its store has begun.

    Raises UllageError for what can't be served.
    """
    access = access_of(settings)
    state, filler = _watched(settings, log) if moving is None else _moving(moving, log)
    book = AnswerBook(state.store, limit=seconds(settings.answer_limit))
    if filler is not None:
        filler.start()
    totals = TotalsBook(_totals_file(settings, state, filler), lambda since, until: _fleet_document(state.store, settings, since, until))
    alerting = _alerting(settings, state, totals.file.with_name(ALERTS), log)
    state.alerts = alerting is not None
    state.uploads = may_upload(settings.uploads, settings.host)
    served = Service(book, state, settings.words(), access, totals, totals.file.with_name(NAME), alerting=alerting)
    served.pseudonyms = settings.hidden_names()
    served.uploads = UploadBook() if state.uploads else None
    served.receiver = _receiver(settings, access, state)
    served.weekly = _weekly(settings, state, log)
    return RunningService(served, log, filler)


def _receiver(settings: ServiceSettings, access: Access, state: ServiceState) -> RemoteWriteReceiver | None:
    """Return what takes samples that a Prometheus sends; None where that is not asked for."""
    if not settings.remote_write:
        return None
    if access.everybody:
        raise UllageError("who may send samples (`remote_write`) needs a token, and there is none", f"put one into {TOKEN}")
    return RemoteWriteReceiver(ReceivedSamples(state.store.path, settings.cluster or None, settings.hidden_names()))


def _alerting(settings: ServiceSettings, state: ServiceState, file: Path, log: ServiceLog) -> Alerting | None:
    """Return what looks for problems; None where that is not asked for."""
    if not settings.alert_every:
        return None
    every = seconds(settings.alert_every)
    outlets = read_outlets(expanded_path(settings.alert_file), every) if settings.alert_file else []

    def ask(name: str, **words: Any) -> Mapping[str, Any]:
        asked = tuple(sorted(({"since": WINDOW} | words).items()))
        recent = AskedQuestion(name, asked, up_to_last_sample=True).with_words(settings.words())
        answer = answer_to(recent, state.store.place, state.store.last_ms(), "")
        found: Mapping[str, Any] = answer.data()
        return found

    return Alerting(AlertBook(file), outlets, ask, log, every)


def _weekly(settings: ServiceSettings, state: ServiceState, log: ServiceLog) -> WeeklyReports | None:
    """Return what writes and sends the report on each week; None where that is not asked for."""
    if not settings.weekly_folder:
        if settings.weekly_mail:
            raise UllageError("`weekly_mail` needs a folder, where the reports are kept that were sent", "set `weekly_folder`, too")
        return None

    def answer(week: CalendarWeek, beside: bool) -> Answer:
        words = {"since": iso(week.start), "until": iso(week.end)} | ({"against": "7d"} if beside else {})
        asked = AskedQuestion("fleet", tuple(sorted(words.items()))).with_words(settings.words())
        return answer_to(asked, state.store.place, week.end, "")

    return WeeklyReports(expanded_path(settings.weekly_folder), [*map(mail_route, settings.weekly_mail)], answer, log)


def _totals_file(settings: ServiceSettings, state: ServiceState, filler: Filler | None) -> Path:
    """Return where counters are kept: beside the samples that the service keeps itself; a store of others it leaves as it is."""
    return (own_folder(settings.sources) if filler is None else state.store.path) / TOTALS


def _fleet_document(store: WatchedStore, settings: ServiceSettings, since: int, until: int) -> Mapping[str, Any]:
    words = {"since": iso(since), "until": iso(until)}
    asked = AskedQuestion("fleet", tuple(sorted(words.items()))).with_words(settings.words())
    answer = answer_to(asked, store.place, until, "")
    if not answer.complete:
        raise UnreadableError(f"{harmless(str(store.path))} can't be read to the end")
    found: Mapping[str, Any] = answer.data()
    return found


def access_of(settings: ServiceSettings) -> Access:
    """Return who may ask. Raises UllageError where everybody could: a service that others reach needs a token."""
    token, roles = settings.token(), roles_of(settings)
    if not (token or roles) and settings.host not in THIS_MACHINE:
        raise UllageError(
            f"others can reach {settings.host}, and no token says who may ask",
            "put a token into ULLAGE_SERVE_TOKEN or the file of `token_file` or `tokens_file`, or serve on 127.0.0.1 behind a proxy",
        )
    names = (settings.host, *settings.hosts)
    return Access(token, (*THIS_MACHINE, *(name.strip("[]").lower() for name in names)), roles)


def roles_of(settings: ServiceSettings) -> tuple[tuple[str, GivenRole], ...]:
    """Return the tokens of the file of `tokens_file`; names in it are those that people have, also where they are not kept."""
    hidden = settings.hidden_names()
    if hidden is None:
        return settings.roles()
    return tuple(
        (token, role if role.part is None else replace(role, part=hidden.in_condition(role.part))) for token, role in settings.roles()
    )


def _watched(settings: ServiceSettings, log: ServiceLog) -> tuple[ServiceState, Filler | None]:
    """Return the state of what is watched, and what fills its store (None: others do)."""
    sources = settings.sources
    if bucket := next(filter(is_bucket, (*sources, settings.store)), None):
        problem = f"a service keeps its store in a folder of its machine, and {harmless(bucket)} is on object storage"
        raise UllageError(problem, f"`ullage fleet {harmless(bucket)}` reports on it")
    if len(sources) == 1 and at_rest(sources[0]) and expanded_path(sources[0]).is_dir():
        if settings.remote_write:
            raise UllageError("a store that others fill takes no samples", "set `remote_write` where it is filled")
        if settings.pseudonyms:
            raise UllageError("a store that others fill has its names already", "set `pseudonyms` where it is filled")
        if settings.keep_names:
            raise UllageError("names in a store that others fill are theirs to remove", "set `keep_names` where it is filled")
        place = expanded_path(sources[0]).absolute()
        return ServiceState(WatchedStore(place, reported=own_folder(sources) / REPORTED, prices=settings.prices)), None
    if not sources and not settings.remote_write and not nvml_answers():
        folder = tempfile.TemporaryDirectory(prefix="ullage-serve-", ignore_cleanup_errors=True)
        state = ServiceState(WatchedStore(Path(folder.name) / "demo" / "store", prices=settings.prices), note=_SIMULATED, keeps=folder)
        return state, Demonstration(Path(folder.name) / "demo", log, state.follow)
    plan = _plan(settings, sources or (() if settings.remote_write else ("local",)))
    live = settings.remote_write or any("://" in one or one == "local" for one in plan.sources)
    state = ServiceState(WatchedStore(plan.store, live=live, prices=settings.prices))
    state.note = "" if plan.sources != ("local",) or sources else _LOCAL
    return state, Follower(plan, log, state.follow)


def _moving(plan: MovingPlan, log: ServiceLog) -> tuple[ServiceState, Filler]:
    folder = tempfile.TemporaryDirectory(prefix="ullage-demo-", ignore_cleanup_errors=True)
    store = Path(folder.name) / "store"
    Store.open(store, create=True)
    state = ServiceState(WatchedStore(store), note=plan.note, keeps=folder)
    return state, MovingDemonstration(plan, store, log, state.follow)


def _plan(settings: ServiceSettings, sources: tuple[str, ...]) -> FollowPlan:
    every = seconds(settings.every)
    options = Options(
        headers=settings.headers(),
        verify_tls=settings.ca or True,
        timeout=seconds(settings.timeout),
        retries=1,  # it is asked again anyway
        cluster=settings.cluster or None,
        time_zone=settings.time_zone or None,
        interval=min(every, 1.0),
    )
    return FollowPlan(
        sources=sources,
        store=expanded_path(settings.store).absolute() if settings.store else own_folder(sources) / "store",
        every=every,
        first_ms=round(seconds(settings.first) * 1000),
        jobs=tuple(settings.jobs),
        options=options,
        keep_days=settings.keep_days,
        pseudonyms=settings.hidden_names(),
        keep_names=settings.kept_names(),
        remote_write=settings.remote_write,
    )


def own_folder(sources: tuple[str, ...]) -> Path:
    """Return where a service of some sources keeps what nobody gave a place: under the user's data home."""
    home = os.environ.get("XDG_DATA_HOME")
    base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "ullage" / "serve" / hashlib.sha256("\n".join(sources).encode()).hexdigest()[:12]
