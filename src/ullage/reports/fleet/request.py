"""What shapes a fleet's report. It loads quickly, for the help of the command that has these options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ullage.askable import Window, asked, read_prices
from ullage.errors import UllageError, did_you_mean, harmless

if TYPE_CHECKING:
    from ullage.reports.fleet.prices import PriceTable
    from ullage.reports.fleet.where import Condition
    from ullage.sources.inventory import Listed

KEYS = ("job", "user", "model", "host", "cluster", "gpu", "namespace", "hour")
GROUPINGS = (*KEYS, "team")  # of teams a file of prices tells
_TEAMS = 'name a file with --prices that has [teams.NAME] with users = ["ann", "bob"]'


@dataclass(frozen=True, kw_only=True)
class GpuPrices:
    """What a GPU-hour costs: by a file of prices, and by GPU."""

    prices: Mapping[str, float] = asked(
        "Money per GPU-hour: 2.50, or H100=2.50,A100=1.20.",
        {},
        flag="--price",
        metavar="[GPU=]AMOUNT",
        read=read_prices,
        env="ULLAGE_PRICE",
        repeated=True,
    )
    price_file: str | None = asked(
        "Prices by GPU, purchase (list, committed, spot), place and date, their currency, and teams: TOML.",
        flag="--prices",
        metavar="FILE",
        env="ULLAGE_PRICES",
        local=True,
    )
    currency: str | None = asked("What --price is in: EUR, USD, credits.", metavar="NAME", env="ULLAGE_CURRENCY", minor=True)

    @cached_property
    def price_table(self) -> PriceTable:
        """The prices of the file, and behind them those given by GPU. Raises UllageError for a file that can't be read."""
        from ullage.reports.fleet.price_file import price_table

        return price_table(self.price_file, self.prices, self.currency)


@dataclass(frozen=True, kw_only=True)
class GpuAssumptions(GpuPrices):
    """What a report takes for given of GPUs, since samples don't say it: their prices, their names and peaks, what energy costs."""

    gpu: str | None = asked("Which GPU it is, where the samples don't say.", suggested="ullage.gpus.chip:all_names")
    peak_tflops: str | None = asked(
        "Peak of a relabelled board, for reported FLOP/s: 989.4, or bf16=989.4.", metavar="TFLOPS", env="ULLAGE_PEAK_TFLOPS", minor=True
    )
    kwh_price: float | None = asked("Money per kWh, for the energy that meters saw.", metavar="AMOUNT", least=0, minor=True)
    carbon: float | None = asked("Carbon intensity of the grid, in g of CO2 per kWh.", metavar="G/KWH", least=0, minor=True)

    def __post_init__(self) -> None:
        """Refuse what makes no sense before anything is read: a GPU or a peak that nobody knows, prices that can't be read."""
        from ullage.gpus.chip import find
        from ullage.gpus.overrides import peaks

        for name in filter(None, (*self.prices, self.gpu)):
            find(name)
        peaks(self.peak_tflops or "")
        if self.price_file is not None or self.currency is not None:
            self.price_table  # noqa: B018 - it is read

    @property
    def energy_price(self) -> float | None:
        """What a kWh costs: as it was given, else by the file of prices."""
        return self.price_table.kwh_price if self.kwh_price is None else self.kwh_price


@dataclass(frozen=True, kw_only=True)
class FleetRequest(GpuAssumptions, Window):
    """What shapes a fleet's report, with the options that ask for it.

    `one_job` takes all samples for the work of one job, `existing` says which GPUs exist when, and `command` asks the same.
    `where`, `job`, `user` and `host` choose a part of the fleet, whose numbers are those that the whole fleet's report has for it: every
    series is judged whole.
    """

    by: str | None = asked(
        "job, user, team, model, host, cluster, gpu, namespace or hour; sample, with --out FILE.parquet.",
        shown="job",
        suggested="ullage.reports.fleet.request:GROUPINGS",
    )
    where: str | None = asked(
        "Only a part of the fleet: 'user=ann and model=H100'; with or, not, parentheses, != and *.", metavar="CONDITION"
    )
    job: tuple[str, ...] = asked("Only this job. Repeatable.", (), metavar="JOB", repeated=True)
    user: tuple[str, ...] = asked("Only this user's jobs. Repeatable.", (), metavar="USER", repeated=True, minor=True)
    host: tuple[str, ...] = asked("Only this host. Repeatable.", (), metavar="HOST", repeated=True, minor=True)
    noise: bool = asked("Tell what sampling the clock costs (done by itself for fine series).", False, minor=True)
    one_job: bool = False
    existing: tuple[Listed, ...] = ()
    command: str = ""
    progress: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        """Refuse what makes no sense before anything is read: a key, a GPU or a peak that nobody knows."""
        from ullage.reports.fleet.where import names_team

        if self.by is not None and self.by not in GROUPINGS:
            raise UllageError(f"can't group by '{harmless(self.by)}'", did_you_mean(self.by, GROUPINGS, "ullage fleet --help"))
        super().__post_init__()
        if self.by == "team" and not self.price_table.teams:
            raise UllageError("no team is known to group by", _TEAMS)
        if names_team(self.condition()) and not self.price_table.teams:
            raise UllageError("no team is known to choose by", _TEAMS)

    def condition(self) -> Condition | None:
        """Return which part of the fleet is asked about; None: all of it. Raises UllageError for what can't be read."""
        if self.where is None and not (self.job or self.user or self.host):
            return None
        from ullage.reports.fleet.where import fleet_filter

        return fleet_filter(self.where, job=self.job, user=self.user, host=self.host)
