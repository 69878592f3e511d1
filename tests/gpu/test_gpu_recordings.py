"""What was recorded on real GPUs, read again here: the answers must be those that the GPU's own machine gave, and what the load was known
to be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from gpu.check_trace_trees import _read
from gpu.trace_program import Known, Recorded

from tests.command_line import ask
from ullage.cupti.counters.images import unpacked
from ullage.profiles import profile
from ullage.reports.trace.trace import trace

RESULTS = Path(__file__).parents[2] / "results"
GPUS = sorted(path.name for path in RESULTS.iterdir() if path.is_dir())


def evidence(gpu, name):
    path = RESULTS / gpu / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{name} was not run on {gpu}")
    return json.loads(path.read_text())


def test_there_is_evidence_of_a_real_gpu():
    assert "nvidia-h200" in GPUS


@pytest.mark.parametrize("gpu", GPUS)
def test_traces_of_a_real_gpu_give_the_trees_that_they_gave_there(gpu):
    for row in evidence(gpu, "trace_trees")["rows"]:
        path = RESULTS / gpu / f"trace_trees.{row['variant']}.json.gz"
        if row["source"] != "kineto" or not path.exists():
            continue
        known = Known(row["kernel_known"], row["memory_known"], row["host_known"], row["products"])
        again, _ = _read(Recorded(known, "x.json", gzip.decompress(path.read_bytes())))
        for key, value in again.items():
            assert value == (row[key] if isinstance(value, str) else pytest.approx(row[key], rel=1e-9)), key
        # and what CUDA events said of the same products
        assert again["kernel"] == pytest.approx(row["kernel_known"], rel=0.02)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("name", ["cupti_training", "cupti_trees"])
def test_recordings_of_a_real_gpu_are_read_without_a_complaint(gpu, name):
    path = RESULTS / gpu / f"{name}.ullage.gz"
    if not path.exists():
        pytest.skip(f"no recording of {name} is kept of {gpu}")
    report = trace(profile(str(path)), "first-last")
    assert report.whole.elapsed > 0 and not [note for note in report.notes if "sense" in note or "damaged" in note]
    if name == "cupti_trees":
        # use case 7: kernels of 40, 20, 20 and 40 ms, a host that computes as long as they run
        [kernels] = [sum(part.kernel for part in report.whole.device_parts)]
        assert kernels / 1e9 == pytest.approx(evidence(gpu, name)["rows"][0]["kernel"], rel=1e-3)


@pytest.mark.parametrize("gpu", GPUS)
def test_program_counters_of_a_real_gpu_are_told_by_kernel_line_and_instruction(gpu):
    path = RESULTS / gpu / "cupti_pc_samples.parquet"
    if not path.exists():
        pytest.skip(f"no program counters are kept of {gpu}")
    told = ask("cupti", "stalls", path, "--json").json
    [kernel] = told["kernels"]
    assert kernel["name"] == "sampled" and kernel["samples"] == told["samples"] == sum(one["samples"] for one in told["reasons"])
    assert told["samples"] > 10_000


@pytest.mark.parametrize("gpu", GPUS)
def test_images_of_counters_of_a_real_gpu_say_of_what_they_are(gpu):
    for path in sorted((RESULTS / gpu).glob("*.image.gz")):
        image = unpacked(gzip.decompress(path.read_bytes()))
        kept = json.loads(Path(str(path).removesuffix(".gz").removesuffix(".image") + ".json").read_text()) if "pm" not in path.name else {}
        assert image.chip == "GH100" and image.rows > 0 and (not kept or tuple(kept["metrics"]) == image.metrics)
        if image.use == "pm":  # the first one is no interval's; the others are of a millisecond
            assert image.times[0][0] == image.times[0][1]
            assert all(abs(end - begin - 1e6) < 1e5 for begin, end in image.times[1:])
