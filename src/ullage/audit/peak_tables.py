"""Somebody's table of peaks as rows: from Python source, JSON, YAML-like lines or `name=value`. Nothing of it is executed.

Python is read as a syntax tree: dictionaries of literals whose keys name GPUs (nested by precision either way), arithmetic of
constants among the values, and what a lookup falls back to (`.get(name, float("inf"))`, `flops = float("inf")`).
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ullage.errors import UllageError, harmless
from ullage.gpus.chip import find
from ullage.gpus.names import LONGEST
from ullage.gpus.precision import canonical
from ullage.written_values import expanded_path

LARGEST: Final = 4 << 20  # bytes of a file
_MOST_ROWS: Final = 2_000
_DEEPEST: Final = 50

# The FP32 of ordinary cores has no tensor peak, and TF32 is another precision than the FP32 of a table.
_PLAIN: Final = frozenset({"fp32", "float32", "float", "single"})
_NAMES: Final = ("name", "gpu", "device", "device_name", "model", "chip")
_ELSEWHERE: Final = re.compile(
    r"memory|(?:^|_)mem(?:_|$)|bandwidth|(?:^|_)bw(?:_|$)|power|tdp|watt|price|cost|capab|sm_?count|clock|vram", re.IGNORECASE
)
_FIGURE: Final = re.compile(r"peak|flop|promised", re.IGNORECASE)
_SPARSE: Final = re.compile(r"spars", re.IGNORECASE)
FALLBACK_NAMES: Final = frozenset({"", "*", "default", "unknown", "other", "others", "fallback", "else", "none", "any"})

_VALUE: Final = re.compile(
    r"^[\"']?\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?|[+-]?\.?inf(?:inity)?|\.?nan|none|null|~)\s*([kmgtpe]?flops?(?:/s)?|[kmgtpe]ops(?:/s)?)?\s*[\"']?$",
    re.IGNORECASE,
)
_UNITS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}


@dataclass(frozen=True)
class PeakRow:
    """A row of a table: the name and number as written, the precision where it says one, and where it stands.

    `unit` is the factor to FLOP/s where a unit is written; the number is NaN for None. `key` is False for what is no name of
    the table but what a lookup falls back to.
    """

    name: str
    number: float
    precision: str | None = None
    where: str = ""
    unit: float | None = None
    key: bool = True


def rows(given: Iterable[str]) -> list[PeakRow]:
    """Return the rows of files and of `name=value` arguments. Raises UllageError for what can't be read or holds no row."""
    found: list[PeakRow] = []
    for text in given:
        path = expanded_path(text)
        if _is_file(path):
            found += _file(path)
        elif "=" in text:
            row = _line_row(text.rpartition("=")[0], text.rpartition("=")[2], ())
            if row is None:
                raise UllageError(f"'{harmless(text, 80)}' is not NAME=VALUE", "write 'H100 PCIe=756', in TFLOP/s or FLOP/s")
            found.append(row)
        else:
            raise UllageError(f"there is no file '{harmless(text, 200)}'", "give a file with a table of peaks, or name=value")
        if len(found) > _MOST_ROWS:
            raise _too_many()
    return found


def _too_many() -> UllageError:
    return UllageError(f"the table has more than {_MOST_ROWS:,} rows", "give the table of peaks alone")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _file(path: Path) -> list[PeakRow]:
    try:
        size = path.stat().st_size
        text = path.read_bytes()[: LARGEST + 1].decode("utf-8-sig", "replace") if size <= LARGEST else ""
    except OSError as error:
        raise UllageError(f"{harmless(str(path))} can't be read: {error.strerror or error}") from error
    if size > LARGEST:
        raise UllageError(f"{harmless(path.name)} is larger than {LARGEST >> 20} MiB", "give the file of the table alone")
    readers = {".py": (_python,), ".json": (_json,)}.get(path.suffix.lower(), (_json, _lines, _python))
    for number, reader in enumerate(readers, 1):
        try:
            found = list(islice(reader(text), _MOST_ROWS + 1))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if number == len(readers):
                raise UllageError(
                    f"{harmless(path.name)} can't be read: {harmless(str(error).replace('(<unknown>, ', '('))}",
                    "give Python, JSON or name=value lines",
                ) from error
            continue
        if any(row.key for row in found):
            return found
    hint = "a table is a dictionary of GPU names to numbers, or lines name=value"
    raise UllageError(f"{harmless(path.name)} holds no table of peaks", hint)


# --- paths of keys to rows ---


def precision_named(word: str) -> str | None:
    """Return the precision that a key names ("torch.bfloat16", "bf16_tflops"), "fp32" for that of ordinary cores, else None.

    >>> precision_named("torch.bfloat16"), precision_named("fp8_dense"), precision_named("float32"), precision_named("H100")
    ('bf16', 'fp8', 'fp32', None)
    """
    parts = [part for part in re.split(r"[^a-z0-9]+", word.lower()[:LONGEST]) if part]
    for part in parts:
        if part in _PLAIN:
            return "fp32"
        try:
            return canonical(part)
        except UllageError:
            continue
    return None


@lru_cache(4096)  # each row asks for its name twice or thrice, and each time is a search among all GPUs
def known(name: str) -> bool:
    """Return whether a name is that of one or several known GPUs."""
    try:
        find(name)
    except UllageError as error:
        return "may be any of" in error.problem
    return True


def _row(path: tuple[str, ...], number: float, where: str, unit: float | None = None) -> PeakRow | None:
    """Return the row of a number under a path of keys; None where the path says that it is another quantity, or sparse by name."""
    other = [word for word in path if not known(word)]
    if any(_ELSEWHERE.search(word) or _SPARSE.search(word) for word in other):
        return None
    precision = next((p for p in map(precision_named, reversed(path)) if p), None)
    words = [word for word in path if word not in other or not (precision_named(word) or _FIGURE.search(word) or word.lower() == "dense")]
    whole = [" ".join(words[start:]) for start in range(len(words))]
    name = next((name for name in whole if known(name)), None)
    if name is None and any(known(word) for word in words):  # "sms" of an H100
        return None
    return PeakRow((name if name is not None else " ".join(words))[:LONGEST], number, precision, where, unit)


def _table(found: list[PeakRow]) -> list[PeakRow]:
    """Return the rows when they are a table of peaks: at least one names a GPU."""
    if len(found) > _MOST_ROWS:  # each name costs a search among all GPUs
        raise _too_many()
    return found if any(known(row.name) for row in found) else []


# --- JSON and lines ---


def _json(text: str) -> Iterator[PeakRow]:
    if text.lstrip()[:1] not in ("{", "["):
        raise ValueError("it does not begin like JSON")
    yield from _table(list(islice(_values(json.loads(text), (), 0), _MOST_ROWS + 1)))


def _values(read: Any, path: tuple[str, ...], depth: int) -> Iterator[PeakRow]:
    if depth > _DEEPEST:
        return
    if isinstance(read, Mapping):
        named = next((str(read[name]) for name in _NAMES if isinstance(read.get(name), str)), None)
        inner = path if named is None else (*path, named)
        dtype = next((str(read[name]) for name in ("dtype", "precision") if isinstance(read.get(name), str)), None)
        for name, value in read.items():
            yield from _values(value, (*inner, *(() if dtype is None else (dtype,)), str(name)), depth + 1)
    elif isinstance(read, list):
        for value in read:
            yield from _values(value, path, depth + 1)
    elif path and (read is None or (isinstance(read, int | float) and not isinstance(read, bool))):
        row = _row(path, _float(read), "")
        if row is not None:
            yield row


def _float(value: float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf


def _lines(text: str) -> Iterator[PeakRow]:
    """Yield the rows of `name: value` or `name=value` lines; a name without a value heads the lines indented below it."""
    stack: list[tuple[int, str]] = []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = _parts(line[:1000])
        if parts is None:
            continue
        depth, name, value = parts
        while stack and stack[-1][0] >= depth:
            stack.pop()
        if not value:
            stack.append((depth, name))
            continue
        row = _line_row(name, value, tuple(word for _, word in stack), f"line {number:,}")
        if row is not None:
            found.append(row)
        if len(found) > _MOST_ROWS:
            break
    yield from _table(found)


def _parts(line: str) -> tuple[int, str, str] | None:
    """Return the indentation, name and value of a line; None for a line that has none.

    >>> _parts("  'H100 PCIe': 756,  # dense")
    (2, 'H100 PCIe', '756')
    """
    body = line.partition("#")[0].rstrip().expandtabs()
    found = re.search(r"[:=]", body)
    if found is None:
        return None
    name = body[: found.start()].strip().removeprefix("- ").strip(" \"'")
    return len(body) - len(body.lstrip()), name, body[found.end() :].strip().rstrip(",").rstrip()


def _line_row(name: str, value: str, path: tuple[str, ...], where: str = "") -> PeakRow | None:
    match = _VALUE.match(value.strip())
    if match is None:
        return None
    word = match[1].lower().lstrip("+.") if match[1].lower().lstrip("+-.")[:1].isalpha() else match[1]
    number = math.nan if word in ("none", "null", "~", "nan") else float(word.replace("-.", "-").replace(",", "").replace("_", ""))
    unit = None if match[2] is None else _UNITS[match[2][0].lower() if match[2][0].lower() not in "fo" else ""]
    return _row((*path, name.strip().strip("\"'")), number, where, unit)


# --- Python ---


def _python(text: str) -> Iterator[PeakRow]:
    tree = ast.parse(text)
    constants = _constants(tree)
    inner = {id(value) for node in ast.walk(tree) if isinstance(node, ast.Dict) for value in node.values}
    names = {id(value): target for target, value in _assigned(tree)}
    tables = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and id(node) not in inner:
            title = names.get(id(node), "")
            found = _table(list(_dictionary(node, _title(title), constants, 0)))
            if found:
                tables.add(title)
            yield from found
    yield from _fallbacks(tree, tables, constants)


def _title(name: str) -> tuple[str, ...]:
    """Return what the name of a table says of all its rows: a precision, or that it is no table of peaks."""
    return (name,) if precision_named(name) or _ELSEWHERE.search(name) else ()


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if value is not None and isinstance(target, ast.Name | ast.Attribute):
                yield (target.id if isinstance(target, ast.Name) else target.attr), value


def _constants(tree: ast.Module) -> dict[str, float]:
    """Return the module's names for numbers, such as TERA = 1e12."""
    found: dict[str, float] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _number(node.value, found)
            if value is not None:
                found[node.targets[0].id] = value
    return found


def _dictionary(node: ast.Dict, path: tuple[str, ...], constants: Mapping[str, float], depth: int) -> Iterator[PeakRow]:
    if depth > _DEEPEST:
        return
    if len(node.keys) > _MOST_ROWS:
        raise _too_many()
    pairs = [(words, value) for key, value in zip(node.keys, node.values, strict=True) if (words := _key(key))]
    named = [str(value.value) for words, value in pairs if words[-1] in _NAMES and isinstance(value, ast.Constant) and value.value]
    path = (*path, *named[:1])
    for words, value in pairs:
        if isinstance(value, ast.Dict):
            yield from _dictionary(value, (*path, *words), constants, depth + 1)
            continue
        none = isinstance(value, ast.Constant) and value.value is None
        number = math.nan if none else _number(value, constants)
        row = None if number is None else _row((*path, *words), number, f"line {value.lineno:,}")
        if row is not None:
            yield row


def _key(node: ast.expr | None) -> tuple[str, ...] | None:
    """Return the words of a key: a string, `torch.bfloat16`, or a tuple of such."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    if isinstance(node, ast.Tuple):
        parts = [_key(part) for part in node.elts]
        return tuple(word for part in parts if part for word in part) if all(parts) else None
    return None


def _number(node: ast.expr, constants: Mapping[str, float], depth: int = 0) -> float | None:
    """Return the value of a number, of arithmetic with numbers, or of an infinity; None for anything else."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Constant):
        return _float(node.value) if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.Name):
        return math.inf if node.id == "inf" else constants.get(node.id)
    if isinstance(node, ast.Attribute):
        return {"inf": math.inf, "nan": math.nan}.get(node.attr)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _number(node.operand, constants, depth + 1)
        return value if value is None or isinstance(node.op, ast.UAdd) else -value
    if isinstance(node, ast.Call):
        return _converted(node)
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left, constants, depth + 1), _number(node.right, constants, depth + 1)
        return None if left is None or right is None else _arithmetic(node.op, left, right)
    return None


def _converted(node: ast.Call) -> float | None:
    """Return the value of float("inf") and its like."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant)):
        return None
    try:
        return float(str(node.args[0].value)[:40])
    except ValueError:
        return None


def _arithmetic(operator: ast.operator, left: float, right: float) -> float | None:
    try:
        if isinstance(operator, ast.Mult):
            return left * right
        if isinstance(operator, ast.Div):
            return left / right
        if isinstance(operator, ast.Pow):
            return left**right if abs(right) <= 400 and left > 0 else None
        if isinstance(operator, ast.Add):
            return left + right
        return left - right if isinstance(operator, ast.Sub) else None
    except (ZeroDivisionError, OverflowError):
        return None


def _fallbacks(tree: ast.Module, tables: set[str], constants: Mapping[str, float]) -> Iterator[PeakRow]:
    """Yield what a lookup falls back to: the default of `TABLE.get`, or a peak set to infinity, 0 or less."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and len(node.args) == 2:
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            number = _number(node.args[1], constants)
            if name and name in tables and number is not None:
                yield PeakRow(f"{name}.get(…)", number, None, f"line {node.lineno:,}", key=False)
    for name, value in _assigned(tree):
        number = _number(value, constants)
        if number is None or not _FIGURE.search(name):
            continue
        if math.isinf(number) or number < 0 or (number == 0 and "peak" in name.lower()):  # a sum of FLOPs begins at 0
            yield PeakRow(f"{name} = {number:g}", number, None, f"line {value.lineno:,}", key=False)
