"""`ullage run` on PyTorch's ranks over gloo: what one waits for another on the host is communication."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorder.recorder_runs import read
from tests.recorder.run_runs import environment, record, run
from ullage.cupti.chunks import HostKind

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]
LATE = 0.4  # seconds by which one rank comes later than the other

SCRIPT = f"""
import time, torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
def together(rank):  # everything is loaded and connected
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    functional.all_reduce(x, "sum", dist.group.WORLD).sum().item()
    dist.barrier()
def late(rank, who):
    if rank == who: time.sleep({LATE})
def work():
    global x
    rank, x = dist.get_rank(), torch.ones(4)
    together(rank)
    late(rank, 1); dist.all_reduce(x); dist.barrier()                                               # rank 0 waits
    late(rank, 0); pending = dist.all_reduce(x, async_op=True); pending.wait(); dist.barrier()      # rank 1 waits
    late(rank, 1); functional.all_reduce(x, "sum", dist.group.WORLD).sum().item(); dist.barrier()   # rank 0 waits
    late(rank, 0); dist.barrier()                                                                   # rank 1 waits
    print("sum " + str(x[0].item()) + "\\n", end="", flush=True)  # in one piece: unbuffered, the ranks' words may mix
"""
LAUNCHED = SCRIPT + "dist.init_process_group('gloo'); work(); dist.destroy_process_group()\n"
SPAWNED = (
    SCRIPT
    + """
import os, sys, torch.multiprocessing as mp
def begin(rank, place):
    dist.init_process_group("gloo", init_method="file://" + place, rank=rank, world_size=2); work(); dist.destroy_process_group()
if __name__ == "__main__": mp.spawn(begin, (sys.argv[1],), nprocs=2)
"""
)


def waited(folder: Path) -> dict[int, list[tuple[str, float]]]:
    """What each rank did in torch.distributed for longer than a quarter of a second, after the group was there: names and seconds."""
    found = {}
    for path in folder.rglob("*.ullage"):
        recording = read(path)
        calls = [(name, (end - start) / 1e9) for kind, name, _, _, start, end, *_ in recording.host if kind == HostKind.MPI]
        begun = [name for name, _ in calls].index("barrier") + 1  # the first one: what came before it connects
        found[recording.info["rank"]] = [(name, length) for name, length in calls[begun:] if length > LATE / 2]
    return found


def check(ran, folder):
    assert ran.code == 0, ran.said
    # x is doubled by each all_reduce that works on it in place: 1 → 2 → 4, → 8 → 16 afterwards
    assert ran.out.decode().count("sum 16.0") == 2
    calls = waited(folder)
    assert [name for name, _ in calls[0]] == ["all_reduce", "wait_tensor"]
    assert [name for name, _ in calls[1]] == ["wait", "barrier"]
    # a sleep is never shorter than it is told to be; who waits comes a little later than who begins to sleep
    assert all(length > 0.9 * LATE for told in calls.values() for _, length in told)


def test_ranks_of_torchrun_wait_as_long_as_another_is_late(tmp_path):
    (tmp_path / "script.py").write_text(LAUNCHED)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "script.py"]
    ran, said = record(tmp_path, "--keep", "kept", command=torchrun)
    check(ran, tmp_path / "kept")
    assert [process["rank"] for process in said["processes"]] == [0, 1]
    assert all(process["communication_s"] > 2 * 0.9 * LATE for process in said["processes"])


def test_ranks_that_a_script_spawns_itself_tell_theirs(tmp_path):
    (tmp_path / "script.py").write_text(SPAWNED)
    ran = run(tmp_path, "--keep", "kept", command=[sys.executable, "script.py", tmp_path / "store"])
    check(ran, tmp_path / "kept")


def test_distributed_data_parallel_and_compiled_collectives_go_on_as_without_us(tmp_path):
    # the compiler looks through what times a function: with fullgraph it would refuse what it can't look through
    (tmp_path / "script.py").write_text(
        """
import os, sys, torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
torch.manual_seed(3)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
model(torch.ones(2, 4)).sum().backward()
def reduced(x): dist.all_reduce(x); return 2 * x
def functionally(x): return 2 * functional.all_reduce(x, "sum", dist.group.WORLD)
found = [torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3)).tolist() for f in (reduced, functionally)]
print(found, model.module.weight.grad.sum().item(), dist.all_reduce.__name__, dist.all_reduce.__module__)
"""
    )
    ran = run(tmp_path, "--keep", "kept", command=[sys.executable, "script.py", tmp_path / "ours"])
    alone = subprocess.run([sys.executable, "script.py", tmp_path / "alone"], cwd=tmp_path, capture_output=True, env=environment(tmp_path))
    assert ran.code == 0, ran.said
    assert ran.out == alone.stdout and b"[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]" in ran.out
    (path,) = (tmp_path / "kept").glob("*.ullage")
    assert {"init_process_group", "broadcast_coalesced"} <= set(read(path).did(HostKind.MPI))


def test_without_the_hook_nothing_of_pytorch_is_touched(tmp_path):
    (tmp_path / "script.py").write_text("import torch.distributed as dist; print(hasattr(dist.all_reduce, '_ullage'))\n")
    with_it = run(tmp_path, command=[sys.executable, "script.py"])
    without = run(tmp_path, "--no-python", command=[sys.executable, "script.py"])
    isolated = run(tmp_path, command=[sys.executable, "-I", "script.py"])
    assert (with_it.out, without.out, isolated.out) == (b"True\n", b"False\n", b"False\n")
