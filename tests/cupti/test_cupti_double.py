"""The double of libcupti and the fake program on it, which the tests of the recorder and of `ullage run` trust."""

import ctypes
import subprocess

import pytest

from tests.cupti import cupti_double
from ullage.cupti.layouts import layouts
from ullage.cupti.releases import release


@pytest.mark.parametrize("version", [26, 27, 28, 130000, 130001, 130100, 130101, 130202, 130301, 130401, 130500])
def test_the_doubles_records_have_the_sizes_of_nvidias(monkeypatch, version):
    monkeypatch.delenv("CUPTI_DOUBLE_FAULTS", raising=False)
    monkeypatch.setenv("CUPTI_DOUBLE_VERSION", str(version))
    double, known, size = cupti_double.loaded(), layouts(release(version)), ctypes.c_size_t()
    for kind in (1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 17, 25, 38, 39, 51):
        assert double.cuptiActivityGetStructSize(kind, 0, ctypes.byref(size)) == 0
        assert (kind, size.value) == (kind, known.of(kind).size)


def test_the_fake_program_says_what_it_did_and_ends_as_it_is_told():
    def run(*options):
        return subprocess.run([cupti_double.program(), *options], env=cupti_double.environment(), capture_output=True, text=True)

    (told,) = cupti_double.told(run("--kernels", "6", "--microseconds", "50", "--threads", "2", "--graphs", "1").stdout)
    # 2 threads: 6 kernels, 2 copies and a graph launch each
    assert (told.launches, len(told.of(10)), len(told.of(1)), len(told.of(51))) == (12, 12, 4, 2)
    assert all(end - start == 50_000 for _, _, start, end, _ in told.of(10))
    assert all(told.started <= start for _, _, start, _, _ in told.operations)
    assert [run(*options).returncode for options in (["--exit", "7"], ["--abort"], ["--kill"], ["--no-cuda", "--exit", "1"])] == [
        7,
        -6,
        -9,
        1,
    ]
    assert len({told.pid for told in cupti_double.told(run("--fork").stdout)}) == 2
    assert [told.launches for told in cupti_double.told(run("--exec").stdout)] == [10, 10]
