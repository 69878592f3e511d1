"""The command line as people and programs meet it: help that can be pasted, exit codes, streams, secrets, signals."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.command_line import ask
from tests.fleet.servers import say, scripted
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.reports.waterfall.inputs import kind

T = 1_786_320_000  # 2026-08-10T00:00:00Z
LABELS = 'gpu="{0}",UUID="GPU-{0}",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",hpc_job="job-{0}"'
READINGS = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "0.4", "DCGM_FI_DEV_SM_CLOCK": "1372.5", "DCGM_FI_PROF_SM_ACTIVE": "0.7"}


def page(when: int | None, gpus: int = 3) -> str:
    lines = [] if when is None else [f"# time {when}"]
    for name, value in READINGS.items():
        lines += [f"# TYPE {name} gauge", *(f"{name}{{{LABELS.format(gpu)}}} {value}" for gpu in range(gpus))]
    return "\n".join(lines) + "\n"


@pytest.fixture
def scrapes(tmp_path: Path) -> Path:
    """Three H100s, every 30 s for five minutes, and once more ten minutes later."""
    path = tmp_path / "scrapes.prom"
    path.write_text("".join(page(T + seconds) for seconds in (*range(30, 301, 30), 900)))
    return path


def run(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as a shell does."""
    return subprocess.run([sys.executable, "-m", "ullage", *words], capture_output=True, text=True, timeout=120, check=False, **more)  # type: ignore[call-overload,no-any-return]


def asked(*words: str) -> dict:
    outcome = CliRunner().invoke(cli, ["fleet", *words, "--json"])
    if isinstance(outcome.exception, UllageError):
        raise outcome.exception
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def refused(*words: str) -> str:
    """The words of the one error that a command ends with, without anything on stdout."""
    outcome = CliRunner().invoke(cli, list(words))
    assert isinstance(outcome.exception, UllageError), outcome.output
    assert outcome.stdout == ""
    return str(outcome.exception)


# -- help ------------------------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", found) for sub, found in command.commands.items())
        else:
            yield name, command


COMMANDS = dict(commands())


def examples(command: click.Command) -> list[list[str]]:
    """The commands among the examples of a help, as words; what stands beside them is explanation."""
    lines = re.findall(r"^\s*(?:0 \* \* \* \*\s+)?(ullage .+)$", command.epilog or "", re.M)
    return [shlex.split(re.split(r"\s{3,}| \| ", line)[0]) for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_examples_that_can_be_pasted(name):
    command = COMMANDS[name]
    shown = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert shown.exit_code == 0
    assert "Examples:" in shown.output and "Usage: " in shown.output
    found = examples(command)
    assert found
    for words in found:
        assert words[: 1 + len(name.split())] == ["ullage", *name.split()]
        command.make_context(name, words[1 + len(name.split()) :])  # raises for an option or a value that is none
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_the_first_page_lists_every_command():
    shown = run("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    for name in {name.split()[0] for name in COMMANDS}:
        assert re.search(rf"^  {name}  ", shown.stdout, re.M)
    assert run("-h").stdout == shown.stdout
    assert re.fullmatch(r"ullage \d+\.\d+\.\d+\n", run("--version").stdout)


# -- exit codes and streams ---------------------------------------------------------------------------------------------------


def test_a_good_answer_is_0_with_the_answer_first_and_nothing_on_stderr(scrapes):
    done = run("fleet", str(scrapes))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("OFU 30.0 % of ")


def test_what_the_user_can_fix_is_1_with_two_lines_on_stderr_and_nothing_on_stdout():
    done = run("fleet", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ullage: there is no file or folder 'nowhere'\n  give a file, a folder of files, or a URL such as http://prometheus:9090\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fleeet", "x"], "there is no command 'fleeet'; did you mean 'fleet' or 'fleet-map'?"),
        (["fleet"], "Missing argument 'SOURCE…'"),
        (["fleet", "x", "--tpo", "3"], "'--top'"),
        (["fleet", "x", "--top", "-1"], "-1 is not in the range"),
        (["fleet", "x", "--timeout"], "requires an argument"),
        (["simulate", "--format", "xls"], "'xls' is not one of"),
        (["store", "infoo"], "infoo"),
    ],
)
def test_wrong_usage_is_2_and_says_what_was_meant(words, told):
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr and "Traceback" not in done.stderr


def test_json_is_all_that_stands_on_stdout(scrapes, tmp_path):
    (tmp_path / "bad.csv").write_text("job,start,end\n7,2026-08-10T02:00:00Z,2026-08-10T01:00:00Z\n")
    done = run("fleet", str(scrapes), "--jobs", str(tmp_path / "bad.csv"), "--json", "--out", str(tmp_path / "r.html"))
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert any("end before they start" in note for note in answer["notes"])
    assert done.stderr == f"wrote {tmp_path / 'r.html'}\n"
    for words in (["gpus"], ["gpus", "H100"], ["metrics"], ["metrics", "--fields"], ["metrics", "sampled_ofu"]):
        assert ask(*words, "--json").json


def test_the_top_level_of_the_json_is_as_agreed(scrapes):
    answer = asked(str(scrapes))
    assert {"ofu", "method", "gpu_hours", "trusted_share", "window", "tree", "ledger", "groups", "notes"} <= set(answer)
    assert all({"key", "ofu", "gpu_hours", "tree"} <= set(group) for group in answer["groups"])


def test_nothing_is_coloured_where_nobody_looks(scrapes, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    done = run("fleet", str(scrapes))
    assert "\x1b" not in done.stdout + done.stderr and "\r" not in done.stdout + done.stderr
    for words in (["gpus"], ["metrics"], ["gpus", "H100"], ["--help"], ["fleet", "nowhere"], ["nope"]):
        said = ask(*words)
        assert "\x1b" not in said.out + said.err and "\r" not in said.out + said.err, words


def on_terminal(*words: str) -> tuple[int, str, str]:
    """Run a command whose stderr is a terminal; return its exit code, stdout and stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "ullage", *words], stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    seen: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                piece = os.read(ours, 1024)
            except OSError:  # the other end was closed
                return
            if not piece:
                return
            seen.append(piece)

    listener = threading.Thread(target=listen)
    listener.start()
    out, _ = process.communicate(timeout=120)
    listener.join(10)
    os.close(ours)
    return process.returncode, out, b"".join(seen).decode()


def test_progress_is_shown_on_a_terminal_and_wiped_before_the_answer(scrapes):
    code, out, error = on_terminal("fleet", str(scrapes))
    assert code == 0 and out.startswith("OFU 30.0 %") and "\x1b" not in out
    assert "adding up" in error and error.endswith("\r\x1b[2K")
    assert on_terminal("fleet", str(scrapes), "--json")[2] == ""


def test_an_error_on_a_terminal_stands_on_a_line_of_its_own(scrapes):
    code, out, error = on_terminal("fleet", str(scrapes), "--since", "2030-01-01")
    assert (code, out) == (1, "")
    assert re.search(r"\r\x1b\[2Kullage: there is no sample in the window\r\n", error)


def test_a_reader_that_leaves_is_no_error(scrapes):
    for words in (["fleet", str(scrapes)], ["gpus"], ["metrics", "--json"], ["--help"]):
        process = subprocess.Popen([sys.executable, "-m", "ullage", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # as `| head -0` does
        error = process.stderr.read()
        assert (process.wait(60), error) == (0, ""), words
        process.stderr.close()


def test_an_answer_that_can_not_be_written_is_one_error(scrapes):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ullage", "fleet", str(scrapes)], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, "ullage: the answer can't be read or written: No space left on device\n")


def test_a_terminal_that_can_only_do_latin_letters_gets_the_answer_all_the_same(scrapes):
    done = run("fleet", str(scrapes), env=os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}, encoding="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "OFU 30.0 %" in done.stdout


def test_ctrl_c_ends_with_130_and_without_a_traceback(tmp_path):
    asked_for = threading.Event()

    def exporter(handler: BaseHTTPRequestHandler) -> None:
        say(handler, page(None), kind="text/plain")
        asked_for.set()

    with scripted(exporter) as url:
        words = ["fleet", f"{url}/metrics", "--watch", "60s", "--every", "1s", "--store", str(tmp_path / "store")]
        process = subprocess.Popen([sys.executable, "-m", "ullage", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert asked_for.wait(60)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error.strip()) == (130, "", "")


def test_ctrl_c_ends_the_simulators_server():
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "ullage", "simulate", "--gpus", "8", "--hours", "1", "--faults", "none", "--serve", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "serving 8 GPUs of 1 hosts at http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "stopped\n")


# -- what is loaded -----------------------------------------------------------------------------------------------------------


def loaded(code: str) -> set[str]:
    """The modules that are there after some code ran in a fresh Python."""
    script = f"import sys\ntry:\n    exec({code!r})\nexcept SystemExit:\n    pass\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    return set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import ullage",
        "import ullage; ullage.__version__; ullage.UllageError",
        "from ullage.cli import main; sys.argv = ['ullage', '--help']; main()",
        "from ullage.cli import main; sys.argv = ['ullage', '--version']; main()",
        "from ullage.cli import main; sys.argv = ['ullage', 'fleet', '--help']; main()",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code):
    assert not {"numpy", "pyarrow", "duckdb", "ibis", "scipy", "urllib3", "rich"} & loaded(code)


def test_the_help_loads_no_question_and_says_of_every_command_what_it_is():
    code = "from ullage.cli import main; sys.argv = ['ullage', '--help']; main()"
    ours = {name for name in loaded(code) if name.startswith("ullage.")}
    assert ours <= {"ullage.cli", "ullage.cli._exit_status", "ullage.cli._names", "ullage.errors", "ullage.questions"}
    listed = CliRunner().invoke(cli, ["--help"], terminal_width=200).output.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == cli.list_commands(None)
    assert all(line[-1] in ".?" and len(line.split()) > 3 for line in listed)
    bare = subprocess.run([sys.executable, "-OO", "-m", "ullage", "--help"], capture_output=True, text=True, check=True)
    assert "waterfall" in bare.stdout  # without docstrings there are names alone


def test_a_report_from_the_command_line_loads_no_pandas_which_others_may(tmp_path):
    """PyArrow and Ibis load it where it is installed: a quarter of a second that no report needs."""
    scrape = tmp_path / "one.prom"
    scrape.write_text('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 0.5 1786320000000\n')
    store = tmp_path / "store"
    ask = "from ullage.__main__ import run_command_line; sys.argv = ['ullage', 'fleet', {}]; run_command_line()"
    for words in (f"{str(scrape)!r}, '--store', {str(store)!r}", repr(str(store))):  # a scrape as it comes, and kept
        modules = loaded(ask.format(words))
        assert "ullage.reports.fleet.fleet" in modules and "pyarrow" in modules and "pandas" not in modules
    mine = "from importlib.util import find_spec; from ullage.__main__ import ArrowWithoutPandas; "
    mine += "sys.meta_path.insert(0, ArrowWithoutPandas()); assert find_spec('pandas'); import pandas"
    assert "pandas" in loaded(mine)


# -- secrets --------------------------------------------------------------------------------------------------------------------


def test_secrets_reach_the_server_and_nothing_else(tmp_path, monkeypatch):
    seen: list[str] = []

    def exporter(handler: BaseHTTPRequestHandler) -> None:
        seen.append(f"{handler.path} {handler.headers['X-Key']} {handler.headers['Authorization']}")
        say(handler, page(None), kind="text/plain")

    with scripted(exporter) as url:
        secret = url.replace("://", "://me:pa55@word@") + "/metrics?token=hunter2"
        words = ["fleet", secret, "--header", "X-Key: s3same", "--header=X-Other: 0pen", "--store", str(tmp_path / "store")]
        outcomes = [ask(*words), ask(*words, "--json")]
        for form in ("html", "json", "txt", "svg"):
            monkeypatch.setattr(sys, "argv", ["ullage", *words, "--out", str(tmp_path / f"r.{form}")])
            assert CliRunner().invoke(cli, sys.argv[1:]).exit_code == 0
    assert seen and all("token=hunter2" in line and "s3same" in line and "Basic" in line for line in seen)
    written = [p.read_bytes().decode("utf-8", "replace") for p in tmp_path.rglob("*") if p.is_file()]
    for text in [*(outcome.out + outcome.err for outcome in outcomes), *written]:
        assert not re.search("pa55|word@|hunter2|s3same|0pen", text)
    assert all(outcome.code == 0 for outcome in outcomes)
    assert "--header '…' '--header=…'" in outcomes[1].json["command"]


def test_secrets_are_in_no_error():
    for place in ("http://me:pa55@127.0.0.1:1/metrics?k=hunter2", "prometheus+http://me:pa55@127.0.0.1:1", "ftp://me:pa55@x/?k=hunter2"):
        done = run("fleet", place, "--header", "X-Key: s3same", "--timeout", "1s", "--header", "bad s3same")
        assert done.returncode == 1 and not re.search("pa55|hunter2|s3same", done.stderr), done.stderr
        told = CliRunner().invoke(cli, ["fleet", place, "--timeout", "1s"]).exception if place.startswith("ftp") else None
        assert not told or not re.search("pa55|hunter2", str(told))


# -- --out ------------------------------------------------------------------------------------------------------------------------


def test_a_form_that_is_not_known_and_a_folder_that_is_not_there_are_told_before_anything_is_read(tmp_path):
    assert "cannot write 'report.docx': this report has no .docx format" in refused("fleet", "nowhere", "--out", "report.docx")
    assert "its name does not say in which format" in refused("job", "1", "nowhere", "--out", "report")
    assert "there is no folder" in refused("fleet", "nowhere", "--out", str(tmp_path / "not" / "there.html"))


def test_an_old_report_stays_when_the_new_one_fails(scrapes, tmp_path, monkeypatch):
    out = tmp_path / "report.html"
    out.write_text("old")

    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target) == out:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    assert "report.html can't be written: No space left on device" in refused("fleet", str(scrapes), "--out", str(out))
    monkeypatch.undo()
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "scrapes.prom"]
    folder = tmp_path / "folder.html"
    folder.mkdir()
    assert "folder.html is a folder" in refused("fleet", str(scrapes), "--out", str(folder))


def test_ofu_by_sample_needs_a_table_to_go_to_and_says_so_first():
    for words in ([], ["--out", "r.html"], ["--json"]):
        assert "add --out FILE.parquet" in refused("fleet", "nowhere", "--by", "sample", *words)


# -- what is asked ------------------------------------------------------------------------------------------------------------------


def test_a_price_is_for_all_or_by_name(scrapes):
    # 3 GPUs: 300 s, and 60 s of the ten minutes' gap: 0.3 GPU-hours
    assert asked(str(scrapes), "--price", "2.5")["ullage"]["fleet_cost"] == pytest.approx(0.3 * 2.5)
    assert asked(str(scrapes), "--price", "A100=1,H100=4")["ullage"]["fleet_cost"] == pytest.approx(0.3 * 4)
    assert asked(str(scrapes), "--price", "1", "--price", "H100=4")["ullage"]["fleet_cost"] == pytest.approx(0.3 * 4)
    assert asked(str(scrapes), "--price", "A100=1")["ullage"]["fleet_cost"] is None
    assert asked(str(scrapes), "--price", "0")["ullage"]["fleet_cost"] == 0


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "two", "H100=", "=", "H100=2,A100"])
def test_what_is_no_price_is_told_before_anything_is_read(text):
    assert "price" in refused("fleet", "nowhere", "--price", text)


def test_a_gpu_that_nobody_knows_is_told_before_anything_is_read():
    for words in (["--price", "H1000=2"], ["--gpu", "H1000"]):
        assert "did you mean 'H100'" in refused("fleet", "nowhere", *words)
    assert "no peak in TFLOP/s" in refused("fleet", "nowhere", "--peak-tflops", "fast")


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2026-08-10T00:01:00Z", "2026-08-10T00:03:00Z"),
        ("2026-08-10T00:01:00", "2026-08-10 00:03:00"),
        ("2026-08-10T02:01:00+02:00", "2026-08-09T19:03:00-05:00"),
        (str(T + 60), f"{T + 180}.000"),
    ],
)
def test_times_are_written_in_many_ways(scrapes, since, until):
    answer = asked(str(scrapes), "--since", since, "--until", until)
    assert answer["window"] == {"start": "2026-08-10T00:01:00Z", "end": "2026-08-10T00:03:00Z", "hours": 120 / 3600}
    assert answer["gpu_hours"] == pytest.approx(3 * 120 / 3600)


def test_a_span_is_before_now(scrapes):
    hours = (time.time() - T) / 3600
    assert asked(str(scrapes), "--since", f"{hours + 1:.0f}h")["gpu_hours"] == pytest.approx(0.3)
    if hours > 2:
        assert "no sample in the window" in refused("fleet", str(scrapes), "--since", "60s")


@pytest.mark.parametrize("text", ["yesterday", "", "24 hours ago", "2026-13-01", "99999999999h", "1e400", "-5", "12:00"])
def test_what_is_no_time_is_told_before_anything_is_read(text):
    assert "is not a" in refused("fleet", "nowhere", "--since", text)
    assert "is not a" in refused("fleet", "nowhere", "--until", text)


def test_a_window_that_ends_before_it_begins_is_told_before_anything_is_read():
    told = refused("fleet", "nowhere", "--since", "2026-08-11", "--until", "2026-08-10")
    assert told.startswith("the window is empty: it begins at 2026-08-11T00:00:00Z and ends at 2026-08-10T00:00:00Z")


@pytest.mark.parametrize("option", ["--gap", "--every", "--timeout", "--watch"])
@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon", "1e300", ""])
def test_what_is_no_span_is_told_before_anything_is_read(option, text):
    assert "is not a span of time" in refused("fleet", "nowhere", option, text)
    if option != "--watch":
        assert "is too short" in refused("fleet", "nowhere", option, "0")


def test_a_wrong_key_is_told_before_anything_is_read():
    assert "did you mean 'user'" in refused("fleet", "nowhere", "--by", "usr")
    assert "`ullage fleet --help` lists all" in refused("fleet", "nowhere", "--by", "")


def test_the_gap_is_the_longest_time_a_sample_stands_for(scrapes):
    # 3 GPUs at 30, 60 … 300 s (the first stands for 30 s too), and at 900 s
    assert asked(str(scrapes))["gpu_hours"] == pytest.approx(3 * (300 + 60) / 3600)
    assert asked(str(scrapes), "--gap", "15m")["gpu_hours"] == pytest.approx(3 * 900 / 3600)
    assert asked(str(scrapes), "--gap", "10s")["gpu_hours"] == pytest.approx(3 * 11 * 10 / 3600)


def test_the_gap_is_kept_with_what_is_stored(scrapes, tmp_path):
    store = str(tmp_path / "store")
    assert asked(str(scrapes), "--gap", "15m", "--store", store)["gpu_hours"] == pytest.approx(3 * 900 / 3600)
    again = asked(store, "--gap", "10s")
    assert again["gpu_hours"] == pytest.approx(3 * 900 / 3600)
    assert any("--gap changes nothing" in note for note in again["notes"])


def test_the_table_shows_as_many_rows_as_asked(scrapes):
    shown = CliRunner().invoke(cli, ["fleet", str(scrapes), "--top", "1"]).stdout.partition("next:")[0]
    assert shown.count("job-") == 1 and "… 2 more; --top shows them" in shown
    assert CliRunner().invoke(cli, ["fleet", str(scrapes), "--top", "3"]).stdout.partition("next:")[0].count("job-") == 3


@pytest.mark.parametrize("text", ["nonsense", ": value", "Name\r\nX: y", ""])
def test_what_is_no_header_is_told_before_anything_is_read(text):
    assert "a --header has no 'NAME: VALUE'" in refused("fleet", "nowhere", "--header", text)


def test_names_that_mean_nothing_are_told():
    assert "there is no file or folder ''" in refused("fleet", "")
    assert "is a URL of a kind that is not known" in refused("fleet", "ftp://somewhere/else")
    assert "'http://' is not a URL of a server" in refused("fleet", "http://")


@pytest.mark.parametrize("name", ["csv", "dmon", "parquet", "prometheus"])
def test_a_folder_or_file_may_have_the_name_of_a_format(name, scrapes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"there is no file or folder '{name}'" in refused("fleet", name)
    Path(name).symlink_to(scrapes)
    assert asked(name)["gpu_hours"] == asked(str(scrapes))["gpu_hours"] > 0
    assert kind(name) == "telemetry"


def test_a_file_name_can_not_paint_the_terminal(tmp_path):
    for name in (b"\x1b[31mred\x1b[0m.prom", b"\xff\xfe.prom", b"\xff.parquet"):
        path = os.fsencode(tmp_path) + b"/" + name
        Path(os.fsdecode(path)).write_bytes(b"PAR1 nothing")
        done = subprocess.run([sys.executable, "-m", "ullage", "fleet", path], capture_output=True, check=False, timeout=60)
        assert done.returncode == 1 and b"Traceback" not in done.stderr and b"\x1b" not in done.stderr, done.stderr


@pytest.mark.parametrize("stored", [False, True])
def test_a_trainers_log_that_is_named_goes_before_the_records(tmp_path, stored):
    rows = "".join(f"{1_700_000_000 + 30 * n},0,n1,7,0.4,1830,H100-SXM\n" for n in range(10))
    (tmp_path / "a.csv").write_text("time,gpu,host,job,tensor_active,sm_clock,model\n" + rows)
    (tmp_path / "jobs.csv").write_text("job,host,mfu\n7,n1,0.124\n")
    (tmp_path / "train.log").write_text("".join(f'{{"step": {n}, "mfu": 0.615}}\n' for n in range(5)))
    words = [str(tmp_path / "a.csv"), "--jobs", str(tmp_path / "jobs.csv")]
    if stored:
        assert ask("fleet", *words, "--store", tmp_path / "s").code == 0
        words = [str(tmp_path / "s")]
    told = ask("fleet", *words, "--reported", f"{tmp_path / 'train.log'}=7", "--json").json
    assert told["agreement"]["mfu"] == pytest.approx(0.615)
    assert told["agreement"]["contradictions"] == [{"job": "7", "counted": pytest.approx(0.615), "other": pytest.approx(0.124)}]
