"""Alerts of the service: its answers are asked by themselves, what is wrong is noted once, and sent to whom it concerns."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ullage.alerts.book import Alert, AlertBook, Notice, Silence, TakenProfile
from ullage.alerts.measured_fix import MeasuredFix
from ullage.alerts.outlets import (
    alertmanager_body,
    deliver,
    mail_into,
    mail_of,
    mail_route,
    post_json,
    slack_body,
    webhook_body,
)
from ullage.alerts.problem import Problem, problems_of
from ullage.alerts.profile_request import profile_request, request_lines, wants_profile
from ullage.errors import UllageError, harmless, public
from ullage.service.fix_measurement import Ask, FixMeasurement
from ullage.service.logs import ServiceLog
from ullage.views.declared import iso
from ullage.views.notation import FIGURES, GPU_HOURS, UNCUT
from ullage.views.numbers import counted, moment, percent
from ullage.views.view import Column, Headline, Item, ItemList, Section, Table, View
from ullage.written_values import expanded_path, seconds

WINDOW = "24h"  # of the store, up to its last sample, that is asked about
RESOLVED_S = 3600.0  # for which an Alertmanager is told again that an alert is over
LASTING = 3  # turns for which an Alertmanager holds an alert that it hears no more of
WAYS = "webhook URL, slack URL, alertmanager URL, mail_folder FOLDER, or mail ADDRESS via HOST[:PORT]"

MOST_JOBS = 5  # whose own reports are asked for at a look, to name their worst GPU


@dataclass(frozen=True)
class AlertOutlet:
    """A place that is told of alerts, by a name without secrets: `send` tells it of one notice, `state` of all alerts each time."""

    name: str
    send: Callable[[Notice], None] | None = None
    state: Callable[[Sequence[Alert], float], None] | None = None


def read_outlets(file: Path, every: float) -> list[AlertOutlet]:
    """Return the outlets of a file, one a line; lines that begin with # say nothing. Raises UllageError that names a wrong line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UllageError(f"the file '{harmless(str(file))}' with the places of alerts can't be read: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found.append(outlet_of(line.strip(), number, every))
            except UllageError as error:
                raise UllageError(f"{harmless(str(file))} line {number}: {error.problem}", error.hint or f"write {WAYS}") from None
    return found


def outlet_of(line: str, number: int, every: float) -> AlertOutlet:
    """Return the outlet that a line names; its name has no secret in it."""
    way, _, place = line.partition(" ")
    place, name = place.strip(), f"{way} of line {number}"
    if not place:
        raise UllageError("it names no place")
    if way in ("webhook", "slack", "alertmanager") and not place.startswith(("http://", "https://")):
        raise UllageError("the address must begin with http:// or https://")
    if way == "webhook":
        return AlertOutlet(name, lambda notice: post_json(place, webhook_body(notice)))
    if way == "slack":
        return AlertOutlet(name, lambda notice: post_json(place, slack_body(notice)))
    if way == "alertmanager":
        address = f"{place.rstrip('/')}/api/v2/alerts"
        return AlertOutlet(name, state=lambda alerts, now: post_json(address, alertmanager_body(alerts, now, LASTING * every)))
    if way == "mail_folder":
        write = mail_into(expanded_path(place))
        return AlertOutlet(name, lambda notice: write(mail_of(notice, "ullage@localhost", [notice.problem.owner or "nobody"]), notice))
    if way == "mail":
        route = mail_route(place)
        return AlertOutlet(name, lambda notice: route.send(mail_of(notice, route.recipient, [route.recipient])))
    raise UllageError(f"'{harmless(way, 40)}' is no way to tell somebody")


class Alerting:
    """Looks for problems and tells of them; `turn` is called again and again."""

    def __init__(
        self,
        book: AlertBook,
        outlets: Sequence[AlertOutlet],
        ask: Ask,
        log: ServiceLog,
        every: float = 300.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.every, self.turns = every, 0
        self._devices: dict[str, list[Mapping[str, Any]]] = {}
        self.book, self.outlets, self._ask, self._log, self._clock = book, outlets, ask, log, clock
        self._fixes = FixMeasurement(book, ask, log)

    def turn(self) -> None:
        """Look once. What can't be asked now says nothing of any problem: all stays as it was."""
        try:
            self._look()
        finally:
            self.turns += 1

    def _look(self) -> None:
        try:
            problems = list(self._problems())
        except UllageError as error:
            self._log("no look for problems", {"problem": error.problem})
            return
        now = self._clock()
        self.book.look(problems, now, [outlet.name for outlet in self.outlets if outlet.send is not None])
        self._fixes.look(now)
        for outlet in self.outlets:
            for failure in self._send_to(outlet, now):
                self._log("alert not sent", {"outlet": outlet.name, "problem": failure})

    def _problems(self) -> Iterator[Problem]:
        fleet = self._ask("fleet")
        found = problems_of(fleet, self._ask("watch"), str(fleet.get("command", "")))
        jobs = {_job_of(one) for one in found if wants_profile(one.kind, one.where)}
        self._devices = {job: self._devices[job] for job in jobs if job in self._devices}
        for job in sorted(jobs - set(self._devices))[:MOST_JOBS]:
            self._devices[job] = self._devices_of(job)
        for one in found:
            wanted = wants_profile(one.kind, one.where)
            devices = self._devices.get(_job_of(one), []) if wanted else []
            yield msgspec.structs.replace(one, profile=profile_request(one.kind, one.where, devices)) if wanted else one

    def _devices_of(self, job: str) -> list[Mapping[str, Any]]:
        """Return the GPUs of a job as its own report has them, none where that can't be had."""
        try:
            found: list[Mapping[str, Any]] = list(self._ask("job", id=job).get("devices", ()))
        except UllageError as error:
            self._log("no look at a job", {"job": job, "problem": error.problem})
            return []
        return found

    def _send_to(self, outlet: AlertOutlet, now: float) -> list[str]:
        """Send what is new to an outlet; returns why not all of it could be sent."""
        if outlet.send is not None:
            return deliver(self.book, outlet.name, outlet.send, now)
        if outlet.state is not None:
            silences = self.book.silences(now)
            alerts = [one for one in self.book.alerts("open", "resolved") if one.resolved is None or now - one.resolved <= RESOLVED_S]
            try:
                outlet.state([one for one in alerts if not _is_silenced(one, silences)], now)
            except UllageError as error:
                return [error.problem]
        return []


class Acknowledged(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """That somebody looks after an alert."""

    key: str
    by: str
    note: str = ""


class AttachedProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """That a profile came for an alert: the path or address of it, or of its report."""

    key: str
    profile: str
    by: str
    note: str = ""


class Silenced(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """That nobody is to be told of an owner's problems, or of a kind of them, for a span ("8h")."""

    span: str
    by: str
    owner: str = ""
    kind: str = ""
    note: str = ""


def acknowledge(book: AlertBook, body: bytes) -> dict[str, Any]:
    """Keep that somebody looks after an alert. Raises UllageError for a body that says nothing, and for an alert that is not open."""
    said = _decoded(body, Acknowledged)
    book.acknowledge(said.key, said.by, said.note)
    return {"acknowledged": said.key}


def attach_profile(book: AlertBook, body: bytes, now: float) -> dict[str, Any]:
    """Keep that a profile came for an alert. Raises UllageError for a body that says none, and for an alert that there is not."""
    said = _decoded(body, AttachedProfile)
    if not said.profile.strip():
        raise UllageError("the profile has no path and no address", "say where it is, or its report")
    book.attach_profile(said.key, public(said.profile.strip()), said.by, now, said.note)  # whoever reads alerts reads it
    return {"attached": said.key}


def silence(book: AlertBook, body: bytes, now: float) -> dict[str, Any]:
    """Keep a silence, and return its number. Raises UllageError for a body that says none."""
    said = _decoded(body, Silenced)
    return {"silence": book.silence(said.owner, said.kind, now + seconds(said.span), said.by, said.note)}


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fields = ", ".join(kind.__struct_fields__)
        raise UllageError(f"the body can't be read: {harmless(str(error), 200)}", f"JSON with {fields}") from None


def alerts_document(book: AlertBook, now: float) -> dict[str, Any]:
    """Return all alerts and the silences that hold, as plain data."""
    silences = book.silences(now)
    shown = [{**vars(one), "until": _iso(one.until)} for one in silences]
    profiles, fixes = book.profiles(), book.fixes()
    alerts = [_alert_record(one, silences, profiles.get(one.problem.key, ()), fixes.get(one.problem.key)) for one in book.alerts()]
    return {"alerts": alerts, "silences": shown}


def _job_of(problem: Problem) -> str:
    """Return the job of a problem as `ullage job` takes it: two clusters may number jobs alike."""
    job, cluster = str(problem.where["job"]), problem.where.get("cluster")
    return job if cluster is None else f"{cluster}/{job}"


def _is_silenced(alert: Alert, silences: Sequence[Silence]) -> bool:
    return any(one.covers(alert.problem) for one in silences)


def _alert_record(
    alert: Alert, silences: Sequence[Silence], profiles: Sequence[TakenProfile], fix: tuple[MeasuredFix, float] | None
) -> dict[str, Any]:
    times = {name: _iso(getattr(alert, name)) for name in ("first_seen", "last_seen", "opened", "resolved")}
    problem: dict[str, Any] = msgspec.to_builtins(alert.problem)
    return {
        "key": alert.problem.key,
        "state": alert.state,
        **times,
        "acknowledged_by": alert.acknowledged_by or None,
        "note": alert.note or None,
        "silenced": _is_silenced(alert, silences),
        "profiles": [{"profile": one.place, "by": one.by, "at": _iso(one.at), "note": one.note, "next": _reading(one)} for one in profiles],
        "fix": None if fix is None else msgspec.to_builtins(fix[0]),
        **problem,
    }


def _reading(profile: TakenProfile) -> str:
    """Return the command that reads a profile."""
    return shlex.join(["ullage", "open", "--", public(profile.place)])


def _iso(at: float | None) -> str | None:
    return None if at is None else iso(round(at * 1000))


def alerts_view(book: AlertBook, now: float) -> View:
    """Return what a page says of alerts: what is open first, with what to do, then what is over."""
    alerts, silences, profiles = book.alerts("open", "resolved"), book.silences(now), book.profiles()
    fixes = book.fixes()
    open_ones, over = [one for one in alerts if one.state == "open"], [one for one in alerts if one.state == "resolved"]
    lost = sum(one.problem.gpu_hours for one in open_ones)
    strong = counted(len(open_ones), "alert") if open_ones else "no alert"
    rest = f" open, {GPU_HOURS.words(lost)} GPU-hours lost so far" if open_ones else " is open"
    past = [Column("what", UNCUT), Column("since"), Column("until"), Column("owner"), Column("GPU-hours", GPU_HOURS, key="gpu_hours")]
    past += [Column("won since, GPU-hours a week", FIGURES, key="won")]
    quiet = [Column("owner"), Column("kind"), Column("until"), Column("by"), Column("note")]
    sections = [
        Section(
            "open",
            "Open",
            [ItemList([_item(one, silences, profiles.get(one.problem.key, ())) for one in open_ones], ranked=True)] if open_ones else [],
            _HOW,
        ),
        Section("over", "Over", [Table("over", past, [_row(one, fixes.get(one.problem.key)) for one in over])] if over else []),
        Section("silences", "Silences", [Table("silences", quiet, [*map(_silence_row, silences)])] if silences else []),
    ]
    return View(kind="alerts", subject="Alerts", headline=Headline(strong, rest), sections=[one for one in sections if one.parts])


_HOW = (
    "The most GPU-hours first. To say that you look after one, send its key to /api/v1/alerts/acknowledge; to silence an owner's, or a "
    "kind of them, use /api/v1/silences."
)


def _item(alert: Alert, silences: Sequence[Silence], profiles: Sequence[TakenProfile]) -> Item:
    problem = alert.problem
    words = [problem.place, f"{GPU_HOURS.words(problem.gpu_hours)} GPU-hours", f"owner: {problem.owner}", f"since {_since(alert)} UTC"]
    words += [f"{alert.acknowledged_by} looks after it"] if alert.acknowledged_by else []
    words += ["silenced"] if _is_silenced(alert, silences) else []
    remarks = [f"evidence ({problem.confidence} confidence): {problem.evidence}", f"do: {problem.advice}"]
    remarks += [f"see: {problem.command}"] if problem.command else []
    remarks += [] if problem.profile is None else request_lines(problem.profile)
    remarks += [f"profile of {moment(round(one.at * 1000))} UTC from {one.by}: {_reading(one)}" for one in profiles]
    remarks.append(f"key: {problem.key}")
    return Item(harmless("; ".join(words), 500), remarks=[harmless(one, 1000) for one in remarks], lead=problem.title)


def _since(alert: Alert) -> str:
    """Return since when a problem lasts, as far as its question says; else since when it has been seen."""
    said = alert.problem.since
    return said[:16].replace("T", " ") if said else moment(round(alert.first_seen * 1000))


def _row(alert: Alert, fix: tuple[MeasuredFix, float] | None) -> list[Any]:
    over = moment(round((alert.resolved or alert.last_seen) * 1000))
    return [alert.problem.summary, _since(alert), over, alert.problem.owner, alert.problem.gpu_hours, _won(fix)]


def _won(fix: tuple[MeasuredFix, float] | None) -> str | None:
    """Return what a fix brought, with its error, and of which GPUs; None where that is not known (yet)."""
    if fix is None:
        return None
    found = fix[0]
    won = f"{found.gpu_hours_a_week:+,.3g} ± {found.error:,.2g}{'' if found.certain else ' (no more than its error)'}"
    return harmless(f"{won}, {found.of}: OFU {percent(found.ofu_before)} → {percent(found.ofu_after)}", 200)


def _silence_row(one: Silence) -> list[Any]:
    return [one.owner or "anybody", one.kind or "any", moment(round(one.until * 1000)), one.by, one.note]
