"""Where alerts are sent: a webhook, a chat in Slack's format, an Alertmanager, e-mails as files or over SMTP."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Any

import msgspec

from ullage.alerts.book import Alert, AlertBook, Notice
from ullage.alerts.profile_request import request_lines
from ullage.errors import UllageError, harmless, public
from ullage.views.mail import mail_address

Post = Callable[[str, bytes], None]  # an address and a body of JSON; raises UllageError
TIMEOUT_S = 10.0
SMTP_PORT = 25
SEVERITY = {"high": "critical", "medium": "warning", "low": "info"}


def webhook_body(notice: Notice) -> bytes:
    """Return what a webhook is sent: what happened, and the problem with all that is known of it."""
    return msgspec.json.encode({"what": notice.what, "at": _iso(notice.at), "key": notice.problem.key, "problem": notice.problem})


def slack_body(notice: Notice) -> bytes:
    """Return a message in Slack's format (Mattermost and others take it, too)."""
    problem = notice.problem
    lines = [
        f"*{_without_slack_markup(problem.summary)}* ({'over' if notice.what == 'resolved' else notice.what})",
        f"{problem.gpu_hours:,.3g} GPU-hours; owner: {_without_slack_markup(problem.owner)}; {problem.confidence} confidence"
        f"{f'; since {problem.since}' if problem.since else ''}",
        _without_slack_markup(problem.evidence),
    ]
    if notice.what != "resolved":
        lines += [
            f"do: {_without_slack_markup(problem.advice)}",
            *([f"`{_without_slack_markup(problem.command)}`"] if problem.command else []),
        ]
        lines += [_without_slack_markup(line) for line in _profile_lines(notice)]
    return msgspec.json.encode({"text": "\n".join(filter(None, lines))})


def alertmanager_body(alerts: Sequence[Alert], now: float, lasting_s: float) -> bytes:
    """Return what an Alertmanager is sent (API v2): every open alert again, which then lasts so long, and those that are over."""
    return msgspec.json.encode([_alertmanager_alert(one, now, lasting_s) for one in alerts])


def _profile_lines(notice: Notice) -> list[str]:
    """Return the profile that is asked for, in lines; none of what is over."""
    request = notice.problem.profile
    return [] if request is None or notice.what == "resolved" else request_lines(request)


def _alertmanager_alert(alert: Alert, now: float, lasting_s: float) -> dict[str, Any]:
    problem = alert.problem
    labels = {"alertname": f"ullage_{problem.kind}", "owner": problem.owner, "severity": SEVERITY.get(problem.confidence, "info")}
    labels |= {name: str(value) for name, value in problem.where.items() if str(value)}
    ends = alert.resolved if alert.state == "resolved" and alert.resolved is not None else now + lasting_s
    return {
        "labels": labels,
        "annotations": {
            "summary": problem.summary,
            "description": problem.evidence,
            "advice": problem.advice,
            "command": problem.command,
            "gpu_hours": f"{problem.gpu_hours:.6g}",
            **({} if problem.profile is None else {"profile": "\n".join(request_lines(problem.profile))}),
        },
        "startsAt": _iso(alert.opened if alert.opened is not None else alert.first_seen),
        "endsAt": _iso(ends),
    }


def mail_of(notice: Notice, sender: str, recipients: Sequence[str]) -> EmailMessage:
    """Return a notice as an e-mail."""
    problem = notice.problem
    message = EmailMessage(policy=SMTP)
    message["Subject"] = harmless(f"[Ullage] {'over: ' if notice.what == 'resolved' else ''}{problem.summary}", 200)
    message["From"], message["To"] = sender, ", ".join(recipients)
    lines = [
        problem.summary,
        "",
        f"cost so far: {problem.gpu_hours:,.3g} GPU-hours",
        f"owner: {problem.owner}",
        f"confidence: {problem.confidence}",
        *([f"since: {problem.since}"] if problem.since else []),
        f"evidence: {problem.evidence}",
        f"do: {problem.advice}",
        *([f"more: {problem.command}"] if problem.command else []),
        *_profile_lines(notice),
    ]
    message.set_content("\n".join(harmless(line, 1000) for line in lines))
    return message


def mail_into(folder: Path) -> Callable[[EmailMessage, Notice], None]:
    """Return what writes e-mails as files of a folder."""

    def write(message: EmailMessage, notice: Notice) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{notice.number:08d}-{notice.what}.eml").write_bytes(message.as_bytes())
        except OSError as error:
            raise UllageError(f"an e-mail can't be written to {harmless(str(folder))}: {error}") from error

    return write


@dataclass(frozen=True)
class MailRoute:
    """To whom e-mails go, and what sends one; it raises UllageError where that can't be done."""

    recipient: str
    send: Callable[[EmailMessage], None]


def mail_route(text: str) -> MailRoute:
    """Return the route that "ADDRESS via HOST[:PORT]" names. Raises UllageError for another text."""
    address, _, server = text.partition(" via ")
    host, _, port = server.strip().partition(":")
    if not host or (port and not port.isdigit()):
        raise UllageError("it names no mail server", "write ann@example.org via smtp.example.org:25")
    return MailRoute(str(mail_address(address.strip())), mail_over(host, int(port or SMTP_PORT)))


def mail_over(host: str, port: int) -> Callable[[EmailMessage], None]:
    """Return what sends e-mails over a mail server that asks for no password."""

    def send(message: EmailMessage) -> None:
        try:
            with smtplib.SMTP(host, port, timeout=TIMEOUT_S) as server:
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            raise UllageError(f"an e-mail can't be sent over {harmless(host)}: {error}") from error

    return send


def post_json(address: str, body: bytes) -> None:
    """Send JSON to an address; raises UllageError where it is not taken."""
    import urllib3

    try:
        headers = {"Content-Type": "application/json"}
        answer = urllib3.request("POST", address, body=body, headers=headers, timeout=TIMEOUT_S, retries=False, redirect=False)
    except urllib3.exceptions.HTTPError as error:
        raise UllageError(f"{harmless(public(address))} takes no alert: {type(error).__name__}") from error
    if answer.status >= 300:
        raise UllageError(f"{harmless(public(address))} takes no alert: it answers {answer.status}")


def deliver(book: AlertBook, outlet: str, send: Callable[[Notice], None], now: float) -> list[str]:
    """Send what waits for an outlet, the oldest first; returns why not all of it could be. After a failure the rest waits."""
    for notice in book.waiting(outlet):
        try:
            send(notice)
        except UllageError as error:
            book.failed(notice)
            return [error.problem]
        book.sent(notice, now)
    return []


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _without_slack_markup(words: str) -> str:
    """Return words in which Slack sees no mark-up, no link and nobody to call."""
    return harmless(words, 1000).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
