"""The command that a report names as the next one: it is of what is worst, and asking it gives the report on that."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest

from tests.command_line import ask
from ullage.asking.next_commands import job_command, part_command, waterfall_command
from ullage.questions.fleet import FleetQuestion
from ullage.questions.job import JobQuestion

T = 1_786_320_000
HEAD = "timestamp,gpu,model,host,job,user,tensor_active,sm_clock,sm_active\n"


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Two hours of two jobs, one at an eighth of the tensor activity of the other, and of one that does nothing."""
    file = tmp_path / "samples.csv"
    rows = [(T + 60 * n, gpu) for n in range(120) for gpu in range(5)]
    jobs = [("a", "ann", 0.8), ("a", "ann", 0.8), ("b; echo", "bob", 0.1), ("b; echo", "bob", 0.1), ("c", "cas", 0)]
    lines = [f"{t},GPU-{g},H100 SXM,node-{g // 2},{','.join(map(str, jobs[g]))},1830,{0.9 if jobs[g][2] else 0}\n" for t, g in rows]
    file.write_text(HEAD + "".join(lines))
    return file


def told(*words: object) -> list[str]:
    """The words of the command that a report in text names last."""
    last = ask(*words).out.rstrip("\n").split("\n")[-1]
    assert last.startswith("next: ullage ")
    return shlex.split(last.removeprefix("next: ullage "))


def test_a_fleet_names_the_command_on_its_worst_job_which_gives_the_same_numbers(samples: Path) -> None:
    words = told("fleet", samples, "--price", "2.5")
    assert words == ["job", "b; echo", str(samples), "--price", "2.5"]
    fleet, job = ask("fleet", samples, "--price", "2.5", "--json").json, ask(*words, "--json").json
    worst = fleet["groups"][0]
    assert (worst["key"], worst["ofu"], worst["gpu_hours"]) == ("b; echo", job["ofu"], job["gpu_hours"])
    assert shlex.split(fleet["next"])[1:] == words
    idle = next(one for one in fleet["findings"] if one["kind"] == "held_idle")
    assert shlex.split(idle["next"]) == ["ullage", "job", "c", str(samples), "--price", "2.5"]
    assert shlex.split(job["next"])[:4] == ["ullage", "waterfall", str(samples), "--job"]


def test_a_page_names_it_too(samples: Path, tmp_path: Path) -> None:
    assert ask("fleet", samples, "--out", tmp_path / "fleet.html").code == 0
    assert "Next: <code>ullage job" in (tmp_path / "fleet.html").read_text()


def test_a_report_by_user_leads_to_the_jobs_of_the_worst_user_and_these_to_the_worst_job(samples: Path) -> None:
    words = told("fleet", samples, "--by", "user")
    assert words == ["fleet", str(samples), "--user", "bob"]
    assert told(*words)[:2] == ["job", "b; echo"]
    assert told("fleet", samples, "--by", "host") == ["fleet", str(samples), "--host", "node-1"]


def test_what_was_said_of_reading_and_prices_goes_along_and_secrets_do_not() -> None:
    asked = FleetQuestion(
        sources=("http://ann:secret@prom:9090",), jobs=("sacct.txt",), since=1_786_320_000_000, prices={"H100": 2.5, "": 1.0},
        headers={"Authorization": "Bearer secret"}, carbon=400.0, gpu="H100 SXM",
    )  # fmt: skip
    command = job_command(asked, "7")
    assert "secret" not in command
    words = shlex.split(command)
    assert words[:3] == ["ullage", "job", "7"]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    assert given["--jobs"] == "sacct.txt" and given["--since"] == "2026-08-10T00:00:00Z" and given["--carbon"] == "400"
    assert [text for flag, text in itertools.pairwise(words) if flag == "--price"] == ["H100=2.5", "1"]
    assert words[words.index("--gpu") :][:2] == ["--gpu", "H100 SXM"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("4711_3", ["job", "4711_3", "store"]),
        ("-rf", ["job", "--", "-rf", "store"]),
        ("$(reboot)", ["job", "$(reboot)", "store"]),
        ("4711,4712", None),  # the work of two jobs at once
        ("no job", None),
        ("\x1b[2J", None),
    ],
)
def test_any_name_stands_in_a_command_as_one_word(name: str, words: list[str] | None) -> None:
    command = job_command(FleetQuestion(sources=("store",)), name)
    assert shlex.split(command)[1:] == (words or [])
    if words:
        assert shlex.split(waterfall_command(JobQuestion(id=name, sources=("store",)), name))[1:3] == ["waterfall", "store"]


def test_a_name_that_stands_in_two_clusters_leads_to_no_user() -> None:
    assert part_command(FleetQuestion(sources=("store",)), "user", "east/ann") == ""
