"""Slurm: a prolog and an epilog that write down which job holds which GPU, and a summary when a job ends."""

from __future__ import annotations

from typing import Final

# A prolog that fails drains its node, and an epilog, too: both end with 0 whatever happens.
PROLOG: Final = r"""
#!/bin/bash
# Writes down which job holds which GPU of this node: a file a GPU, a job a line, as dcgm-exporter reads it.
gpus=${ULLAGE_GPUS:-/run/ullage/gpus}
started=${ULLAGE_STARTED:-/run/ullage/started}
[ -n "$SLURM_JOB_GPUS" ] || exit 0
mkdir -p "$gpus" "$started"
(
  flock 9
  date -u +%s >"$started/$SLURM_JOB_ID"
  for gpu in ${SLURM_JOB_GPUS//,/ }; do
    grep -qx "$SLURM_JOB_ID" "$gpus/$gpu" 2>/dev/null || echo "$SLURM_JOB_ID" >>"$gpus/$gpu"
  done
) 9>"$started/.lock"
exit 0
"""

EPILOG: Final = r"""
#!/bin/bash
# Takes the job off its GPUs, and keeps who held which of them from when until when: Slurm's accounting does not.
gpus=${ULLAGE_GPUS:-/run/ullage/gpus}
started=${ULLAGE_STARTED:-/run/ullage/started}
log=${ULLAGE_LOG:-/var/log/ullage}
[ -n "$SLURM_JOB_GPUS" ] || exit 0
mkdir -p "$gpus" "$started" "$log"
(
  flock 9
  for gpu in ${SLURM_JOB_GPUS//,/ }; do
    sed -i "/^$SLURM_JOB_ID\$/d" "$gpus/$gpu" 2>/dev/null
    [ -s "$gpus/$gpu" ] || rm -f "$gpus/$gpu"
  done
  start=$(cat "$started/$SLURM_JOB_ID" 2>/dev/null)
  rm -f "$started/$SLURM_JOB_ID"
  file=$log/$SLURMD_NODENAME.csv
  [ -s "$file" ] || echo 'job,user,cluster,host,index,start,end' >"$file"
  who=$SLURM_JOB_ID,$SLURM_JOB_USER,$SLURM_CLUSTER_NAME,$SLURMD_NODENAME
  [ -n "$start" ] && echo "$who,\"$SLURM_JOB_GPUS\",$start,$(date -u +%s)" >>"$file"
) 9>"$started/.lock"
exit 0
"""

SUMMARY: Final = r"""
#!/bin/bash
# On the controller, when a job has ended: its report as a page, and its Jobstats summary in AdminComment.
# Slurm waits for this script, ends what it started, and the last scrape comes later: the work is done in a session of its own.
if [ -z "$ULLAGE_IN_BACKGROUND" ]; then
  ULLAGE_IN_BACKGROUND=1 setsid --fork "$0" >>"${ULLAGE_SUMMARY_LOG:-/var/log/ullage-summary.log}" 2>&1 </dev/null
  exit 0
fi
export ULLAGE_SOURCE=${ULLAGE_SOURCE:-http://prometheus:9090}
out=${ULLAGE_REPORTS:-/var/lib/ullage/jobs}
job=$SLURM_JOB_ID
[ -n "$SLURM_ARRAY_JOB_ID" ] && job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
fields=JobID,JobIDRaw,User,Account,Cluster,JobName,Partition,NodeList,AllocTRES,Submit,Start,End,State,ExitCode,AdminComment
sleep "${ULLAGE_WAIT:-90}"
mkdir -p "$out"
TZ=UTC sacct -j "$job" --parsable2 --format "$fields" >"$out/$job.txt"
grep -q gres/gpu "$out/$job.txt" || { rm -f "$out/$job.txt"; exit 0; }
records=(--jobs "$out/$job.txt")
for file in "${ULLAGE_LOG:-/var/log/ullage}"/*.csv; do [ -e "$file" ] && records=(--jobs "$file" "${records[@]}"); done
ullage job "$job" "${records[@]}" --out "$out/$job.html"
ullage job "$job" "${records[@]}" --out "$out/$job.js1" || exit 1
sacctmgr -i update job where jobid="$job" set AdminComment="$(cat "$out/$job.js1")"
"""

CONF: Final = """
Prolog=/etc/slurm/ullage-prolog.sh
Epilog=/etc/slurm/ullage-epilog.sh
EpilogSlurmctld=/etc/slurm/ullage-summary.sh
PrologFlags=Alloc
AccountingStorageTRES=gres/gpu
"""

EXPORTER: Final = """
dcgm-exporter --hpc-job-mapping-dir /run/ullage/gpus
"""

FILES: Final = (
    ("/etc/slurm/ullage-prolog.sh", "on every node: who holds which GPU", PROLOG),
    ("/etc/slurm/ullage-epilog.sh", "on every node: the end of it, kept in /var/log/ullage", EPILOG),
    ("/etc/slurm/ullage-summary.sh", "on the controller: each job's page and summary", SUMMARY),
    ("/etc/slurm/slurm.conf", "lines to add; then `scontrol reconfigure`, and restart slurmctld for EpilogSlurmctld", CONF),
    ("dcgm-exporter", "how it is started, so that its series name their job", EXPORTER),
)
LABELS: Final = "hpc_job on the series of GPUs that a job holds: Slurm's own number, as SLURM_JOB_ID"
QUERY: Final = 'count by (hpc_job, Hostname) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{hpc_job!=""})'
COMMANDS: Final = (
    (
        "records of a day, with steps",
        "TZ=UTC sacct --allusers --parsable2 --starttime now-1day --format JobID,JobIDRaw,User,Account,Cluster,JobName,Partition,NodeList,"
        "AllocTRES,Submit,Start,End,State,ExitCode,AdminComment > sacct.txt",
    ),
    ("a job, by the exporter's labels", "ullage job 4711 http://prometheus:9090 --jobs sacct.txt"),
    ("a job, where no label names it", "ullage job 4711 http://prometheus:9090 --jobs /var/log/ullage/n1.csv --jobs sacct.txt"),
)
NOTES: Final = (
    "Slurm numbers GPUs as gres.conf lists their device files, DCGM as NVML does: where the minor numbers of /dev/nvidia* and the "
    "indexes of `nvidia-smi -q` are in another order, put the files of gres.conf in NVML's order",
    "jobs that hold MIG instances are numbered by instance in SLURM_JOB_GPUS: leave the prolog out there, and let dcgm-exporter name them",
    "sacctmgr of Slurm 22.05 makes the letters of a comment lower case, which destroys a summary: the .js1 file keeps it",
)
