"""Why a reported MFU and the counters disagree: the smallest sets of known mistakes that bring them together.

A set fits when the MFU without it lies where OFU allows; its factor is put together work by work (`mistakes.recount`).
Among dozens of mistakes many pairs and most triples fit something by
chance, so a set must also be likelier than a mistake that is not in the list. How likely, given that a report is wrong:
a mistake of weight w is in w of a hundred reports; who makes one makes another five times as readily; a circumstance of
weight w holds for w of a hundred jobs. The share is divided by the width of what the set could explain (as a logarithm), so
that a sharp measurement can prove more. In ten of a hundred reports the cause is none of the list, and its factor lies
anywhere between 1/30 and 30. The weights are estimates, from how often each mistake is reported in public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from ullage.audit.mistakes.mistake import SAME, AuditedJob, Effect, Mistake
from ullage.audit.mistakes.recount import together
from ullage.errors import UllageError

LARGEST_SET = 3
# Without a measured tile efficiency, what padding to tiles may take of OFU: large GEMMs lose up to a few percent (OFU paper, IV-A)
TILE_UNKNOWN = (0.90, 1.0)
# What OFU itself may be off, relative: clock sampling and the tensor clock (OFU paper, IV-C, V)
OFU_ERROR = 0.03

# A framework's whole count goes with what is wrong beside it, not with mistakes that a count is made of
FORMULA = "formula"
_BESIDE_FORMULA = frozenset({"peak", "ranks", "unit", "accumulation", "recomputation", "lengths", "adapters", FORMULA})

ANOTHER = 5  # how much likelier a mistake is in a report that has one already
UNLISTED = 0.10 / math.log(30**2)  # per unit of the logarithm


@dataclass(frozen=True)
class Explanation:
    """A set of mistakes (and circumstances), the factor they make together, and the MFU that stands when they are taken back.

    `comparable` is what lies beside OFU: circumstances taken back too. `miss` is how far that is from the middle of what OFU
    allows, as the logarithm of a ratio; `likelihood` ranks explanations (see the module).
    """

    mistakes: tuple[tuple[Mistake, float], ...]
    factor: float
    corrected: float
    comparable: float
    miss: float
    likelihood: float

    @property
    def wrong(self) -> bool:
        """Whether the report is mistaken: a circumstance alone is no mistake."""
        return any(not mistake.circumstance for mistake, _ in self.mistakes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is in it."""
        return tuple(mistake.name for mistake, _ in self.mistakes)


@dataclass(frozen=True)
class MfuFinding:
    """What the audit of one reported MFU found.

    `expected` is the interval of MFU that OFU allows where nothing is wrong; `ratio` is reported over OFU. `explanations`
    are the smallest sets that fit, the likeliest first: empty when nothing needs explaining (`agrees`) or nothing in the
    list explains it. `far_fetched` is how many sets fit and are less likely than a mistake that is not in the list.
    """

    reported: float
    ofu: float
    expected: tuple[float, float]
    ratio: float
    explanations: tuple[Explanation, ...]
    far_fetched: int
    considered: tuple[Effect, ...]

    @property
    def agrees(self) -> bool:
        """Whether the reported MFU is what OFU allows."""
        return self.expected[0] <= self.reported <= self.expected[1]

    @property
    def flagged(self) -> bool:
        """Whether the report is wrong: the likeliest explanation has a mistake in it, or there is none."""
        return not self.agrees and (not self.explanations or self.explanations[0].wrong)


def audit(
    case: AuditedJob, reported: float, ofu: float, *, tile_efficiency: float | None = None, error: float = OFU_ERROR, most: int = 10
) -> MfuFinding:
    """Return which smallest sets of mistakes bring a reported MFU within what OFU allows.

    `reported`, `ofu` and `tile_efficiency` are ratios; `error` is OFU's relative error. MFU = OFU × tile efficiency × model
    efficiency (equation of the chain from peak to MFU), so the right MFU lies within OFU × tile × (1 ± error), less what is
    recomputed, which is one of the circumstances tried. Raises UllageError for ratios that can't be.
    """
    _refuse(reported, ofu, tile_efficiency, error)
    tile = TILE_UNKNOWN if tile_efficiency is None else (tile_efficiency, tile_efficiency)
    efficiency = _model_efficiency(case)
    low, high = ofu * tile[0] * (1 - error) * efficiency, ofu * tile[1] * (1 + error) * efficiency
    if low <= reported <= high:
        return MfuFinding(reported, ofu, (low, high), reported / ofu, (), 0, case.effects)
    # what is smaller than the error of OFU can't be seen in it
    visible = [effect for effect in case.effects if effect.reach > max(SAME, math.log1p(error))]
    found = [_explained(chosen, reported, low, high) for chosen in _smallest(visible, reported, low, high)]
    likely = [e for e in found if len(e.mistakes) == 1 or e.likelihood > UNLISTED]
    ranked = sorted(likely, key=lambda e: (-e.likelihood, e.miss))
    return MfuFinding(reported, ofu, (low, high), reported / ofu, tuple(ranked[:most]), len(found) - len(likely), case.effects)


def _model_efficiency(case: AuditedJob) -> float:
    """Return model over executed FLOPs as far as the job's settings are known."""
    terms = case.formula.terms(case.step, case.training)
    executed = sum(term.flops for term in terms)
    return case.truth / executed if executed else 1.0


def _smallest(effects: Sequence[Effect], reported: float, low: float, high: float) -> Iterator[tuple[Effect, ...]]:
    """Yield the sets that fit and of which no part fits; of two mistakes about one thing only one is in a set."""
    fitting: list[frozenset[str]] = []
    for size in range(1, LARGEST_SET + 1):
        for chosen in combinations(effects, size):
            about = {effect.mistake.about for effect in chosen}
            if len(about) < size or (FORMULA in about and not about <= _BESIDE_FORMULA):
                continue
            least, most = _span(chosen)
            if reported / most > high or reported / least < low:
                continue
            names = frozenset(effect.mistake.name for effect in chosen)
            if not any(known < names for known in fitting):
                fitting.append(names)
                yield chosen


def _span(chosen: Sequence[Effect]) -> tuple[float, float]:
    """Return the least and the most that some mistakes make together."""
    return together(e.low for e in chosen), together(e.high for e in chosen)


def _explained(chosen: Sequence[Effect], reported: float, low: float, high: float) -> Explanation:
    """Return the explanation that a fitting set is: of a range of factors, those that come nearest to the middle."""
    middle = math.sqrt(low * high)
    least, most = _span(chosen)
    factor = min(max(reported / middle, least), most)
    part = math.log(factor / least) / math.log(most / least) if most > least else 0.0
    mistakes = tuple((e.mistake, e.low * (e.high / e.low) ** part) for e in chosen)
    wrong = factor / math.prod(value for mistake, value in mistakes if mistake.circumstance)
    width, reach = max(math.log(high / low), SAME), math.log(most / least)
    overlap = max(min(math.log(reported / low), math.log(most)) - max(math.log(reported / high), math.log(least)), 0.0)
    density = overlap / (width * reach) if reach > SAME else 1 / width
    return Explanation(
        mistakes, factor, reported / wrong, reported / factor, abs(math.log(reported / factor / middle)), _share(chosen) * density
    )


def _share(chosen: Sequence[Effect]) -> float:
    """Return the estimated share of wrong reports that have just these mistakes, under just these circumstances."""
    mistakes = sum(not effect.mistake.circumstance for effect in chosen)
    return math.prod(effect.mistake.weight / 100 for effect in chosen) * float(ANOTHER ** max(mistakes - 1, 0))


def _refuse(reported: float, ofu: float, tile: float | None, error: float) -> None:
    for what, value, highest in (
        ("the reported MFU", reported, 100.0),
        ("OFU", ofu, 1.05),
        ("tile efficiency", 1.0 if tile is None else tile, 1.0),
    ):
        if not 0 < value <= highest:
            problem = f"{what} must be above 0 and at most {highest:g}, not {value:.4g}"
            raise UllageError(problem, "give a ratio such as 0.54, or percent such as 54%")
    if not 0 <= error < 1:
        raise UllageError(f"the relative error of OFU must be from 0 to below 1, not {error:.4g}", "give a ratio: --error 0.03")
