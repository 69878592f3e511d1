"""Which profile a problem asks for, and that its commands run on the worst rank alone, whatever names are in them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.alerts.test_book import problem
from tests.alerts.test_outlets import notice
from ullage.alerts.book import AlertBook
from ullage.alerts.outlets import alertmanager_body, mail_of, slack_body, webhook_body
from ullage.alerts.profile_request import LOOK_FOR, WantedProfile, profile_request, request_lines, wants_profile
from ullage.errors import NoSuchNameError
from ullage.findings.kind import FLEET_KINDS

DEVICES = [
    {"host": "n1", "index": 0, "gpu": "GPU-a", "mig": None, "ofu": 0.4, "verdict": "trusted"},
    {"host": "n1", "index": 4, "gpu": "GPU-b", "mig": None, "ofu": 0.3, "verdict": "trusted"},
    {"host": "n2", "index": 2, "gpu": "GPU-c", "mig": None, "ofu": 0.2, "verdict": "trusted"},
    {"host": "n2", "index": 3, "gpu": "GPU-d", "mig": None, "ofu": 0.0, "verdict": "stuck at zero"},
    {"host": "n2", "index": 7, "gpu": "GPU-e", "mig": None, "ofu": None, "verdict": "trusted"},
]
HOSTILE = "7'; touch owned; echo \"$(touch owned)`touch owned`\x1b[2J\n"


def request(where: dict[str, str | int], kind: str = "straggler") -> WantedProfile:
    return profile_request(kind, where, DEVICES)


@pytest.mark.parametrize(
    ("where", "worst"),
    [
        ({"job": "7", "gpu": "GPU-a"}, ("n1", 0, 0)),  # the one that is named, though others are emptier
        ({"job": "7", "host": "n1"}, ("n1", 4, 1)),  # the second of the job's GPUs there
        ({"job": "7"}, ("n2", 2, 0)),  # the emptiest that can be trusted and is known
        ({"job": "7", "host": "n2", "index": 7}, ("n2", 7, 2)),
        ({"job": "7", "host": "n9"}, ("n9", None, None)),  # of which nothing is known
    ],
)
def test_the_worst_rank_is_named_by_host_gpu_and_place(where: dict[str, str | int], worst: tuple[str, int | None, int | None]) -> None:
    found = request(where)
    assert (found.host, found.index, found.local_rank) == worst


def test_problems_of_no_running_program_ask_for_none() -> None:
    assert not wants_profile("queue_wait", {"job": "7"})
    assert not wants_profile("held_idle", {"job": "7"})
    assert not wants_profile("straggler", {"host": "n1"})
    assert wants_profile("change_job_ofu", {"job": "7"})
    assert wants_profile("change_run_activity", {"job": "7"})
    assert not wants_profile("change_fleet_ofu", {})
    assert {kind for kind in LOOK_FOR if not kind.startswith("change_")} <= {*FLEET_KINDS, "straggler_now"}


def run_on(host: str, rank: int, words: str, folder: Path) -> str:
    """Return what a command prints on a host and rank, where the profilers and the program say their names."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, says in {"ullage": "profiled", "nsys": "profiled", "program": "plain", "hostname": host}.items():
        (tools / name).write_text(f"#!/bin/sh\necho {says}\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "LOCAL_RANK": str(rank)}
    command = words.replace("COMMAND", "program")
    return subprocess.run(["sh", "-c", command], env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_a_command_profiles_that_rank_alone_and_runs_the_program_on_the_others(tmp_path: Path) -> None:
    found = request({"job": "7", "host": "n1"})
    for tool in ("ullage run", "Nsight Systems"):
        [command] = [one.command for one in found.commands if one.tool == tool]
        said = {(host, rank): run_on(host, rank, command, tmp_path) for host in ("n1", "n2") for rank in (0, 1)}
        assert said == {("n1", 0): "plain", ("n1", 1): "profiled", ("n2", 0): "plain", ("n2", 1): "plain"}


def test_names_do_nothing_in_a_command(tmp_path: Path) -> None:
    found = profile_request("straggler", {"job": HOSTILE, "host": HOSTILE, "gpu": HOSTILE}, [])
    for one in found.commands:
        if one.tool == "PyTorch's profiler in the program":
            compile(one.command, "program", "exec")
        elif one.running:
            assert shlex.split(one.command)[:5] == ["dyno", "--hostname", HOSTILE, "gputrace", "--job-id"]
        else:
            assert run_on("n1", 0, one.command, tmp_path) in ("plain", "profiled")
    assert not (tmp_path / "owned").exists()
    assert all(line.isprintable() for line in request_lines(found))


def test_who_is_told_is_told_which_profile_to_take() -> None:
    wanted = msgspec.to_builtins(request({"job": "7"}))
    opened = notice(profile=wanted)
    assert json.loads(webhook_body(opened))["problem"]["profile"]["commands"][1]["tool"] == "ullage run"
    assert "local rank 0" in json.loads(slack_body(opened))["text"]
    assert "nsys profile" in mail_of(opened, "a@b", ["c@d"]).get_content()
    assert "nsys profile" not in mail_of(notice("resolved", profile=wanted), "a@b", ["c@d"]).get_content()


def test_an_alertmanager_hears_of_it(tmp_path: Path) -> None:
    book = AlertBook(tmp_path / "a")
    book.look([problem(profile=msgspec.to_builtins(request({"job": "7"}))), problem("8")], 1.0)
    sent = json.loads(alertmanager_body(book.alerts(), 2.0, 60.0))
    assert ["ullage run" in one["annotations"].get("profile", "") for one in sent] == [True, False]


def test_a_profile_that_came_stands_with_its_alert_as_long_as_that(tmp_path: Path) -> None:
    book = AlertBook(tmp_path / "a")
    with pytest.raises(NoSuchNameError):
        book.attach_profile("straggler/job=7", "/traces/rank.json", "ann", 1.0)
    book.look([problem()], 1.0)
    book.attach_profile("straggler/job=7", "/traces/rank.json", "ann", 2.0)
    book.attach_profile("straggler/job=7", "/traces/rank.json", "bob", 3.0, "again")
    [kept] = book.profiles()["straggler/job=7"]
    assert (kept.place, kept.by, kept.at, kept.note) == ("/traces/rank.json", "bob", 3.0, "again")
    for at in (10.0, 20.0, 30.0):
        book.look([], at)
    assert book.profiles()
    book.look([], 40 * 86_400.0)
    book.look([], 40 * 86_400.0)
    assert not book.profiles()
