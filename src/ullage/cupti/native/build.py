"""The recorder's library: the one that came with the package, else compiled on this machine when first needed and kept in the user's cache.

A package that was made by `make wheel` has one for x86-64 and one for AArch64, which GNU's C library 2.17 and later can load. For any other
machine without a compiler it is built elsewhere and carried there, where ULLAGE_RECORDER names it:

    python3 -m ullage.cupti.native.build --out recorder.so
    CC='python3 -m ziglang cc -target x86_64-linux-gnu.2.17' python3 -m ullage.cupti.native.build --out recorder.so
"""

from __future__ import annotations

import argparse
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

from ullage.cache_folder import cache_folder
from ullage.cupti.native.elf_requirements import LibraryRequirements, NotALibrary, without_loader
from ullage.cupti.native.elf_requirements import library_requirements as requirements
from ullage.errors import UllageError, harmless

FOLDER = Path(__file__).parent
PREBUILT = "prebuilt"  # in FOLDER: a library for each kind of machine, and the word for their sources
COMPILERS = ("gcc", "cc", "clang")
FLAGS = ("-O2", "-std=gnu11", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wl,-z,nodelete")
LIBRARIES = ("-ldl",)
WITHOUT = "without it recordings can be read and counters sampled, but no program can be recorded"
CARRY = "python3 -m ullage.cupti.native.build --out recorder.so"  # on a machine with a compiler
LONGEST = 120  # seconds that a compiler may take


def recorder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the recorder's library: the package's own, or one that is built when there is none of these sources, compiler and flags yet.

    That lies in `$XDG_CACHE_HOME/ullage` (`~/.cache/ullage`); `ULLAGE_RECORDER` names one that was built elsewhere, `CC` a compiler. Raises
    UllageError without a compiler, with the compiler's first complaint, where the cache can't be written, and for a recorder built
    elsewhere that this machine can't load: preloaded, it would keep programs from starting.
    """
    if named := environment.get("ULLAGE_RECORDER"):
        return _carried(Path(named))
    if sys.platform != "linux":
        raise UllageError(f"the recorder runs on Linux, not on {sys.platform}", "record there, and read the recording here")
    if (came := prebuilt(platform.machine())) is not None:
        return came
    return built(compiler(environment), cache_folder(environment))


def prebuilt(machine: str) -> Path | None:
    """Return the recorder that came with the package, None where none did, where it is of other sources, or can't be loaded here."""
    path = FOLDER / PREBUILT / f"recorder-{machine}.so"
    try:
        if (FOLDER / PREBUILT / "sources").read_text(encoding="ascii") != sources():
            return None
        return path if requirements(path).glibc <= c_library_version() else None
    except (NotALibrary, OSError, ValueError):
        return None


def sources() -> str:
    """Return a word for what the recorder is made of: equal sources, equal word."""
    digest = hashlib.sha256()
    for source in _sources("*.[ch]"):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _carried(path: Path) -> Path:
    """Return a recorder that was built elsewhere. Raises UllageError for one that can't be loaded here."""
    named = f"ULLAGE_RECORDER names {harmless(str(path))}"
    if not path.is_file():
        raise UllageError(f"{named}, which is not a file", "unset it, and the recorder is built when needed")
    try:
        needed = requirements(path)
    except (NotALibrary, OSError) as error:
        raise UllageError(f"{named}, {_why(error)}", f"build one: {CARRY}") from error
    if needed.machine != platform.machine():
        raise UllageError(f"{named}, which is for {needed.machine}, and this machine is {platform.machine()}", f"build one for it: {CARRY}")
    if needed.glibc > (here := c_library_version()):
        has = ".".join(map(str, here)) or "another one"
        raise UllageError(
            f"{named}, which needs GNU's C library {needed.glibc_words}, and this machine has {has}",
            f"build one for an older one: CC='python3 -m ziglang cc -target {platform.machine()}-linux-gnu.2.17' {CARRY}",
        )
    if not needed.has("ullage_attach"):
        raise UllageError(f"{named}, which is another library than the recorder", f"build it: {CARRY}")
    return path.resolve()


def _why(error: NotALibrary | OSError) -> str:
    return f"which can't be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def c_library_version() -> tuple[int, ...]:
    """Return the version of GNU's C library that this process runs on; () on another one (musl)."""
    try:
        told = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # it doesn't know the question
        told = ""
    name, _, version = told.partition(" ")
    return tuple(map(int, version.split("."))) if name == "glibc" and version.replace(".", "").isdecimal() else ()


def compiler(environment: Mapping[str, str]) -> list[str]:
    """Return the command of a C compiler: what CC says, with its arguments, else the first of gcc, cc and clang that is there."""
    words = shlex.split(environment.get("CC", ""))
    for names in [words] if words else [[name] for name in COMPILERS]:
        if path := shutil.which(names[0], path=environment.get("PATH")):
            return [path, *names[1:]]
    wanted = f"CC names '{harmless(words[0])}', which is not there" if words else "there is no C compiler"
    raise UllageError(
        f"the recorder can't be built: {wanted}",
        f"`apt-get install gcc libc6-dev` (or dnf, conda) brings one; or build it elsewhere, `{CARRY}`, and name it by ULLAGE_RECORDER; "
        f"{WITHOUT}",
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
                _put(command, flags, target, Path(place))
    except OSError as error:
        raise UllageError(
            f"the recorder can't be kept in {harmless(str(folder))}: {error.strerror or error}", "set XDG_CACHE_HOME to a folder of yours"
        ) from error
    return target


def _put(command: Sequence[str], flags: Sequence[str], target: Path, place: Path) -> None:
    """Compile in a folder and move the library to its name: it is there whole or not at all, as another process may be looking."""
    made = place / target.name
    _compile([*command, *flags, "-o", str(made), *map(str, _sources("*.c")), *LIBRARIES])
    made.write_bytes(without_loader(made.read_bytes()))
    made.replace(target)


def build_for_carrying(target: Path, environment: Mapping[str, str] = os.environ) -> LibraryRequirements:
    """Build the recorder into a file, with the compiler that CC names, and return what it asks of a machine.

    Raises UllageError without a compiler, with its first complaint, and where the file can't be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as place:
            _put(compiler(environment), FLAGS, target, Path(place))
        return requirements(target)
    except (NotALibrary, OSError) as error:
        raise UllageError(f"the recorder can't be built into {harmless(str(target))}: {error}", "name another file") from error


def _sources(pattern: str) -> list[Path]:
    return sorted(FOLDER.glob(pattern))


def _digest(command: Sequence[str], flags: Sequence[str]) -> str:
    """Return what a build depends on as a word; the C library too, as a shared home may be seen from machines with different ones."""
    return hashlib.sha256(repr((command, flags, platform.machine(), c_library_version(), sources())).encode()).hexdigest()[:16]


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the recorder into a file that can be carried to another machine, and say which machines can load it."""
    parser = argparse.ArgumentParser(prog="python3 -m ullage.cupti.native.build", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to put it; ULLAGE_RECORDER names it there")
    out = parser.parse_args(arguments).out
    try:
        needed = build_for_carrying(out)
    except UllageError as error:
        sys.stderr.write(f"ullage: {error.problem}\n  {error.hint}\n")
        return 1
    sys.stdout.write(f"{out}: for {needed.machine} with GNU's C library {needed.glibc_words} or later\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
