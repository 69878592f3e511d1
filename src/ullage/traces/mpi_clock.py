"""TALP's clock, whatever the source: it runs from when MPI_Init returned to when MPI_Finalize was called (dlb, `talp_mpi_init` and
`talp_mpi_finalize`), so these two are neither communication nor part of the run.

Readers note both in `Recording.mpi_clock`; `ullage.sums.lanes.observed` cuts what was observed of a process at them.
"""

from __future__ import annotations

import re
from typing import Literal

_BEGINS = re.compile(r"^P?MPI_(Session_)?Init(_thread)?$", re.IGNORECASE)
_ENDS = re.compile(r"^P?MPI_(Session_)?Finalize$", re.IGNORECASE)


def edge(name: str) -> Literal["init", "finalize", ""]:
    """Return which edge of MPI's clock a call is, "" for any other.

    >>> edge("MPI_Init_thread"), edge("PMPI_Finalize"), edge("MPI_Initialized")
    ('init', 'finalize', '')
    """
    return "init" if _BEGINS.match(name) else "finalize" if _ENDS.match(name) else ""
