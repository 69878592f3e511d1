"""The recorder's library, compiled on this machine when it is first needed and kept in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ullage.errors import UllageError, harmless

FOLDER = Path(__file__).parent
COMPILERS = ("gcc", "cc", "clang")
FLAGS = ("-O2", "-std=gnu11", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wl,-z,nodelete")
LIBRARIES = ("-ldl",)
WITHOUT = "without it recordings can be read and counters sampled, but no program can be recorded"
LONGEST = 120  # seconds that a compiler may take


def recorder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the recorder's library; builds it when there is none of these sources, this compiler and these flags yet.

    It lies in `$XDG_CACHE_HOME/ullage` (`~/.cache/ullage`); `ULLAGE_RECORDER` names one that was built elsewhere, `CC` a compiler. Raises
    UllageError without a compiler, with the compiler's first complaint, and where the cache can't be written.
    """
    if named := environment.get("ULLAGE_RECORDER"):
        return _named(Path(named))
    if sys.platform != "linux":
        raise UllageError(f"the recorder runs on Linux, not on {sys.platform}", "record there, and read the recording here")
    return built(compiler(environment), cache(environment))


def _named(path: Path) -> Path:
    if path.is_file():
        return path.resolve()
    raise UllageError(f"ULLAGE_RECORDER names {harmless(str(path))}, which is no file", "unset it, and the recorder is built when needed")


def cache(environment: Mapping[str, str]) -> Path:
    """Return the folder where built recorders are kept.

    >>> cache({"XDG_CACHE_HOME": "/scratch/me"}).as_posix()
    '/scratch/me/ullage'
    """
    named = environment.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()) / "ullage"


def compiler(environment: Mapping[str, str]) -> list[str]:
    """Return the command of a C compiler: what CC says, with its arguments, else the first of gcc, cc and clang that is there."""
    words = shlex.split(environment.get("CC", ""))
    for names in [words] if words else [[name] for name in COMPILERS]:
        if path := shutil.which(names[0], path=environment.get("PATH")):
            return [path, *names[1:]]
    wanted = f"CC names '{harmless(words[0])}', which is not there" if words else "there is no C compiler"
    raise UllageError(
        f"the recorder can't be built: {wanted}",
        f"`apt-get install gcc libc6-dev` (or dnf, conda) brings one, ULLAGE_RECORDER names a recorder built elsewhere; {WITHOUT}",
    )


def built(command: Sequence[str], folder: Path, flags: Sequence[str] = FLAGS) -> Path:
    """Return the library that a compiler makes of the sources with these flags, from `folder` where it was made before."""
    target = folder / f"recorder-{_digest(command, flags)}.so"
    if target.is_file():
        return target
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(folder / "recorder.lock"), tempfile.TemporaryDirectory(prefix="build-", dir=folder) as place:
            if not target.is_file():
                made = Path(place, target.name)
                _compile([*command, *flags, "-o", str(made), *map(str, _sources("*.c")), *LIBRARIES])
                made.replace(target)  # whole or not at all: another process may be looking
    except OSError as error:
        raise UllageError(
            f"the recorder can't be kept in {harmless(str(folder))}: {error.strerror or error}", "set XDG_CACHE_HOME to a folder of yours"
        ) from error
    return target


def _sources(pattern: str) -> list[Path]:
    return sorted(FOLDER.glob(pattern))


def _digest(command: Sequence[str], flags: Sequence[str]) -> str:
    """Return what a build depends on as a word; the C library too, as a shared home may be seen from machines with different ones."""
    digest = hashlib.sha256(repr((command, flags, platform.machine(), platform.libc_ver())).encode())
    for source in _sources("*.[ch]"):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Have only one process build at a time, to spare the others the work; where files can't be locked, all do it."""
    import fcntl

    with path.open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LONGEST, env=os.environ | {"LC_ALL": "C"})
    except subprocess.TimeoutExpired as error:
        raise UllageError(f"the recorder can't be built: {harmless(command[0])} took over {LONGEST} s", "try again, or set CC") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["it says nothing"]
        raise UllageError(
            f"the recorder can't be built: {harmless(Path(command[0]).name)} ends with {done.returncode}: {harmless(lines[0].strip())}",
            f"set CC to another compiler; are the C library's headers there (libc6-dev, glibc-devel)? {WITHOUT}",
        )
