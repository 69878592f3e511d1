"""One class name for one concept: no two public classes of the project are called alike, but for those listed here.

A trainer's adapter also has the name that its users look for (`ullage.adapters.lightning.MfuCallback`,
`ullage.adapters.verl_omni.DiffusionFlopsCounter`): another name for a class that has its own.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "ullage"
# Names that stand twice for a reason.
REPEATED = ""


def public_classes() -> Counter[str]:
    """Return how many classes of the package have each name; private ones are their module's own."""
    found: Counter[str] = Counter()
    for module in SOURCE.rglob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        found.update(node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    return found


def test_no_class_name_stands_twice_but_those_that_are_listed() -> None:
    repeated = {name for name, count in public_classes().items() if count > 1}
    assert sorted(repeated - set(REPEATED.split())) == [], "give the new class a name of its own"
    assert sorted(set(REPEATED.split()) - repeated) == [], "stands for one class now: take it out of the list"
