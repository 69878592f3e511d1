"""The inputs that golden questions are asked about: all drawn by our simulators or written by hand, the same each time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.benches.bench_results import of_bench, slower
from tests.command_line import ask

FLEETS = {
    "fleet": "--gpus 48 --hours 2 --seed 3 --faults all --counters",
    "ended": "--gpus 32 --hours 6 --interval 120 --seed 4 --faults none --outcomes",
    "moving": "--gpus 32 --hours 4 --seed 5 --faults none --changes all --counters",
    "scrapes": "--gpus 8 --hours 0.2 --seed 1 --faults none --format exposition",
    "tables": "--gpus 8 --hours 0.5 --seed 2 --format csv",
    "dmon": "--gpus 8 --hours 0.5 --seed 2 --faults none --format dmon",
    "prometheus": "--gpus 8 --hours 0.5 --seed 4 --format prometheus --new-names --summed --counters",
    "acme": "--gpus 8 --hours 0.5 --seed 4 --format acme",
}
PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry product(.param .u64 out)
{
  .reg .b32 %a<4>; .reg .b32 %b<2>; .reg .f32 %c<4>; .reg .b64 %p;
  ld.param.u64 %p, [out];
  ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%p];
  ld.global.v2.b32 {%b0, %b1}, [%p+16];
  ld.global.v4.f32 {%c0, %c1, %c2, %c3}, [%p+32];
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};
  st.global.v4.f32 [%p], {%c0, %c1, %c2, %c3};
  ret;
}
"""
JOBS = {"job": "", "job-shapes": "--shapes --ranks 2 --steps 2 --seed 1", "job-mixed": "--mixed --ranks 2 --seed 2"}
TRACES = {
    "training": "--steps 2",
    "straggler": "--ranks 4 --straggler 3 --steps 2",
    "stack": "--stack --steps 2",
    "whole-graphs": "--graph whole --steps 2",
    "hidden-graphs": "--graph hidden --steps 2",
    "lengths": "--ranks 4 --lengths ranks --steps 2",
    "host-bound": "--host-bound --steps 2",
    "nsight": "--format nsys --steps 2",
    "nsight-2020": "--format nsys --generation 2020 --run 4",
    "talp": "--format talp --run 4",
    "recordings": "--format recording --steps 2",
    "jax": "--format jax --steps 2",
    "xplane": "--format xplane --steps 2",
    "rocprofv3": "--format rocprofv3 --steps 2",
    "rocpd": "--format rocpd --steps 2",
    "otf2": "--format otf2 --run 2",
    "operations": "--format operations --ranks 8 --stages 4 --straggler 5",
    "long-stage": "--format operations --ranks 8 --stages 4 --long-stage",
    **{f"case-{n}": f"--run {n}" for n in range(1, 8)},
}


def write_world(folder: Path) -> None:
    """Write every input into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in FLEETS.items():
        _simulate(folder, name, options)
    for name, options in JOBS.items():
        _simulate(folder, name, f"job {options}")
    for name, options in TRACES.items():
        _simulate(folder, name, f"trace {options}")
    _write_damaged(folder)
    _write_configs(folder / "configs")
    _write_results(folder)
    (folder / "product.ptx").write_text(PTX)
    stored = ask("fleet", folder / "tables", "--store", folder / "store")
    assert stored.code == 0, stored.err


def _simulate(folder: Path, name: str, words: str) -> None:
    first, *others = words.split()
    made = ask("simulate", first, *others, "--out", folder / name)
    assert made.code == 0, made.err


def _write_damaged(folder: Path) -> None:
    """What is cut short, and what is empty; a trainer's log and its FLOPs function, which counts every model as one of 8 billion."""
    table = next(path for path in sorted((folder / "tables").rglob("*.csv")) if "job" not in path.name)
    packed = gzip.compress(table.read_bytes(), mtime=0)
    (folder / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "empty.json").write_text("")
    whole = (folder / "training" / "training_rank0.json").read_bytes()
    (folder / "cut.json").write_bytes(whole[: len(whole) * 2 // 3])
    steps = [json.dumps({"step": n, "timestamp": 1_786_320_000 + 20 * n, "step_time": 19.5, "mfu": 0.4 + n / 1000}) for n in range(30)]
    (folder / "trainer.py").write_text("def flops(config, seqlens):\n    return 6 * 8_030_000_000 * sum(seqlens)\n")
    (folder / "trainer.jsonl").write_text("\n".join(steps) + "\n")


def _write_configs(folder: Path) -> None:
    from ullage.simulate.configs import CONFIGS

    folder.mkdir()
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    (folder / "no-model.json").write_text('{"model_type": "no_such_model"}')


def _write_results(folder: Path) -> None:
    """Results of microbenchmarks, published ones times a factor; a recording of products; samples of program counters."""
    from tests.benches.test_gemm_ofu import MACHINE, SETTINGS, three
    from tests.cupti.test_stalls import sampled
    from ullage.benches.gemm_ofu_record import Book
    from ullage.reports.bench.suite import write_results

    measured = [of_bench(name) for name in ("memory-latency", "wgmma", "memory-bandwidth")]
    write_results(measured, folder / "results.json")
    write_results([slower(one, 0.87, clock=0.93) for one in measured], folder / "slower.json")
    recording = Book(folder / "gemm-ofu.jsonl", MACHINE, SETTINGS, "2026-01-01T00:00:00Z")
    for observation in three():
        recording.add(observation)
    rows = [("gemm", 16 * n, ("long_scoreboard", "wait", "selected")[n % 3], 3 + 7 * n) for n in range(9)]
    sampled(*rows, ("softmax", 32, "math_pipe_throttle", 5)).write(folder / "samples.parquet")
