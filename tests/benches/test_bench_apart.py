"""A suite in a process of its own, on a double of the driver: hangs, crashes and lost contexts cost one row each."""

import os
import shutil
import time
from datetime import UTC, datetime

import pytest

from tests.benches.bench_cases import SOURCE, bench, case, work
from tests.cupti.cuda_double import ILLEGAL_ADDRESS, gpu
from ullage.benches.bench import BENCHES
from ullage.benches.running.apart import suite_apart
from ullage.benches.running.session import opened
from ullage.errors import UllageError

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: the double of the CUDA driver can't be built")
KERNELS = {
    "fine": work(),
    "faulty": lambda launch: ILLEGAL_ADDRESS,
    "endless": lambda launch: time.sleep(600),
    "deadly": lambda launch: os._exit(7),
}


def other(name):
    return case({"kernel": name}, source=SOURCE.replace("work", name), entry=name)


SAMPLES = {
    "sample": bench(*(other(name) for name in KERNELS), other("fine"), name="sample"),
    "second": bench(other("fine"), name="second"),
    "fatal": bench(other("faulty"), other("fine"), other("fine"), name="fatal"),
}


def on_the_double(index):
    """Open a session in the process that computes."""
    one = gpu()
    one.reset()
    one.kernels.update(KERNELS)
    BENCHES.load()
    BENCHES._members.update(SAMPLES)
    return opened(index, nvml=object(), torch=object(), today=lambda: datetime(2026, 3, 1, tzinfo=UTC))


def once(index):
    """Open a session the first time, and find no GPU the next."""
    marker = os.environ["ULLAGE_TEST_MARKER"]
    if os.path.exists(marker):  # noqa: PTH110
        raise UllageError("there is no GPU 0", "look for it")
    os.mkdir(marker)  # noqa: PTH102
    return on_the_double(index)


@pytest.fixture(autouse=True)
def _registered():
    BENCHES.load()
    before = dict(BENCHES._members)
    BENCHES._members.update(SAMPLES)
    yield
    BENCHES._members.clear()
    BENCHES._members.update(before)


def test_what_is_lost_is_one_row_each_and_the_suite_goes_on():
    said = []
    first, second = suite_apart(["sample", "second"], opened=on_the_double, silence=5, progress=said.append)
    assert [row.labels["kernel"] for row in first.rows] == ["fine", "faulty", "endless", "deadly", "fine"]
    fine, faulty, endless, deadly, last = (row.problem for row in first.rows)
    assert (fine, last) == ("", "")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in faulty
    assert endless == "it did not end within 5 s"
    assert deadly == "the process that ran it ended (exit code 7)"
    assert first.rows[4].values["latency"].value == 29.0
    assert (first.gpu, first.date, second.rows[0].problem) == ("NVIDIA H200", "2026-03-01T00:00:00Z", "")
    assert said[0] == "sample 1/5 (kernel fine)" and said[-1] == "second 1/1 (kernel fine)"


def test_a_gpu_that_is_gone_after_a_failure_leaves_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("ULLAGE_TEST_MARKER", str(tmp_path / "opened"))
    fatal, second = suite_apart(["fatal", "second"], opened=once)
    assert ["ILLEGAL_ADDRESS" in row.problem for row in fatal.rows] == [True]
    assert fatal.notes == ("fatal was given up: there is no GPU 0",)
    assert (second.rows, second.notes, second.gpu) == ((), ("second was given up: there is no GPU 0",), "NVIDIA H200")


def test_a_suite_without_a_gpu_or_with_an_unknown_name_is_an_error():
    with pytest.raises(UllageError, match="there is no GPU 3"):
        list(suite_apart(["sample"], index=3, opened=on_the_double))
    with pytest.raises(UllageError, match="no microbenchmark is called 'nonesuch'"):
        list(suite_apart(["nonesuch"], opened=on_the_double))


def test_no_time_leaves_every_row_unrun():
    (found,) = suite_apart(["sample"], opened=on_the_double, budget=-1.0)
    assert {row.problem for row in found.rows} == {"not run: the time was up"}
