"""A cubin's instructions, by NVIDIA's nvdisasm: from PyPI's `nvidia-cuda-nvdisasm`, the toolkit, or the PATH."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, harmless, missing_extra
from ullage.kernels.sass.instruction import Function, Instruction

STEP = 16  # bytes of an instruction, Volta and later
LONGEST = 120  # seconds


def disassemble(cubin: bytes) -> list[Function]:
    """Return the functions of a cubin (an ELF image for one architecture), in the order of the file.

    Raises UllageError without nvdisasm, and for what it can't read.
    """
    found = written(cubin)
    try:
        head, functions = found
        version = head["SM"]["version"]
        architecture = f"sm_{version['major']}{version['minor']}"
        return [_function(one, architecture) for one in functions]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        said = harmless(str(error), 100)
        raise UllageError(f"nvdisasm writes a form that is not known here ({said})", "tell us its version: `nvdisasm --version`") from error


def _function(found: dict[str, Any], architecture: str) -> Function:
    rows = enumerate(found["sass-instructions"])
    return Function(
        str(found["function-name"]),
        architecture,
        tuple(Instruction(STEP * n, str(row["opcode"]), str(row.get("operands", "")), str(row.get("predicate", ""))) for n, row in rows),
    )


def written(cubin: bytes, options: Sequence[str] = ()) -> Any:
    """Return what nvdisasm writes of a cubin as JSON, with further options. Raises UllageError as `disassemble` does, or TooSlow."""
    tool = nvdisasm()
    with tempfile.TemporaryDirectory(prefix="ullage-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        try:
            done = subprocess.run([tool, "-json", *options, str(path)], capture_output=True, timeout=LONGEST, check=False)
        except subprocess.TimeoutExpired as error:
            raise TooSlow(f"nvdisasm did not end within {LONGEST} s", "is it a very large cubin? give one kernel's") from error
        except OSError as error:
            raise UllageError(f"nvdisasm can't be run: {error.strerror}", f"is {harmless(tool)} a program of this machine's?") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        for named in (f"'{path}'", f"File {path}", str(path)):
            said = said.replace(named, "it")
        first = said.strip().splitlines()[:1]
        raise UllageError(
            f"nvdisasm can't read this cubin: {harmless(first[0]) if first else 'no reason given'}", "is it a cubin, and not damaged?"
        )
    try:
        return json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise UllageError("nvdisasm gives no JSON", "update it: pip install -U nvidia-cuda-nvdisasm") from error


class TooSlow(UllageError):  # noqa: N818 - an error of its own only to be told apart
    """A cubin on which nvdisasm spends more time than anybody waits."""


@lru_cache(maxsize=1)
def nvdisasm() -> str:
    """Return the path of nvdisasm; raises UllageError where there is none."""
    found = tool("nvdisasm")
    if found is None:
        raise missing_extra("nvidia-cuda-nvdisasm", "kernels", "disassembling kernels")
    return found


def tool(name: str) -> str | None:
    """Return the path of one of CUDA's binary tools, by PyPI's packages first, then the PATH; None where there is none."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob(f"*/bin/{name}")):
            return str(path)
    return shutil.which(name)
