"""PTX to machine code by NVIDIA's ptxas: from PyPI's `nvidia-cuda-nvcc`, Triton's wheel, the toolkit, or the PATH."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from ullage.errors import UllageError, harmless
from ullage.kernels.sass.disassembler import LONGEST, tool


def assemble(ptx: str, architecture: str) -> bytes:
    """Return the cubin of a PTX program; raises UllageError without ptxas, and with its own words for what it refuses."""
    program = ptxas()
    if program is None:
        raise UllageError("compiling PTX needs ptxas, which was not found", "pip install nvidia-cuda-nvcc, or give the cubin")
    with tempfile.TemporaryDirectory(prefix="ullage-") as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, "utf-8", "replace")
        try:
            done = subprocess.run(
                [program, f"-arch={architecture}", str(source), "-o", str(result)], capture_output=True, timeout=LONGEST, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UllageError(f"ptxas did not end within {LONGEST} s", "give one kernel's PTX") from error
        if done.returncode == 0 and result.exists():
            return result.read_bytes()
    said = [line.replace(f"{source}, ", "") for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    raise UllageError(
        f"ptxas refuses the program for {architecture}: {harmless(said[0]) if said else 'no reason given'}",
        "\n  ".join(harmless(line) for line in said[1:4]) or "is it whole, and of a version that this ptxas knows?",
    )


@lru_cache(maxsize=1)
def ptxas() -> str | None:
    """Return the path of ptxas, None where there is none."""
    found = tool("ptxas")
    if found:
        return found
    triton = importlib.util.find_spec("triton")
    folders = triton.submodule_search_locations or () if triton else ()
    bundled = [Path(folder, "backends", "nvidia", "bin", "ptxas") for folder in folders]
    return next((str(path) for path in bundled if path.exists()), None)
