"""What is kept of a capture's code: idle time, kernels and calls by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ullage.memory import give_back
from ullage.sums.lanes.code.calls import ApiCalls, CallRow, merge_calls
from ullage.sums.lanes.code.device import DeviceCode, device_by_code
from ullage.sums.lanes.code.idle import Charge, idle_by_code, name_gap
from ullage.sums.lanes.code.levels import LEVELS, levels
from ullage.sums.lanes.code.times import MOST, CodeTimes, merge_code_times
from ullage.sums.lanes.gather import Capture
from ullage.sums.lanes.idle import Idle
from ullage.sums.lanes.observed import TableTime


@dataclass(frozen=True)
class CodeAccount:
    """Idle time by level (`charged` is all of it for which host threads answer: rows and `outside`), kernels by level, and calls; ns."""

    charged: int = 0
    idle: dict[str, CodeTimes] = field(default_factory=dict)
    device: DeviceCode = field(default_factory=DeviceCode)
    calls: tuple[CallRow, ...] = ()


def account(capture: Capture, looked: TableTime, idles: Sequence[tuple[Idle, tuple[Charge, ...]]]) -> tuple[CodeAccount, list[Idle]]:
    """Return what is kept of a capture's code while it is looked at, and why its devices idled with the longest gaps named."""
    calls = _calls(capture, looked, [charge for _, charges in idles for charge in charges])
    named = levels(capture)
    filled = {name: level for name, level in named.items() if len(level)}
    found = []
    for idle, charges in idles:
        gaps = tuple(replace(gap, code=name_gap(gap.start, gap.end, charges, named)) for gap in idle.gaps)
        found.append(replace(idle, gaps=gaps))
    times = {name: merge_code_times(idle_by_code([c], level) for _, charges in idles for c in charges) for name, level in filled.items()}
    give_back()
    code = CodeAccount(
        charged=sum(int((c.spans.end - c.spans.start).sum()) for _, charges in idles for c in charges),
        idle=times,
        device=device_by_code(capture, filled, looked.devices),
        calls=calls,
    )
    return code, found


def _calls(capture: Capture, looked: TableTime, charges: Sequence[Charge]) -> tuple[CallRow, ...]:
    calls = ApiCalls(capture)
    calls.wait(charges)
    rows = calls.rows(looked)
    del calls
    give_back()  # here and above: what one step took would stand beside what the next one takes
    return rows


def merge_code(parts: Iterable[CodeAccount], most: int = MOST) -> CodeAccount:
    """Return the sums over several captures, with so many names at each level; a capture without a level counts as outside of it."""
    found = list(parts)
    present = [name for name in LEVELS if any(name in part.idle for part in found)]
    return CodeAccount(
        charged=sum(part.charged for part in found),
        idle={name: merge_code_times((part.idle.get(name, CodeTimes((), part.charged)) for part in found), most) for name in present},
        device=DeviceCode(
            all=sum(part.device.all for part in found),
            unlaunched=sum(part.device.unlaunched for part in found),
            levels={
                name: merge_code_times((part.device.levels.get(name, CodeTimes((), part.device.launched)) for part in found), most)
                for name in present
            },
        ),
        calls=merge_calls(part.calls for part in found),
    )
