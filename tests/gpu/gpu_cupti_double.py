"""The programs of the GPU checks of CUPTI as a perfect GPU would run them: recordings from scenarios, and facts that agree with them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from gpu.apart import Told
from gpu.check_cupti_attach import GRAPH_PARTS
from gpu.cupti_counters_program import PRODUCTS, REPLAYED
from gpu.cupti_loads import REGION, read
from gpu.cupti_overhead_program import ALONE, PAIRS
from gpu.cupti_pm_program import KERNELS

from gpu import cupti_attach_program as attaching
from gpu import cupti_flops_program as known
from gpu import cupti_training_program as trained
from ullage.cupti.chunks import NCCL, SAMPLE, ChunkType, ChunkWriter, chunks, names
from ullage.cupti.counters.images import CounterImage
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.layouts import layouts
from ullage.cupti.releases import release
from ullage.simulate.traces.recording import write
from ullage.simulate.traces.scenario import ProcessScenario, Scenario

VERSION = 130001
MILLISECOND = 1_000_000
UUID = "GPU-00000000-7069-6c73-0000-000000000001"
LIBRARY = SimpleNamespace(release=release(VERSION), version=VERSION, path=Path("libcupti.so.13"))


class Programs:
    """Runs programs in no time. `change` gives a module's stage other facts, `codes` another exit code; `lose` takes kernels out of
    recordings, one in so many; `silent` are the parts of the stage "attach" in which nothing is recorded."""

    def __init__(self, version=VERSION):
        self.version, self.change, self.codes, self.lose, self.ran, self.silent = version, {}, {}, 0, [], ()

    def __call__(self, programs, limit):
        assert limit > 0 and all(one.module.startswith("cupti_") for one in programs)
        self.ran += [(one.module, one.words) for one in programs]
        names = [one.module.removeprefix("cupti_").removesuffix("_program") for one in programs]
        if names[0] == "load":
            found = self.load(programs)
        else:
            found = [getattr(self, name)(*one.words, environment=one.environment) for name, one in zip(names, programs, strict=True)]
        return [self._told(name, one.words, facts) for name, one, facts in zip(names, programs, found, strict=True)]

    def _told(self, name, words, facts):
        for key in (name, (name, *words[:1])):
            facts = facts | self.change.get(key, {})
        return Told(self.codes.get(name, 0), facts, "it said so" if name in self.codes else "")

    # --- recordings ---

    def record(self, folder, recorders):
        """Write the recordings of processes whose events are known; return their paths."""
        Path(folder).mkdir(exist_ok=True)
        kept = [event for one in recorders for event in one.events]
        if self.lose:
            kernels = [event for event in kept if event.kind == "kernel"]
            kept = [event for event in kept if event not in kernels[:: self.lose]]
        ranks = {one.process: rank for rank, one in enumerate(recorders)}
        scenario = Scenario("program", tuple(kept), ranks, {0: ("NVIDIA H100", UUID)})
        return write(scenario, Path(folder), version=self.version)

    def kernels(self, folder, count, name="spin"):
        """Write a recording of so many kernels."""
        one = ProcessScenario(4100, 0)
        for number in range(count):
            launch(one, number * 20_000, name)
        return self.record(folder, [one])[0]

    # --- programs ---

    def load(self, programs):
        works = [read(one.words[0]) for one in programs]
        rounds, overlapped = int(programs[0].words[1]), programs[0].words[2] == "True"
        if programs[0].words[6]:
            return [{"kineto_kernels": rounds + 1, "kineto_time": 1e5 + rounds * works[0].kernel * MILLISECOND}]
        recorders = [ProcessScenario(4100 + rank, 0) for rank in range(len(works))]
        facts = [{"begin": 0, "calls": 0, "barriers": 0, "copied": 0, "kernels": rounds + 1, "copies": 1} for _ in works]
        for one in recorders:
            launch(one, -10 * MILLISECOND, "spin")
        at = 0
        for _ in range(rounds):
            at = self._round(recorders, works, overlapped, facts, at)
        for one, told in zip(recorders, facts, strict=True):
            one.host(0, at, "region", REGION, one.process)
            one.call(at, at + MILLISECOND, "cuCtxSynchronize", "sync", one.process)
            told["end"] = at
        self.record(programs[0].environment["ULLAGE_RECORD"], recorders)
        return facts

    def _round(self, recorders, works, overlapped, facts, at):
        arrived = []
        for one, work, told in zip(recorders, works, facts, strict=True):
            launched = one.call(at, at, "cuLaunchKernel", "launch", one.process)
            done, computed = at + work.kernel * MILLISECOND, work.host * MILLISECOND
            one.work(at, done, "kernel", "spin", 7, launched, blocks=1, threads=1)
            waits = at + computed if overlapped else at
            over = max(waits, done)
            one.call(waits, over, "cuCtxSynchronize", "sync", one.process)
            copies = over if overlapped else over + computed
            end = copies + work.copying * MILLISECOND
            if work.copying:
                copied = one.call(copies, end, "cuMemcpyHtoD", "copy", one.process)
                one.work(copies, end, "memcpy", "Memcpy HtoD", 7, copied, bytes=8)
            told["calls"] += over - waits + end - copies
            arrived.append(end)
        met = max(arrived)
        for one, told, mine in zip(recorders, facts, arrived, strict=True):
            told["barriers"] += met - mine
            if len(recorders) > 1:
                one.host(mine, met, "mpi", "MPI_Barrier", one.process)
        return met

    def training(self, environment):
        steps, one, at = trained.STEPS + trained.WARM, ProcessScenario(4100, 0), 0
        for _ in range(steps):
            begin = at
            for phase in trained.PHASES:
                launch(one, at, "gemm")
                one.host(at, at + 30_000, "region", phase, one.process)
                at += 30_000
            one.host(begin, at, "region", "step", one.process)
        for name, count in ((trained.COUNTED, trained.ADDS), (trained.IN_GRAPH, trained.NODES * trained.REPLAYS + 1)):
            for _ in range(count):
                launch(one, at, f"void {name}_cuda()")
                at += 20_000
        path = self.record(environment["ULLAGE_RECORD"], [one])[0]
        nested(path)
        ranges(path, steps)
        tree = {"device_totals": {"kernel_time": 1_000_000}}
        counts = {"counted": trained.ADDS, "replayed": trained.NODES * trained.REPLAYS + 1}
        return {"steps": trained.STEPS, "tree": tree, "forward": tree, **counts}

    def nccl(self, environment):
        gpus, rounds = self.change.get("nccl", {}).get("gpus", 2), 50
        path = self.kernels(environment["ULLAGE_RECORD"], 10)
        rows = np.zeros(gpus * rounds if gpus > 1 else 0, NCCL)
        rows["serial"], rows["sequence"] = 1 + np.arange(len(rows)), np.arange(len(rows)) // gpus
        rows["rank"], rows["ranks"], rows["start"] = np.arange(len(rows)) % gpus, gpus, 1000 + np.arange(len(rows))
        rows["gpu_start"], rows["gpu_end"], rows["channels"], rows["started"], rows["ended"] = 5, 9, 2, 2, 2
        if self.lose:
            rows = np.delete(rows, np.s_[:: self.lose])
        writer = ChunkWriter(path)
        writer.add(ChunkType.NCCL, rows.tobytes())
        writer.add(ChunkType.INFO, {"nccl": {"communicators": gpus, "collectives": len(rows), "counted": 0, "lost": 0, "astray": 0}})
        writer.close()
        return {"gpus": gpus, "rounds": rounds, "nccl": [2, 27, 3]}

    def walk(self, library, recording, environment):
        assert library == "libcupti.so.13" and Path(recording).exists() and not environment
        return {"buffers": 3, "records": 4711, "disagreed": 0}

    def overhead(self, regime, mode, folder, environment):
        path = self.kernels(folder, 500)
        writer = ChunkWriter(path)
        writer.add(ChunkType.END, {"writer_ns": 2_000_000, "flush_ns": 3_000_000, "flushes": 3, "callback_ns": 1000, "api_callbacks": 0})
        writer.close()
        each = 0.001 if regime == "steady" else 0.0001
        off = [each * (1 + 0.0001 * number) for number in range(PAIRS)]
        same = {"load": "training", "before": [each] * ALONE, "after": [each] * ALONE, "steps": 50, "seconds": 0.05, "path": str(path)}
        return {"on": [time * 1.004 for time in off], "off": off, **same}

    def counters(self, stage, folder, environment):
        metrics = ("sm__cycles_active.sum",)
        image = CounterImage("range", "GH100", metrics, VERSION, b"what the GPU counted", ranges=("0",))
        place = Path(folder, stage)
        place.with_suffix(".image").write_bytes(image.packed())
        known = {"chip": "GH100", "version": VERSION, "metrics": metrics, "ranges": ["0"], "values": [[5.0]], "again": [[5.0]]}
        place.with_suffix(".json").write_text(json.dumps(known))
        if stage == "passes":
            return {"planned": 9, "metrics": 34, "unknown": []}
        if stage == "user":
            return {"user_passes": 9, "user_planned": 9, "user_result": REPLAYED}
        rows = [
            {"kind": "product", "precision": p, "size": n, "kernels": 1, "counted": 2.0 * n**3, "needed": 2 * n**3, "identity": 1e-4}
            for p, n in PRODUCTS
        ]
        return {"load": "PyTorch", "rows": [row | {"tensor_active": 70.0, "passes": 1} for row in rows]}

    def pm(self, stage, folder, environment):
        if stage == "traced":
            self.kernels(folder, KERNELS)
            return {"traced": {"launched": KERNELS, "samples": 40}}
        Path(folder, "pm.image").write_bytes(b"samples")
        Path(folder, "pm.json").write_text("{}")
        plain = {"clock": 1.5e9, "clock_low": 1.4e9, "burst": 0.025, "bursts": 80}
        told = {"tensor_active": 0.7, "sm_active": 0.99, "dram_active": 0.3, "sm_clock": 1.5e9}
        gpm, pm = ({f"{who}_{name}": value for name, value in told.items()} for who in ("gpm", "pm"))
        pm |= {"samples": 2000, "length": 1e6, "gap": 0, "overflow": False, "untimed": 0, "keep": "oldest", "buffer": 8 << 20}
        ways = [
            {"keep": "oldest", "buffer": 8 << 20, "every": 0.02, "seconds": 0.5, "during": 400, "after": 100},
            {"keep": "latest", "buffer": 8 << 20, "every": 0.0, "seconds": 0.5, "during": 0, "after": 500, "host_grew": 8 << 20},
        ]
        return {
            "load": "products",
            "ways": ways,
            "before": plain,
            "gpm": plain | gpm,
            "pm": plain | pm,
            "both": plain | gpm | pm,
            "after": plain,
        }

    def pc(self, stage, folder, environment):
        if stage == "calls":
            ranges = [{"total": 1000, "dropped": 10, "other": 40, "base": 950, "latency": 600, "readings": 2}] * 4
            return {"compiled_by": "NVRTC", "reasons": ["a", "b"], "cycles": 4096, "ranges": ranges, "closed": 4000}
        Path(folder, "samples.parquet").write_bytes(b"PAR1")
        facts = {"cycles": 4096, "total": 1000, "dropped": 10, "other": 40, "full": 0, "unread": 0}
        functions = {"sampled": [0, 4096], "$sampled$_Z6calledf": [0, 512]}
        serialized = stage == "serialized"
        return {"compiled_by": "NVRTC", "functions": functions, "correlations": int(serialized), "cubins": 1, "with_code": 9, "rows": 9,
                "facts": facts, "problems": [], "base": 950, "latency": 600}  # fmt: skip

    def stalls(self, stage, environment):
        if stage != "plain":
            sampled(Path(environment["ULLAGE_RECORD"]) / "one.ullage")
        return {"seconds": 1.0 if stage == "plain" else 1.25} | ({"destroyed": 0} if stage == "destroys" else {})

    def flops(self, stage, environment):
        if stage == "counted":
            executed(Path(environment["ULLAGE_RECORD"]) / "one.ullage")
        return {"seconds": 1.0 if stage == "plain" else 3.0}

    def attach(self, stage, folder, environment):
        folder = Path(folder)
        if stage == "attach":
            counts = {"first": attaching.FIRST + attaching.RESUMED, "second": attaching.SECOND, "fresh": attaching.FRESH}
            for part, count in counts.items():
                self.kernels(folder / part, 0 if part in self.silent else count)
            return {"first": True, "second": True, "fresh": True}
        counts = {"subscribers": 1, "fork": 3, "profiler": 2, "plain": 1}
        if stage in counts:
            self.kernels(folder, counts[stage] * attaching.FEW)
        report = {"tracing": "yes", "counters": "yes", "findings": []}
        graphs = dict.fromkeys(GRAPH_PARTS, True)
        return {
            "subscribers": {"second_subscriber": "refused with 39"},
            "profiler": {"kineto_kernels": attaching.FEW},
            **dict.fromkeys(("graphs", "graphs_launched", "graphs_made", "graphs_paused"), graphs),
            "graphs_forced": {"recorded": True, "stopped": True},
            "counters": {"report": report, "counted": 1e6},
            "plain": {"user": 65534, "traced": True, "report": report, "refused": "the driver keeps counters for the administrator"},
        }.get(stage, {})


def launch(one, at, name):
    """Write down a kernel of 10 µs, and the call that launches it."""
    number = one.call(at, at + 2000, "cudaLaunchKernel", "launch", one.process)
    one.work(at + 5000, at + 15_000, "kernel", name, 7, number, blocks=1, threads=1)


def nested(path):
    """Give the regions of a recording their depths: a step has 0, what lies in it 1."""
    data = path.read_bytes()
    with path.open("rb") as file:
        found = list(chunks(file, "here"))
    numbers = {text: number for chunk in found if chunk.type == ChunkType.NAMES and chunk.flags for number, text in chunk.names().items()}
    for chunk in found:
        if chunk.type == ChunkType.HOST:
            records = chunk.host().copy()
            records["depth"] = records["name"] != numbers["step"]
            data = data.replace(chunk.payload, records.tobytes())
    path.write_bytes(data)


def ranges(path, count):
    """Add NVTX ranges to a recording."""
    layout = layouts(release(VERSION)).of(ActivityKind.MARKER)
    records = np.zeros(2 * count, layout.dtype)
    records["kind"], records["flags"] = int(ActivityKind.MARKER), [2, 4] * count
    records["id"] = np.repeat(np.arange(1, count + 1), 2)
    records["name"] = [0x5000, 0] * count
    records["timestamp"] = 10**18 + 100 * np.arange(2 * count)
    writer = ChunkWriter(path)
    writer.add(ChunkType.NAMES, names({0x5000: "nvtx forward"}))
    writer.add(ChunkType.BUFFER, struct.pack("<QQ", 1, 0) + records.tobytes())
    writer.close()


def executed(path):
    """Write a recording of the instructions of all launches of the kernel of known FLOPs, on a chip that lacks a metric."""
    threads = known.LAUNCHES * known.GRID * known.BLOCK * known.ROUNDS
    counts = {"ffma": 4 * threads, "fadd": threads, "dfma": threads}
    told = {
        "context": 0, "device": 0, "chip": "GH100", "dropped": 0, "lacking": ["smsp__sass_thread_inst_executed_op_ffma2_pred_on"],
        "metrics": [f"smsp__sass_thread_inst_executed_op_{deed}_pred_on" for deed in counts],
        "kernels": [[1, known.LAUNCHES, *counts.values()]],
    }  # fmt: skip
    writer = ChunkWriter(path)
    writer.add(ChunkType.NAMES, names({1: known.NAME}), flags=1)
    writer.add(ChunkType.SASS, json.dumps(told).encode())
    writer.close()


def sampled(path):
    """Write a recording of 90 samples of a kernel, all with machine code, and 10 that the hardware dropped."""
    writer = ChunkWriter(path)
    writer.add(ChunkType.CUBIN, struct.pack("<Q", 7) + b"cubin")
    writer.add(ChunkType.NAMES, names({1: "sampled"}), flags=1)
    told = json.dumps({"context": 0, "total": 100, "dropped": 10, "reasons": {"3": "barrier"}}).encode()
    rows = np.array([(7, 16, 1, 0, 0, 3, 90)], SAMPLE)
    writer.add(ChunkType.SAMPLES, struct.pack("<I", len(told)) + told + bytes(-(4 + len(told)) % 8) + rows.tobytes())
    writer.close()
