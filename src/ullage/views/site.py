"""A site of files: what the page of a name is called, what stands around each page, and where names lead. Nothing of it needs a server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ullage.views.markup import element
from ullage.views.page import PageFrame

# Of a name that is its file's as it stands: no other case, no device of Windows, nothing that looks like a name with a hash.
_PLAIN = re.compile(r"(?!(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$))(?!.*-[0-9a-f]{12}$)[a-z0-9](?:[a-z0-9._-]{0,58}[a-z0-9])?")
SLUG = 40  # characters of a name that its file still shows


def file_stem(name: str) -> str:
    """Return what the file of a name is called, without its ending: the name, or what is plain of it and a hash of all.

    No two names have the same one, on file systems that do not tell upper from lower case either.

    >>> file_stem("4711"), file_stem("../../etc/passwd"), file_stem("Ann")
    ('4711', 'etc-passwd-3754d6cb3a38', 'ann-17239b6e2501')
    """
    if _PLAIN.fullmatch(name):
        return name
    slug = re.sub(r"[^a-z0-9]+", "-", name.casefold())[:SLUG].strip("-")
    return "-".join(filter(None, [slug, hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]]))


@dataclass(frozen=True)
class FilePage:
    """A page of a site that is a file: where it lies in the folder, and what the navigation calls it ("": it does not)."""

    file: str
    title: str = ""


@dataclass(frozen=True)
class FileSite:
    """The pages of a site: those that the navigation lists, and those of names, by what each names and the name."""

    listed: Sequence[FilePage]
    named: Mapping[tuple[str, str], FilePage] = field(default_factory=dict)
    words: str = ""

    def frame(self, here: FilePage) -> PageFrame:
        """Return what stands around a page of the site."""

        def address_of(kind: str, name: str) -> str | None:
            page = self.named.get((kind, name))
            return None if page is None else _from(here, page)

        links = [element("a", page.title, href=_from(here, page), aria_current="page" if page is here else None) for page in self.listed]
        top = element(
            "header",
            element("a", "Skip to the report", href="#report", class_="skip"),
            element("nav", links, aria_label="Pages"),
            element("p", self.words) if self.words else None,
            class_="site",
        )
        return PageFrame(top, address_of, forms=False)


def _from(here: FilePage, page: FilePage) -> str:
    """Return the address of a page, as a page in the same folder, or in one of its folders, has it; file names need no escape."""
    return "../" * here.file.count("/") + page.file
