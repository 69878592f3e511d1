"""Write the table of MPI's calls that the recorder wraps: `src/ullage/cupti/native/mpi_calls.h`.

The names come from the MPI Forum's own description of the standard (4.1), as the package pympistandard carries it; nothing else of it
is kept. What is decided here is which calls are recorded: all that may communicate, wait or do I/O, and all that every rank has to call.
The others (queries, types, handles, MPI_Wtime) come back at once and stay untouched: to time them would take longer than they do.

    pip install pympistandard==0.2.0
    python tools/mpi_calls.py            # writes the table
    python tools/mpi_calls.py --check    # only says whether it is what this would write
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HEADER = Path(__file__).parent.parent / "src" / "ullage" / "cupti" / "native" / "mpi_calls.h"
PACKAGE, GET_IT = "pympistandard", "pip install pympistandard==0.2.0"
WORDS, WIDTH = 16, 140  # what a shim of mpi.c passes on; a line of C
ROLES = {"Init": "BEGINS", "Init_thread": "BEGINS", "Finalize": "ENDS", "Session_finalize": "ENDS", "Abort": "ABORTS"}

LOCAL = re.compile(
    r"""(T|Type|Info|Op|Group|Errhandler|Error|Status|Attr|Keyval|Message|Abi|Aint|Grequest)_.*
    |(Add|Remove)_error_.*|.*_(c2f|f2c|fromint|toint|errhandler|keyval|attr)|(Comm|Win)_[gs]et_name|(Comm|Win|File|Session)_get_info|Comm_(rank|size|remote_size|group|remote_group|compare|test_inter|get_parent)
    |Cart_(coords|get|rank|shift)|(Cart|Graph)dims?_get|Graph_get|(Dist_g|G)raph_neighbors(_count)?|Dims_create|Topo_test
    |Address|Get_(address|count|elements|elements_x|hw_resource_info|library_version|processor_name|version)
    |(Alloc|Free)_mem|Pack(_.*)?|Unpack(_.*)?|Buffer_attach|(Comm|Session)_attach_buffer|Session_get_(nth_pset|num_psets|pset_info)
    |Win_(attach|detach|get_group|shared_query)|File_get_(amode|atomicity|byte_offset|group|position|type_extent|view)|File_seek
    |Request_free|Reduce_local|(Open|Close)_port|Pcontrol|Register_datarep|W(time|tick)|Initialized|Finalized|Is_thread_main|Query_thread
    |Test_cancelled|Sizeof|F_sync_reg""",
    re.VERBOSE,
)
# Of MPI 1, gone since MPI 3; libraries go on exporting them.
REMOVED = """Address Errhandler_create Errhandler_get Errhandler_set Type_extent Type_hindexed Type_hvector Type_lb Type_struct Type_ub"""


class Call(NamedTuple):
    """A call of MPI by its name without "MPI_", and whether it has a form with large counts."""

    name: str
    large: bool


def main() -> int:
    """Write the table, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if the table is not up to date")
    check = parser.parse_args().check
    text = header(calls(standard()))
    if not check:
        HEADER.write_text(text)
    elif HEADER.read_text() != text:
        sys.exit(f"{HEADER.name} is not what this tool writes: run it without --check")
    return 0


def standard() -> dict[str, Any]:
    """Return the standard's calls as the package describes them. The file is read, not the package imported: it needs nothing of it."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"{PACKAGE} is not installed: {GET_IT}")
    described: dict[str, Any] = json.loads(Path(found.submodule_search_locations[0], "data", "apis.json").read_text())
    return described


def calls(described: dict[str, Any]) -> list[Call]:
    """Return all calls by name; functions that a program defines (callbacks) are none."""
    found = {name: Call(name, large=False) for name in REMOVED.split()}
    for one in described.values():
        if not one["attributes"]["callback"] and one["attributes"]["predefined_function"] is None:
            call = Call(one["name"].removeprefix("MPI_"), any(word["kind"].startswith("POLY") for word in one["parameters"]))
            assert is_local(call.name) or words(one) <= WORDS, call
            found[call.name] = call
    return sorted(found.values())


def words(one: dict[str, Any]) -> int:
    """Return how many words the longest form of a call is passed: Fortran's has the lengths of its strings too."""
    return sum(1 + word["kind"].startswith("STRING") for word in one["parameters"]) + 1


def is_local(name: str) -> bool:
    """Return whether a call comes back at once whatever other processes do, so that it is not recorded.

    >>> is_local("Comm_rank"), is_local("Comm_dup"), is_local("Get_count"), is_local("Get"), is_local("Win_set_info")
    (True, False, True, False, False)
    """
    return LOCAL.fullmatch(name) is not None


def header(table: list[Call]) -> str:
    """Return the table as C: one macro for each group, X(Send, send, role)."""
    recorded = [call for call in table if not is_local(call.name)]
    return (
        "/* The calls of MPI 4.1, written by tools/mpi_calls.py. X(as in C, as in Fortran, what is done beside timing).\n"
        " * Those with large counts have forms of their own for them; those that are local are not wrapped, and named to be complete. */\n"
        + macro("MPI_PLAIN", (entry(call.name) for call in recorded if not call.large))
        + macro("MPI_LARGE", (entry(call.name) for call in recorded if call.large))
        + macro("MPI_LOCAL", (f"X({call.name})" for call in table if is_local(call.name)))
    )


def entry(name: str) -> str:
    """Return a call that is wrapped as an entry of the table."""
    return f"X({name}, {name.lower()}, {ROLES.get(name, 'TIMED')})"


def macro(name: str, entries: Iterator[str]) -> str:
    """Return a macro that names its entries, on lines that don't break them."""
    whole = " ".join(one.replace(" ", "~") for one in entries)  # none is broken
    lines = [f"#define {name}(X)", *(f"    {line}".replace("~", " ") for line in textwrap.wrap(whole, WIDTH - 8))]
    return " \\\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
