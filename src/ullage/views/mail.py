"""A view as an e-mail: a file of text and of HTML without script and pictures, which mail programs show alike."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

from ullage.errors import UllageError, harmless
from ullage.views.notebook import notebook
from ullage.views.text import text
from ullage.views.view import Part, Picture, Section, Table, View

WIDTH = 78  # characters of a line of the text


def mail(view: View, recipients: Sequence[str] = ()) -> bytes:
    """Return a view as a message (RFC 5322) with a text and an HTML part. The same view gives the same bytes.

    It has no date and no sender, which whoever sends it adds: `sendmail -t < job.eml`. Raises UllageError for what is no address.
    """
    message = EmailMessage(policy=SMTP)
    message["Subject"] = harmless(f"{view.headline.before}{view.headline.strong}{view.headline.rest}", 200)
    if recipients:
        message["To"] = [mail_address(one) for one in recipients]
    told = text(view, width=WIDTH, fill=True)
    page = f'<!doctype html>\n<html lang="en"><body>{notebook(without_pictures(view))}</body></html>\n'
    message.set_content(told, cte="quoted-printable")
    message.add_alternative(page, subtype="html", cte="quoted-printable")
    message.set_boundary(f"ullage-{hashlib.sha256(page.encode()).hexdigest()[:32]}")
    return message.as_bytes()


def mail_address(written: str) -> Address:
    """Return an address of one mailbox. Raises UllageError for what is none.

    >>> str(mail_address("ann@example.org"))
    'ann@example.org'
    """
    try:
        found = Address(addr_spec=written)
    except (MessageError, ValueError, IndexError, AttributeError, TypeError) as error:
        raise UllageError(f"'{harmless(written, 60)}' is not an e-mail address", "write ann@example.org") from error
    if not found.domain or not written.isprintable() or not written.isascii():
        raise UllageError(f"'{harmless(written, 60)}' is not an e-mail address", "write ann@example.org")
    return found


def without_pictures(view: View) -> View:
    """Return a view with the tables that its pictures draw, in place of the pictures."""
    return replace(view, sections=[_plain(section) for section in view.sections])


def _plain(section: Section) -> Section:
    parts: list[Part] = [
        replace(part, drawn=False) if isinstance(part, Table) else part for part in section.parts if not isinstance(part, Picture)
    ]
    return replace(section, parts=parts)
