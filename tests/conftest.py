"""What several tests share: hand-made settled samples, and where the real recordings lie when they are there."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings

from tests import seeds
from ullage.tables import SETTLED

# a shell that starts these tests in the background has them ignore Ctrl-C, and so would every command that they start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# servers and checkers in Go, which end soon, look for garbage seldom: it was a quarter of their time
os.environ.setdefault("GOGC", "400")

# what shares the machine decides when a program's thread has a processor: the tests of that ask for it
os.environ.setdefault("ULLAGE_CPU_CLOCK", "0")


def pytest_configure(config: pytest.Config) -> None:
    """Let drawn tests know whether the long ones run too, and Hypothesis that machines are shared: a slow example is no failure."""
    seeds.long_run = config.option.markexpr != "not full"
    settings.register_profile("shared", deadline=None, max_examples=seeds.examples(50, 100))
    settings.load_profile("shared")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without looking for garbage, and never look through what was collected afterwards: none of it is.

    Later garbage is looked for as seldom as in a process of the command line: it was a fifteenth of the tests' time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # native libraries complain about what is left at the end
        gc.set_threshold(50_000, 20, 100)
        gc.enable()


OWN_PROCESS = "ULLAGE_TEST_IN_ITS_OWN_PROCESS"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that asks for a process of its own in one, which asks for no other."""
    if pyfuncitem.get_closest_marker("own_process") is None or OWN_PROCESS in os.environ:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    done = subprocess.run(command, cwd=pyfuncitem.config.rootpath, env={**os.environ, OWN_PROCESS: "1"}, capture_output=True, text=True)
    if "1 skipped" in done.stdout:
        pytest.skip(next((line for line in done.stdout.splitlines() if line.startswith("SKIPPED")), "skipped"))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]
    return True


T0 = 1_786_320_000_000  # 2026-08-10T00:00:00Z


def settled_table(rows: list[dict[str, Any]]) -> pa.Table:
    """A table of `tables.SETTLED` from rows that name only what matters; 30 s a sample, one H100, one job a row."""
    defaults: dict[str, Any] = {
        "gpu": "GPU-0",
        "host": "node-1",
        "model": "NVIDIA H100 80GB HBM3",
        "span_ms": 30_000,
        "sharers": 1,
        "flags": 0,
    }
    full = [defaults | row for row in rows]
    for number, row in enumerate(full):
        row.setdefault("time", T0 + 30_000 * (number + 1))
        if row.get("job") is None:
            row["sharers"] = 0
    columns = []
    for field in SETTLED:
        values = [row.get(field.name) for row in full]
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        array = pa.array(values, pa.int64()).cast(pa.timestamp("ms")).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
        columns.append(array.dictionary_encode() if pa.types.is_dictionary(field.type) else array)
    return pa.Table.from_arrays(columns, schema=SETTLED)


@pytest.fixture(scope="session", autouse=True)
def stores_engine() -> Any:
    """The engine that stores are asked by, for files of any test: it writes the SQL of questions that are alike only once."""
    import ibis

    from ullage.store.reading import connection

    made = connection()
    ibis.set_backend(made)
    return made


@pytest.fixture
def kept_file(tmp_path: Path) -> Callable[[pa.Table], Path]:
    """A function from an Arrow table to a file of it."""
    import pyarrow.parquet as parquet

    numbers = itertools.count()

    def make(table: pa.Table) -> Path:
        path = tmp_path / f"settled-{next(numbers)}.parquet"
        parquet.write_table(table, path)
        return path

    return make


@pytest.fixture
def in_engine(stores_engine: Any, kept_file: Callable[[pa.Table], Path]) -> Callable[[pa.Table], Any]:
    """A function from an Arrow table to an Ibis table over a file of it, of which nothing else is known."""
    return lambda table: stores_engine.read_parquet(kept_file(table))


@pytest.fixture
def settled(stores_engine: Any, kept_file: Callable[[pa.Table], Path]) -> Callable[[list[dict[str, Any]]], Any]:
    """A function from rows to an Ibis table of settled samples, as a store gives it: with what the file says of its columns."""
    from ullage.store.reading import settled_table as table_of_files

    return lambda rows: table_of_files(stores_engine, [kept_file(settled_table(rows))], None, None, None)


@pytest.fixture
def shared_data() -> Path:
    """The folder of real recordings beside the checkout; a test that needs it skips without it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the folder of real recordings is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def emulation_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what is built of kernels for the model of a GPU: one for all workers, since building the model takes seconds."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "emulated"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def quick_disk() -> Iterator[None]:
    """Nobody pulls the plug on a test: only programs of their own, which tests of crashes kill, wait until the disk has what they wrote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
