"""What profile a problem of a job asks for: of which rank, where, for how long, and the commands that take it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ullage.errors import harmless

SECONDS = 30  # of a profile: dozens of steps of what takes a second each, and a file that can still be opened
SETTLED = 300  # seconds after the start until a program has warmed up
STEPS = 5  # of PyTorch's profiler, which writes each operation

# kind of problem -> what to look for in the profile; kinds that are not here are about no running program
LOOK_FOR = {
    "straggler": "whether its kernels take longer (clock, memory) or it launches later than the others (host, data loader)",
    "straggler_now": "whether its kernels take longer (clock, memory) or it launches later than the others (host, data loader)",
    "slower_than_before": "what is new beside a profile of an earlier run: gaps between kernels, other kernels, longer collectives",
    "slower_than_its_kind": "what is new beside a profile of a faster run: gaps between kernels, other kernels, longer collectives",
    "low_sm_fill": "kernels that leave SMs empty: small grids, many short kernels",
    "memory_bound": "kernels whose roof is memory, and what could be fused into them",
    "reported_mfu": "what a step takes, and which work the formula of the trainer counts that no kernel does",
    "change_job": "what a step does since then: gaps between kernels, longer kernels, longer collectives",
    "change_run": "what is new beside a profile of an earlier run: gaps between kernels, other kernels, longer collectives",
}


class ProfileCommand(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool takes the profile: of a program that is `running` already, or from its next start on; COMMAND is the program's own."""

    tool: str
    running: bool
    command: str


class WantedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The profile that is asked for: of the process of `job` that computes on a GPU (`index` and `gpu` of `host`), `seconds` long.

    `local_rank` is that process's number on its host, where a launcher gives each of a job's GPUs there to a rank in their order. `after`
    is how many seconds after its start a program has settled. `look_for` says what the profile is to show, `report` what reads it.
    """

    job: str
    host: str | None
    index: int | None
    gpu: str | None
    local_rank: int | None
    seconds: int
    after: int
    look_for: str
    commands: list[ProfileCommand]
    report: str

    @property
    def place(self) -> str:
        """Which rank is to be profiled, in words."""
        if self.host is None:
            return f"any rank of job {self.job}: its ranks are alike, or nobody tells them apart"
        device = "" if self.index is None and self.gpu is None else f" on GPU {self.index if self.index is not None else self.gpu}"
        rank = "" if self.local_rank is None else f" (local rank {self.local_rank})"
        return f"job {self.job}'s process{device} of {self.host}{rank}"


def wants_profile(kind: str, where: Mapping[str, Any]) -> bool:
    """Return whether a profile would say more of a problem of a kind: it is one of a job that runs."""
    return "job" in where and _looked_for(kind) in LOOK_FOR


def profile_request(kind: str, where: Mapping[str, Any], devices: Sequence[Mapping[str, Any]] = ()) -> WantedProfile:
    """Return the profile that a problem of a kind and place asks for. `devices` are those of the job's document.

    The worst of a job's GPUs is the one that the place names; where it names a host or none, the trusted one there with the least OFU.
    """
    job = str(where["job"])
    worst = _worst_device(where, devices)
    host = _word(worst.get("host", where.get("host")))
    index = worst.get("index", where.get("index"))
    known = None if index is None else int(index)
    own = sorted({int(one["index"]) for one in devices if one.get("host") == host and one.get("index") is not None and not one.get("mig")})
    local_rank = own.index(known) if known in own else None
    folder = f"ullage-{''.join(letter if letter.isalnum() else '-' for letter in job)[:60]}"
    return WantedProfile(
        job=job,
        host=host,
        index=known,
        gpu=_word(worst.get("gpu", where.get("gpu"))),
        local_rank=local_rank,
        seconds=SECONDS,
        after=SETTLED,
        look_for=LOOK_FOR[_looked_for(kind)],
        commands=_commands(job, host, local_rank, folder),
        report=f"ullage trace {folder}",
    )


def _looked_for(kind: str) -> str:
    """Return the kind, that of a change without what was measured."""
    return "_".join(kind.split("_")[:2]) if kind.startswith("change_") else kind


def _worst_device(where: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    named = {name: where[name] for name in ("host", "index", "gpu", "mig") if where.get(name) is not None}
    fitting = [one for one in devices if all(one.get(name) == value for name, value in named.items())]
    rated = [one for one in fitting if one.get("ofu") is not None and one.get("verdict", "trusted") == "trusted"] or fitting
    return min(
        rated, key=lambda one: (one.get("ofu") is None, one.get("ofu") or 0.0, str(one.get("host")), one.get("index") or 0), default={}
    )


def _commands(job: str, host: str | None, local_rank: int | None, folder: str) -> list[ProfileCommand]:
    """Return the commands, those for a running program first. `dyno` asks a program that was started with KINETO_USE_DAEMON=1."""
    at = [] if host is None else ["--hostname", host]
    dyno = shlex.join(
        ["dyno", *at, "gputrace", "--job-id", job, "--duration-ms", str(1000 * SECONDS), "--log-file", f"/tmp/{folder}/rank.json"]  # noqa: S108 - on the job's host
    )
    nsys = f"nsys profile --trace=cuda,nvtx,osrt --delay={SETTLED} --duration={SECONDS} --output={folder}/rank COMMAND"
    schedule = f"torch.profiler.schedule(skip_first=100, wait=0, warmup=2, active={STEPS}, repeat=1)"
    handler = f"torch.profiler.tensorboard_trace_handler({folder!r})"
    rank = f"int(os.environ.get('LOCAL_RANK', 0)) == {local_rank or 0}" if local_rank is not None or host is None else "True"
    here = rank if host is None else f"socket.gethostname().split('.')[0] == {host.split('.')[0]!r} and {rank}"
    program = f"with torch.profiler.profile(schedule={schedule}, with_stack=True, on_trace_ready={handler}) if {here} else "
    program += "contextlib.nullcontext() as profile: ...  # profile.step() after each step, where there is a profile"
    return [
        ProfileCommand(tool="PyTorch's profiler by dynolog", running=True, command=dyno),
        ProfileCommand(tool="ullage run", running=False, command=_on_rank(f"ullage run --keep {folder} -- COMMAND", host, local_rank)),
        ProfileCommand(tool="Nsight Systems", running=False, command=_on_rank(nsys, host, local_rank)),
        ProfileCommand(tool="PyTorch's profiler in the program", running=False, command=program),
    ]


def _on_rank(command: str, host: str | None, local_rank: int | None) -> str:
    """Return a command that runs a profiler on one rank alone, and the program as it is on all others."""
    tests = [] if host is None else [f'[ "$(hostname -s)" = {shlex.quote(host.split(".")[0])} ]']
    tests += [] if local_rank is None else [f'[ "${{LOCAL_RANK:-${{SLURM_LOCALID:-0}}}}" = {local_rank} ]']
    return command if not tests else f"if {' && '.join(tests)}; then {command}; else COMMAND; fi"


def request_lines(request: WantedProfile) -> list[str]:
    """Return the request as lines for a person."""
    lines = [f"profile: {request.place}, {request.seconds} s, from {request.after} s after its start on; look for {request.look_for}"]
    lines += [f"{one.tool}{', now' if one.running else ', from the next start on'}: {one.command}" for one in request.commands]
    return [harmless(line, 1000) for line in [*lines, f"then: {request.report}"]]


def _word(value: Any) -> str | None:
    return None if value is None else str(value)
