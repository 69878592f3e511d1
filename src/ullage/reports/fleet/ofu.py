"""Two questions that need little: OFU of a fleet as one number, and the telemetry tree of every job.

They read only the columns that they need, and give what the fleet report gives, less the judging of series: all count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ullage.reports.fleet.groups import Group, groups_of, state_sums
from ullage.reports.fleet.prices import PriceTable, row_prices
from ullage.reports.fleet.rated import losses, rate, weighted_mean
from ullage.sums.devices import OFU, TREE, chosen_sums
from ullage.sums.held import empty


def fleet_ofu(samples: Any, model: str | None = None) -> float | None:
    """Return OFU over all settled samples (an Ibis table of `tables.SETTLED`): `FleetReport.ofu_all`; None when nothing has it.

    `model` names the GPU where the samples don't.
    """
    # a device is looked at on its own only where it must be: MIG instances weigh less, and how cycles are counted is a device's own
    if empty(samples, "mig") and empty(samples, "tensor_cycles_delta"):
        sums = chosen_sums(samples, ("mig", "model"), OFU).to_pyarrow()
        for name in set(TREE) - set(OFU):  # what was not asked is not divided either
            sums = sums.append_column(name, pa.array(np.zeros(len(sums))))
        rated = rate(sums, model)
    else:
        rated = rate(state_sums(samples, [], only=TREE), model)
    return weighted_mean(rated.ofu_part, rated.ofu_time, rated.weight)


def job_trees(samples: Any, model: str | None = None) -> list[Group]:
    """Return each job's OFU and telemetry tree over all settled samples, the most GPU-hours short of full first."""
    rated = rate(state_sums(samples, [], only=TREE), model)
    return groups_of(rated, np.ones(len(rated), np.bool_), losses(rated), "job", row_prices(rated, PriceTable()))
