"""A store is copied while a service fills it: the copy is whole, and what came meanwhile is found again, once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.command_line import ask
from tests.fleet.servers import wait_for
from tests.service.test_follow import plain, rows_of
from tests.service.test_remote_write import follower_of, request
from ullage.service.remote_write import ReceivedSamples, received_files

SCRIPT = Path(__file__).parents[2] / "deploy" / "backup.sh"
WAITS = """#!/bin/sh
{tar} "$@"
status=$?
touch {folder}/copied
while [ ! -e {folder}/go ]; do sleep 0.02; done
rm {folder}/go
exit $status
"""

pytestmark = pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar")


class Backup:
    """The script, which waits after each call of tar until it is let go on."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder, self.archive = folder / "wait", folder / "store.tar"
        self.folder.mkdir()
        (self.folder / "tar").write_text(WAITS.format(tar=shutil.which("tar"), folder=self.folder))
        (self.folder / "tar").chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        self.process = subprocess.Popen([SCRIPT, store, self.archive], env={"PATH": path})

    def copied(self) -> None:
        wait_for((self.folder / "copied").exists)
        (self.folder / "copied").unlink()

    def goes_on(self) -> None:
        (self.folder / "go").touch()

    def restored(self, place: Path) -> Path:
        assert self.process.wait(60) == 0
        place.mkdir()
        subprocess.run(["tar", "-C", place, "-xf", self.archive], check=True)
        return place


def test_a_store_that_is_filled_meanwhile_is_copied_whole(tmp_path: Path) -> None:
    store = tmp_path / "store"
    follower, samples = follower_of(store), ReceivedSamples(store)
    for first in (1, 5, 9):
        samples.keep(request(first=first))
        if first < 9:
            follower.turn()
    assert len(received_files(store)) == 1
    backup = Backup(tmp_path, store)
    backup.copied()
    follower.turn()  # stores what was received, and removes its file
    ask("store", "compact", store)
    backup.goes_on()
    backup.copied()
    samples.keep(request(first=13))
    follower.turn()
    backup.goes_on()
    copy = backup.restored(tmp_path / "copy")
    assert ask("store", "info", copy, "--check").code == 0
    after = follower_of(copy)
    after.turn()
    assert after.state.problem == "" and received_files(copy) == []
    expected = [row for row in plain(rows_of(store)) if row["time"] <= max(one["time"] for one in rows_of(copy))]
    assert len(expected) == 2 * 12 and plain(rows_of(copy)) == expected


def test_a_store_that_lies_still_is_copied_as_it_is(tmp_path: Path) -> None:
    store = tmp_path / "store"
    follower = follower_of(store)
    ReceivedSamples(store).keep(request())
    follower.turn()
    backup = Backup(tmp_path, store)
    backup.copied()
    backup.goes_on()
    backup.copied()
    backup.goes_on()
    copy = backup.restored(tmp_path / "copy")
    assert plain(rows_of(copy)) == plain(rows_of(store))
    assert ask("fleet", copy, "--json").json["ofu"] == ask("fleet", store, "--json").json["ofu"]
