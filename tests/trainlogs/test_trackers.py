"""What metrics trackers keep: each format from files made by hand, several runs, torn and wrong bytes, and random damage."""

from __future__ import annotations

import json
import random
import struct
from contextlib import suppress
from itertools import pairwise

import pytest

from tests.trainlogs.trackers import (
    crc32c,
    event,
    event_file,
    mlflow_database,
    mlflow_run,
    simple,
    tensor,
    tfrecord,
    trackio_database,
    wandb_file,
)  # fmt: skip
from ullage.errors import UllageError
from ullage.opening import Opening, opening_of
from ullage.problems import Problems
from ullage.trainlogs.log import is_log, read_log
from ullage.trainlogs.points import TRACKERS, tracker_of
from ullage.trainlogs.tensorboard import masked_crc

AT = 1_786_320_000.0  # 2026-08-10T00:00:00Z
# 30 s a step; MFU 0.40, 0.41, …; 400, 410, … TFLOP/s; values that a 32-bit float holds exactly are not needed: compared to 1e-6
POINTS = [
    (step, AT + 30 * step, {"train/mfu": 0.39 + step / 100, "train/tflops_per_gpu": 390 + 10.0 * step, "loss": 2.0}) for step in (1, 2, 3)
]
FORMS = {"csv", "mlflow", "tensorboard", "trackio", "wandb"}


def found(place, run=None):
    problems = Problems()
    return read_log(str(place), problems, run=run).to_pylist(), problems


def check(place, run=None):
    """Expect the three steps, whole."""
    rows, problems = found(place, run)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["mfu"] for row in rows] == [pytest.approx(0.39 + step / 100) for step in (1, 2, 3)]
    assert [row["flops_per_gpu"] for row in rows] == [pytest.approx((390 + 10 * step) * 1e12) for step in (1, 2, 3)]
    assert [row["time"].timestamp() for row in rows] == [AT + 30 * step for step in (1, 2, 3)]
    assert problems.lines() == [] and problems.complete
    assert is_log(place)


def written(path, data):
    path.write_bytes(data if isinstance(data, bytes) else b"".join(data))
    return path


def test_every_tracker_is_tried_here_and_says_what_it_reads():
    assert set(TRACKERS) == FORMS
    assert all(one.reads and one.name == name for name, one in TRACKERS.items())


# --- TensorBoard ---


@pytest.mark.parametrize(
    "form", [simple, tensor, lambda tag, value: tensor(tag, value, 2)], ids=["number", "float tensor", "double tensor"]
)
def test_event_files_hold_numbers_or_tensors_of_one_element(tmp_path, form):
    check(written(tmp_path / "any name", event_file(POINTS, form)))


def test_whole_numbers_in_tensors_are_read(tmp_path):
    records = [*event_file([]), event(5, AT, [tensor("tokens", 123_456, 3), tensor("mfu", 0.4)])]
    rows, _ = found(written(tmp_path / "e", records))
    assert [(row["step"], row["tokens"], row["mfu"]) for row in rows] == [(5, 123_456, pytest.approx(0.4))]


@pytest.mark.parametrize("data", [b"", b"123456789", bytes(32), b"\xff" * 32, bytes(range(256))])
def test_the_checksum_is_the_one_computed_bit_by_bit(data):
    # of 32 zeros and of 32 times FF by RFC 3720, B.4: 8A9136AA and 62A8AB43
    assert (crc32c(bytes(32)), crc32c(b"\xff" * 32)) == (0x8A9136AA, 0x62A8AB43)
    crc = crc32c(data)
    assert masked_crc(data) == ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def test_a_step_that_was_logged_in_one_file_says_nothing_of_the_same_record_of_another(tmp_path):
    """A run that was started again has several event files, whose records are each counted from 1."""
    first, second = event_file([(1, 1e9, {"global_step": 70.0})]), event_file([(2, 1e9 + 60, {"train/mfu": 0.5})])
    folder = tmp_path / "run"
    folder.mkdir()
    written(folder / "events.out.tfevents.1.a", b"".join(first))
    written(folder / "events.out.tfevents.2.a", b"".join(second))
    assert read_log(str(folder))["step"].to_pylist() == [2]


def test_a_folder_is_one_run_and_its_files_are_read_one_after_the_other(tmp_path):
    records = event_file(POINTS)
    written(tmp_path / "events.out.tfevents.1.host", records[:4])
    written(tmp_path / "events.out.tfevents.2.host", records[:1] + records[4:])
    check(tmp_path)
    assert opening_of([str(tmp_path)]) == Opening(("log",), "waterfall")


def test_a_torn_last_record_leaves_the_rest_and_the_answer_is_a_part(tmp_path):
    records = event_file(POINTS)  # the last is the loss of step 3; what is torn here its TFLOP/s
    rows, problems = found(written(tmp_path / "e", b"".join(records)[: -len(records[-1]) - 5]))
    assert [row["mfu"] for row in rows] == [pytest.approx(mfu) for mfu in (0.40, 0.41, 0.42)]
    assert [row["flops_per_gpu"] for row in rows] == [pytest.approx(400e12), pytest.approx(410e12), None]
    assert problems.dropped["last records that end early"] == 1 and not problems.complete


def test_a_wrong_checksum_of_data_costs_its_record_alone(tmp_path):
    records = event_file(POINTS)  # the version, and then three values a step
    records[4] = records[4][:-5] + bytes([records[4][-5] ^ 1]) + records[4][-4:]  # the MFU of step 2
    rows, problems = found(written(tmp_path / "e", records))
    assert [row["mfu"] for row in rows] == [pytest.approx(0.40), None, pytest.approx(0.42)]
    assert problems.dropped["event records with a wrong checksum"] == 1 and not problems.complete


def test_after_a_wrong_checksum_of_a_length_nothing_can_be_read(tmp_path):
    records = event_file(POINTS)
    records[4] = bytes([records[4][0] ^ 1]) + records[4][1:]
    rows, problems = found(written(tmp_path / "e", records))
    assert [row["step"] for row in rows] == [1] and not problems.complete


def test_a_large_record_is_passed_over_and_one_that_is_no_event_is_counted(tmp_path):
    records = event_file(POINTS)
    image = struct.pack("<Q", 3 << 20)
    large = image + struct.pack("<I", masked_crc(image)) + bytes((3 << 20) + 4)  # its own checksum is not asked for
    rows, problems = found(written(tmp_path / "e", [*records[:4], large, tfrecord(b"\xff\xff\xff"), *records[4:]]))
    assert len(rows) == 3 and problems.dropped == {"event records that are not events": 1}


# --- Weights & Biases ---


def test_a_runs_file_is_read_as_it_lies_there(tmp_path):
    folder = tmp_path / "wandb" / "offline-run-20260810-x"
    folder.mkdir(parents=True)
    file = written(folder / "run-x.wandb", wandb_file(POINTS))
    for place in (file, folder, folder.parent):
        check(place)


def test_records_over_several_blocks_are_put_together(tmp_path):
    long = [(step, at, {**metrics, "z" * 40_000: 1.0}) for step, at, metrics in POINTS]
    check(written(tmp_path / "run-x.wandb", wandb_file(long)))


def test_a_wrong_checksum_costs_the_rest_of_its_block(tmp_path):
    # each step's record fills more than a block of 32 KiB, so the damage in the first spares those that begin behind it
    long = [(step, at, {**metrics, "z" * 40_000: 1.0}) for step, at, metrics in POINTS]
    raw = bytearray(wandb_file(long))
    raw[2_000] ^= 1
    rows, problems = found(written(tmp_path / "run-x.wandb", bytes(raw)))
    assert [row["step"] for row in rows] == [2, 3]  # that of step 1 begins in the block with the damage
    assert problems.dropped["blocks with a wrong checksum"] == 1 and not problems.complete


def test_a_runs_file_that_ends_early_says_so(tmp_path):
    rows, problems = found(written(tmp_path / "run-x.wandb", wandb_file(POINTS)[:-10]))
    assert [row["step"] for row in rows] == [1, 2] and problems.dropped["last records that end early"] == 1


def test_an_exported_history_is_a_table_and_so_is_lightnings(tmp_path):
    lines = [
        "_step,_timestamp,train/mfu,train/tflops_per_gpu,loss",
        *(f"{s},{at},{m['train/mfu']},{m['train/tflops_per_gpu']},2" for s, at, m in POINTS),
    ]
    check(written(tmp_path / "a.csv", "\n".join(lines).encode()))
    lightning = "epoch,mfu,step,tflops_per_gpu,train_loss\n0,,0,,2.5\n0,0.4,9,400.0,\n0,0.41,19,,\n"
    rows, problems = found(written(tmp_path / "metrics.csv", lightning.encode()))
    assert [(row["step"], row["mfu"], row["flops_per_gpu"]) for row in rows] == [(9, 0.4, 400e12), (19, 0.41, None)]
    assert problems.lines() == []


PANEL = """"Step","big - train/mfu","big - train/mfu__MIN","big - train/mfu__MAX","small - run - train/mfu"
"1","0.40","0.1","0.9","0.20"
"2","0.41","0.1","0.9",""
"""


def test_of_a_panel_with_several_runs_the_one_named_is_read(tmp_path):
    file = written(tmp_path / "panel.csv", PANEL.encode())
    assert [row["mfu"] for row in found(file, "big")[0]] == [0.40, 0.41]
    assert [row["mfu"] for row in found(file, "small - run")[0]] == [0.20]
    with pytest.raises(UllageError, match="holds 2 runs: 'big', 'small - run'"):
        found(file)


def test_a_torn_row_is_left_out_and_the_answer_is_a_part(tmp_path):
    rows, problems = found(written(tmp_path / "a.csv", b"step,time,mfu\n1,,0.4\n2,0.\n3,,0.5\n"))
    assert [row["step"] for row in rows] == [1, 3]
    assert problems.dropped["rows with other columns than the header"] == 1 and not problems.complete


@pytest.mark.parametrize("text", ["time,power\n1,2\n", "job,start,end,mfu\n1,2,3,0.4\n", "step,loss\n1,2\n", "mfu\n1\n"])
def test_other_tables_are_none_of_a_training(tmp_path, text):
    assert tracker_of(written(tmp_path / "a.csv", text.encode())) is None


# --- MLflow and Trackio ---


def test_mlflows_files_are_read_by_metric_run_experiment_and_all(tmp_path):
    run = mlflow_run(tmp_path / "mlruns", POINTS)
    for place in (run, run / "metrics", run.parent, tmp_path / "mlruns"):
        check(place)
    rows, _ = found(run / "metrics" / "train" / "mfu")
    assert [row["mfu"] for row in rows] == [pytest.approx(0.39 + step / 100) for step in (1, 2, 3)]


def test_of_several_runs_the_one_named_is_read_and_one_that_was_deleted_is_none(tmp_path):
    place = tmp_path / "mlruns"
    mlflow_run(place, POINTS)
    other = mlflow_run(place, POINTS[:1], name="small", run="0c0d")
    check(place, "big")
    assert len(found(place, "small")[0]) == 1
    with pytest.raises(UllageError, match="holds 2 runs"):
        found(place)
    (other / "meta.yaml").write_text("lifecycle_stage: deleted\nrun_name: small\n")
    check(place)


def test_a_line_that_is_none_is_counted(tmp_path):
    run = mlflow_run(tmp_path, POINTS)
    with (run / "metrics" / "train" / "mfu").open("a") as file:
        file.write("17863200")
    rows, problems = found(run)
    assert len(rows) == 3 and problems.dropped["lines that can't be read"] == 1 and not problems.complete


def test_databases_are_read_by_run(tmp_path):
    for write in (mlflow_database, trackio_database, lambda path, runs: trackio_database(path, runs, ids=False)):
        one = write(tmp_path / "one", {"big": POINTS})
        check(one)
        one.unlink()
        two = write(tmp_path / "two", {"big": POINTS, "small": POINTS[:1]})
        check(two, "big")
        with pytest.raises(UllageError, match="holds 2 runs: 'big', 'small'"):
            found(two)
        two.unlink()


def test_a_torn_database_is_an_error_or_a_part(tmp_path):
    many = [(step, AT + step, {"mfu": 0.4, "text": step}) for step in range(2_000)]
    raw = trackio_database(tmp_path / "whole", {"big": many}).read_bytes()
    torn = written(tmp_path / "torn", raw[: len(raw) // 2 // 4096 * 4096])
    with pytest.raises(UllageError):
        found(torn)


# --- what belongs together ---


def test_a_step_done_again_after_a_restart_is_a_row_of_its_own(tmp_path):
    points = [(1, AT, {"mfu": 0.4}), (2, AT + 30, {"mfu": 0.41}), (2, AT + 3600, {"mfu": 0.3}), (3, AT + 3630, {"mfu": 0.31})]
    rows, _ = found(written(tmp_path / "e", event_file(points)))
    assert [(row["step"], row["mfu"]) for row in rows] == [(s, pytest.approx(m)) for s, m in ((1, 0.4), (2, 0.41), (2, 0.3), (3, 0.31))]


@pytest.mark.parametrize("name", ["train/global_step", "trainer/global_step"])
def test_the_step_that_a_training_logs_goes_before_the_trackers_count(tmp_path, name):
    points = [(call, AT + 30 * call, {"train/mfu": 0.4, name: 10.0 * call}) for call in (1, 2, 3)]
    for file in (written(tmp_path / "run-x.wandb", wandb_file(points)), trackio_database(tmp_path / "t.db", {"big": points})):
        assert [row["step"] for row in found(file)[0]] == [10, 20, 30]
    exported = "\n".join(json.dumps({"_step": call, **metrics}) for call, _, metrics in points)
    assert [row["step"] for row in found(written(tmp_path / "h.jsonl", exported.encode()))[0]] == [10, 20, 30]


def test_megatron_bridges_figures_of_one_device_and_of_all_are_told_apart(tmp_path):
    told = {"throughput/tflops": 3200.0, "throughput/tflops/device": 400.0, "throughput/device/samples_per_sec": 2.0, "iteration-time": 6.5}
    told |= {"throughput/samples_per_sec": 16.0, "throughput/device/tokens_per_sec": 8192.0, "throughput/tokens_per_sec": 65536.0}
    (row,), _ = found(written(tmp_path / "e", event_file([(1, AT, told)])))
    assert (row["flops_per_gpu"], row["samples_per_second"], row["tokens_per_second_per_gpu"], row["step_time"]) == (400e12, 16, 8192, 6.5)


def test_torchtitans_tags_are_read_and_those_of_its_validation_are_not(tmp_path):
    told = {
        "throughput(tps)": 7312.0,
        "tflops": 423.0,
        "mfu(%)": 42.75,
        "time_metrics/end_to_end(s)": 2.5,
        "validation_metrics/throughput(tps)": 9e4,
    }
    (row,), _ = found(written(tmp_path / "e", event_file([(10, AT, told)])))
    assert (row["tokens_per_second_per_gpu"], row["flops_per_gpu"], row["mfu"], row["step_time"]) == (7312, 423e12, 0.4275, 2.5)


def test_what_was_measured_beside_the_training_is_not_its_own(tmp_path):
    points = [(1, AT, {"eval/samples_per_second": 900.0, "train/samples_per_second": 30.0, "val/mfu": 0.9})]
    rows, _ = found(written(tmp_path / "e", event_file(points)))
    assert [(row["samples_per_second"], row["mfu"]) for row in rows] == [(30.0, None)]


def test_a_folder_without_metrics_and_a_place_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(UllageError, match="holds no metrics"):
        found(tmp_path)
    with pytest.raises(UllageError, match="there is no trainer log"):
        found(tmp_path / "nowhere")
    assert not is_log(tmp_path)


# --- random damage ---


def wandb_records(points):
    """Return a run's file in pieces that end where a record does."""
    whole = [wandb_file(points[:count]) for count in range(len(points) + 1)]
    return [whole[0], *(after[len(before) :] for before, after in pairwise(whole))]


def damaged(raw: bytes, seed: int) -> bytes:
    """Return bytes with one of them changed, or without their end, or with a piece cut out."""
    draw = random.Random(seed)
    at = draw.randrange(len(raw))
    kind = draw.randrange(3)
    if kind == 0:
        return raw[:at] + bytes([raw[at] ^ draw.randrange(1, 256)]) + raw[at + 1 :]
    return raw[:at] if kind == 1 else raw[:at] + raw[at + draw.randrange(1, 40) :]


def check_damage(tmp_path, seeds):
    points = [(step, AT + 30 * step, {"mfu": 0.3 + step / 100}) for step in range(1, 12)]
    whole = {"e": b"".join(event_file(points)), "run-x.wandb": wandb_file(points)}
    allowed = {(step, round(metrics["mfu"], 5)) for step, _, metrics in points}
    ends = {name: _ends(raw) for name, raw in (("e", event_file(points)), ("run-x.wandb", wandb_records(points)))}
    for seed in seeds:
        for name, raw in whole.items():
            broken = damaged(raw, seed)
            place, problems = written(tmp_path / name, broken), Problems()
            try:
                rows = read_log(str(place), problems).to_pylist()
            except UllageError:
                continue
            seen = [(row["step"], round(row["mfu"], 5)) for row in rows]
            assert set(seen) <= allowed, (name, seed)
            at_an_end = len(broken) in ends[name] and raw.startswith(broken)
            assert len(seen) == len(points) or not problems.complete or at_an_end, (name, seed)


def _ends(records: list[bytes]) -> set[int]:
    """Return where records end: a file cut there looks whole."""
    ends, at = set(), 0
    for record in records:
        at += len(record)
        ends.add(at)
    return ends


def test_random_damage_invents_no_step_and_is_always_said(tmp_path):
    check_damage(tmp_path, range(40))


@pytest.mark.full
def test_random_damage_over_thousands_of_seeds(tmp_path):
    check_damage(tmp_path, range(40, 4_000))


@pytest.mark.full
def test_random_damage_of_tables_and_databases_ends_in_an_error_or_an_answer(tmp_path):
    csv = ("step,timestamp,mfu\n" + "".join(f"{step},{AT + step},0.4\n" for step in range(50))).encode()
    many = [(step, AT + step, {"mfu": 0.4}) for step in range(300)]
    whole = [csv, trackio_database(tmp_path / "t", {"big": many}).read_bytes(), mlflow_database(tmp_path / "m", {"big": many}).read_bytes()]
    whole.append("\n".join(json.dumps({"_step": step, "mfu": 0.4}) for step in range(50)).encode())
    for seed in range(1_500):
        for raw in whole:
            with suppress(UllageError):
                found(written(tmp_path / "x", damaged(raw, seed)))
