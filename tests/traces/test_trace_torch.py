"""Profiles that today's PyTorch writes: a training loop, two ranks over gloo, a rank that sleeps; read by all that reads traces.

Lengths are compared with what a sleep guarantees: it never ends early, so it bounds times from below.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ullage[trainers]'")

from ullage import read_trace

STEPS, SLEEP, LATE = 3, 0.02, 0.25

LOOP = f"""
import sys, time
from pathlib import Path
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

folder = Path(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(ready, **asked):
    plan = schedule(wait=1, warmup=1, active={STEPS}, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready, **asked) as profiler:
        for _ in range(2 + {STEPS}):
            with record_function("data"):
                time.sleep({SLEEP})
            with record_function("forward"):
                loss = model(torch.randn(8, 64)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()

for name in ("plain.json", "packed.json.gz"):
    train(lambda profiler: profiler.export_chrome_trace(str(folder / name)))
train(tensorboard_trace_handler(str(folder / "board")))
everything = dict(with_stack=True, record_shapes=True, profile_memory=True, with_modules=True)
train(lambda profiler: profiler.export_chrome_trace(str(folder / "all.json")), **everything)
"""

RANKS = f"""
import sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

def reduce(rank, tensor):
    for _ in range({STEPS}):
        with record_function("late" if rank else "prompt"):
            time.sleep({LATE} if rank else 0.001)
        dist.all_reduce(tensor)
    dist.barrier()
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    dist.broadcast(tensor, 0)

def train(rank, model):
    for _ in range(2):
        model(torch.randn(64, 512)).square().mean().backward()
        model.zero_grad()

def recorded(path, work, *given, **asked):
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU], **asked) as profiler:
        dist.barrier()
        work(*given)
        dist.barrier()
    profiler.export_chrome_trace(str(path))

def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{{folder}}/store", rank=rank, world_size=2)
    recorded(Path(folder) / "reduce" / f"{{rank}}.json", reduce, rank, torch.ones(1000), record_shapes=True)
    model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]), bucket_cap_mb=1)
    recorded(Path(folder) / "ddp" / f"{{rank}}.json", train, rank, model)
    dist.destroy_process_group()

if __name__ == "__main__":
    for name in ("reduce", "ddp"):
        (Path(sys.argv[1]) / name).mkdir()
    torch.multiprocessing.spawn(main, (sys.argv[1],), 2)
"""


def made(folder: Path, code: str) -> Path:
    script = folder / "program.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    return made(tmp_path_factory.mktemp("loop"), LOOP)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return made(tmp_path_factory.mktemp("ranks"), RANKS)


# --- one process ---


@pytest.mark.parametrize("name", ["plain.json", "packed.json.gz", "board", "all.json"])
def test_a_training_loop_has_its_steps_and_regions_however_it_is_exported(loop, name):
    report = read_trace(loop / name).report()
    assert [step.name for step in report.steps] == [f"ProfilerStep#{2 + n}" for n in range(STEPS)]
    regions = {region.name: region.elapsed / 1e9 for region in report.regions}
    assert {"data", "forward", "Optimizer.step#SGD.step"} <= set(regions)
    # the run begins with its first operator, so what the first step slept before that doesn't count
    assert (STEPS - 1) * SLEEP <= regions["data"] <= report.whole.elapsed / 1e9
    assert report.whole.host.value == 1 and report.whole.device is None and not report.partial and report.notes == ()


def test_the_window_of_steps_holds_all_that_they_slept(loop):
    run = read_trace(loop / "plain.json", window="steps")
    steps = [step["elapsed_s"] for step in run.rows("step")]
    assert len(steps) == STEPS and all(step >= SLEEP for step in steps)
    assert STEPS * SLEEP <= sum(steps) <= run.report().whole.elapsed / 1e9


# --- two ranks ---


def test_two_ranks_over_gloo_are_known_and_all_their_collectives_matched(ranks):
    report = read_trace(ranks / "reduce").report()
    assert [p.process.rank for p in report.whole.host_parts] == [0, 1]
    # the all-reduces and three barriers; broadcast, send and receive need not end together
    assert report.late.collectives == STEPS + 3
    # both ran on one host, and so by one clock: nothing is to be aligned
    assert not any("clocks were aligned" in note or "not matched" in note for note in report.notes), report.notes


def test_bytes_are_those_of_the_tensor(ranks):
    captures = read_trace(ranks / "reduce").profile.run.captures
    for capture in captures:
        sizes = sorted(capture.collectives.bytes.tolist())
        assert sizes == [-1] * 3 + [4000] * STEPS  # 1000 floats; a barrier has none


def test_a_rank_that_sleeps_is_named_and_so_is_what_it_costs_the_other(ranks):
    run = read_trace(ranks / "reduce")
    worst = run.report().late.stragglers[0]
    # it sleeps 0.25 s before each all-reduce where the other sleeps 1 ms
    assert worst.label == "rank 1" and worst.last >= STEPS and worst.lost / 1e9 >= STEPS * (LATE - 0.1)
    prompt, late = run.report().whole.host_parts
    assert prompt.communication / 1e9 >= STEPS * (LATE - 0.1) > late.communication / 1e9
    assert {row["name"] for row in run.rows("region")} == {"late", "prompt"}


def union(spans):
    total, last = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, last))
        last = max(last, end)
    return total


def spans(path, wanted):
    """Return the spans in ns of a profile's events, by the standard library alone."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found = [e for e in json.loads(text)["traceEvents"] if e["ph"] == "X" and wanted(e)]
    return [(round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000)) for e in found]


def test_what_the_backward_pass_hides_of_its_collectives_is_not_communication(ranks):
    hidden = 0
    for path in (ranks / "ddp" / "0.json", ranks / "ddp" / "1.json"):  # each by itself: together they have but their common window
        (part,) = read_trace(path).report().whole.host_parts
        gloo = spans(path, lambda e: e["name"].startswith("gloo:"))
        computing = spans(path, lambda e: e["name"].startswith("aten::"))
        operators = spans(path, lambda e: e["cat"] == "cpu_op")
        # of A and B, A without B lasts as long as both together without B
        most, least = (union(gloo + hiding) - union(hiding) for hiding in (computing, operators))
        assert least <= part.communication <= most
        hidden += union(gloo) - part.communication
    assert hidden > 0
