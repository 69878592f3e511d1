"""`ullage top`: what it shows at which width, of which place, and what it says where nothing is known."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.fleet.servers import say, scripted
from tests.live.nvml_double import Gpu, Nvml
from tests.live.sampled_machine import gpu
from ullage.cli import cli
from ullage.cli.options import painter
from ullage.errors import UllageError
from ullage.live.sampling.course import Course
from ullage.live.sampling.places import interval, polled, recent
from ullage.problems import Problems
from ullage.render.top import WatchedMachine, curve, fitted_view, grid, ordered, record
from ullage.sources.machine import Limits
from ullage.sources.source import Options
from ullage.tables import samples
from ullage.views.table import plain
from ullage.views.text import text

T = 1_786_363_200_000  # 2026-08-10 12:00 UTC
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def batch(at, *devices):
    """Return samples of one moment from (number, model, fields)."""
    names = {name for _, _, fields in devices for name in fields}
    columns = {name: np.array([fields.get(name, np.nan) for _, _, fields in devices], float) for name in names - {"mig"}}
    return samples(
        {
            "time": [T + round(1000 * at)] * len(devices),
            "host": ["node-17"] * len(devices),
            "gpu": [f"GPU-{number}" for number, _, _ in devices],
            "index": pa.array([number for number, _, _ in devices], pa.int16()),
            "mig": [fields.get("mig") for _, _, fields in devices],
            "model": [model for _, model, _ in devices],
            **columns,
        }
    )


BUSY = {"tensor_active": 0.6, "sm_active": 0.9, "gpu_util": 1.0, "sm_clock": 1.525e9, "power": 612, "temperature": 61, "throttle": 4 | 32}
BUSY |= {"memory_used": 64e9}
IDLE = {"tensor_active": 0.0, "sm_active": 0.0, "gpu_util": 0.0, "sm_clock": 0.345e9, "power": 72, "temperature": 31, "throttle": 1}
DARK = {"gpu_util": 1.0, "sm_clock": 1.41e9, "power": 400, "temperature": 55}


def watched(**more):
    """Look at an H100 with OFU 0.6 × 1525 / 1830 = 0.5, an idle one, and an A100 that tells no tensor activity, for 20 s."""
    course = Course(10)
    course.limits = {"GPU-0": Limits(power=650, sm_clock=1.98e9, memory=80e9)}
    for at in (10, 20):
        course.add([batch(at, (0, H100, BUSY), (1, H100, IDLE), (2, A100, DARK))])
    return WatchedMachine(course, "node-17 by NVML", **more)


def shown(machine, width, paint=plain):
    """Return the machine as a terminal of this width shows it."""
    return text(fitted_view(machine, width, 24), width=width, fill=True, paint=paint)


def test_a_wide_terminal_shows_everything():
    assert shown(watched(prices={"": 2.0}), 120) == (
        "OFU 25.0 % now, 25.0 % since the start; 1.5 of 2 GPUs' worth missing, costing 3.00 an hour\n"
        "node-17 by NVML, 2026-08-10 12:00:20 UTC: sampled, by activity and clock; 3 GPUs, OFU of 1 GPU unknown\n"
        "\n"
        "GPU     OFU    mean  tensor    SM   util  last 4 min                  clock, MHz  power, W  °C  memory, GB  held back by\n"
        "0    50.0 %  50.0 %    60 %  90 %  100 %                         ▅▅  1,525/1,980   612/650  61       64/80  power cap +1\n"
        "1     0.0 %   0.0 %     0 %   0 %    0 %                         ▁▁    345/1,980    72/700  31           –  idle\n"
        "2         –       –       –     –  100 %                             1,410/1,410   400/400  55           –\n"
        "\n"
        "note: OFU of GPU 2 is not known: nobody tells the activity of its tensor pipes\n"
    )


def test_a_narrow_terminal_shows_the_most_telling_columns():
    assert shown(watched(), 60) == (
        "OFU 25.0 % now, 25.0 % since the start; 1.5 of 2 GPUs' worth\n"
        "missing\n"
        "node-17 by NVML, 2026-08-10 12:00:20 UTC: sampled, by\n"
        "activity and clock; 3 GPUs, OFU of 1 GPU unknown\n"
        "\n"
        "GPU     OFU    mean  tensor    SM   util  last 2 min      °C\n"
        "0    50.0 %  50.0 %    60 %  90 %  100 %              ▅▅  61\n"
        "1     0.0 %   0.0 %     0 %   0 %    0 %              ▁▁  31\n"
        "2         –       –       –     –  100 %                  55\n"
        "\n"
        "note: OFU of GPU 2 is not known: nobody tells the activity\n"
        "  of its tensor pipes\n"
    )


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_nothing_is_wider_than_the_terminal(width):
    assert max(map(len, shown(watched(), width).splitlines())) <= width
    lines = shown(watched(), width).splitlines()
    assert max(map(len, lines)) <= width and not any("…" in line for line in lines)
    assert [line.split()[0] for line in lines if line[:1].isdigit()] == ["0", "1", "2"]


def test_more_room_shows_more():
    heads = [{column.heading for column in grid(watched(), width).columns if column.key != "curve"} for width in (20, 60, 80, 120)]
    assert heads[0] < heads[1] < heads[2] < heads[3]
    assert {"GPU", "OFU"} <= heads[0] and "held back by" in heads[3] and "power, W" in heads[2]


def test_no_colour_leaves_the_words_and_takes_the_colours(monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = shown(watched(), 100, painter(Terminal()))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(watched(), 100, painter(Terminal()))
    assert "\x1b[31m0.0 %\x1b[0m" in coloured and "\x1b" not in plain and "50.0 %" in plain


def test_devices_stand_as_they_are_asked_to():
    order = {sort: [device.row["index"] for device in ordered(watched(sort=sort))] for sort in ("gpu", "ofu", "power", "util")}
    assert order == {"gpu": [0, 1, 2], "ofu": [1, 0, 2], "power": [0, 2, 1], "util": [0, 2, 1]}


def test_the_curve_goes_from_empty_to_full_and_leaves_gaps_where_nothing_is_known():
    course = Course(60)
    for minute, tensor in enumerate((0.0, 0.5, None, 0.8, 1.0), 1):
        fields = {"sm_clock": 1.83e9} | ({} if tensor is None else {"tensor_active": tensor})
        course.add([batch(60 * minute, (0, H100, fields))])
    [device] = course
    assert curve(device, 5) == "▁▅ ▇█"  # whole eighths: 0, 4, none, 6, 8


def test_a_mig_instance_stands_below_its_gpu_without_the_boards_own_figures():
    course = Course(10)
    instance = {"mig": "1g.10gb/7", "tensor_active": 0.6, "sm_clock": 1.525e9, "memory_used": 9e9}
    course.add([batch(10, (0, H100, DARK), (0, H100, instance))])
    rows = [line.split() for line in shown(WatchedMachine(course, "n"), 120).splitlines() if line.startswith("0")]
    assert [row[0] for row in rows] == ["0", "0:1g.10gb/7"] and "50.0" in rows[1] and "9" in rows[1]


def test_names_from_a_source_cannot_take_over_the_terminal():
    course = Course(10)
    hostile = batch(10, (0, "\x1b[2J\x1b]0;owned\x07", BUSY))
    course.add([hostile])
    assert "\x1b" not in shown(WatchedMachine(course, "a\x1b[31m", notes=("b\x1b[32m",)), 100)


def test_data_for_programs_has_null_for_what_is_not_known():
    data = json.loads(json.dumps(record(watched(prices={"H100": 2.0})), allow_nan=False))
    assert (data["ofu"], data["method"], data["gpus"], data["gpus_known"]) == (pytest.approx(0.25), "sampled", 3, 2)
    assert data["ullage_gpus"] == pytest.approx(1.5) and data["cost_per_hour"] == pytest.approx(3.0)
    busy, _, dark = data["devices"]
    assert busy["held_back_by"] == "power cap, software thermal slowdown" and busy["unknown"] is None
    assert (dark["ofu"], dark["mean_ofu"]) == (None, None) and dark["unknown"] == "nobody tells the activity of its tensor pipes"


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """Make this machine have these NVIDIA GPUs and nothing else."""

    def have(*gpus):
        monkeypatch.setitem(sys.modules, "pynvml", Nvml(gpus) if gpus else None)
        monkeypatch.setitem(sys.modules, "amdsmi", None)
        monkeypatch.setenv("PATH", "/nonexistent")

    return have


def run(*arguments):
    return CliRunner().invoke(cli, ["top", "--every", "0.1s", *arguments], catch_exceptions=False)


def test_once_prints_this_machine_as_text(machine):
    machine(gpu("GPU-a", 0.4), gpu("GPU-b", 0.2))
    answer = run("--once", "--sort", "ofu")
    assert answer.exit_code == 0
    # (0.4 + 0.2) / 2 × 1410 / 1830
    assert answer.stdout.startswith("OFU 23.1 % now, 23.1 % since the start; 1.5 of 2 GPUs' worth missing\n")
    assert " by NVML, " in answer.stdout.splitlines()[1]
    assert [line.split()[:2] for line in answer.stdout.splitlines()[4:6]] == [["1", "15.4"], ["0", "30.8"]]


def test_where_no_terminal_is_it_prints_once(machine):
    machine(gpu("GPU-a"))
    assert run().stdout.startswith("OFU 30.8 % now")


def test_without_gpm_ofu_is_unknown_because_and_never_zero(machine):
    machine(Gpu("GPU-a", name=A100, gpm=False))
    answer = run("--once").stdout
    assert answer.startswith("OFU unknown for 1 GPU\n") and "GPM needs Hopper or later" in answer and " 0.0 %" not in answer


def test_json_gives_one_object(machine):
    machine(gpu("GPU-a", 0.4))
    data = json.loads(run("--json", "--price", "2").stdout)
    assert data["ofu"] == pytest.approx(0.308, abs=1e-3) and data["cost_per_hour"] == pytest.approx(1.38, abs=0.01)
    assert data["devices"][0]["gpu"] == "GPU-a" and data["devices"][0]["power"] == 612


def test_without_a_gpu_one_error_names_what_was_tried(machine):
    machine()
    with pytest.raises(UllageError) as error:
        run("--once")
    for words in ("NVML: ", "nvidia-smi: nvidia-smi is not installed", "amdsmi: the library 'amdsmi' is not installed"):
        assert words in error.value.problem


def test_gpus_cannot_be_chosen_of_another_place():
    with pytest.raises(UllageError, match="--source names another place"):
        run("--gpu", "0", "--source", "http://x/metrics")


PAGE = """DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-0",Hostname="n1",modelName="NVIDIA H100 80GB HBM3"} 0.6
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-0",Hostname="n1",modelName="NVIDIA H100 80GB HBM3"} 1525
"""


def test_an_exporter_is_shown_as_this_machine_would_be():
    with scripted(lambda handler: say(handler, PAGE, kind="text/plain")) as url:
        answer = run("--once", "--source", f"{url}/metrics").stdout
    assert answer.startswith("OFU 50.0 % now, 50.0 % since the start; 0.5 of 1 GPU missing\n") and f"{url}/metrics, " in answer


def test_a_file_is_shown_as_it_stood_at_its_end(tmp_path):
    # the last five minutes count: five minutes before the end it was idle
    path = tmp_path / "x.prom"
    lines = [
        PAGE.replace("0.6\n", f"{0.6 if at > 290 else 0} {T + 1000 * at}\n").replace("1525\n", f"1525 {T + 1000 * at}\n")
        for at in range(0, 600, 10)
    ]
    path.write_text("".join(lines))
    answer = run("--source", str(path)).stdout
    assert answer.startswith("OFU 50.0 % now, 50.0 % since the start") and "2026-08-10 12:09:50 UTC" in answer


def test_on_a_terminal_it_is_shown_until_ctrl_c_and_stays_behind_as_text():
    root = Path(__file__).parents[2]
    terminal, other = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}", "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "tests.live.sampled_machine", "top", "--every", "0.1s"]
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment, cwd=root)
    os.close(other)
    seen, told = b"", False
    try:
        while True:
            seen += os.read(terminal, 65536)
            if b"missing" in seen and not told:
                told = True
                process.send_signal(signal.SIGINT)
    except OSError:  # the terminal's other end is closed
        os.close(terminal)
    assert process.wait(60) == 0
    shown, left = seen.split(b"\x1b[?1049l")  # the alternate screen is left once
    assert b"\x1b[?1049h" in shown and b"OFU 23.1 % now" in shown
    assert left.lstrip().startswith(b"OFU 23.1 % now") and b"\x1b" not in left


# -- places -----------------------------------------------------------------------------------------------------------


def test_an_exporter_that_fails_in_between_is_counted_and_asked_again(monkeypatch):
    answers = iter([(200, PAGE), (500, "no"), (200, PAGE)])
    problems, stop = Problems(), threading.Event()

    def answer(handler):
        status, page = next(answers)
        say(handler, page, status, "text/plain")

    with scripted(answer) as url:
        tables = polled(f"{url}/metrics", 0.01, problems, stop, Options(retries=0))
        assert [len(next(tables)) for _ in range(3)] == [1, 0, 1]
        stop.set()
    assert problems.dropped["readings that failed"] == 1


def test_an_exporter_that_is_not_there_at_first_is_an_error():
    with pytest.raises(UllageError):
        next(polled("http://127.0.0.1:9/metrics", 1, Problems(), threading.Event(), Options(retries=0)))


def test_partial_rows_of_one_moment_become_one():
    table = recent([batch(10, (0, H100, {"power": 600})), batch(10, (0, H100, {"sm_clock": 1e9}))])
    assert table.num_rows == 1 and (table["power"][0].as_py(), table["sm_clock"][0].as_py()) == (600, 1e9)


def test_only_the_last_minutes_are_kept_in_memory():
    table = recent(batch(at, (0, H100, {"power": 600})) for at in range(0, 4000, 10))
    assert table.num_rows == 30  # 300 s at 10 s


def test_the_interval_of_a_place_is_the_usual_one_between_two_readings_of_a_device():
    table = recent([batch(at, (0, H100, {"power": 1}), (1, H100, {"power": 1})) for at in (0, 15, 30, 200)])
    assert interval(table, 2.0) == 15 and interval(recent([batch(1, (0, H100, {"power": 1}))]), 2.0) == 2.0


def test_what_runs_on_a_bare_node_needs_numpy_and_pyarrow_alone():
    modules = [f"sampling.{name}" for name in ("sampler", "course", "kinds", "readings_file", "exposition", "process_owners", "places")]
    code = f"import sys, importlib; [importlib.import_module('ullage.live.' + name) for name in {modules}];"
    code += "print(sorted({m.split('.')[0] for m in sys.modules} & {'duckdb','ibis','rich','click','msgspec','urllib3','pynvml','amdsmi'}))"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root).stdout == "[]\n"
