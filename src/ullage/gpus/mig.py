"""Multi-instance GPU (MIG): what share of a chip an instance holds, from its profile.

Source: NVIDIA MIG User Guide, "Supported MIG Profiles" (columns "Fraction of SMs") and "Supported GPUs" (most instances).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ullage.errors import UllageError, harmless
from ullage.gpus.names import LONGEST

if TYPE_CHECKING:
    from ullage.gpus.chip import Chip

SLICES: Final = 7  # what A100 and every later data-centre chip is cut into; A30 and RTX PRO 6000 have 4, Thor 2

# "1g.10gb", "1c.3g.40gb", "1g.10gb+me"; Kubernetes labels can't hold a plus and write "1g.10gb.me".
_PROFILE: Final = r"(?:(?P<compute>[1-9])c\.)?(?P<slices>[1-9])g\.[0-9]{1,4}gb(?:[+.-][a-z][a-z.]*)?"
_ALONE: Final = re.compile(rf"(?:mig[\s_-]+)?{_PROFILE}(?:/[0-9]+)?", re.IGNORECASE)
_BEHIND: Final = re.compile(rf"(?P<chip>.*?)[\s_-]+(?:mig[\s_-]+)?(?P<profile>{_PROFILE})", re.IGNORECASE)


@dataclass(frozen=True)
class MigProfile:
    """A MIG profile: the GPU slices of the instance, and how many of them this compute instance uses."""

    slices: int
    compute: int


def profile(text: str) -> MigProfile:
    """Return what a profile says; "MIG" before it and "/instance id" behind it are allowed.

    Raises UllageError when `text` is not a profile.

    >>> profile("MIG 3g.40gb"), profile("1c.3g.40gb"), profile("1g.10gb+me/7")
    (MigProfile(slices=3, compute=3), MigProfile(slices=3, compute=1), MigProfile(slices=1, compute=1))
    """
    found = _ALONE.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if not found:
        raise UllageError(f"'{harmless(text, 60)}' is not a MIG profile", "a profile reads '1g.10gb', '3g.40gb' or '1c.3g.40gb'")
    slices = int(found["slices"])
    compute = int(found["compute"] or slices)
    if compute > slices:
        raise UllageError(
            f"the MIG profile '{text.strip()}' has more compute slices than GPU slices", "the first number is at most the second"
        )
    return MigProfile(slices, compute)


def mig_share(text: str, chip: Chip | None = None) -> float:
    """Return the share of a chip's SMs that a MIG instance holds, by slices: g/7, or g/4 on chips cut into four.

    Without `chip` it is taken to be cut into seven, as all but A30, RTX PRO 6000 and Thor are. A compute instance ("1c.3g.40gb")
    holds its compute slices. The SMs that the driver hands out differ a little (H100: 16 of 132 for "1g", not 18.9), and the
    shares of a full set of instances add up to 1 only by slices. The tensor clock of an instance is the whole chip's.
    Raises UllageError when `text` is no profile, or when the chip has no MIG or fewer slices.

    >>> mig_share("1c.3g.40gb") == mig_share("1g.10gb") == 1 / 7, mig_share("7g.80gb")
    (True, 1.0)
    """
    instance = profile(text)
    whole = SLICES if chip is None else chip.mig_slices
    if chip is not None and not whole:
        raise UllageError(
            f"{chip.name} cannot be cut into MIG instances, yet '{text.strip()}' was reported", "check the model name of this device"
        )
    if instance.slices > whole:
        raise UllageError(f"the MIG profile '{text.strip()}' has more slices than the GPU's {whole}", "check the model name of this device")
    return instance.compute / whole


def split(name: str) -> tuple[str, str | None]:
    """Return a device's name without its MIG profile, and the profile (None when there is none).

    >>> split("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), split("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me")
    (('NVIDIA H100 80GB HBM3', '1g.10gb'), ('NVIDIA-A100-SXM4-40GB', '1g.5gb.me'))
    >>> split("Tesla T4")
    ('Tesla T4', None)
    """
    found = _BEHIND.fullmatch(name.strip()) if len(name) <= LONGEST else None
    return (found["chip"], found["profile"]) if found else (name, None)
