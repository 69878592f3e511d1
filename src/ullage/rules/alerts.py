"""What a database warns of: GPUs that are held and idle, slowed, slow, sick, or of which nothing true is told.

Thresholds are those of the findings of the same name, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ullage.findings.fleet.held_idle import LEAST_HOURS, LEAST_SHARE
from ullage.findings.fleet.sick_gpu import HARDWARE_XIDS
from ullage.findings.fleet.slower_than_its_kind import MOST_OF_THE_SLOWEST
from ullage.rules import chips
from ullage.rules.query import PromQuery
from ullage.rules.readings import DEVICE, HOLDER, PLACE, changed
from ullage.rules.series import HELD, LEVELS, LIMITED, OFU, OWNER, SM, RecordingPlan

JOB = ("cluster", *HOLDER)
HOUR = 60  # minutes
SEVERAL = 3  # GPUs of a job at least, before one of them is called slow
RECENT = "30m"  # over which a GPU is compared with others
NOW, BEFORE = "6h", "1w"  # OFU of the last hours, beside the same hours a week ago
LEAST_BUSIER = 1.15  # times as busy as its peers: ranks of one job differ by up to a tenth, and a query has no past to hold them against
LEAST_POINTS = 0.03  # of SM activity: among GPUs that hardly work a ratio says nothing
MOST_WORK = 0.9  # of its peers' work in a busy hour: with as much work an hour it has more work, and is not slow
LEAST_GPUS = 1  # measured on average: of less than one nobody is woken


@dataclass(frozen=True)
class AlertRule:
    """An alert: its condition, how long it must hold (minutes), how urgent it is, what it says, and the command that shows more."""

    name: str
    query: PromQuery
    minutes: int
    severity: str
    summary: str
    description: str
    command: str


def alert_rules(plan: RecordingPlan) -> tuple[AlertRule, ...]:
    """Return the alerts; their commands read from the server of the plan."""
    return (*_of_jobs(plan), *_of_gpus(plan), *_of_telemetry(plan))


def quoted(label: str) -> str:
    """Return a label's value for a shell, whatever stands in it, as a template of Prometheus."""
    return f"""'{{{{ reReplaceAll "'" "'\\\\''" $labels.{label} }}}}'"""


def _of_jobs(plan: RecordingPlan) -> Iterator[AlertRule]:
    job = f"ullage job {quoted('job_id')} {plan.server}"
    idle, held = (PromQuery(f"sum by ({', '.join(JOB)}) (job:ullage_owned_gpus:sum{owner})", JOB) for owner in ('{owner="held_idle"}', ""))
    yield AlertRule(
        "UllageHeldIdle",
        PromQuery(f"({idle.text} >= {LEAST_SHARE} * {held.text}) and ({idle.text} > 0)", JOB),
        round(LEAST_HOURS * HOUR),
        "warning",
        "Job {{ $labels.job_id }} holds {{ $value | humanize }} GPUs on which nothing runs",
        "At least a tenth of its GPUs did nothing for 15 minutes. {{ with $labels.user }}Ask {{ . }} whether it needs them.{{ end }}",
        job,
    )
    own = OWNER.only('owner="job"').ones()
    busy = PromQuery(f"({own.text} * on ({', '.join(DEVICE)}) group_left () avg_over_time({SM.text}[{RECENT}]))", OWNER.labels)
    work = f"(avg_over_time({OFU.text}[{RECENT}]) / (avg_over_time({SM.text}[{RECENT}]) > {LEAST_POINTS}))"
    rate = PromQuery(f"({own.text} * on ({', '.join(DEVICE)}) group_left () {work})", OWNER.labels)
    usual, usual_rate = (PromQuery(f"quantile by ({', '.join(JOB)}) (0.5, {one.text})", JOB) for one in (busy, rate))
    many = busy.grouped("count", JOB).compared(">=", SEVERAL)
    slow = busy.compared(">", usual * LEAST_BUSIER).both(busy.compared(">", usual + LEAST_POINTS))
    yield AlertRule(
        "UllageStraggler",
        slow.both(rate.compared("<", usual_rate * MOST_WORK)).both(many),
        10,
        "warning",
        "GPU {{ $labels.gpu }} of {{ $labels.host }} is slower than the others of job {{ $labels.job_id }}",
        "Its SMs were busy for {{ $value | humanizePercentage }} of the last half hour, longer than the others', and did less work in that "
        "time. The others of its job wait for it.",
        job,
    )


def _of_gpus(plan: RecordingPlan) -> Iterator[AlertRule]:
    host = f"ullage fleet {plan.server} --where host={quoted('host')} --since 24h"
    working = OWNER.only('owner=~"job|shared|unknown"')
    yield AlertRule(
        "UllageThrottled",
        LIMITED.only('limit=~"thermal|slowdown"').both(PromQuery(working.text, DEVICE)),
        15,
        "warning",
        "GPU {{ $labels.gpu }} of {{ $labels.host }} is slowed: {{ $labels.limit }}",
        "Its clock was held back for 15 minutes of work: by heat (thermal), by its power supply or a hardware brake (slowdown).",
        host,
    )
    codes = " or ".join(f"% == {code}" for code in sorted(HARDWARE_XIDS))
    sick = [
        changed(plan.names, "xid", f"({codes}) and changes(%[1h]) > 0"),
        *(changed(plan.names, name, "(% - min_over_time(%[1h])) > 0") for name in ("ecc_uncorrected", "remapped_rows")),
        changed(plan.names, "remap_failed", "% == 1"),
    ]
    yield AlertRule(
        "UllageSickGpu",
        PromQuery("\nor ".join(one.text for one in sick), DEVICE),
        0,
        "critical",
        "GPU {{ $labels.gpu }} of {{ $labels.host }} tells of a fault of its hardware",
        "In the last hour it told an Xid that the hardware causes, an ECC error that was not corrected, or a memory row that was remapped. "
        "Drain the host and look at the GPU (dcgmi diag, nvidia-smi -q).",
        host,
    )
    yield _alert_of_a_drop(plan, "user", "{{ $labels.user }}", f" --where user={quoted('user')}", '{user!=""}')
    which = "{{ with $labels.cluster }}cluster {{ . }}{{ else }}the fleet{{ end }}"
    where = f"{{{{ if $labels.cluster }}}} --where cluster={quoted('cluster')}{{{{ end }}}}"
    yield _alert_of_a_drop(plan, "cluster", which, where)


def _alert_of_a_drop(plan: RecordingPlan, level: str, which: str, where: str, matchers: str = "") -> AlertRule:
    """Return the alert of OFU that is far lower than a week ago; it is of sums, as OFU over any span of time."""
    sums = [f"sum_over_time({level}:ullage_{what}_gpus:sum{matchers}[{NOW}]" for what in ("ofu", "measured")]
    now, before = (" / ".join(f"{one}{end}" for one in sums) for end in (")", f" offset {BEFORE})"))
    enough = f"avg_over_time({level}:ullage_measured_gpus:sum{matchers}[{NOW}]) >= {LEAST_GPUS}"
    return AlertRule(
        f"Ullage{level.capitalize()}OfuDropped",
        PromQuery(f"({now})\n< {MOST_OF_THE_SLOWEST} * ({before})\nand {enough}", LEVELS[level]),
        30,
        "warning",
        f"OFU of {which} is {{{{ $value | humanizePercentage }}}}, less than three quarters of what it was a week ago",
        "OFU over the last 6 hours, beside the same hours a week ago.",
        f"ullage fleet {plan.server}{where} --since 6h --against 7d",
    )


def _of_telemetry(plan: RecordingPlan) -> Iterator[AlertRule]:
    host = f"ullage fleet {plan.server} --where host={quoted('host')} --since 24h"
    place, of_host = f"on ({', '.join(PLACE)})", "count by (cluster, host)"
    yield AlertRule(
        "UllageTelemetryMissing",
        PromQuery(f"{of_host} (\n  {HELD.text} offset 1h\n  unless {place} {HELD.text}\n)", ("cluster", "host")),
        10,
        "warning",
        "{{ $value | humanize }} GPUs of {{ $labels.host }} have gone silent",
        "An hour ago they reported, and now nothing comes: an exporter that stopped, a host that is down, or a GPU that fell off the bus.",
        host,
    )
    known = f'{OWNER.text}{{owner!="not_sliced"}} and on (model) {chips.TENSOR_CLOCK.name}'
    yield AlertRule(
        "UllageOfuMissing",
        PromQuery(f"{of_host} (\n  ({known})\n  unless on ({', '.join(DEVICE)}) {OFU.text}\n)", ("cluster", "host")),
        15,
        "warning",
        "{{ $value | humanize }} GPUs of {{ $labels.host }} report, but not what OFU is made of",
        f"OFU needs tensor activity ({_metric(plan, 'tensor_active')}) and the SM clock ({_metric(plan, 'sm_clock')}), or counted cycles.",
        f"ullage doctor {plan.server}",
    )
    yield AlertRule(
        "UllageTelemetryFaulty",
        PromQuery("count by (cluster, host, reason) (gpu:ullage_distrusted:info)", ("cluster", "host", "reason")),
        15,
        "warning",
        "{{ $value | humanize }} GPUs of {{ $labels.host }} report what can't be: {{ $labels.reason }}",
        "Their readings lie outside what a GPU can do, contradict each other, or stand still to the last digit; OFU of them means nothing.",
        host,
    )
    yield AlertRule(
        "UllageUnknownModel",
        PromQuery(f"count by (model) ({HELD.text} unless on (model) {chips.TENSOR_CLOCK.name})", ("model",)),
        HOUR,
        "info",
        "{{ $value | humanize }} GPUs are of a model that these rules do not know: {{ $labels.model }}",
        "They have no OFU. `ullage gpus` lists models; `ullage rules --gpu` takes more names, and ULLAGE_GPU_ALIAS says what a name means.",
        f"ullage gpus {quoted('model')}",
    )


def _metric(plan: RecordingPlan, name: str) -> str:
    return " or ".join(alias.name for alias in plan.names.aliases(name))
