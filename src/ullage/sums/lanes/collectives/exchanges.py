"""Exchanges that are collectives: kernels that send and receive, and end on all ranks at one moment.

Older profiles know an all-to-all only as a kernel that sends and receives. So is what two ranks tell each other, but that ends for them
alone. Exchanges without a group are matched like collectives and then told by their ends; within a named group, where some ranks may
tell each other something in between, the common ends are what finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.collectives.matched import Codes, Matched, Participations, clocks_of, renumbered, shifts_of
from ullage.sums.lanes.gather import NOT_KNOWN
from ullage.sums.lanes.spans import Times

FEWEST_LANES = 3  # of an exchange whose common end says anything: two that exchange always end together
ENDS_AGREE = 10_000  # ns; on eight GPUs of one machine the ends of an all-to-all lie within 3 us, on InfiniBand within some more


def common_exchanges(found: Matched, owners: Sequence[str]) -> Matched:
    """Return the same with exchanges that end on all lanes at one moment as all-to-alls: older profiles know these only as a kernel that
    sends and receives, and what two ranks tell each other ends for them alone."""
    rows, lanes = found.rows, len(found.lanes)
    exchange = np.isin(rows.operation, [code for code, word in enumerate(found.words) if word == "sendrecv"]) & rows.whole
    at = np.flatnonzero(np.diff(rows.key, prepend=-1))
    everybody = exchange & np.repeat(np.diff(np.append(at, len(rows))) == lanes, np.diff(np.append(at, len(rows))))
    if lanes < FEWEST_LANES or not everybody.any():
        return found
    together = replace(found, rows=replace(rows, operation=np.where(everybody, found.words.index("alltoall"), rows.operation)))
    for tried in (found, together):  # by the clocks of other collectives, by their own where there are none
        ahead, known = shifts_of(replace(found, clocks=clocks_of(tried, owners)), rows.end)
        if known.all():
            break
    end = rows.end - ahead
    apart = np.maximum.reduceat(end, at) - np.minimum.reduceat(end, at)
    longest = np.maximum.reduceat(rows.end - rows.start, at)
    agree = (apart <= np.minimum(ENDS_AGREE, longest // 2)) & np.minimum.reduceat(known, at)
    common = everybody & np.repeat(agree, np.diff(np.append(at, len(rows))))
    return replace(found, rows=replace(rows, operation=np.where(common, together.rows.operation, rows.operation)))


def named_exchanges(found: Matched, held: Participations, owners: Sequence[str], all_there: bool) -> Matched:
    """Return the same with those exchanges of `held`, sends and receives in named groups, that end on all ranks of the group at one moment.

    `found.alone` are all rows there are: they tell who is in a group. `all_there` says whether all ranks of the job are.
    """
    held = held.where(held.operation == (found.words.index("sendrecv") if len(held) else NOT_KNOWN))
    others = clocks_of(found, owners) if len(held) else ()
    for group in np.unique(held.group).tolist():
        mine, ranks = held.where(held.group == group), _ranks(found.alone, group, all_there)
        end = _on_one_clock(replace(found, clocks=others), mine, owners) if len(np.unique(mine.lane)) == ranks >= FEWEST_LANES else None
        if end is not None:
            exchange = _ending_together(end, mine.lane, mine.end - mine.start, ranks)
            found = _with(found, mine.where(exchange >= 0), exchange[exchange >= 0])
    return found


def _ranks(every: Participations, group: int, all_there: bool) -> int:
    """Return how many ranks a group has; 0 where that is not known, or where several groups bear its name."""
    inside = every.group == group
    known, told = len(np.unique(every.lane[inside])), int(every.members[inside].max())
    return known if (told == known or (told < 0 and all_there)) else 0


def _on_one_clock(found: Matched, rows: Participations, owners: Sequence[str]) -> Times | None:
    """Return when rows end, by the clocks of other collectives; where these don't tell, by their own, as if all were in one order."""
    ahead, known = shifts_of(replace(found, rows=rows), rows.end)
    each = np.unique(rows.lane, return_counts=True)[1]
    if not known.all() and (each == each[0]).all():
        order = np.lexsort((rows.start, rows.lane))
        together = _with(found, rows.where(order), np.tile(np.arange(each[0]), len(each)))
        ahead, known = shifts_of(replace(found, rows=rows, clocks=clocks_of(together, owners)), rows.end)
    return np.asarray(rows.end - ahead) if known.all() else None


def _ending_together(end: Times, lane: Codes, lasted: Times, ranks: int) -> Codes:
    """Return for each row the number of the exchange that all `ranks` leave together, -1 where there is none.

    Rows that follow one another in the order of their ends, one of each lane, within what `ENDS_AGREE` and half the longest allow.

    >>> _ending_together(np.array([10, 11, 12, 50, 90]), np.array([0, 2, 1, 0, 1]), np.full(5, 9), 3).tolist()
    [0, 0, 0, -1, -1]
    """
    order = np.argsort(end, kind="stable")
    end, lasted = end[order], lasted[order]
    number = np.full(len(order), NOT_KNOWN)
    last = ranks - 1 + np.flatnonzero((end[ranks - 1 :] - end[: len(end) - ranks + 1] <= ENDS_AGREE) & _distinct(lane[order], ranks))
    free = exchanges = 0
    for at in last.tolist():
        first = at - ranks + 1
        if first >= free and end[at] - end[first] <= lasted[first : at + 1].max() // 2:
            number[order[first : at + 1]] = exchanges
            free, exchanges = at + 1, exchanges + 1
    return number


def _distinct(lane: Codes, many: int) -> npt.NDArray[np.bool_]:
    """Return for each run of so many rows whether no lane is in it twice.

    >>> _distinct(np.array([0, 1, 2, 2, 1]), 3).tolist()
    [True, False, False]
    """
    order = np.argsort(lane, kind="stable")
    before = np.full(len(lane), NOT_KNOWN)
    again = np.flatnonzero(lane[order][1:] == lane[order][:-1])
    before[order[again + 1]] = order[again]
    begins = np.arange(len(lane) - many + 1)
    return np.asarray(np.maximum.accumulate(before)[many - 1 :] < begins)


def _with(found: Matched, rows: Participations, exchange: Codes) -> Matched:
    """Return the same with more rows, of all-to-alls by number."""
    alltoall = np.full(len(rows), found.words.index("alltoall"))
    chain = np.full(len(rows), int(found.rows.chain.max(initial=NOT_KNOWN)) + 1)
    new = replace(rows, operation=alltoall, kind=alltoall, chain=chain, key=found.count + exchange, whole=np.ones(len(rows), np.bool_))
    columns = {name: np.concatenate((getattr(found.rows, name), getattr(new, name))) for name in Participations.__dataclass_fields__}
    return replace(found, rows=renumbered(Participations(**columns)))
