"""How an answer travels: not at all to who has it already, packed to who can unpack it."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.responses import Response

SMALLEST = 1_400  # bytes; what fits a packet gains nothing by being packed
LEVEL = 4  # of gzip: 6 takes twice the time for 4 % fewer bytes of a page
KEPT_BYTES = 16 * 2**20  # of packed answers


@dataclass
class AnswerPacker:
    """Makes responses of answers, with an ETag of their content; what it packed last it keeps. Any thread may call it."""

    _packed: OrderedDict[str, bytes] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def response(self, body: bytes, media_type: str, headers: Mapping[str, str], asked: Mapping[str, str]) -> Response:
        """Return the response to a request whose headers are `asked`: 304 without a body where it names the ETag of this body."""
        digest = hashlib.blake2b(body, digest_size=12).hexdigest()
        # weak: packed or not, it is the same answer, and not the same bytes
        said = {**headers, "ETag": f'W/"{digest}"', "Vary": "Accept-Encoding"}
        if names_digest(asked.get("if-none-match", ""), digest):
            # a browser puts these headers in place of those that it kept: the policy goes by the kind of what it shows
            return Response(status_code=304, headers=said, media_type=media_type)
        if len(body) < SMALLEST or not takes_gzip(asked.get("accept-encoding", "")):
            return Response(body, headers=said, media_type=media_type)
        return Response(self._pack(digest, body), headers={**said, "Content-Encoding": "gzip"}, media_type=media_type)

    def _pack(self, digest: str, body: bytes) -> bytes:
        with self._lock:
            if (kept := self._packed.get(digest)) is not None:
                self._packed.move_to_end(digest)
                return kept
        made = gzip.compress(body, LEVEL, mtime=0)
        with self._lock:
            self._packed[digest] = made
            while sum(map(len, self._packed.values())) > KEPT_BYTES:
                self._packed.popitem(last=False)
        return made


def names_digest(condition: str, digest: str) -> bool:
    """Return whether an If-None-Match names an answer, by RFC 9110's weak comparison.

    >>> names_digest('"a", W/"b"', "b"), names_digest("*", "b"), names_digest('"bb"', "b"), names_digest("", "b")
    (True, True, False, False)
    """
    named = [one.strip().removeprefix("W/") for one in condition.split(",")]
    return "*" in named or f'"{digest}"' in named


def takes_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding takes gzip.

    >>> takes_gzip("br, gzip;q=0.5"), takes_gzip("gzip;q=0"), takes_gzip("*"), takes_gzip("identity"), takes_gzip("")
    (True, False, True, False, False)
    """
    weights = dict(_weighed(one) for one in accepted.lower().split(","))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weighed(coding: str) -> tuple[str, float]:
    name, *parameters = (part.strip() for part in coding.split(";"))
    weight = next((one.removeprefix("q=") for one in parameters if one.startswith("q=")), "1")
    try:
        return name, float(weight)
    except ValueError:
        return name, 0.0
