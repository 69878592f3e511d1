"""What `ullage top` costs while it is looked at: python benchmarks/top_idle.py [seconds] [--gpus 8] [--every 2s].

It runs at a terminal of 120 by 40 over GPUs that a double of NVML pretends to be, so what a driver takes is left out; then it prints the
CPU time of the program and the most memory it had, after the first readings.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTLED = 6.0  # seconds after which all is loaded and drawn once


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: int) -> int:
    """Return the most memory (kB) that a process had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def read_for(terminal: int, seconds: float) -> int:
    """Read what is drawn for so long; return how many bytes that was."""
    end, drawn = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            drawn += len(os.read(terminal, 65536))
    return drawn


def main() -> None:
    """Measure, and print a line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("seconds", type=float, nargs="?", default=30.0)
    options.add_argument("--gpus", type=int, default=8)
    options.add_argument("--every", default="2s")
    asked = options.parse_args()
    terminal, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    script = "import sys; from tests.live.nvml_double import Nvml; from tests.live.sampled_machine import gpu; "
    script += f"sys.modules['pynvml'] = Nvml([gpu(f'GPU-{{n}}') for n in range({asked.gpus})]); from ullage.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TERM": "xterm-256color"}
    command = [sys.executable, "-c", script, "top", "--every", asked.every]
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment, cwd=ROOT)
    read_for(terminal, SETTLED)
    before = cpu_seconds(process.pid)
    drawn = read_for(terminal, asked.seconds)
    used, memory = cpu_seconds(process.pid) - before, peak_memory(process.pid)
    os.write(terminal, b"q")
    read_for(terminal, 0.5)
    process.send_signal(signal.SIGTERM)
    read_for(terminal, 0.5)
    process.kill()
    process.wait()
    print(
        f"{used:.2f} s of CPU time in {asked.seconds:g} s ({used / asked.seconds:.2%} of a CPU); {memory / 1000:,.0f} MB at most; ", end=""
    )
    print(f"{drawn / asked.seconds:,.0f} bytes a second drawn; {asked.gpus} GPUs, a reading every {asked.every}")


if __name__ == "__main__":
    main()
