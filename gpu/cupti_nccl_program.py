"""A program that knows nothing of the recorder: it sums tensors over all GPUs that it sees by NCCL, in one process."""

from __future__ import annotations

import importlib
from typing import Any

from gpu.apart import tell

ROUNDS = 50
COUNT = 1 << 20  # elements of a tensor


def main() -> None:
    """Sum so many times, and tell how many GPUs took part and which NCCL it was."""
    torch: Any = importlib.import_module("torch")
    nccl: Any = importlib.import_module("torch.cuda.nccl")
    gpus = torch.cuda.device_count()
    tensors = [torch.ones(COUNT, device=f"cuda:{number}") for number in range(gpus)]
    for _ in range(ROUNDS):
        nccl.all_reduce(tensors)
    for number in range(gpus):
        torch.cuda.synchronize(number)
    tell(gpus=gpus, rounds=ROUNDS, nccl=list(nccl.version()))
