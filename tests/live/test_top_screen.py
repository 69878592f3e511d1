"""`ullage top` at a terminal: what each key shows, that it fits, and that names from outside do no harm."""

from __future__ import annotations

import json
import os
import pty
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fleet.servers import say, scripted
from tests.live.nvml_double import Nvml
from tests.live.sampled_machine import gpu
from tests.live.test_top import BUSY, DARK, H100, IDLE, batch, run, watched
from ullage.cli._keyboard import TerminalKeyboard
from ullage.errors import UllageError
from ullage.live.sampling.course import Course
from ullage.live.sampling.gpu_processes import LONGEST_COMMAND, GpuProcess, ProcessFacts
from ullage.live.sampling.process_owners import ProcessOwners
from ullage.render.top import WatchedMachine, fitted_view, listed, record, rows_to_choose_from
from ullage.render.top_screen import PROCESS_SORTS, SORTS, TopScreen, pressed
from ullage.sources.machine import DeviceProcess
from ullage.sources.nvml_health import MOST_EVENTS, SAMPLED_EVERY, BoardHealth, device_processes
from ullage.sources.nvml_readings import NvmlDevice
from ullage.views.text import text

ROOT = Path(__file__).parents[2]
SIZES = [(80, 24), (120, 40), (40, 12)]
PANELS = ["devices", "processes", "links", "history", "factors", "notes", "help"]


def after(*keys, rows=3, screen=None):
    """Return the screen after some keys."""
    screen = screen or TopScreen()
    for key in keys:
        screen = pressed(screen, key, rows)
    return screen


def on(machine, width=120, height=40):
    """Return what a terminal of this size shows."""
    return text(fitted_view(machine, width, height), width=width, fill=True)


def machine_with(screen, *processes, gpus=3):
    course = Course(10)
    course.histories = 8
    for at in (10, 20):
        course.add([batch(at, *((number, H100, (BUSY, IDLE, DARK)[number % 3]) for number in range(gpus)))])
    return WatchedMachine(course, "node-17 by NVML", processes=processes, screen=screen)


TRAINS = GpuProcess(("GPU-0", None), 41, "C", 30e9, 0.9, "ada", "4711", "python train.py", 1.5, 2e9, 75.0, ((40, "torchrun"), (7, "bash")))
SECOND = replace(TRAINS, device=("GPU-1", None), pid=42, user="bob", gpu_memory=60e9)


def test_a_key_leads_to_each_list_and_escape_back():
    reached = {after(key).panel for key in ("d", "p", "l", "enter", "e", "n", "h", "?", "t")}
    assert reached == set(PANELS)
    assert all(after(key, "escape") == TopScreen() for key in ("p", "l", "e", "n", "h"))
    assert after("q") is None and after("escape") is None and after("p", "q") is None


def test_sorting_goes_round_both_ways():
    assert [after(*["s"] * n).sort for n in range(len(SORTS) + 1)] == [*SORTS, SORTS[0]]
    assert after("S").sort == SORTS[-1] and after("p", "s").process_sort == PROCESS_SORTS[1] and after("p", "s").sort == "gpu"
    assert after("r").reverse and not after("r", "r").reverse


def test_a_row_is_chosen_within_the_list():
    assert [after(*keys).chosen for keys in (["down"], ["up"], ["end"], ["end", "down"], ["end", "home"], ["pagedown"])] == [
        1,
        0,
        2,
        2,
        0,
        2,
    ]
    assert after("down", rows=0).chosen == 0 and after("down", "enter").chosen == 1 and after("down", "p").chosen == 0


def test_what_is_typed_is_a_filter_and_no_key():
    assert after("/", "q", "p").find == "qp" and after("/", "q", "backspace", "x").find == "x"
    assert after("/", "a", "enter") == TopScreen(find="a") and after("/", "a", "escape") == TopScreen()
    assert after("/", "a", "enter", "escape") == TopScreen()
    assert len(after("/", *"a" * 100).find) == 60 and after("/", "up").find == ""


def test_random_keys_never_break_a_screen():
    keys = [*"dplenhtsSrjkgG/? q", "enter", "escape", "up", "down", "pageup", "pagedown", "home", "end", "backspace", "é", ""]
    chance, screen = random.Random(5), TopScreen()
    for _ in range(60):
        machine = machine_with(screen, TRAINS, SECOND)
        width, height = chance.choice(SIZES)
        assert len(on(machine, width, height).splitlines()) <= height
        screen = pressed(screen, chance.choice(keys), rows_to_choose_from(machine)) or TopScreen()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("panel", PANELS)
def test_a_list_of_many_rows_fits_the_terminal_and_shows_the_chosen_row(panel, size):
    processes = [replace(TRAINS, device=(f"GPU-{n}", None), pid=100 + n) for n in range(50)]
    for chosen in (0, 25, 49):
        lines = on(machine_with(TopScreen(panel=panel, chosen=chosen), *processes, gpus=50), *size).splitlines()
        assert len(lines) <= size[1]
        if panel in ("devices", "processes", "links"):
            [marked] = [line for line in lines if line.startswith("▸")]
            assert marked.split()[1] == str(chosen)


def test_processes_stand_beside_their_gpus_with_their_users():
    shown = on(machine_with(TopScreen(panel="processes"), TRAINS, SECOND)).splitlines()
    assert shown[4].split() == ["▸", "0", "41", "ada", "4711", "C", "90", "%", "30.0", "150", "2.0", "1:15", "python", "train.py"]
    by_memory = on(machine_with(TopScreen(panel="processes", process_sort="memory"), TRAINS, SECOND)).splitlines()
    assert [line[2:].split()[1] for line in by_memory[4:6]] == ["42", "41"]


def test_a_tree_shows_who_started_them_once():
    shown = on(machine_with(TopScreen(panel="processes", tree=True), TRAINS, SECOND))
    assert [line.split("  ")[-1].strip() for line in shown.splitlines()[4:8]] == ["bash", "torchrun", "python train.py", "python train.py"]
    assert shown.count("torchrun") == 1


def test_a_process_that_started_others_on_gpus_is_there_once():
    # 40 (torchrun) has a context of its own; 41 and 42 are its children, 43 is of another shell
    parent = replace(TRAINS, pid=40, command="torchrun", parents=((7, "bash"),))
    other = replace(TRAINS, pid=43, command="python serve.py", parents=((8, "zsh"),))
    machine = machine_with(TopScreen(panel="processes", tree=True), TRAINS, other, SECOND, parent)
    shown = [(row[1], str(row[-1])) for row in listed(machine).rows]
    assert shown == [
        ("7", "bash"), ("40", "  torchrun"), ("41", "    python train.py"), ("42", "    python train.py"),
        ("8", "zsh"), ("43", "  python serve.py"),
    ]  # fmt: skip


def test_processes_whose_parents_changed_between_two_looks_are_there_once():
    # each is told as the parent of the other: numbers are given to new processes
    loop = (replace(TRAINS, pid=5, parents=((6, "a"),)), replace(TRAINS, pid=6, parents=((5, "b"),)))
    shown = [row[1] for row in listed(machine_with(TopScreen(panel="processes", tree=True), *loop)).rows]
    assert sorted(shown) == ["5", "6"]


def test_links_and_errors_are_shown_where_they_are_told():
    machine = machine_with(TopScreen(panel="links"))
    next(iter(machine.course)).row.update(nvlink_tx=2.5e9, pcie_rx=1e9, ecc_uncorrected=2.0, xid=79.0, remapped_rows=1.0)
    first, second = on(machine).splitlines()[4:6]
    assert first.split() == ["▸", "0", "2.50", "–", "–", "1.00", "2", "1", "–", "–", "79"]
    assert second.split() == ["1", *"–––––––––"]


def test_the_last_minutes_of_the_chosen_gpu_are_drawn():
    shown = on(machine_with(TopScreen(panel="history", chosen=0))).splitlines()
    rows = {line.split()[0]: line for line in shown[4:12]}
    assert rows["OFU"].split()[1:] == ["50", "%", "50", "%", "50", "%", "▅▅"] and rows["tensor"].split()[-1] == "▅▅"
    assert "GPU 0" in shown[-1]


def test_a_filter_leaves_rows_with_its_words():
    machine = machine_with(TopScreen(panel="processes", find="BOB 42"), TRAINS, SECOND)
    assert [row[1] for row in listed(machine).rows] == ["42"]
    assert "no row has these words" in on(machine_with(TopScreen(find="nothing of that kind")))


@pytest.mark.parametrize("panel", ["devices", "links"])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_enter_opens_the_gpu_whose_row_is_marked_whatever_the_filter_and_the_width(panel, width):
    for find in ("", "79", "n17", "50.0", "700", "nothing of that kind"):
        for chosen in range(7):
            machine = machine_with(TopScreen(panel=panel, find=find, chosen=chosen), gpus=7)
            for number, device in enumerate(machine.course):
                told = {"xid": 79.0 * (number in (2, 5)), "power": 700.0 if number == 4 else 300.0}
                device.row.update(told, host="n17" if number % 2 else "n18")
            marked = [line.split()[1] for line in on(machine, width).splitlines() if line.startswith("▸")]
            opened = on(replace(machine, screen=pressed(machine.screen, "enter", rows_to_choose_from(machine)))).splitlines()[-1]
            assert len(marked) == (find != "nothing of that kind")
            assert all(f"GPU {name}" in opened for name in marked)


def test_in_the_history_the_keys_go_through_the_devices_that_the_filter_leaves():
    # more devices than a history has rows; then fewer, of which the filter leaves those at 50 %: 0 and 3
    many = machine_with(TopScreen(panel="history", chosen=9), gpus=12)
    assert rows_to_choose_from(many) == 12 and pressed(many.screen, "down", rows_to_choose_from(many)).chosen == 10
    few = machine_with(TopScreen(panel="history", find="50.0", chosen=1), gpus=4)
    assert rows_to_choose_from(few) == 2 and pressed(few.screen, "down", rows_to_choose_from(few)).chosen == 1
    assert "GPU 3" in on(few).splitlines()[-1]


HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\n\u202e\x08evil"


@pytest.mark.parametrize("panel", PANELS)
def test_no_name_from_outside_moves_the_terminal(panel):
    hostile = GpuProcess(("GPU-0", None), 41, "C", None, None, HOSTILE, HOSTILE, HOSTILE, parents=((7, HOSTILE),))
    for tree in (False, True):
        machine = machine_with(TopScreen(panel=panel, tree=tree, find="" if panel != "help" else HOSTILE), hostile)
        next(iter(machine.course)).row["host"] = HOSTILE
        for width, height in SIZES:
            assert not set("\x1b\x9b\r\x07\x08\u202e") & set(on(machine, width, height))


def test_data_for_programs_names_processes():
    [one] = record(machine_with(None, TRAINS))["processes"]
    assert (one["pid"], one["user"], one["gpu"], one["gpu_memory"], one["cpu"]) == (41, "ada", "GPU-0", 30e9, 1.5)
    assert record(watched())["processes"] == []


# -- what /proc and NVML tell -----------------------------------------------------------------------------------------


def proc(folder, pid, parent, ticks, command):
    """Write a process as /proc has it: 100 ticks a second, pages of 4096 B, started 1000 s after boot."""
    (folder / str(pid)).mkdir(exist_ok=True)
    stat = ["S", str(parent), *["0"] * 9, str(ticks), "0", *["0"] * 6, "100000", "0", "512"]
    (folder / str(pid) / "stat").write_text(f"{pid} (a (b) c) {' '.join(stat)}\n")
    (folder / str(pid) / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")


def test_a_process_is_described_by_what_the_system_says(tmp_path):
    proc(tmp_path, 41, 40, 0, "python train.py")
    proc(tmp_path, 40, 1, 0, "torchrun")
    (tmp_path / "uptime").write_text("1075.00 9.0\n")
    facts = ProcessFacts(tmp_path, ProcessOwners(tmp_path), ticks=100.0, page=4096)
    held = {("GPU-0", None): [DeviceProcess(41, "C", 3e10, 0.5), DeviceProcess(99)]}
    first, gone = facts.gpu_processes(held, 10.0)
    assert (first.command, first.cpu, first.host_memory, first.running) == ("python train.py", None, 512 * 4096, 75.0)
    assert first.parents == ((40, "torchrun"),) and (gone.command, gone.user, gone.parents) == (None, None, ())
    proc(tmp_path, 41, 40, 300, "python train.py")
    assert facts.gpu_processes(held, 12.0)[0].cpu == 1.5  # 300 ticks are 3 s of CPU time within 2 s


@pytest.mark.parametrize("uptime", [None, "", "soon"])
def test_where_no_uptime_can_be_read_it_is_not_known_how_long_a_process_runs(tmp_path, uptime):
    proc(tmp_path, 41, 40, 0, "python train.py")
    if uptime is not None:
        (tmp_path / "uptime").write_text(uptime)
    [found] = ProcessFacts(tmp_path, ProcessOwners(tmp_path)).gpu_processes({("GPU-0", None): [DeviceProcess(41)]}, 10.0)
    assert found.running is None
    [one] = json.loads(json.dumps(record(machine_with(None, found)), allow_nan=False))["processes"]
    assert one["running"] is None and one["command"] == "python train.py"


def test_secrets_in_command_lines_are_shown_in_no_list_and_no_document(tmp_path):
    proc(tmp_path, 41, 40, 0, "python train.py --api-key s3cr3t --lr 1")
    proc(tmp_path, 40, 1, 0, "env HF_TOKEN=s3cr3t torchrun https://me:s3cr3t@host/x")
    found = ProcessFacts(tmp_path, ProcessOwners(tmp_path)).gpu_processes({("GPU-0", None): [DeviceProcess(41)]}, 10.0)
    shown = on(machine_with(TopScreen(panel="processes", tree=True), *found), 200)
    assert "python train.py --api-key … --lr 1" in shown and "env HF_TOKEN=… torchrun https://…@host/x" in shown
    assert "s3cr3t" not in shown + json.dumps(record(machine_with(None, *found)))


def test_a_command_line_that_is_cut_shows_no_part_of_a_secret(tmp_path):
    proc(tmp_path, 41, 40, 0, f"{'a' * (LONGEST_COMMAND - 13)} http://me:s3cr3t{'x' * 100}@host --token s3cr3t")
    [found] = ProcessFacts(tmp_path, ProcessOwners(tmp_path)).gpu_processes({("GPU-0", None): [DeviceProcess(41)]}, 10.0)
    assert len(found.command) == LONGEST_COMMAND and found.command.endswith("a http://…@hos")


class TellingNvml(Nvml):
    """An NVML that tells errors, events and processes as nvidia-ml-py does."""

    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, nvmlEventTypeXidCriticalError = 1, 0, 8
    NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 11

    def __init__(self, gpus):
        super().__init__(gpus)
        self.events, self.freed, self.used = [], False, []

    def nvmlDeviceGetTotalEccErrors(self, handle, error_type, counter_type):
        assert (error_type, counter_type) == (1, 0)
        return 2

    def nvmlDeviceGetRemappedRows(self, handle):
        return [5, 1, 0, 1]

    def nvmlDeviceGetFieldValues(self, handle, ids):
        value = type("Value", (), {"uiVal": 7, "ullVal": 0})()
        return [type("Field", (), {"nvmlReturn": 0, "valueType": 1, "value": value})()]

    def nvmlEventSetCreate(self):
        return "set"

    def nvmlDeviceRegisterEvents(self, handle, kinds, events):
        assert (kinds, events) == (8, "set")

    def nvmlEventSetWait_v2(self, events, timeout):
        assert timeout == 0
        if not self.events:
            raise self.NVMLError(10)
        return self.events.pop(0)

    def nvmlEventSetFree(self, events):
        self.freed = True

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [type("P", (), {"pid": 41, "usedGpuMemory": 3 * 2**30})(), type("P", (), {"pid": 42, "usedGpuMemory": 2**64 - 1})()]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle):
        return [type("P", (), {"pid": 42, "usedGpuMemory": None})(), type("P", (), {"pid": 43, "usedGpuMemory": None})()]

    def nvmlDeviceGetProcessUtilization(self, handle, since):
        found = [one for one in self.used if one.timeStamp > since]
        if not found:
            raise self.NVMLError(self.NVML_ERROR_NOT_FOUND)
        return found


def test_errors_of_boards_and_links_are_told_and_xid_once_it_came():
    nvml = TellingNvml([gpu("GPU-0")])
    device = NvmlDevice(nvml.gpus[0], 0, "GPU-0", H100)
    with BoardHealth(nvml, [device]) as health:
        quiet = {"ecc_uncorrected": 2, "remapped_rows": 1, "remap_failed": 1, "nvlink_replays": 7, "xid": 0}
        assert health.read() == {("GPU-0", None): quiet}
        nvml.events = [type("Event", (), {"device": nvml.gpus[0], "eventData": code})() for code in (31, 79)]
        assert health.read()["GPU-0", None]["xid"] == health.read()["GPU-0", None]["xid"] == 79
        nvml.events = [nvml_event(nvml) for _ in range(MOST_EVENTS + 1)]
        health.read()
        assert len(nvml.events) == 1  # a flood holds nobody up
    assert nvml.freed


def nvml_event(nvml):
    return type("Event", (), {"device": nvml.gpus[0], "eventData": 31})()


def test_what_a_driver_does_not_know_is_absent():
    nvml = Nvml([gpu("GPU-0")])
    with BoardHealth(nvml, [NvmlDevice(nvml.gpus[0], 0, "GPU-0", H100)]) as health:
        assert health.read() == {("GPU-0", None): {}}


def test_processes_of_a_device_are_told_once_with_their_memory_and_share():
    nvml = TellingNvml([gpu("GPU-0")])
    now = time.time_ns() // 1000 + 10**6
    nvml.used = [used(41, now + 2, 50), used(41, now + 1, 90), used(41, now + 3, 400)]
    found = device_processes(nvml, NvmlDevice(nvml.gpus[0], 0, "GPU-0", H100))
    assert found == [DeviceProcess(41, "C", 3.0 * 2**30, 0.5), DeviceProcess(42, "C"), DeviceProcess(43, "G")]
    assert device_processes(nvml, NvmlDevice(nvml.gpus[0], 0, "GPU-0", H100, "1g.10gb/7", 7))[0].sm_share is None


def used(pid, time, share):
    return type("Used", (), {"pid": pid, "timeStamp": time, "smUtil": share})()


def shares(nvml, device):
    return [one.sm_share for one in device_processes(nvml, device)]


def test_a_share_of_sms_is_none_once_no_newer_sample_of_the_process_has_come(monkeypatch):
    nvml, clock = TellingNvml([gpu("GPU-0")]), [1_000_000_000]  # µs
    monkeypatch.setattr(time, "time_ns", lambda: 1000 * clock[0])
    device = NvmlDevice(nvml.gpus[0], 0, "GPU-0", H100)
    nvml.used = [used(41, clock[0] - SAMPLED_EVERY, 10), used(42, clock[0] - SAMPLED_EVERY + 1, 20)]
    assert shares(nvml, device) == [None, 0.2, None]  # what was sampled before the GPU was opened is of nobody's time
    clock[0] += 2 * SAMPLED_EVERY
    nvml.used += [used(41, clock[0] - 1, 50)]
    assert shares(nvml, device) == [0.5, None, None]
    assert shares(nvml, device) == [0.5, None, None]  # asked again sooner than NVML samples, its last sample stands
    clock[0] += SAMPLED_EVERY - 2
    assert shares(nvml, device) == [0.5, None, None]
    clock[0] += 1
    assert shares(nvml, device) == [None, None, None]
    clock[0] -= 10 * SAMPLED_EVERY  # the machine's clock is set back
    nvml.used = [used(42, clock[0], 30)]
    assert shares(nvml, device) == [None, 0.3, None]


def test_what_a_driver_told_of_processes_and_errors_before_is_said_to_be_old():
    machine = machine_with(TopScreen(panel="notes"), TRAINS)
    first, second, third = machine.course
    assert [device.age("processes") for device in machine.course] == [None, None, None]
    for device, processes, errors in ((first, 0, 14_000), (second, 3_000, 0), (third, 5_000, 0)):
        device.answer_times |= {"processes": device.time - processes, "errors": device.time - errors}
    notes = record(machine)["notes"]
    assert "the processes of GPU 1, 2 are up to 5 s old: the driver tells nothing newer" in notes
    assert "the errors of GPU 0 are up to 14 s old: the driver tells nothing newer" in notes
    assert [(one["processes_age"], one["errors_age"]) for one in record(machine)["devices"]] == [(0, 14), (3, 0), (5, 0)]
    assert record(machine_with(None))["devices"][0]["errors_age"] is None


def test_only_the_processes_of_the_chosen_gpus_are_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml([gpu("GPU-a", processes=(os.getpid(),)), gpu("GPU-b", processes=(os.getppid(),))]))
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setenv("PATH", "/nonexistent")
    pids = {words: [one["pid"] for one in json.loads(run("--json", *words).stdout)["processes"]] for words in ((), ("--gpu", "1"))}
    assert pids == {(): [os.getpid(), os.getppid()], ("--gpu", "1"): [os.getppid()]}


def test_once_names_the_processes_of_this_machine(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml([gpu("GPU-a", processes=(os.getpid(),))]))
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setenv("PATH", "/nonexistent")
    answer = run("--once").stdout
    assert f"0    {os.getpid()}" in answer and "command" in answer


# -- several places ---------------------------------------------------------------------------------------------------

PAGE = """DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{gpu="0",UUID="GPU-{0}",Hostname="n{0}",modelName="NVIDIA H100 80GB HBM3"}} 0.6
DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="GPU-{0}",Hostname="n{0}",modelName="NVIDIA H100 80GB HBM3"}} 1525
"""


def test_several_hosts_are_one_list():
    with (
        scripted(lambda handler: say(handler, PAGE.format(1), kind="text/plain")) as one,
        scripted(lambda handler: say(handler, PAGE.format(2), kind="text/plain")) as two,
    ):
        answer = run("--once", "--source", f"{one}/metrics", "--source", f"{two}/metrics").stdout
    assert answer.startswith("OFU 50.0 % now") and "n1/0  50.0 %" in answer and "n2/0  50.0 %" in answer


def test_of_several_hosts_one_that_is_silent_is_said():
    with scripted(lambda handler: say(handler, PAGE.format(1), kind="text/plain")) as one:
        answer = run("--once", "--source", f"{one}/metrics", "--source", "http://127.0.0.1:9/metrics")
    assert answer.exit_code == 3 and "OFU 50.0 % now" in answer.stdout and "127.0.0.1:9" in answer.stdout


def test_where_none_of_several_answers_it_is_an_error():
    with pytest.raises(UllageError, match="no GPU told anything"):
        run("--once", "--source", "http://127.0.0.1:9/metrics", "--source", "http://127.0.0.1:9/m")


# -- a terminal's keys ------------------------------------------------------------------------------------------------


def test_keys_of_a_terminal_come_one_by_one():
    terminal, other = pty.openpty()
    with TerminalKeyboard(other) as keyboard:
        os.write(terminal, b"pq\x1b[A\x1b[6~\x1bOB\x1b[1;5Qj\x1b[99~\r\x7f\xc3\xa9")
        said = ["p", "q", "up", "pagedown", "down", "", "j", "", "enter", "backspace", "é"]
        assert [keyboard.wait() for _ in said] == said
        os.write(terminal, b"\x1b")
        assert keyboard.wait() == "escape"
        keyboard.wake()
        assert keyboard.wait() == ""
    os.close(terminal)
    os.close(other)


def test_a_terminal_is_left_as_it_was():
    import termios

    terminal, other = pty.openpty()
    before = termios.tcgetattr(other)
    with TerminalKeyboard(other) as keyboard:
        assert termios.tcgetattr(other) != before
        os.close(terminal)  # a terminal that goes away gives no key, and no endless loop
        assert keyboard.wait() == ""
        keyboard.wake()
        assert keyboard.wait() == ""
    os.close(other)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_a_real_terminal_keys_and_sizes_do_what_they_say(tmp_path):
    socket = ["tmux", "-S", str(tmp_path / "tmux")]

    def tmux(*words):
        return subprocess.run([*socket, *words], check=True, capture_output=True, text=True).stdout

    def seen(*words, within=60):
        end = time.monotonic() + within
        while time.monotonic() < end:
            screen = tmux("capture-pane", "-p", "-t", "top")
            if all(word in screen for word in words):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{words} are not on the screen:\n{screen}")

    program = f"{sys.executable} -m tests.live.sampled_machine top --every 0.5s"
    command = f"cd {ROOT} && unset COLUMNS LINES && NO_COLOR=1 PYTHONPATH=src:. exec {program}"
    tmux("-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", "80", "-y", "24", command)
    try:
        tmux("set-option", "-t", "top", "remain-on-exit", "on")
        assert "▸ 0" in seen("OFU 23.1 % now", "by gpu", "power, W")
        tmux("send-keys", "-t", "top", "Down")
        seen("▸ 1")
        tmux("send-keys", "-t", "top", "Enter")
        seen("GPU 1", "tensor")
        tmux("send-keys", "-t", "top", "h")
        seen("hold the screen still")
        tmux("resize-window", "-t", "top", "-x", "40", "-y", "12")
        tmux("send-keys", "-t", "top", "Escape")
        narrow = seen("since the start;\n", "▸ 0")
        assert "power, W" not in narrow and "by gpu" in narrow
        tmux("resize-window", "-t", "top", "-x", "120", "-y", "40")
        seen("held back by")
        tmux("send-keys", "-t", "top", "/15.4")
        assert "▸ 1" in seen("/15.4▏")
        assert "\x1b" not in tmux("capture-pane", "-p", "-e", "-t", "top")  # no colour was asked for
        tmux("send-keys", "-t", "top", "Enter", "q")
        left = seen("OFU 23.1 % now", "0    30.8 %", "1    15.4 %")  # what stays behind is a report, without a mark
        assert "▸" not in left and "q quit" not in left
    finally:
        subprocess.run([*socket, "kill-server"], check=False)
