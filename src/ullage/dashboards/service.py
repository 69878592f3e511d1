"""The dashboard of what `ullage serve` exports: how full the fleet is by its answers, whose the hours are, and how the service is."""

from __future__ import annotations

from ullage.dashboards.dashboard import HOUR, RANGE, Dashboard, Panel, PanelQuery, PanelRow, TableColumn, dashboard
from ullage.metrics.metric import METRICS

_WINDOW = PanelRow(
    "The last day of the samples",
    (
        Panel(
            "figure",
            "OFU",
            f"{METRICS['sampled_ofu'].summary} Of trusted series, in the last 24 hours up to the last sample.",
            (PanelQuery("ullage_ofu_ratio", "OFU"),),
            "ratio",
            width=6,
            height=5,
        ),
        Panel(
            "figure",
            "Short of full",
            "GPU-hours of trusted series that all factors together took, in the same window.",
            (PanelQuery(f"sum(ullage_window_loss_gpu_seconds) / {HOUR}", "GPU-hours"),),
            "GPU-hours",
            width=6,
            height=5,
        ),
        Panel("figure", "GPUs", "GPUs with a sample in the window.", (PanelQuery("ullage_gpus", "GPUs"),), "GPUs", width=6, height=5),
        Panel(
            "figure",
            "Trusted",
            "Share of the GPU-hours whose series can be believed. What can't be believed is in no other number.",
            (PanelQuery("ullage_trusted_ratio", "trusted"),),
            "ratio",
            width=6,
            height=5,
        ),
        Panel(
            "bars",
            "Where it goes",
            "GPU-hours that each step from full to OFU takes, in the window; they add up to what is short of full.",
            (PanelQuery(f"sort_desc(sum by (factor) (ullage_window_loss_gpu_seconds) / {HOUR})", "{{factor}}", instant=True),),
            "GPU-hours",
        ),
        Panel(
            "bars",
            "What is worth doing",
            "GPU-hours by kind of finding, in the window. `ullage fleet` says where each is and what to do.",
            (PanelQuery(f"sort_desc(ullage_finding_gpu_seconds / {HOUR})", "{{kind}}", instant=True),),
            "GPU-hours",
        ),
    ),
)

_OVER_TIME = PanelRow(
    "Over time",
    (
        Panel(
            "course",
            "OFU, of the last day at each time",
            "Each point is of the 24 hours before it, so a change needs a day to show in full.",
            (PanelQuery("ullage_ofu_ratio", "all"), PanelQuery("ullage_model_ofu_ratio", "{{model}}")),
            "ratio",
        ),
        Panel(
            "stack",
            "Whose GPUs",
            "GPUs by whose their time was: all owners together are the GPUs that exist. Hours are counted when they are over.",
            (PanelQuery("sum by (owner) (rate(ullage_gpu_seconds_total[3h]))", "{{owner}}"),),
            "GPUs",
        ),
        Panel(
            "stack",
            "Where GPUs are lost",
            "GPUs' worth of time that each step takes. Hours are counted when they are over.",
            (PanelQuery("sum by (factor) (rate(ullage_loss_gpu_seconds_total[3h]))", "{{factor}}"),),
            "GPUs",
        ),
        Panel(
            "table",
            "Whose GPU-hours, in the shown time",
            "Every GPU-hour has one owner. Hours are counted when they are over, and shown when their growth was scraped.",
            (PanelQuery(f"sum by (owner) (increase(ullage_gpu_seconds_total[{RANGE}])) / {HOUR}", instant=True),),
            columns={"owner": TableColumn("Owner"), "1": TableColumn("GPU-hours", "GPU-hours")},
        ),
    ),
)

_WRONG = {
    "refused_answers": "refused",
    "failed_answers": "failed",
    "stale_answers": "older than the store",
    "count_failures": "hours not counted",
}
_HEALTH = PanelRow(
    "The service",
    (
        Panel(
            "figure",
            "Age of the last sample",
            "How far the store lies behind the clock.",
            (PanelQuery("ullage_watermark_lag_seconds", "age"),),
            "s",
            width=6,
            height=5,
            steps=((None, "green"), (600, "orange"), (3600, "red")),
        ),
        Panel(
            "figure",
            "Answers",
            "1 where there is an answer.",
            (PanelQuery("ullage_ready", "ready"),),
            width=6,
            height=5,
            steps=((None, "red"), (1, "green")),
        ),
        Panel(
            "table",
            "Series",
            "Series by whether they can be believed, in the window.",
            (PanelQuery("ullage_series", instant=True),),
            width=6,
            height=5,
            columns={"verdict": TableColumn("Verdict"), "1": TableColumn("Series", "count")},
        ),
        Panel(
            "table",
            "Version",
            "The version that runs.",
            (PanelQuery("ullage_build_info", instant=True),),
            width=6,
            height=5,
            columns={"version": TableColumn("Version"), "1": TableColumn("Processes", "count")},
        ),
        Panel(
            "course",
            "Requests",
            "HTTP requests by status.",
            (PanelQuery("sum by (status) (rate(ullage_requests_total[$__rate_interval]))", "{{status}}"),),
            "per second",
        ),
        Panel(
            "course",
            "What went wrong",
            "Questions that were refused or failed by a mistake of ours, and hours that could not be counted yet.",
            tuple(PanelQuery(f"rate(ullage_{name}_total[$__rate_interval])", words) for name, words in _WRONG.items()),
            "per second",
        ),
    ),
)

SERVICE = dashboard(
    Dashboard(
        "service",
        5,
        "Ullage: the service",
        "What `ullage serve` exports at /metrics: the fleet by its answers, and the service itself. One scrape job reads it.",
        (),
        (_WINDOW, _OVER_TIME, _HEALTH),
    )
)
