"""The releases of CUPTI whose records are known, by what cuptiGetVersion says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.errors import UllageError


@dataclass(frozen=True)
class Release:
    """One release: the CUDA toolkit it belongs to, and the number that its cuptiGetVersion gives.

    `known` is the number whose layouts hold for it: its own, except for an update that came after this was written.
    """

    name: str
    version: int
    known: int


def _releases(**numbers: str) -> tuple[Release, ...]:
    return tuple(
        Release(name[1:].replace("_", "."), int(number), int(number)) for name, given in numbers.items() for number in given.split()
    )


# CUDA 12.1 says 18 too, and has the records of 12.0. There was no CUPTI 12.7.
RELEASES = _releases(
    v12_0="18", v12_2="20", v12_3="21", v12_4="22", v12_5="23", v12_6="24", v12_8="26", v12_9="27 28",
    v13_0="130000 130001", v13_1="130100 130101", v13_2="130200 130201 130202", v13_3="130300 130301", v13_4="130400 130401",
    v13_5="130500",
)  # fmt: skip


def release(version: int) -> Release:
    """Return the release that says it is `version`.

    Since 13.0 the number is major, minor and update, two digits each (cupti_version.h). An update of a known minor release is taken to
    have the records of the newest known one: of all updates from 12.0 to 13.5 only 13.2's first changed a record, that of GREEN_CONTEXT,
    which nobody is asked for by default. A new minor release is refused: most of them made the kernel's record longer.

    Raises UllageError with the known ones for any other number.

    >>> release(130101).name, release(28).name, release(130002)
    ('13.1', '12.9', Release(name='13.0', version=130002, known=130001))
    """
    same = [known for known in RELEASES if known.version == version]
    if not same and version >= 130000:
        same = [replace(known, version=version) for known in RELEASES if known.version // 100 == version // 100]
    if same:
        return same[-1]
    listed = ", ".join(f"{known.name} ({known.version})" for known in RELEASES)
    raise UllageError(f"CUPTI says that it is version {version:d}, whose records are not known here", f"known are {listed}")
