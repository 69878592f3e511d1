"""The program that trains a small network in PyTorch, with regions and NVTX ranges, then does things that can be counted."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from gpu.apart import tell
from ullage.live.regions import region

WIDTH, DEPTH, ROWS = 1024, 8, 512
STEPS, WARM = 20, 3
ADDS, NODES, REPLAYS = 1000, 10, 20
PHASES = ("forward", "backward", "optimizer")
COUNTED, IN_GRAPH = "erfinv", "sinh_kernel"  # in the names of kernels that nothing else here launches
Step = Callable[[], Any]


def main() -> None:
    """Train, then count."""
    torch: Any = importlib.import_module("torch")
    step = stepper(torch, torch.cuda.nvtx.range)
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    tell(steps=STEPS, tree=region("step").tree().json(), forward=region("forward").tree().json())
    tell(counted=counted(torch), replayed=replayed(torch))


def network(torch: Any, width: int = WIDTH, depth: int = DEPTH) -> Any:
    """Return a network of so many blocks, on the GPU."""
    nn = torch.nn
    layers = []
    for _ in range(depth):
        layers += [nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)]
    return nn.Sequential(*layers).to("cuda", torch.bfloat16)


def stepper(
    torch: Any, mark: Callable[[str], AbstractContextManager[Any]], rows: int = ROWS, width: int = WIDTH, depth: int = DEPTH
) -> Step:
    """Return a function that does one training step, in regions; `mark` makes a range of another kind around the forward pass."""
    torch.manual_seed(0)
    model = network(torch, width, depth)
    data = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> Any:
        with region("step"):
            with region(PHASES[0]), mark("nvtx forward"):
                loss = (model(data) - data).float().square().mean()
            with region(PHASES[1]):
                loss.backward()
            with region(PHASES[2]):
                optimizer.step()
                optimizer.zero_grad()
        return loss

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    return step


def counted(torch: Any) -> int:
    """Launch one kernel after the other; return how many."""
    some = torch.rand(4096, device="cuda")
    result = torch.empty_like(some)
    torch.cuda.synchronize()
    with region("counted"):
        for _ in range(ADDS):
            torch.erfinv(some, out=result)
        torch.cuda.synchronize()
    return ADDS


def replayed(torch: Any) -> int:
    """Replay a graph of kernels; return how many kernels that were, with the one that came before."""
    some = torch.rand(4096, device="cuda")
    result = torch.empty_like(some)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.sinh(some, out=result)  # loads the kernel before anything is captured
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(NODES):
            torch.sinh(some, out=result)
    with region("graph"):
        for _ in range(REPLAYS):
            graph.replay()
        torch.cuda.synchronize()
    return NODES * REPLAYS + 1
