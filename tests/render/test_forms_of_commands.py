"""Every form of the kernels' commands shows what its data hold, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import ask
from tests.cupti.cupti_counting import real
from tests.cupti.test_stalls import sampled
from tests.render.forms import plain, untold

LEFT_OUT = r"…\s+[\d,]+ more"  # rows that a short form lacks
SCALES = (100.0, 1e-12, 1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9, 2**-10, 2**-20)  # the units of columns, from SI
KERNELS = [("gemm", 16 * n, ("long_scoreboard", "wait", "selected")[n % 3], 3 + 7 * n) for n in range(9)] + [("softmax", 32, "barrier", 5)]
COUNTED = {  # what forms count or divide that the data leave to their readers
    "bench --list": ("13",),  # minutes in all
    "cupti diff GH100 12.4 12.5": ("1", "2"),  # metrics of a hardware unit
    "cupti map l2_* --chip B200": ("40", "30"),  # with a formula, and without
}


@pytest.mark.parametrize(
    "words",
    [
        ("gpus",),
        ("gpus", "H100"),
        ("gpus", "H200", "-p", "fp8"),
        ("metrics",),
        ("metrics", "sampled_ofu"),
        ("metrics", "--fields"),
        ("bench", "--list"),
        ("cupti", "stalls", "--reasons"),
        ("cupti", "chips"),
        ("cupti", "metrics", "H200", "dram", "--limit", "0"),
        ("cupti", "describe", "H200", "sm__cycles_active", "dram__bytes_read"),
        ("cupti", "plan", "GH100", "sm__throughput", "dram__bytes_read.sum", "--groups"),
        ("cupti", "diff", "GH100", "12.4", "12.5"),
        ("cupti", "map", "l2_*", "--chip", "B200"),
        ("cupti", "stalls", "samples.parquet"),
        ("store", "info", "store"),
    ],
    ids=" ".join,
)
def test_every_form_of_a_command_shows_what_its_data_hold(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    if words[:2] == ("cupti", "plan"):  # whichever copy another test has loaded: NVIDIA's is asked
        monkeypatch.setenv("ULLAGE_CUPTI", str(real().path))
    sampled(*KERNELS).write(tmp_path / "samples.parquet")
    if words[0] == "store":
        ask("simulate", "fleet", "--gpus", "4", "--hours", "0.1", "--out", tmp_path / "fleet")
        ask("fleet", tmp_path / "fleet", "--store", tmp_path / "store")
    said, data = ask(*words), ask(*words, "--json").json
    forms = {"text": said.out}
    for ending in ("html", "md", "txt", "csv"):
        made = ask(*words, "--out", tmp_path / f"answer.{ending}")
        lacks = made.code == 1 and ending == "csv"
        assert lacks or made.code == 0, made.err
        forms[ending] = "" if lacks else (tmp_path / f"answer.{ending}").read_text()
    assert said.code == 0 and forms["text"].strip() and "<h1>" in forms["html"] and forms["md"].startswith("**")
    forms["html"], forms["md"] = plain(forms["html"]), forms["md"].replace("\\", "")
    for name in ("text", "html", "md", "txt"):
        shown = re.sub(r"\d+ %" if words[1:2] == ("stalls",) else LEFT_OUT, "", forms[name])  # shares of samples, which are counted there
        assert untold(re.sub(LEFT_OUT, "", shown), data, COUNTED.get(" ".join(words), ()), SCALES) == [], name
