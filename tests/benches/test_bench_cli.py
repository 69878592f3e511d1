"""`ullage bench` and `ullage bench drift`: what they show, write, refuse and answer with."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.benches.bench_results import of_bench, slower
from ullage.benches.bench import BENCHES
from ullage.benches.result import record
from ullage.benches.running import apart, driver
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.reports.bench.suite import chosen_benches, read_results, write_results

NO_DRIVER = UllageError("no NVIDIA driver answers on this machine", "is a GPU there?")


def run(*words):
    return CliRunner().invoke(cli, ["bench", *map(str, words)])


@pytest.fixture
def file(tmp_path):
    """A file of results, as `ullage bench --out results.json` writes it."""
    path = tmp_path / "results.json"
    write_results([of_bench("memory-latency"), of_bench("wgmma"), of_bench("memory-bandwidth")], path)
    return path


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that gives what it is told to (a list of results, exceptions, and calls), and what it was asked."""
    outcomes, asked = [], {}

    def suite(names, **more):
        asked.update(more, names=list(names))
        for one in outcomes:
            if isinstance(one, BaseException):
                raise one
            if callable(one):
                one()
                continue
            more["progress"](f"{one.bench} 1/1")
            yield one

    monkeypatch.setattr(driver, "bindings", lambda: None)
    monkeypatch.setattr(apart, "suite_apart", suite)
    return outcomes, asked


# --- what runs without a GPU


def test_the_list_names_every_bench_in_order():
    lines = run("--list").output.splitlines()
    assert lines[0].startswith(f"{len(BENCHES)} microbenchmarks, about ")
    assert [line.split()[0] for line in lines[3:]] == sorted(BENCHES)
    assert max(map(len, lines)) <= 120


def test_the_list_as_json_says_what_each_needs():
    told = {one["name"]: one for one in json.loads(run("--list", "--json").output)["benches"]}
    assert set(told) == set(BENCHES)
    assert told["wgmma"]["architectures"] == ["sm_90a"] and told["wgmma"]["drift"] is True


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_the_published_figures_of_every_bench_need_no_gpu(name):
    found = run(name, "--paper")
    said = " ".join(found.output.split())
    assert found.exit_code == 0 and said.startswith(f"not measured yet {BENCHES[name].title} {name} (")


def test_all_published_figures_are_one_page(tmp_path):
    assert run("--paper", "--out", tmp_path / "paper.html").exit_code == 0
    assert "Published figures" in (tmp_path / "paper.html").read_text()


@pytest.mark.parametrize("words", [(), ("drift", "--out", "x.json")])
def test_without_a_driver_there_is_one_error_and_nothing_is_begun(monkeypatch, words):
    def silent():
        raise NO_DRIVER

    monkeypatch.setattr(driver, "bindings", silent)
    monkeypatch.setattr(apart, "suite_apart", lambda *_, **__: pytest.fail("a process was begun"))
    found = run(*words)
    assert found.exit_code == 1 and found.exception is NO_DRIVER


# --- recorded results


def test_recorded_results_are_shown_again(file):
    found = run("--from", file)
    assert found.exit_code == 0
    assert found.output.startswith("NVIDIA H200: 74 % of the stated tensor peak")  # table VIII, FP16 RS zero: 731.9 of 989.4
    assert "H800 PCIe, paper" in found.output


def test_names_choose_among_recorded_results(file):
    assert "\nwgmma (" not in run("memory-latency", "--from", file).output


def test_a_folder_of_results_is_read_whole(tmp_path):
    for name in ("memory-latency", "mma"):
        (tmp_path / f"{name}.json").write_text(json.dumps(record(of_bench(name))))  # a file a bench, as `make gpu` writes them
    assert [one.bench for one in read_results(tmp_path)] == ["memory-latency", "mma"]
    assert "\nmma (" in run("--from", tmp_path).output


@pytest.mark.parametrize("form", ["json", "txt", "html", "svg"])
def test_every_form_is_written(file, tmp_path, form):
    path = tmp_path / f"report.{form}"
    found = run("--from", file, "--out", path)
    assert found.exit_code == 0 and found.output == f"wrote {path}\n"
    begins = {"json": "{", "txt": "NVIDIA H200: ", "html": "<!doctype html>", "svg": "<svg "}
    assert path.read_text().startswith(begins[form])


def test_what_a_json_report_holds_can_be_read_again(file, tmp_path):
    run("--from", file, "--out", tmp_path / "again.json")
    assert list(read_results(tmp_path / "again.json")) == list(read_results(file))
    assert run("--from", tmp_path / "again.json").output == run("--from", file).output
    assert json.loads(run("--from", file, "--json").output) == json.loads((tmp_path / "again.json").read_text())


def test_ceilings_are_kept_where_the_environment_says(file, tmp_path, monkeypatch):
    monkeypatch.setenv("ULLAGE_CEILINGS", str(tmp_path / "ceilings"))
    found = run("--from", file, "--save")
    assert "kept the ceilings of NVIDIA H200 (bursts: fp16, tf32, fp8, int8, bf16, global memory, L2 cache) in " in found.output
    assert len(list((tmp_path / "ceilings").iterdir())) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("\x1b[31m", "is no JSON"),
        ("{}", "no result of a microbenchmark"),
        ("[]", "holds no results"),
        ('{"results": 7}', "holds no results"),
        ('{"results": [7]}', "no result of a microbenchmark"),
        ('{"format": 99}', "no result of a microbenchmark (format 99)"),
        ('{"format": 1}', "damaged result"),
    ],
)
def test_a_file_that_holds_no_results_is_refused(tmp_path, content, problem):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UllageError) as refused:
        list(read_results(path))
    assert problem in refused.value.problem and str(path) in refused.value.problem and "\x1b" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    found = run("--from", tmp_path / "none.json")
    assert found.exit_code == 1 and "can't be read (No such file or directory)" in str(found.exception)


def test_a_bench_that_is_not_there_is_refused_with_the_nearest(gpu):
    found = run("wgma", "--paper")
    assert found.exit_code == 1 and "did you mean 'wgmma'" in str(found.exception)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(gpu, tmp_path):
    _, asked = gpu
    for out, problem in ((tmp_path / "x.xlsx", "no .xlsx format"), (tmp_path / "none" / "x.json", "there is no folder")):
        found = run("--out", out)
        assert found.exit_code == 1 and problem in str(found.exception) and asked == {}


def test_a_roofline_of_latencies_alone_says_what_it_needs(tmp_path):
    write_results([of_bench("memory-latency", machine={"gpu": "Whatever 9000"})], tmp_path / "x.json")
    assert "a roofline needs a product and a bandwidth" in str(run("--from", tmp_path / "x.json", "--out", tmp_path / "x.svg").exception)


# --- measuring


def test_without_names_all_benches_run_and_the_quick_ones_of_our_own_come_first():
    names = chosen_benches(())
    assert sorted(names) == sorted(BENCHES)
    kinds = [BENCHES[name].needs for name in names]
    assert kinds == sorted(kinds)  # "cuda" before "torch"
    seconds = [BENCHES[name].seconds for name in names if BENCHES[name].needs == "cuda"]
    assert seconds == sorted(seconds)
    assert chosen_benches(("mma", "wgmma", "mma")) == ["mma", "wgmma"]


def test_what_is_measured_is_asked_for_and_shown(gpu):
    outcomes, asked = gpu
    outcomes += [of_bench("memory-latency", quick=True)]
    found = run("memory-latency", "--quick", "--minutes", "0.5", "--device", "3")
    assert found.exit_code == 0 and "L1 cache       H200, measured" in found.output
    assert (asked["names"], asked["index"], asked["quick"], asked["budget"]) == (["memory-latency"], 3, True, 30.0)


def test_each_bench_is_on_disk_before_the_next_begins(gpu, tmp_path):
    outcomes, _ = gpu
    path, seen = tmp_path / "x.json", []

    def look():
        seen.append([one.bench for one in read_results(path)])

    outcomes += [of_bench("memory-latency"), look, of_bench("wgmma"), look, MemoryError("as a crash would")]
    assert isinstance(run("--out", path).exception, MemoryError)
    assert seen == [["memory-latency"], ["memory-latency", "wgmma"]]
    assert [one.bench for one in read_results(path)] == seen[-1]


def test_ctrl_c_keeps_what_was_measured(gpu, tmp_path):
    outcomes, _ = gpu
    outcomes += [of_bench("memory-latency"), KeyboardInterrupt()]
    found = run("memory-latency", "wgmma", "mma", "--out", tmp_path / "x.html")
    assert found.exit_code == 130
    assert "stopped; 1 of 3 microbenchmarks have ended" in found.output
    assert "L1 cache" in (tmp_path / "x.html").read_text()


def test_ctrl_c_before_anything_was_measured_writes_nothing(gpu, tmp_path):
    outcomes, _ = gpu
    outcomes.append(KeyboardInterrupt())
    assert run("--out", tmp_path / "x.json").exit_code == 1
    assert not (tmp_path / "x.json").exists()


def test_a_gpu_that_is_lost_keeps_what_was_measured_and_that_is_partial(gpu):
    outcomes, _ = gpu
    outcomes += [of_bench("memory-latency"), UllageError("the GPU fell off the bus", "")]
    found = run("memory-latency", "wgmma")
    assert found.exit_code == 3
    assert "stopped: the GPU fell off the bus; 1 of 2 microbenchmarks have ended" in found.output and "L1 cache" in found.output


# --- drift

BEFORE = [of_bench(name, quick=True) for name in ("memory-latency", "wgmma")]


@pytest.fixture
def baseline(tmp_path):
    """The file of a baseline."""
    path = tmp_path / "baseline.json"
    write_results(BEFORE, path)
    return path


def test_a_gpu_that_does_what_it_did_exits_with_0(gpu, baseline):
    outcomes, asked = gpu
    outcomes += BEFORE
    found = run("drift", "--baseline", baseline)
    assert found.exit_code == 0 and "none of 12 numbers moved" in found.output  # 4 levels, 8 products and latencies
    assert asked["drift"] is True and asked["names"] == [name for name, member in BENCHES.items() if member.drift]


def test_a_gpu_that_moved_trips_the_gate(gpu, baseline):
    outcomes, _ = gpu
    outcomes += [BEFORE[0], slower(BEFORE[1], 0.9, clock=0.9)]
    found = run("drift", "--baseline", baseline)
    assert found.exit_code == 3 and "power or clock" in found.output and "-10.0 %" in found.output


def test_a_limit_in_percent_decides(gpu, baseline):
    outcomes, _ = gpu
    outcomes += [BEFORE[0], slower(BEFORE[1], 0.9)]
    assert run("drift", "--baseline", baseline, "--limit", "11").exit_code == 0


def test_a_baseline_is_made_and_compared_in_one_go(gpu, baseline, tmp_path):
    outcomes, _ = gpu
    outcomes += BEFORE
    assert run("drift", "--out", tmp_path / "new.json").exit_code == 0
    assert list(read_results(tmp_path / "new.json")) == BEFORE
    again = run("drift", "--baseline", baseline, "--against", tmp_path / "new.json", "--json")
    assert again.exit_code == 0 and json.loads(again.output)["ok"] is True


def test_a_drift_check_needs_a_baseline_or_a_file_to_make_one(gpu):
    assert run("drift").exit_code == 2


def test_the_baseline_of_another_model_is_refused(gpu, tmp_path):
    outcomes, _ = gpu
    outcomes += BEFORE
    other = [replace(one, machine={**one.machine, "gpu": "NVIDIA B200"}) for one in BEFORE]
    write_results(other, tmp_path / "b200.json")
    found = run("drift", "--baseline", tmp_path / "b200.json")
    assert found.exit_code == 1 and "'NVIDIA B200', 'NVIDIA H200'" in str(found.exception)
