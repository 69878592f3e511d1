"""Kubernetes: the exporter's settings that name pods, and a rule that gives the pods of one training job one name."""

from __future__ import annotations

from typing import Final

EXPORTER: Final = """
serviceAccount:
  create: true
kubernetes:
  enablePodLabels: true
extraEnv:
  - name: DCGM_EXPORTER_KUBERNETES
    value: "true"
  - name: DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE
    value: uid
"""

SCRAPE: Final = """
scrape_configs:
  - job_name: dcgm-exporter
    honor_labels: true
    metric_relabel_configs:
      - action: labelmap
        regex: (?:label_)?(training_kubeflow_org_job_name|batch_kubernetes_io_job_name)
        replacement: __tmp_${1}
      - source_labels: [namespace, __tmp_training_kubeflow_org_job_name]
        separator: /
        regex: ([^/]+/[^/]+)
        target_label: job_id
      - source_labels: [namespace, __tmp_batch_kubernetes_io_job_name]
        separator: /
        regex: ([^/]+/[^/]+)
        target_label: job_id
"""

FILES: Final = (
    ("dcgm-exporter-values.yaml", "for the Helm chart: series name the pod that holds the GPU", EXPORTER),
    (
        "prometheus.yml",
        "lines for the job that scrapes the exporter: the pods of a training job get one job_id, else each pod is a job",
        SCRAPE,
    ),
)
LABELS: Final = (
    "namespace, pod and container on the series of GPUs that a pod holds; job_id, namespace/name, where a pod is a training job's"
)
QUERY: Final = 'count by (namespace, pod, job_id) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{pod!=""})'
COMMANDS: Final = (
    ("a training job, by its job_id", "ullage job ml/llama http://prometheus:9090 --since 12h"),
    ("a pod without one", "ullage job ml/notebook-0 http://prometheus:9090 --since 12h"),
)
NOTES: Final = (
    "the Prometheus must keep the exporter's own labels (honor_labels: true): else they come as exported_pod and exported_namespace, "
    "which are read, too, but not by the rule above",
    "pods that share a GPU by time-slicing stand in one reading each: what a shared GPU did counts for each of them",
)
