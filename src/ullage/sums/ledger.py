"""The ledger: every GPU-second has exactly one owner, so that the owners add up to the time for which each GPU exists.

- `job`: one job held the device, and the device did something
- `shared`: several jobs held it at once; counters can't tell whose the work was
- `held_idle`: one job held it, and nothing ran on it
- `free`: nobody held it, and nothing ran
- `not_sliced`: the part of a GPU in MIG mode of which no instance was made
- `unknown`: nobody told (no sample for that time), or something ran and no job is known for it

Whose a sample is, is decided for each sample (`owner`): what held a device a minute ago says nothing of this one.
"""

from __future__ import annotations

from typing import Any

OWNERS = ("job", "shared", "held_idle", "free", "not_sliced", "unknown")
CODES = {name: code for code, name in enumerate(OWNERS)}


def owner(held: Any, several: Any, idle: Any, unsliced: Any) -> Any:
    """Return the code of each sample's owner, as an Ibis expression over conditions; a plain True or False holds for every sample.

    `held`: a job is named; `several`: more than one is; `idle`: every gauge says that nothing ran; `unsliced`: it is no sample but the
    rest of a sliced GPU.
    """
    found = _either(idle, CODES["free"], CODES["unknown"])
    alone = _either(idle, CODES["held_idle"], CODES["job"])
    found = _either(held, _either(several, CODES["shared"], alone), found)
    return _either(unsliced, CODES["not_sliced"], found)


def _either(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, bool):
        return yes if condition else no
    import ibis

    return condition.ifelse(_literal(yes, ibis), _literal(no, ibis))


def _literal(value: Any, ibis: Any) -> Any:
    return ibis.literal(value, "int8") if isinstance(value, int) else value
