"""What a command's exit status says, for every command: answered, error, usage, and where it has one, the gate and the partial answer."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest
from click.testing import CliRunner

from tests.benches.bench_results import of_bench, slower
from tests.command_line import Said, ask
from tests.live.nvml_double import Gpu, Nvml
from tests.traces.trace_command import EVENTS, profile
from ullage.asking.question import QUESTIONS, RegisteredQuestion
from ullage.cli import cli
from ullage.cli._exit_status import (
    ANSWERED,
    ERROR,
    GATE,
    INTERRUPTED,
    PARTIAL,
    PASSED_ON,
    UNDER_LIMIT,
    USAGE,
    in_words,
    table,
    whys_of_3,
    whys_of_4,
)
from ullage.views.view import Headline, View

ROOT = Path(__file__).parents[1]


def commands(group: click.Command = cli, name: str = "") -> Iterator[str]:
    """Every command and every part of one, by its words."""
    context = click.Context(group)
    names = group.list_commands(context) if hasattr(group, "list_commands") else []
    for one in names:
        command = group.get_command(context, one)  # type: ignore[attr-defined]
        full = f"{name} {one}".strip()
        if not isinstance(command, click.Group):
            yield full
        yield from commands(command, full)


COMMANDS = sorted(commands())


# --- inputs ------------------------------------------------------------------------------------------------------------

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 96,
}
T = 1_786_320_000  # 2026-08-10T00:00:00Z
SETTINGS = {"seconds": 1.0, "seed": 0, "largest": 8192, "left_out": {}, "notes": []}
RECORDING = (
    json.dumps({"format": "ullage gemm-ofu 1", "date": "", "machine": {"gpu": "NVIDIA H100 80GB HBM3"}, "settings": SETTINGS}) + "\n"
)
GEMM = "nvjet_sm90_hsh_256x160_64x4_2x1_v_bz_TNN"


def kernel_events(name: str) -> list[dict[str, object]]:
    """The events of a small profile, whose kernel is called `name`."""
    return [{**event, "name": name} if event.get("cat") == "kernel" else event for event in EVENTS]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything that commands read: good, and where that can be, cut short."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from ullage.reports.bench.suite import write_results
    from ullage.simulate.traces.pipeline import PipelinePlan
    from ullage.simulate.traces.pipeline import write as pipeline
    from ullage.simulate.traces.recording import write as recordings
    from ullage.simulate.traces.training import TrainingPlan, training
    from ullage.store.store import Store
    from ullage.tables import samples

    folder = tmp_path_factory.mktemp("world")
    draw = np.random.default_rng(0)
    rows = "".join(f"{T + 30 * n},GPU-0,NVIDIA H100 80GB HBM3,{0.4 + draw.random() / 1e3:.9f},1.3725e9,7\n" for n in range(1, 2000))
    text = ("time,gpu,model,tensor_active,sm_clock,job\n" + rows).encode()
    (folder / "good.csv").write_bytes(text)
    lines = text.splitlines(keepends=True)  # from the 200th reading on it does half as much
    (folder / "worse.csv").write_bytes(b"".join(lines[:200] + [line.replace(b",0.4", b",0.2") for line in lines[200:400]]))
    packed = gzip.compress(text, mtime=0)
    (folder / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "cut").mkdir()
    (folder / "cut" / "good.csv").write_bytes(text)
    (folder / "cut" / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    store = Store.open(folder / "store", create=True)
    store.append(samples({"time": [T * 1000 + 30_000 * n for n in range(9)], "gpu": ["a"] * 9, "power": [300.0] * 9}))
    (folder / "config.json").write_text(json.dumps(LLAMA | {"architectures": ["LlamaForCausalLM"]}))
    (folder / "jobs.csv").write_text("job,mfu\n7,0.3\n")
    (folder / "configs").mkdir()
    (folder / "configs" / "7.json").write_text(json.dumps(LLAMA | {"step": {"batch": 8, "seq": 64}}))
    good = profile(folder, "good.json", events=tuple(kernel_events(GEMM)))
    longer = tuple({**event, "dur": 50} if event.get("cat") == "kernel" else event for event in kernel_events(GEMM))
    profile(folder, "slower.json", events=longer)
    whole = good.read_text()
    (folder / "cut.json").write_text(whole[: whole.rindex("{", 0, whole.rindex("}"))])
    write_results([of_bench("memory-latency", quick=True), of_bench("wgmma", quick=True)], folder / "results.json")
    job = parquet.read_table(pipeline(PipelinePlan(), folder / "operations.parquet"))
    durations = [None, *job["duration"].to_pylist()[1:]]
    parquet.write_table(job.set_column(job.column_names.index("duration"), "duration", pa.array(durations)), folder / "partly.parquet")
    for number, recorded in enumerate(recordings(training(TrainingPlan(ranks=2, steps=1, layers=1)), folder)):
        (folder / "ranks" / f"rank-{number:06d}").mkdir(parents=True)
        recorded.rename(folder / "ranks" / f"rank-{number:06d}" / recorded.name)
    (folder / "trainer.py").write_text("def flops(config, seqlens):\n    return 7\n")
    (folder / "gemm-ofu.jsonl").write_text(RECORDING)
    return folder


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setenv("PATH", "/nonexistent")


def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml((Gpu("GPU-0", activity=[{}] * 9),)))


def suite(*outcomes: object) -> Callable[[pytest.MonkeyPatch], None]:
    """Let microbenchmarks give these results, or raise what is an exception."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        from ullage.benches.running import apart, driver

        def run(*_: object, **__: object) -> Iterator[object]:
            for one in outcomes:
                if isinstance(one, BaseException):
                    raise one
                yield one

        monkeypatch.setattr(driver, "bindings", lambda: None)
        monkeypatch.setattr(apart, "suite_apart", run)

    return patch


def products(ended: str | BaseException) -> Callable[[pytest.MonkeyPatch], None]:
    """Let the harness of matrix products end so."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        import contextlib

        from ullage.benches import gemm_ofu
        from ullage.benches.running import session

        def measure(_: object, path: Path, **__: object) -> str:
            path.write_text(RECORDING)
            if isinstance(ended, BaseException):
                raise ended
            return ended

        monkeypatch.setattr(session, "opened", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(gemm_ofu, "measure", measure)

    return patch


def machine_says(counters: str) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        from ullage.cupti import permissions
        from ullage.render import machine_check

        monkeypatch.setattr(permissions, "report", lambda _: {"tracing": "yes", "counters": counters})
        monkeypatch.setattr(machine_check, "view", lambda _: View("check", "This machine", Headline("what this machine allows")))

    return patch


def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.cupti import permissions
    from ullage.errors import UllageError

    def none(_: object) -> None:
        raise UllageError("there is no libcupti at /none")

    monkeypatch.setattr(permissions, "report", none)


def certified(equal: bool) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        from ullage.models.tracing import certificate, shelf

        made = certificate.Certificate("Llama", "llama", "", "", {}, (), (), "2026-08-10")
        monkeypatch.setattr(certificate, "certify", lambda *_, **__: made)
        monkeypatch.setattr(shelf, "store", lambda _: Path("certificate.json"))
        monkeypatch.setattr(certificate.Certificate, "equal", equal)

    return patch


def binary(bad: bool) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        from ullage.render import sass as render
        from ullage.reports import sass

        monkeypatch.setattr(sass, "audit_sass", lambda *_, **__: SimpleNamespace(bad=["emulated"] if bad else []))
        monkeypatch.setattr(render, "record", lambda _: {})
        monkeypatch.setattr(render, "view", lambda _: View("sass", "Kernels", Headline("kernels")))

    return patch


def client_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_: object) -> None:
        print("{}")  # what the protocol says

    monkeypatch.setattr("ullage.cli._mcp_server.serve", serve)


Case = tuple[str, int, str] | tuple[str, int, str, Callable[[pytest.MonkeyPatch], None]]
STEP = "--seq 64 --batch 8"
MFU = f"audit mfu --config config.json {STEP}"


def cases() -> list[Case]:
    from ullage.errors import UllageError

    before = [of_bench("memory-latency", quick=True), of_bench("wgmma", quick=True)]
    lost = UllageError("the GPU fell off the bus")
    return [
        ("demo", ANSWERED, "demo --gpus 8 --hours 0.2 --out new-demo"),
        ("demo", ERROR, "demo --gpus 0 --out new-demo-2"),
        ("fleet", ANSWERED, "fleet good.csv"),
        ("doctor", ANSWERED, "doctor good.csv"),
        ("doctor", ERROR, "doctor nowhere"),
        ("doctor", PARTIAL, "doctor cut.csv.gz"),
        ("job", ANSWERED, "job 7 good.csv"),
        ("job", ERROR, "job 8 good.csv"),
        ("job", PARTIAL, "job 7 cut.csv.gz"),
        ("open", ANSWERED, "open good.csv"),
        ("schema", ANSWERED, "schema fleet"),
        ("schema", ERROR, "schema nothing"),
        ("completion", ANSWERED, "completion bash"),
        ("completion", ERROR, "completion tcsh"),
        ("config", ANSWERED, "config"),
        ("config", ERROR, "config nothing.toml"),
        ("open", ERROR, "open nowhere"),
        ("open", PARTIAL, "open cut.csv.gz"),
        ("fleet", ERROR, "fleet nowhere"),
        ("fleet", PARTIAL, "fleet cut.csv.gz"),
        ("fleet", ERROR, "fleet cut.csv.gz --strict"),
        ("gpus", ANSWERED, "gpus H200"),
        ("gpus", ERROR, "gpus H1000"),
        ("metrics", ANSWERED, "metrics"),
        ("dashboard", ANSWERED, "dashboard job"),
        ("dashboard", ERROR, "dashboard jobs"),
        ("rules", ANSWERED, "rules --gpu H200"),
        ("rules", ERROR, "rules --gpu H1000"),
        ("metrics", ERROR, "metrics none"),
        ("schema", ANSWERED, "schema fleet"),
        ("schema", ERROR, "schema flet"),
        ("mcp", ANSWERED, "mcp", client_leaves),
        ("mcp", ERROR, "mcp --header nothing"),
        ("serve", ANSWERED, "serve --check"),
        ("serve", ERROR, "serve --every x --check"),
        ("simulate", ANSWERED, "simulate --gpus 8 --hours 0.1 --faults none --out new-fleet"),
        ("simulate", ERROR, "simulate --gpus 0 --out new-fleet-2"),
        ("simulate job", ANSWERED, "simulate job --out new-job"),
        ("simulate job", ERROR, "simulate job --ranks 0 --out new-job-2"),
        ("simulate trace", ANSWERED, "simulate trace --out new-traces"),
        ("simulate trace", ERROR, "simulate trace --run 99 --out new-traces-2"),
        *((f"store {part}", ANSWERED, f"store {part} store{more}") for part, more in STORE.items()),
        *((f"store {part}", ERROR, f"store {part} nowhere{more}") for part, more in STORE.items()),
        ("audit mfu", ANSWERED, f"{MFU} --reported 30 --ofu 30"),
        ("audit mfu", ERROR, f"{MFU} --reported x --ofu 30"),
        ("audit mfu", GATE, f"{MFU} --reported 90 --ofu 3"),
        ("audit mfu", PARTIAL, "audit mfu --fleet cut.csv.gz --configs configs"),
        ("audit peaks", ANSWERED, "audit peaks H200=989 --exact"),
        ("audit peaks", ERROR, "audit peaks nothing"),
        ("audit peaks", GATE, "audit peaks H200=2000"),
        ("audit counter", ERROR, "audit counter nothing"),
        ("audit counter", GATE, "audit counter trainer:flops"),
        ("audit counter", ANSWERED, "audit counter trainer:flops", counter_is_right),
        ("bench", ANSWERED, "bench --list"),
        ("bench", ERROR, "bench --from nowhere.json"),
        ("bench", ERROR, "bench wgmma", suite(lost)),
        ("bench", PARTIAL, "bench memory-latency wgmma", suite(before[0], lost)),
        ("bench", INTERRUPTED, "bench memory-latency wgmma", suite(before[0], KeyboardInterrupt())),
        ("bench drift", ANSWERED, "bench drift --baseline results.json", suite(*before)),
        ("bench drift", ERROR, "bench drift --baseline nowhere.json"),
        ("bench drift", GATE, "bench drift --baseline results.json", suite(before[0], slower(before[1], 0.9))),
        ("bench drift", PARTIAL, "bench drift --baseline results.json", suite(before[0], lost)),
        ("bench gemm-ofu", ANSWERED, "bench gemm-ofu --from gemm-ofu.jsonl"),
        ("bench gemm-ofu", ERROR, "bench gemm-ofu --from nowhere.jsonl"),
        (
            "bench gemm-ofu",
            ANSWERED,
            "bench gemm-ofu --minutes 1 --record new-1.jsonl",
            products("the time was up: 3 are left"),
        ),
        ("bench gemm-ofu", PARTIAL, "bench gemm-ofu --record new-2.jsonl", products("5 products in a row failed, the last one: x")),
        ("bench gemm-ofu", INTERRUPTED, "bench gemm-ofu --record new-3.jsonl", products(KeyboardInterrupt())),
        ("cupti chips", ANSWERED, "cupti chips"),
        ("cupti chips", ERROR, "cupti chips --cupti /none"),
        ("cupti check", ANSWERED, "cupti check --need tracing", machine_says("no")),
        ("cupti check", ANSWERED, "cupti check", machine_says("no")),
        ("cupti check", ANSWERED, "cupti check --need counters", machine_says("perhaps")),
        ("cupti check", GATE, "cupti check --need counters", machine_says("no")),
        ("cupti check", ERROR, "cupti check --cupti /none", no_library),
        ("cupti describe", ANSWERED, "cupti describe GH100 sm__cycles_active"),
        ("cupti describe", ERROR, "cupti describe GH000 sm__cycles_active"),
        ("cupti diff", ANSWERED, "cupti diff GH100 12.9 13.1"),
        ("cupti diff", ERROR, "cupti diff GH100 12.9 99.1"),
        ("cupti map", ANSWERED, "cupti map gld_efficiency"),
        ("cupti map", ERROR, "cupti map nothing_like_it"),
        ("cupti metrics", ANSWERED, "cupti metrics GH100 dram*"),
        ("cupti metrics", ERROR, "cupti metrics GH000"),
        ("cupti plan", ANSWERED, "cupti plan GH100 sm__cycles_active.sum"),
        ("cupti plan", ERROR, "cupti plan GH000 sm__cycles_active.sum"),
        ("cupti stalls", ANSWERED, "cupti stalls --reasons"),
        ("cupti stalls", ERROR, "cupti stalls nowhere.parquet"),
        ("flops", ANSWERED, f"flops config.json {STEP}"),
        ("flops", ERROR, "flops nowhere.json"),
        ("flops", ANSWERED, "flops config.json --certify", certified(True)),
        ("flops", GATE, "flops config.json --certify", certified(False)),
        ("gemm", ANSWERED, "gemm 128 128 128"),
        ("gemm", ERROR, "gemm 128 128 x"),
        ("sample", ANSWERED, "sample --for 0.2s --every 0.1s", a_gpu),
        ("sample", ERROR, "sample --for 0.2s --every 0.1s"),
        ("sass", ANSWERED, "sass a.cubin", binary(True)),
        ("sass", ANSWERED, "sass a.cubin --strict", binary(False)),
        ("sass", GATE, "sass a.cubin --strict", binary(True)),
        ("sass", ERROR, "sass nowhere.cubin"),
        ("top", ANSWERED, "top --once", a_gpu),
        ("top", ERROR, "top --once"),
        ("top", PARTIAL, "top --once --source cut"),
        ("top", ANSWERED, "top --once --run ranks"),
        ("top", ERROR, "top --once --run nowhere"),
        ("top", PARTIAL, "top --json --run ranks/rank-000000"),
        ("trace", ANSWERED, "trace good.json"),
        ("fleet-map", ANSWERED, "fleet-map good.csv"),
        ("fleet-map", ERROR, "fleet-map nowhere"),
        ("fleet-map", PARTIAL, "fleet-map cut.csv.gz"),
        ("trace", ERROR, "trace nowhere.json"),
        ("trace", ERROR, "trace cut.json --strict"),
        ("trace", PARTIAL, "trace cut.json"),
        ("trace compare", ANSWERED, "trace compare good.json slower.json"),
        ("trace compare", ANSWERED, "trace compare good.json slower.json --fail-under 0.4"),
        ("trace compare", UNDER_LIMIT, "trace compare good.json slower.json --fail-under 0.9"),
        ("trace compare", UNDER_LIMIT, "trace compare good.json cut.json --fail-under speed=1000"),  # partial as well
        ("trace compare", PARTIAL, "trace compare good.json cut.json"),
        ("trace compare", ERROR, "trace compare good.json nowhere.json"),
        ("trace gemms", ANSWERED, "trace gemms good.json"),
        ("trace gemms", PARTIAL, "trace gemms cut.json"),
        ("trace gemms", ERROR, "trace gemms nowhere.json"),
        ("trace scaling", ANSWERED, "trace scaling a=good.json b=slower.json"),
        ("trace scaling", PARTIAL, "trace scaling a=good.json b=cut.json"),
        ("trace scaling", ERROR, "trace scaling good.json nowhere.json"),
        ("trace stragglers", ANSWERED, "trace stragglers operations.parquet"),
        ("trace stragglers", PARTIAL, "trace stragglers partly.parquet"),
        ("trace stragglers", ERROR, "trace stragglers nowhere.parquet"),
        ("watch", ANSWERED, "watch good.csv"),
        ("watch", ERROR, "watch nowhere"),
        ("watch", GATE, "watch worse.csv"),
        ("watch", PARTIAL, "watch cut.csv.gz"),
        ("waterfall", ANSWERED, "waterfall --ofu 34 --mfu 26 --tile-efficiency 97% --model-efficiency 75%"),
        ("waterfall", ERROR, "waterfall nowhere"),
        ("waterfall", PARTIAL, "waterfall cut.csv.gz"),
        ("waterfall", PARTIAL, "waterfall good.csv --trace cut.json"),
    ]


STORE = {"info": "", "compact": "", "retain": " --keep 90d"}


def counter_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.reports.audit import counter

    nothing = counter.CounterReport("mine", None, ())
    monkeypatch.setattr(counter, "audit_counter", lambda *_, **__: nothing)


CASES = cases()
LOADING = ("cupti plan",)  # what asks a library: another test's copy of it, in this process, would be the one that is found


def apart(*words: str) -> Said:
    """Ask a command in a process of its own."""
    paths = os.pathsep.join([os.environ["PYTHONPATH"], str(ROOT / "src")])
    done = subprocess.run([sys.executable, "-m", "ullage", *words], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    return Said(done.returncode, done.stdout, done.stderr)


# --- every command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=[f"{case[1]} {case[2]}" for case in CASES])
@pytest.mark.usefixtures("no_gpu")
def test_a_command_ends_with_the_status_of_what_came_of_it(case: Case, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, status, words = case[:3]
    monkeypatch.chdir(world)
    monkeypatch.syspath_prepend(str(world))
    monkeypatch.setenv("PYTHONPATH", str(world))
    if len(case) > 3:
        case[3](monkeypatch)  # type: ignore[misc]
    said = (apart if case[0] in LOADING else ask)(*words.split())
    assert said.code == status, said
    if status == ERROR:
        assert said.out == "" and said.err.startswith("ullage: ") and "Traceback" not in said.err
    else:  # an answer is given, also where it is partial or a gate trips
        assert said.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_what_it_can_not_read_with_2(name: str) -> None:
    said = ask(*name.split(), "--no-such-option")
    assert (said.code, said.out) == (USAGE, "") and "Usage: " in said.err and "ullage: " not in said.err


def test_the_cases_are_of_every_command_and_of_each_status_that_it_has() -> None:
    covered: dict[str, set[int]] = {}
    for case in CASES:
        covered.setdefault(case[0], set()).add(case[1])
    assert set(covered) | set(PASSED_ON) == set(COMMANDS)
    for name, statuses in covered.items():
        assert statuses - {INTERRUPTED} == {
            ANSWERED,
            ERROR,
            *([PARTIAL] if name in whys_of_3() else []),
            *([UNDER_LIMIT] if name in whys_of_4() else []),
        }, name


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--", sys.executable, "-c", "pass"], 0),
        (["--", sys.executable, "-c", "raise SystemExit(7)"], 7),
        (["--", sys.executable, "-c", "raise SystemExit(3)"], 3),
        (["--", "there-is-no-such-program"], 127),
        (["--", "/"], 126),
        (["--out", "r.docx", "--", sys.executable, "-c", "pass"], 1),
        (["--no-such-option"], 2),
        ([], 2),
    ],
)
def test_run_passes_on_the_status_of_the_program(words: list[str], status: int, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "ullage", "run", *words], cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr


# --- where it is said --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_the_statuses_of_the_command(name: str) -> None:
    for _ in range(2):  # asked again it says it once
        shown = CliRunner().invoke(cli, [*name.split(), "--help"], terminal_width=400)
        assert shown.exit_code == 0
        assert " ".join(shown.output.split()).endswith(in_words(name, whys_of_3().get(name, ""), whys_of_4().get(name, "")))
        assert shown.output.count("Exit status") == 1


def test_a_question_whose_gate_can_trip_says_when() -> None:
    gated = {name for name, question in QUESTIONS.items() if question.gate is not RegisteredQuestion.gate}
    assert {"audit mfu", "cupti check", "sass"} <= gated <= {*whys_of_3(), *whys_of_4()}


def test_the_page_of_commands_has_the_table() -> None:
    assert table() in (ROOT / "docs" / "commands.md").read_text()


def test_no_other_page_and_no_docstring_tells_the_statuses_again() -> None:
    said = re.compile(r"exit (?:code|status)?\s*(?:is )?[0-3]\b|exits with [0-3]\b", re.IGNORECASE)
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.name != "commands.md")]
    sources = [path for path in (ROOT / "src" / "ullage" / "cli").glob("*.py") if path.name != "_exit_status.py"]
    assert [path.name for path in (*pages, *sources) if said.search(path.read_text(encoding="utf-8"))] == []


def test_no_command_has_a_number_of_its_own() -> None:
    numbers = re.compile(r"(?:\.exit|Exit|sys\.exit)\(\d")
    sources = (ROOT / "src" / "ullage" / "cli").glob("*.py")
    assert [path.name for path in sources if numbers.search(path.read_text(encoding="utf-8"))] == []
