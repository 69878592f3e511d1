"""Stand-ins for what the checks start on a GPU besides NVML: a suite of benches, the harness of random products, Nsight Compute."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from gpu.tile_program import gemms

from ullage.benches.bench import BENCHES, Target, cases_for
from ullage.benches.gemm_ofu_plan import planned
from ullage.benches.gemm_ofu_record import FORMAT, Observation
from ullage.benches.quantities import UNITS
from ullage.benches.result import BenchResult, CaseRow, Stamp, Value
from ullage.gpus.chip import find
from ullage.gpus.names import pseudonym
from ullage.reports.gemms.ofu_estimates import cover

# By precision, a kernel's name: tile 256 x 160 or 128 x 128, clusters of two, as cuBLAS has them.
KERNELS = {
    "fp16": "nvjet_sm90_hsh_256x160_64x4_2x1_v_bz_coopA_NNT",
    "bf16": "nvjet_sm90_tst_256x160_64x4_2x1_v_bz_coopA_NNT",
    "tf32": "nvjet_sm90_sss_128x128_32x6_1x2_h_bz_NNT",
    "fp8": "nvjet_sm90_qqtst_128x128_128x6_1x2_h_bz_ovscale_TNT",
}
LATENCIES = {"shared memory": 29.0, "L2 cache": 263.0}
CLOCK, ACTIVE = 1.35e9, 0.7
ISSUED = 0.98  # share of the cycles in which a product is issued


def today():
    """The time of day as recordings have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Benches:
    """Runs benches in no time: `ran` are those that it was asked for. Every case is as it should be, but those that `change` gives
    another problem or value; from the bench `stops_at` on the time is up."""

    def __init__(self, world):
        self.world, self.ran, self.stops_at = world, [], None
        self.change = lambda bench, case: {}

    def __call__(self, names, *, index, quick, budget, silence):
        assert index == 0 and budget > 0 and silence > 0
        stopped = False
        for name in names:
            stopped = stopped or name == self.stops_at
            self.ran.append((name, quick))
            yield self._result(name, quick, stopped)

    def _result(self, name, quick, late):
        cases = cases_for(BENCHES[name], Target("sm_90a", "NVIDIA H100 80GB HBM3"), quick)
        rows = tuple(self._row(name, case, late) for case in cases)
        machine = {"gpu": self.world.gpus[0].name, "uuid_hash": pseudonym("GPU-secret"), "driver": self.world.nvmlSystemGetDriverVersion()}
        return BenchResult(name, today(), machine, quick, rows, () if rows else (f"{name} has nothing",), 1.0, {"seed": 1})

    def _row(self, name, case, late):
        plain = {"precision": case.precision, "sparse": case.sparse, "flops": case.flops, "bytes": case.bytes}
        if late:
            return CaseRow(case.labels, {}, None, "not run: the time was up", **plain)
        change = self.change(name, case)
        if "problem" in change:
            return CaseRow(case.labels, {}, None, change["problem"], **plain)
        values = {q: Value(v := change.get(q, self._value(q, case)), v, v, 20, UNITS[q]) for q in case.quantities}
        times = {"lowest_clock": CLOCK, "seconds": case.seconds or 0.2, "settled": case.settle or 0.05}
        return CaseRow(case.labels, values, Stamp(CLOCK, "kernel", 500.0, 50.0, (), case.data, **times), **plain)

    def _value(self, quantity, case):
        """Nine tenths of the stated bandwidth, 98 % of what SMs issue at their clock, the paper's latencies; for the rest any number."""
        chip = find("H100")
        if quantity == "throughput" and case.precision in chip.precisions:
            return ISSUED * case.labels.get("SMs", chip.sms) * chip.flops_per_cycle[case.precision] * CLOCK
        known = {"bandwidth": 0.9 * chip.bandwidth, "latency": LATENCIES.get(case.labels.get("level"), 40.0), "power": 500.0}
        return known.get(quantity, 1.0)


def products(world, count=2):
    """Return a harness that writes what it would have seen of products whose OFU is 0.7 × 1350 / 1830 and whose padding costs MFU."""

    def run(path, minutes, progress):
        machine = {
            "gpu": world.gpus[0].name,
            "uuid_hash": pseudonym("GPU-secret"),
            "driver": world.nvmlSystemGetDriverVersion(),
            "sms": 132,
        }
        settings = {"seconds": 0.25, "seed": 0, "largest": 8192, "left_out": {"fp4": "no FP4"}, "notes": []}
        head = {"format": FORMAT, "date": today(), "machine": {**machine, "torch": world.torch}, "settings": settings}
        if not path.exists():
            path.write_text(json.dumps(head) + "\n")
        before = path.read_text().count("\n") - 1
        todo = [gemm for gemm in planned(tuple(KERNELS), count, 0) if gemm.kind != "size"]
        with path.open("a") as file:
            for gemm in todo[before : before + world.products_a_run]:
                progress(gemm.words)
                file.write(json.dumps(asdict(observed(gemm))) + "\n")
        left = len(todo) - before - world.products_a_run
        return f"the time was up: {left} products are not measured" if left > 0 else ""

    return run


def observed(gemm):
    """Return what is seen of one product in a quarter of a second."""
    names = (KERNELS[gemm.precision],)
    rate = ACTIVE * CLOCK / 1.83e9 * find("H100").peak(gemm.precision) * cover(gemm, names).efficiency
    cycles = tuple(1e12 + CLOCK * seconds for seconds in (0.0, 0.25))
    tensor = tuple(2e11 + ACTIVE * CLOCK * seconds for seconds in (0.0, 0.25))
    return Observation(
        gemm, names, flops=rate * 0.25, settled=0.25, seconds=0.25, tensor_active=ACTIVE, sm_clock=CLOCK, clock_samples=25,
        sm_cycles=cycles, tensor_cycles=tensor, power=500.0, temperature=50.0, throttle=(),
    )  # fmt: skip


def nsight(folder, active=70.0, error=0, silent=""):
    """Write a program that answers as Nsight Compute does, and return its path.

    It counts what the kernels' names tell, and `error` FLOPs more; with `silent` it counts nothing and says that.
    """
    lines = ['"ID","Kernel Name","sm__ops_path_tensor_src_bf16_dst_fp32.sum","sm__ops_path_tensor_src_fp16.sum",'
             '"sm__ops_path_tensor_src_fp8.sum","sm__ops_path_tensor_src_tf32_dst_fp32.sum",'
             '"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"', '"","","","","","","%"']  # fmt: skip
    for gemm in gemms():
        counts = dict.fromkeys(("bf16", "fp16", "fp8", "tf32"), 0)
        counts[gemm.precision] = cover(gemm, (KERNELS[gemm.precision],)).executed + error
        told = ",".join(f'"{count:,}"' for count in counts.values())
        lines.append(f'"{len(lines)}","{KERNELS[gemm.precision]}",{told},"{active}"')
        lines.append(f'"{len(lines)}","void vectorized_elementwise_kernel<4, FillFunctor<float>>(int)","0","0","0","0","0"')
    told = silent or "==PROF== Connected to process 7\n" + "\n".join(lines) + "\n"
    names = ("fp16", "bf16_dst_fp32", "bf16_dst_fp32_sparsity_off", "fp8", "tf32_dst_fp32")
    known = [f"sm__ops_path_tensor_src_{name}  Counter  ops" for name in names]
    path = Path(folder) / "ncu"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\nsaid = sys.argv\n"
        f"if '--query-metrics' in said:\n    print({chr(10).join(known)!r})\n    sys.exit()\n"
        f"Path(said[said.index('--log-file') + 1]).write_text({told!r})\n"
        'print(\'{"problems": {"1": "RuntimeError: no such type"}}\')\n'
    )
    path.chmod(0o755)
    return str(path)
