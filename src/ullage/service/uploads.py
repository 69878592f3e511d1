"""Profiles that are sent to the service: each is read in a process of its own, and its report is kept for a while, in memory alone."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from ullage.errors import NoSuchNameError, UllageError
from ullage.service.access import THIS_MACHINE
from ullage.service.live_script import LIVE_SCRIPT
from ullage.service.upload_child import LARGEST_ANSWER
from ullage.views.markup import Markup
from ullage.views.page import PageFrame
from ullage.views.view import Headline, Item, ItemList, Section, View

LARGEST_UPLOAD = 256 * 2**20  # bytes
RECEIVE_S = 300.0  # that a profile may take to come
PARSE_S = 120.0  # that it may take to read, whatever it waits for; of processor time it has half of that
AGE_S = 24 * 3600.0  # for which a report is kept
MOST_REPORTS, MOST_BYTES = 64, 128 * 2**20  # that are kept: those that came last
HERE = "read it where it lies: ullage trace FILE"
WAITING = 2  # profiles that wait for their turn

_TOP = Markup("<header></header>")  # in place of what stands above a page: foreign text is escaped, and can't say it
PAGE_FRAME = PageFrame(_TOP, script=LIVE_SCRIPT)


class UploadAnswer(msgspec.Struct, kw_only=True):
    """What came of an upload: a page and a document in JSON, or what is wrong with it."""

    page: str = ""
    document: str = ""
    problem: str = ""
    hint: str = ""


class UploadRefusedError(UllageError):
    """A profile that can't be taken now."""


class TooLargeError(Exception):
    """A request sends more than it may, and did not say so."""


@dataclass(frozen=True)
class UploadReport:
    """The report on a profile: a page, a document in JSON, and when it was made (s since 1970)."""

    page: str
    document: bytes
    made: float

    def framed(self, frame: PageFrame) -> bytes:
        """Return the page with what stands above it."""
        return self.page.replace(_TOP, frame.top, 1).encode("utf-8", "replace")

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return len(self.page) + len(self.document)


class UploadBook:
    """The reports that are kept, by an id that nobody guesses. One profile is read at a time."""

    def __init__(self, clock: Callable[[], float] = time.time, parse_s: float = PARSE_S) -> None:
        self._clock, self._parse_s = clock, parse_s
        self._kept: OrderedDict[str, UploadReport] = OrderedDict()
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._waiting, self._closed = 0, False
        self._child: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place for a profile while it comes and is read: no more are taken than can wait.

        Raises UploadRefusedError where no place is free.
        """
        with self._lock:
            if self._waiting > WAITING:
                raise UploadRefusedError(f"{WAITING} profiles wait for their turn", "send it again in a minute")
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def report_on(self, profile: IO[bytes]) -> str:
        """Read a profile, and return the id of its report. Raises UllageError for one that can't be read, or not within its limits.

        The profile is a file without a name: whatever ends this process, nothing of it is left.
        """
        with self._turn:
            answer = self._answer(profile)
        if answer.problem:
            raise UllageError(answer.problem, answer.hint)
        return self._keep(UploadReport(answer.page, answer.document.encode(), self._clock()))

    def report(self, name: str) -> UploadReport:
        """Return a report by its id. Raises NoSuchNameError for one that is not there, or no more."""
        with self._lock:
            self._forget()
            if name not in self._kept:
                raise NoSuchNameError("there is no such report, or it is older than a day", "send the profile again")
            return self._kept[name]

    def close(self) -> None:
        """Read nothing more."""
        self._closed = True
        self._kill()

    def _keep(self, report: UploadReport) -> str:
        name = secrets.token_urlsafe(18)
        with self._lock:
            self._kept[name] = report
            self._forget()
        return name

    def _forget(self) -> None:
        now = self._clock()
        for name in [name for name, one in self._kept.items() if not 0 <= now - one.made < AGE_S]:
            del self._kept[name]
        while len(self._kept) > MOST_REPORTS or sum(one.size for one in self._kept.values()) > MOST_BYTES:
            self._kept.popitem(last=False)

    def _answer(self, profile: IO[bytes]) -> UploadAnswer:
        with tempfile.TemporaryDirectory(prefix="ullage-upload-") as folder, tempfile.TemporaryFile() as out:
            child = self._begin(profile, out, folder)
            late = False
            try:
                child.wait(self._parse_s)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                self._kill()  # the process, and those that it began
                child.wait()
                self._child = None
            out.seek(0)
            return _said(child.returncode, out.read(LARGEST_ANSWER + 1), late=late)

    def _begin(self, profile: IO[bytes], out: IO[bytes], folder: str) -> subprocess.Popen[bytes]:
        if self._closed:
            raise UploadRefusedError("the service ends", "send it again in a minute")
        profile.seek(0)
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-m", "ullage.service.upload_child"],
            stdin=profile,
            stdout=out,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": os.defpath, "LANG": "C.UTF-8", "TMPDIR": folder, "OPENBLAS_NUM_THREADS": "1"},  # and no secret of ours
            start_new_session=True,
        )
        return self._child

    def _kill(self) -> None:
        child = self._child
        if child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)


def _said(status: int, out: bytes, *, late: bool) -> UploadAnswer:
    """Return what a process said that has ended; of one that was ended, why."""
    if late or status == -signal.SIGXCPU or (status == -signal.SIGKILL and not out):
        return UploadAnswer(problem="the profile takes longer to read than an upload may, or more memory", hint=HERE)
    if status or len(out) > LARGEST_ANSWER:
        return UploadAnswer(problem="the profile can't be read within the limits of an upload", hint=HERE)
    try:
        return msgspec.json.decode(out, type=UploadAnswer)
    except msgspec.DecodeError:
        return UploadAnswer(problem="the profile can't be read within the limits of an upload", hint=HERE)


def upload_view() -> View:
    """Return what the page says where profiles are dropped; its script takes it from there."""
    items = [
        Item("PyTorch (Kineto JSON), JAX (trace.json.gz, xplane.pb), Nsight Systems (SQLite), rocprofv3, TALP and others"),
        Item(f"plain or compressed, up to {LARGEST_UPLOAD // 2**20} MiB; larger ones, and runs of several ranks: ullage trace FILE…"),
        Item("the file is read and gone; its report stays for a day, in memory, for who has its address"),
    ]
    how = "Choose a file below, or drop one on this page."
    headline = Headline("Drop a profile", " here: where did the time go?")
    return View(kind="upload", subject="Upload", headline=headline, sections=[Section("profile", "Profile", [ItemList(items)], how)])


def may_upload(setting: str, host: str) -> bool:
    """Return whether profiles are taken: where that is said, else on this machine alone. It needs files without a name that can be opened.

    >>> may_upload("off", "127.0.0.1"), may_upload("", "0.0.0.0")
    (False, False)
    """
    return Path("/proc/self/fd").exists() and (setting == "on" or (setting == "" and host in THIS_MACHINE))


def same_origin(headers: Any) -> bool:
    """Return whether a request can come from a page of ours, or from a program: pages of other sites can't send this kind of content."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/octet-stream" and headers.get("sec-fetch-site", "none") in ("same-origin", "none")
