"""A real Slurm on this machine: munge, MariaDB, slurmdbd, slurmctld and one slurmd whose four GPUs are other names of /dev/null.

Debian's packages slurm-wlm, slurm-wlm-basic-plugins, slurmdbd, mariadb-server and munge; all in a folder of its own, on loopback.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "mariadb-install-db", "sacct", "sacctmgr", "sbatch")
PATIENCE = 60.0  # s: a service of a loaded machine


def why_not() -> str:
    """Return why no cluster can be started here; "" where one can."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]:
        return f"needs {', '.join(missing)} (Debian: slurm-wlm, slurm-wlm-basic-plugins, slurmdbd, mariadb-server, munge)"
    if os.geteuid() != 0:
        return "needs root, to start jobs"
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.mknod(f"{folder}/gpu", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            return "needs to make devices, which this container may not"
    return ""


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Cluster:
    """A running cluster named `fea`, with one host."""

    folder: Path
    host: str

    def ask(self, *words: str, **more: str) -> str:
        """Run one of Slurm's commands, and return what it prints."""
        told = subprocess.run(words, env=self.environment() | more, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert told.returncode == 0, f"{words}: {told.stderr}"
        return told.stdout

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _path(), "SLURM_CONF": str(self.folder / "slurm.conf"), "TZ": "UTC"}

    def submit(self, script: str, *options: str) -> str:
        """Submit a job, and return its number."""
        return self.ask("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}").strip()

    def wait_for(self, what: str, ready: Callable[[], bool]) -> None:
        wait_for(what, ready, self.folder)


def wait_for(what: str, ready: Callable[[], bool], folder: Path) -> None:
    """Wait until something is ready; fails with the ends of the logs."""
    end = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > end:
            logs = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in folder.glob("*.log"))
            raise AssertionError(f"no {what} within {PATIENCE:.0f} s\n{logs}")
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def cluster(folder: Path, settings: str) -> Iterator[Cluster]:
    """Start a cluster in an empty folder with more lines of slurm.conf, and stop it after."""
    host = socket.gethostname().partition(".")[0]
    ports = _free_ports(4)
    _write_settings(folder, host, settings, *ports)
    made, stops = Cluster(folder, host), list[Path]()
    try:
        _start(made, ports, stops)
        yield made
    finally:
        for pid_file in reversed(stops):
            _stop(pid_file)


def _write_settings(folder: Path, host: str, settings: str, controller: int, node: int, accounting: int, database: int) -> None:
    for name in ("state", "spool", "mysql"):
        (folder / name).mkdir()
    for number in range(4):
        os.mknod(folder / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    munge = f"{folder}/munge.socket"
    (folder / "slurm.conf").write_text(
        f"""ClusterName=fea
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SchedulerParameters=sched_interval=1
ReturnToService=2
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting}
AccountingStorageTRES=gres/gpu
AccountingStoragePass={munge}
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=200 Gres=gpu:4
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
SlurmdParameters=config_overrides
{settings}"""
    )
    (folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={folder}/nvidia[0-3]\n")
    (folder / "slurmdbd.conf").write_text(
        f"""AuthType=auth/munge
AuthInfo=socket={munge}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounting}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""
    )
    (folder / "slurmdbd.conf").chmod(0o600)


def _start(made: Cluster, ports: list[int], stops: list[Path]) -> None:
    folder = made.folder
    quiet = {"env": made.environment(), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    munge = ["munged", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key", f"--pid-file={folder}/munged.pid"]
    made.ask(*munge, f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed")
    stops.append(folder / "munged.pid")
    data, sock = f"--datadir={folder}/mysql", f"--socket={folder}/mysql.sock"
    made.ask("mariadb-install-db", "--no-defaults", "--user=root", data, "--auth-root-authentication-method=normal", "--skip-test-db")
    address = ("--bind-address=127.0.0.1", f"--port={ports[3]}", f"--pid-file={folder}/mysql.pid", f"--log-error={folder}/mysql.log")
    small = ("--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=0")
    stops.append(folder / "mysql.pid")
    subprocess.Popen(["mariadbd", "--no-defaults", "--user=root", data, sock, *address, *small], **quiet)  # type: ignore[call-overload]
    client = ["mariadb", "--no-defaults", "-uroot", sock, "-e"]
    create = (
        "create user slurm@127.0.0.1 identified by 'slurm'; create user slurm@localhost identified by 'slurm'; create database slurm_acct;"
    )
    grant = "grant all on slurm_acct.* to slurm@127.0.0.1; grant all on slurm_acct.* to slurm@localhost"
    wait_for("database", lambda: subprocess.run([*client, "select 1"], check=False, **quiet).returncode == 0, folder)  # type: ignore[call-overload]
    made.ask(*client, create + grant)
    for daemon, name, port in (
        (["slurmdbd"], "slurmdbd", ports[2]),
        (["slurmctld"], "slurmctld", ports[0]),
        (["slurmd", "-N", made.host], "slurmd", ports[1]),
    ):
        if name == "slurmctld":
            made.ask("sacctmgr", "-i", "add", "cluster", "fea")
        made.ask(*daemon)
        stops.append(folder / f"{name}.pid")
        wait_for(name, lambda port=port: _listens(port), folder)  # type: ignore[misc]
    wait_for("idle node", lambda: made.ask("sinfo", "-h", "-o", "%T").strip() == "idle", folder)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _stop(pid_file: Path) -> None:
    """End the daemon of a pid file, and wait until it is gone."""
    try:
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError):
        return
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)  # one that we started ourselves
    end = time.monotonic() + 15
    while not _is_gone(pid):
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)


def _is_gone(pid: int) -> bool:
    """Return whether a process has ended, be it that nobody has asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True
