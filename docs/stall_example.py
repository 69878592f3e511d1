"""The samples that docs/stalls.md shows: two kernels, really compiled, with counts that are made up instruction by instruction.

`python docs/stall_example.py FILE.parquet` writes them, so that every command of the page can be tried without a GPU.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from ullage.cupti.pc_sampling.samples import SAMPLES, Facts, PcSamples
from ullage.cupti.stalls import PREFIX
from ullage.kernels.compiling import compile_cubin
from ullage.kernels.sass.instruction import Function, Instruction, loops
from ullage.kernels.sass.lines import disassemble_lined

ARCHITECTURE = "sm_90"
CRC = 0x5A11  # made up as well: the driver's own would be CUPTI's checksum
SOURCE = r"""
extern "C" __global__ void scale(float *out, const float *in, float factor, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = factor * in[i];
}

extern "C" __global__ void block_sum(float *out, const float *in) {
    __shared__ float part[256];
    part[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    #pragma unroll 1
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
"""
# What is said to be seen at an instruction, by its opcode: it is charged with the wait for its own operands.
SEEN = {
    "FMUL": {"long_scoreboard": 90, "selected": 6, "not_selected": 4},
    "FADD": {"short_scoreboard": 30, "selected": 4, "wait": 4},
    "STS": {"long_scoreboard": 400, "selected": 3},
    "STS in a loop": {"wait": 8, "selected": 3},
    "BAR": {"barrier": 36, "selected": 3},
    "STG": {"lg_throttle": 12, "selected": 3},
    "LDG": {"lg_throttle": 8, "selected": 4, "wait": 3},
    "LDS": {"mio_throttle": 6, "selected": 3},
    "BRA": {"branch_resolving": 3, "selected": 2},
}
OTHERS = {"selected": 1, "wait": 2}
IN_A_LOOP = 12  # times as many samples
SHOWN = "ullage cupti stalls step.parquet --kernel block_sum --top 3"  # what the page shows, and the picture
DRAWN = "ullage cupti stalls step.parquet --out step.svg"


def samples() -> PcSamples:
    """Return the samples of both kernels with their machine code. Raises UllageError without NVRTC or nvdisasm."""
    cubin = compile_cubin(SOURCE, ARCHITECTURE, ("-lineinfo",))
    rows = []
    for number, lined in enumerate(sorted(disassemble_lined(cubin), key=lambda one: one.function.name)):
        rows += [_row(number, lined.function, *one) for one in _counts(lined.function)]
    facts = Facts(chip="GH100", release="13.1", mode="continuous", cycles=2048, total=sum(row["samples"] for row in rows))
    return PcSamples(pa.Table.from_pylist(rows, SAMPLES), facts, {CRC: cubin})


def _counts(function: Function) -> list[tuple[Instruction, str, int]]:
    """Return how often each instruction of a function was seen in each state."""
    inside = {instruction.address for body in loops(function) for instruction in body}
    end = next(i.address for i in function.instructions if i.root == "EXIT" and not i.predicate)
    found = []
    for instruction in function.instructions:
        looped = instruction.address in inside
        seen = SEEN.get(instruction.root, OTHERS)
        seen = SEEN.get(f"{instruction.root} in a loop", seen) if looped else seen
        if instruction.address <= max(end, *inside):
            found += [(instruction, reason, count * (IN_A_LOOP if looped else 1)) for reason, count in seen.items()]
    return found


def _row(number: int, function: Function, instruction: Instruction, reason: str, count: int) -> dict[str, object]:
    return {
        "context": 0, "range": 1, "cubin": CRC, "function_index": number, "function": function.name, "pc": instruction.address,
        "correlation": 0, "reason_index": 0, "reason": PREFIX + reason, "samples": count,
    }  # fmt: skip


def made(command: str) -> str:
    """Return what a command line prints, or writes to its --out, in a folder with the samples as step.parquet."""
    import contextlib
    import shlex

    from click.testing import CliRunner

    from ullage.cli import cli

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        samples().write(Path("step.parquet"))
        words = shlex.split(command)[1:]
        result = CliRunner(env={"COLUMNS": "110"}).invoke(cli, words, catch_exceptions=False)
        return Path(words[words.index("--out") + 1]).read_text(encoding="utf-8") if "--out" in words else str(result.stdout)


def block(command: str) -> str:
    """Return a command line with what it prints, as the page shows it."""
    return f"```console\n$ {command}\n{made(command).rstrip()}\n```"


if __name__ == "__main__":
    samples().write(Path(sys.argv[1]))
