"""Trainers' logs: every framework's own form, hostile lines, ranks, and the way into a fleet report."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.conftest import T0, settled_table
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.tables import JOBS
from ullage.trainlogs.log import SERIES, TRAINLOGS, read_log, table
from ullage.trainlogs.reported import beside, periods, read_reported, record
from ullage.trainlogs.step import LoggedStep

# 2026-08-10T12:00:03Z in ms: T0 is the day's beginning, 12 h and 3 s on
NOON = T0 + 43_203_000

MEGATRON = """\
training ...
 [2026-08-10 12:00:03] iteration       50/    5000 | consumed samples:        12800 | elapsed time per iteration (ms): 6167.4 | \
throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 2.345678E+00 | \
loss scale: 1.0 | grad norm: 0.512 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2026-08-10 12:00:34] iteration       55/    5000 | consumed samples:        14080 | elapsed time per iteration (ms): 6200.0 | \
throughput per GPU (TFLOP/s/GPU): 410.1 | learning rate: 1.500000E-04 | global batch size:   256 | lm loss: nan |
"""
BRIDGE = """\
Step Time : 12.78s GPU utilization: 528.1MODEL_TFLOP/s/GPU
 [2026-08-10 12:00:03] iteration       10/     100 | consumed samples:         1280 | elapsed time per iteration (ms): 12780.1 | \
learning rate: 1.000000E-05 | global batch size:   128 | lm loss: 9.1E+00 |
"""
NEOX = (
    " samples/sec: 51.234 | iteration       10/      50 | elapsed time per iteration (ms): 9876.5 | learning rate: 1.234E-04 | "
    "approx flops per GPU: 150.3TFLOPS | lm_loss: 7.123456E+00 |\n"
)
MEGATRON_DEEPSPEED = """\
[2026-08-10 12:00:03,646] [INFO] [timer.py:260:stop] epoch=0/micro_step=199/global_step=199, \
RunningAvgSamplesPerSec=58.730622229657506, CurrSamplesPerSec=61.35304005128382, MemAllocated=6.01GB, MaxMemAllocated=19.52GB
 iteration      199/  317892 | consumed samples:       152832 | consumed tokens:    625999872 | \
elapsed time per iteration (ms): 14287.5 | global batch size:   768 | actual seqlen:  4096 | samples per second: 53.753 | \
tokens per gpu per second (tgs): 2293.5 | TFLOPs: 105.34 |
"""
NEMO = """\
[NeMo I 2026-08-10 11:59:00 perf_metrics_utils:56] train_step_timing in s: [11.85, 6.98, 5.36]
[2026-08-10T14:00:03+02:00] Training epoch 0, iteration 97/99 | lr: 1.469e-05 | global_batch_size: 128 | global_step: 97 | \
reduced_train_loss: 6.265 | train_step_timing in s: 12.22 | tokens_per_sec_per_gpu: 1.073e+04 | \
TFLOPS_per_GPU: 523.4 | consumed_samples: 12544
"""
NEMO_BAR = (
    "Epoch 0: :   3%|▎         | 9000/301500 [1:42:42<55:37:46, v_num=0-56, reduced_train_loss=nan.0, global_step=9e+3, "
    "consumed_samples=6.3e+5, train_step_timing in s=0.615, val_loss=7.040]\r"
    "Epoch 0: :   3%|▎         | 9010/301500 [1:42:48<55:37:46, v_num=0-56, reduced_train_loss=6.9, global_step=9.01e+3, "
    "consumed_samples=6.3e+5, train_step_timing in s=0.618, val_loss=7.040]\n"
)
TITAN = """\
\x1b[36m[titan] 2026-08-10 12:00:03,508 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.07623  \x1b[38;2;180;60;0mgrad_norm:  1.5000  \
\x1b[38;2;54;234;195mmemory: 66.91GiB(37.51%)  \x1b[34mtps: 7,312  \x1b[36mtflops: 423.11  \x1b[35mmfu: 42.78%\x1b[39m
[rank0]:[titan] 2026-08-10 12:00:13,508 - root - INFO - step: 20  loss:  6.5  memory: 66.91GiB(37.51%)  tps: 7,300  \
tflops: 1,022.50  mfu: N/A
"""
VERL = """\
(TaskRunner pid=2860) step:31 - global_seqlen/mean:37335.0 - actor/pg_loss:-0.021 - perf/total_num_tokens:np.int64(298680) - \
timing_s/step:46.59 - perf/throughput:801.42 - perf/mfu/actor:0.31 - perf/mfu/actor_infer:0.2
(TaskRunner pid=2860) step:32 - actor/pg_loss:-0.02 - timing_s/step:50.0 - perf/mfu/actor:np.float64(0.29)
"""
NANOTRON = """\
[default0]:08/10/2026 12:00:03 [INFO|DP=0|PP=0|TP=0|node-1]: iteration: 7 / 100 | consumed_tokens: 480B | \
elapsed_time_per_iteration_ms: 8.79K | tokens_per_sec: 182K | tokens_per_sec_per_gpu: 699 | global_batch_size: 1.6M | lm_loss: 2.04 | \
lr: 0.0001 | model_tflops_per_gpu: 15.4 | hardware_tflops_per_gpu: 15.4 | grad_norm: 0.112 | hd_used_memory_tb: 952G
12/21 01:40:00 [INFO|DP=0|TP=0|lrdn0007]: iteration: 8 / 100 | consumed_tokens: 480B | time_per_iteration_ms: 8.74K | \
tokens_per_sec: 183K | tokens_per_sec_per_gpu: 703 | model_tflops_per_gpu: 15.4 | eta: 131 days, 1:45:39
"""
DEEPSPEED = """\
[2026-08-10 12:00:03,711] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=4, lr=[4.9e-05], mom=[(0.9, 0.95)]
[2026-08-10 12:00:03,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.025771473496132, \
CurrSamplesPerSec=25.704280480541442, MemAllocated=4.32GB, MaxMemAllocated=38.49GB
steps: 20 loss: 5.5508 iter time (s): 0.936 samples/sec: 136.706
0: -------------------------- DeepSpeed Flops Profiler --------------------------
0: Profile Summary at step 30:
0: iter latency (sum of fwd, bwd and step latency)
0: world size:                                                   128
0: fwd flops per GPU:                                            35.33 T
0: fwd FLOPS per GPU = fwd flops per GPU / fwd latency:          22.85 TFLOPS
0: fwd+bwd FLOPS per GPU = 3 * fwd flops per GPU / (fwd+bwd latency):   16.4 TFLOPS
0: step latency:                                                 1.31 s
0: iter latency:                                                 7.77 s
0: FLOPS per GPU = 3 * fwd flops per GPU / iter latency:         13.64 TFLOPS
0: samples/second:                                               49.55
"""
FORMS = {
    "megatron": [MEGATRON, BRIDGE, NEOX, MEGATRON_DEEPSPEED],
    "nemo": [NEMO, NEMO_BAR],
    "torchtitan": [TITAN],
    "verl": [VERL, '{"step": 3, "data": {"perf/mfu/actor": 0.41, "timing_s/step": 46.6}}\n'],
    "nanotron": [NANOTRON],
    "deepspeed": [DEEPSPEED],
    "jsonl": ['{"step": 3, "mfu": 0.41}\n', "{'step': 3, 'loss': 1.0, 'tflops': 410.0}\n"],
}


def rows(tmp_path, text, problems=None, **more):
    path = tmp_path / "train.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(str(path), problems, **more).to_pylist()


def milliseconds(row):
    return None if row["time"] is None else round(row["time"].timestamp() * 1000)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FORMS.items() for text in texts])
def test_each_form_is_surely_recognised_by_its_own_reader_alone(name, text):
    lines = text.replace("\r", "\n").splitlines()
    score = {log.name: max(log.recognise(line) for line in lines) for log in TRAINLOGS.values()}
    best = max(score.values())
    assert [n for n, s in score.items() if s == best] == [name]


def test_every_framework_has_an_example_here_and_a_line_about_it():
    assert set(FORMS) == set(TRAINLOGS)
    assert all(log.reads and log.name == name for name, log in TRAINLOGS.items())


def test_megatron_tells_iteration_time_and_throughput(tmp_path):
    problems = Problems()
    first, second = rows(tmp_path, MEGATRON, problems)
    assert (first["line"], first["step"], milliseconds(first)) == (2, 50, NOON)
    assert first["step_time"] == pytest.approx(6.1674) and first["flops_per_gpu"] == pytest.approx(412.3e12)
    assert first["mfu"] is None and first["tokens"] is None
    assert second["step"] == 55 and second["step_time"] == pytest.approx(6.2)
    assert problems.lines() == ["the times of train.log name no zone; they are taken as UTC"]


def test_megatron_bridge_writes_the_throughput_on_the_line_before(tmp_path):
    (row,) = rows(tmp_path, BRIDGE)
    assert (row["step"], row["step_time"], row["flops_per_gpu"]) == (10, pytest.approx(12.7801), pytest.approx(528.1e12))


def test_a_bridge_line_alone_is_a_step_without_a_number(tmp_path):
    found = rows(tmp_path, BRIDGE.splitlines()[0] + "\nother\n" + BRIDGE.splitlines()[0])
    assert [(r["step"], r["step_time"]) for r in found] == [(None, 12.78), (None, 12.78)]


def test_gpt_neox_writes_the_unit_behind_the_number(tmp_path):
    (row,) = rows(tmp_path, NEOX)
    assert (row["step"], row["flops_per_gpu"], row["samples_per_second"]) == (10, pytest.approx(150.3e12), 51.234)


def test_megatron_deepspeed_tells_tokens_by_its_sequence_length(tmp_path):
    (row,) = rows(tmp_path, MEGATRON_DEEPSPEED)
    assert row["tokens"] == 768 * 4096
    assert (row["flops_per_gpu"], row["tokens_per_second_per_gpu"]) == (pytest.approx(105.34e12), 2293.5)


def test_values_of_several_kinds_of_mean_give_the_first(tmp_path):
    text = MEGATRON.replace("throughput per GPU (TFLOP/s/GPU): 412.3", "compute per GPU (TFLOP/s/GPU): 496.3 (avg 496.1)")
    assert rows(tmp_path, text)[0]["flops_per_gpu"] == pytest.approx(496.3e12)


def test_nemo_tells_its_step_and_a_zone(tmp_path):
    problems = Problems()
    (row,) = rows(tmp_path, NEMO, problems)
    assert (row["step"], row["step_time"], row["flops_per_gpu"]) == (97, 12.22, pytest.approx(523.4e12))
    assert row["tokens_per_second_per_gpu"] == 10730 and milliseconds(row) == NOON
    assert problems.lines() == ["1 lines that can't be read left out (first: train.log line 1)"]


def test_a_progress_bar_is_a_line_at_every_carriage_return(tmp_path):
    found = rows(tmp_path, NEMO_BAR)
    assert [(r["line"], r["step"], r["step_time"]) for r in found] == [(1, 9000, 0.615), (1, 9010, 0.618)]


def test_torchtitan_is_read_through_its_colours(tmp_path):
    first, second = rows(tmp_path, TITAN)
    assert (first["step"], first["tokens_per_second_per_gpu"], first["mfu"]) == (10, 7312, pytest.approx(0.4278))
    assert first["flops_per_gpu"] == pytest.approx(423.11e12) and milliseconds(first) == NOON + 508
    assert second["mfu"] is None and second["flops_per_gpu"] == pytest.approx(1022.5e12)


def test_verl_reports_the_actors_update_and_a_note_says_so(tmp_path):
    problems = Problems()
    first, second = rows(tmp_path, VERL, problems)
    assert (first["step"], first["mfu"], first["step_time"], first["tokens"]) == (31, 0.31, 46.59, 298680)
    assert second["mfu"] == 0.29
    assert any("actor's update alone" in line for line in problems.lines())


def test_verls_json_lines_have_the_same_names_one_level_down(tmp_path):
    (row,) = rows(tmp_path, FORMS["verl"][1])
    assert (row["step"], row["mfu"], row["step_time"]) == (3, 0.41, 46.6)


def test_nanotron_writes_letters_for_magnitudes(tmp_path):
    first, second = rows(tmp_path, NANOTRON)
    assert (first["step"], first["step_time"], first["flops_per_gpu"]) == (7, 8.79, pytest.approx(15.4e12))
    assert first["tokens"] == pytest.approx(182e3 * 8.79) and milliseconds(first) == NOON
    assert second["time"] is None  # 12/21 names no year


def test_deepspeed_tells_samples_and_the_profilers_whole_step(tmp_path):
    timer, engine, profile = rows(tmp_path, DEEPSPEED)
    assert (timer["step"], timer["samples_per_second"]) == (10, pytest.approx(25.704280480541442))
    assert (engine["step"], engine["step_time"], engine["samples_per_second"]) == (20, 0.936, 136.706)
    assert (profile["step"], profile["step_time"], profile["samples_per_second"]) == (30, 7.77, 49.55)
    assert profile["flops_per_gpu"] == pytest.approx(13.64e12)


def test_json_lines_are_read_by_names_and_their_aliases(tmp_path):
    lines = [
        {
            "global_step": 5,
            "timestamp": NOON / 1000,
            "step_time_ms": 1830,
            "train": {"tflops_per_gpu": 412.0},
            "tokens": 4096,
            "mfu(%)": 41.6,
        },
        {"_step": 6, "_timestamp": "2026-08-10T12:00:13Z", "step_time": 1.9, "flops_per_gpu": 4.1e14, "tps": 7312},
        {"loss": 3.2},
    ]
    first, second = rows(tmp_path, "\n".join(json.dumps(line) for line in lines))
    assert (first["step"], milliseconds(first), first["step_time"], first["tokens"]) == (5, NOON, pytest.approx(1.83), 4096)
    assert first["flops_per_gpu"] == pytest.approx(412e12) and first["mfu"] == pytest.approx(0.416)
    assert milliseconds(second) == NOON + 10_000 and second["flops_per_gpu"] == pytest.approx(4.1e14)
    assert second["tokens_per_second_per_gpu"] == 7312


def test_an_mfu_series_in_percent_is_told_by_its_median(tmp_path):
    # 41 and 1.4 are percent (median 40); 1.21 beside 0.41 is a reported 121 %
    percent = rows(tmp_path, "\n".join(json.dumps({"step": n, "mfu": m}) for n, m in enumerate([1.4, 40, 41])))
    assert [r["mfu"] for r in percent] == [pytest.approx(0.014), 0.40, 0.41]
    ratio = rows(tmp_path, "\n".join(json.dumps({"step": n, "mfu": m}) for n, m in enumerate([0.41, 1.21, 0.42])))
    assert [r["mfu"] for r in ratio] == [0.41, 1.21, 0.42]


def test_lines_of_several_ranks_about_a_step_become_one(tmp_path):
    line = "[titan] 2026-08-10 12:00:{:02d},000 - root - INFO - step: {:2d}  loss: 7.1  tps: {}  tflops: {}  mfu: {}%\n"
    text = line.format(0, 4, 100, 300, 30) + line.format(1, 5, 110, 310, 31)  # rank 0 is a step ahead of rank 1
    text += line.format(1, 4, 200, 302, 32) + line.format(2, 5, 110, 310, 31) + line.format(9, 6, 120, 300, 30)
    problems = Problems()
    found = rows(tmp_path, text, problems)
    assert [(r["line"], r["step"], r["mfu"]) for r in found] == [(1, 4, pytest.approx(0.31)), (2, 5, 0.31), (5, 6, 0.30)]
    assert found[0]["tokens_per_second_per_gpu"] == 150 and milliseconds(found[0]) == T0 + 43_201_000
    assert problems.repaired.total() == 2


def test_a_step_that_a_restarted_job_does_again_is_a_row_of_its_own(tmp_path):
    line = "[2026-08-10 {}:00:00] iteration {}/ 100 | elapsed time per iteration (ms): 1000.0 | throughput per GPU (TFLOP/s/GPU): {} |\n"
    text = line.format(12, 10, 400) + line.format(13, 10, 300)
    assert [r["flops_per_gpu"] for r in rows(tmp_path, text)] == [pytest.approx(400e12), pytest.approx(300e12)]


def test_what_no_number_can_be_is_left_out_and_counted(tmp_path):
    problems = Problems()
    text = "\n".join(
        [
            '{"step": 1, "mfu": NaN, "tflops": 400}',
            '{"step": 2, "mfu": -1, "tflops": 1e300}',
            '{"step": 3, "mfu": 0.4, "tflops": Infinity}',
            '{"step": 1e400, "mfu": 0.4}',
            '{"step": 5, "mfu": 0.4',
            '{"step": 6, "mfu": true}',
            '{"step": 7, "mfu": "0.5"}',
        ]
    )
    found = rows(tmp_path, text, problems)
    assert [(r["step"], r["mfu"]) for r in found] == [(1, None), (3, 0.4), (None, 0.4), (7, 0.5)]
    assert found[1]["flops_per_gpu"] is None
    assert problems.dropped["impossible values of mfu"] == 2 and problems.dropped["lines that can't be read"] == 1


def test_a_huge_line_is_left_out_and_the_rest_is_read(tmp_path):
    problems = Problems()
    found = rows(tmp_path, b"x" * (3 << 20) + b"\n" + MEGATRON.encode(), problems)
    assert [r["line"] for r in found] == [3, 4]
    assert problems.dropped["lines longer than 1 MiB"] == 1


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x00\xff\xfe\x1b[",
        b"{" * 100_000 + b"}" * 100_000,
        b"[" * 100_000 + b"}",
        b'{"mfu": ' + b"9" * 10_000 + b"}",
        b"iteration " + b"9" * 10_000 + b"/ 5 | elapsed time per iteration (ms): 5 |",
        b"step:" + b"9" * 5_000 + b" - perf/mfu/actor:1",
        b"| " * 200_000 + b"elapsed time per iteration (ms): " + b"1" * 5000,
        b"step: 1 " + b"tps: , " * 20_000 + b"mfu: loss:",
        b"[9999-99-99 99:99:99] iteration 1/ 2 | elapsed time per iteration (ms): 5 |",
        b"{'mfu': __import__('os').system('true')}",
    ],
)
def test_hostile_lines_are_passed_over(tmp_path, hostile):
    found = rows(tmp_path, hostile + b"\n" + MEGATRON.encode())
    assert [r["step"] for r in found][-2:] == [50, 55]


def test_a_damaged_archive_is_read_as_far_as_it_goes(tmp_path):
    lines = "".join(f"[2026-08-10 12:00:00] iteration {n}/ 9 | elapsed time per iteration (ms): {n}.5 |\n" for n in range(1, 20_000))
    whole = gzip.compress(lines.encode())
    problems = Problems()
    assert 100 < len(rows(tmp_path, whole[: len(whole) // 2], problems)) < 19_999
    assert any("ended early" in line for line in problems.lines())


def test_what_is_no_log_says_what_is_read(tmp_path):
    with pytest.raises(UllageError, match="no trainer's log") as error:
        rows(tmp_path, "hello\n")
    assert all(log.reads in error.value.hint for log in TRAINLOGS.values())
    with pytest.raises(UllageError, match="there is no trainer log"):
        read_log(str(tmp_path / "none.log"))
    with pytest.raises(UllageError, match="reports no step"):
        rows(tmp_path, '{"mfu": -5}')


# --- what was reported, beside what was measured ---


def series(*steps):
    return table(LoggedStep(number, *step) for number, step in enumerate(steps, 1))


def test_a_line_stands_for_the_steps_since_the_line_before():
    # lines at steps 50, 55, 60 of 6 s each stand for 5 x 6 s; the first line like the others
    assert periods(series((50, T0, 6.0), (55, T0 + 30_000, 6.0), (60, T0 + 60_000, 6.0))).tolist() == [30, 30, 30]
    # without a step time the interval is taken; after an hour's pause the median interval
    found = periods(series((1, T0), (2, T0 + 10_000), (3, T0 + 20_000), (4, T0 + 3_620_000), (5, T0 + 3_630_000)))
    assert found.tolist() == [10, 10, 10, 10, 10]
    assert periods(series((None, None, 2.0), (None, None, 3.0))).tolist() == [2, 3]


def test_a_record_is_the_mean_over_time_not_over_lines():
    # 30 s at 0.4 and 10 s at 0.2: (12 + 2) / 40 = 0.35
    told = series((1, None, 30.0, None, None, None, 4e14, 0.4), (2, None, 10.0, None, None, None, 2e14, 0.2))
    found = record(told, "7", Problems())
    assert found.schema == JOBS
    assert (found["mfu"][0].as_py(), found["flops_per_gpu"][0].as_py()) == (pytest.approx(0.35), pytest.approx(3.5e14))


def test_only_steps_in_the_window_count():
    told = series((1, T0 + 10_000, 10.0, None, None, None, None, 0.1), (2, T0 + 20_000, 10.0, None, None, None, None, 0.5))
    assert record(told, "7", Problems(), since=T0 + 10_000)["mfu"].to_pylist() == [0.5]
    assert record(told, "7", Problems(), until=T0 + 10_000)["mfu"].to_pylist() == [0.1]
    problems = Problems()
    assert record(told, "7", problems, since=T0 + 90_000)["mfu"].to_pylist() == [None]
    assert "nothing in the window" in problems.lines()[0]


def test_samples_get_the_last_step_that_ended_before_them():
    told = series(
        (1, T0 + 30_000, 30.0, None, None, None, None, 0.4),
        (2, T0 + 60_000, 30.0, None, None, None, None, 0.5),
    )
    times = [T0 + 20_000, T0 + 30_000, T0 + 59_999, T0 + 60_000, T0 + 90_000, T0 + 90_001, T0 + 45_000, T0 + 45_000]
    jobs = ["7", "7", "7", "7", "7", "7", "8", None]
    samples = settled_table([{"time": t, "job": j} for t, j in zip(times, jobs, strict=True)])
    found = beside(samples, told, "7")
    # before the first step, and longer after the last than it took, nothing is known; job 8 reported nothing
    assert found["reported_mfu"].to_pylist() == [None, 0.4, 0.4, 0.5, 0.5, None, None, None]
    assert found["reported_flops_per_gpu"].null_count == len(times)
    assert beside(samples, SERIES.empty_table(), "7")["reported_mfu"].null_count == len(times)


@pytest.mark.parametrize(("name", "job"), [("slurm-4711.out", "4711"), ("slurm-4711_2.out", "4711"), ("train.log", "train")])
def test_without_a_job_the_file_names_it(tmp_path, name, job):
    (tmp_path / name).write_text(MEGATRON)
    assert read_reported(str(tmp_path / name), Problems())["job"].to_pylist() == [job]
    assert read_reported(f"{tmp_path / name}=x=y".replace("=x=y", "=xy"), Problems())["job"].to_pylist() == ["xy"]


def test_an_empty_job_is_refused(tmp_path):
    (tmp_path / "a.log").write_text(MEGATRON)
    with pytest.raises(UllageError, match="names no job after"):
        read_reported(f"{tmp_path / 'a.log'}=", Problems())


def test_a_fleet_report_sets_the_log_beside_ofu(tmp_path):
    # OFU 0.5 x 1.83/1.83 = 50 %; 494.7 TFLOP/s of 989.4 is an MFU of 50 %
    scrape = "# time 1786320060\n" + "".join(
        f'DCGM_FI_{name}{{UUID="GPU-1",gpu="0",Hostname="n1",modelName="NVIDIA H100 80GB HBM3",hpc_job="4711"}} {value}\n'
        for name, value in (
            ("PROF_PIPE_TENSOR_ACTIVE", 0.5),
            ("DEV_SM_CLOCK", 1830),
            ("PROF_SM_ACTIVE", 0.9),
            ("PROF_GR_ENGINE_ACTIVE", 1.0),
        )
    )
    (tmp_path / "a.prom").write_text(scrape)
    line = "[2026-08-10 00:00:30] iteration 1/ 9 | elapsed time per iteration (ms): 1000.0 | throughput per GPU (TFLOP/s/GPU): 494.7 |\n"
    (tmp_path / "train.log").write_text(line)
    result = CliRunner().invoke(
        cli, ["fleet", str(tmp_path / "a.prom"), "--reported", f"{tmp_path / 'train.log'}=4711", "--json"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    agreement = json.loads(result.stdout)["agreement"]
    assert agreement["mfu"] == pytest.approx(0.5, rel=1e-3) and agreement["ofu"] == pytest.approx(0.5, rel=1e-3)


def test_a_series_has_the_declared_schema():
    assert table([]).schema == SERIES and isinstance(table([LoggedStep(1)]), pa.Table)
