"""Panels with a series for each GPU, of a job or of a host."""

from __future__ import annotations

from ullage.dashboards.dashboard import RANGE, ChosenLabel, Panel, PanelQuery, PanelRow, TableColumn, Unit
from ullage.dashboards.recorded import OFU, recorded
from ullage.metrics.metric import METRICS

_HOLDER = "gpu:ullage_holder:info"
_NAME = "{{host}} GPU {{gpu}} {{GPU_I_ID}}"


def of_gpus(name: str, chosen: tuple[ChosenLabel, ...], more: str = "") -> str:
    """Return a recorded series of the GPUs of a host; where a job is chosen, of the GPUs that it holds at each time."""
    labels = recorded(name).labels
    own = [one.matcher for one in chosen if one.label in labels] + ([more] if more else [])
    text = f"{name}{{{', '.join(own)}}}"
    if all(one.label in labels for one in chosen):
        return text
    device = recorded("gpu:ullage_ofu:ratio").labels
    return f"{text} and on ({', '.join(device)}) {_HOLDER}{{{', '.join(one.matcher for one in chosen)}}}"


def gpu_rows(chosen: tuple[ChosenLabel, ...]) -> PanelRow:
    """Return the GPUs side by side: OFU, how busy, clock, power, what is wrong with them."""
    return PanelRow(
        "Each GPU",
        (
            _course("OFU", OFU, "gpu:ullage_ofu:ratio", chosen, "ratio"),
            _course("Engine busy", METRICS["activity"].summary, "gpu:ullage_engine_active:ratio", chosen, "ratio"),
            _course("SM clock", recorded("gpu:ullage_sm_clock:hertz").what, "gpu:ullage_sm_clock:hertz", chosen, "Hz"),
            _course("Power", recorded("gpu:ullage_power:watts").what, "gpu:ullage_power:watts", chosen, "W"),
            Panel(
                "table",
                "GPUs",
                "Means over the shown time, of the time for which what is chosen holds.",
                tuple(PanelQuery(f"avg_over_time(({of_gpus(name, chosen)})[{RANGE}:])", instant=True) for name in _MEANS),
                width=24,
                height=10,
                columns={
                    "host": TableColumn("Host", leads_to="host?host"),
                    "gpu": TableColumn("GPU"),
                    "GPU_I_ID": TableColumn("MIG instance"),
                    "model": TableColumn("Model"),
                    "cluster": TableColumn("Cluster"),
                    **{str(place): column for place, column in enumerate(_MEANS.values(), 1)},
                },
            ),
        ),
    )


_MEANS = {
    "gpu:ullage_ofu:ratio": TableColumn("OFU", "ratio"),
    "gpu:ullage_engine_active:ratio": TableColumn("Engine busy", "ratio"),
    "gpu:ullage_sm_active:ratio": TableColumn("SM active", "ratio"),
    "gpu:ullage_sm_clock:hertz": TableColumn("SM clock", "Hz"),
    "gpu:ullage_power:watts": TableColumn("Power", "W"),
}


def _course(title: str, description: str, name: str, chosen: tuple[ChosenLabel, ...], unit: Unit) -> Panel:
    return Panel("course", title, description, (PanelQuery(of_gpus(name, chosen), _NAME),), unit)


def faults(chosen: tuple[ChosenLabel, ...]) -> PanelRow:
    """Return for how long which GPUs were held back, and for how long their readings could not be right."""
    return PanelRow(
        "What is wrong with them",
        (
            _share(
                "Clock held back",
                "Share of the shown time in which something held the clock back.",
                "gpu:ullage_limited:info",
                "limit",
                chosen,
            ),
            _share(
                "Readings that can't be right",
                "Share of the shown time; such readings are in the panels above too.",
                "gpu:ullage_distrusted:info",
                "reason",
                chosen,
            ),
        ),
    )


def _share(title: str, description: str, name: str, label: str, chosen: tuple[ChosenLabel, ...]) -> Panel:
    held = f"count_over_time(({of_gpus(name, chosen)})[{RANGE}:])"
    whole = f"count_over_time(({of_gpus('gpu:ullage_share:ratio', chosen)})[{RANGE}:])"
    device = recorded("gpu:ullage_ofu:ratio").labels
    whole = f"max by ({', '.join(device)}) ({whole})"
    share = f"{held} / on ({', '.join(device)}) group_left () {whole}"
    return Panel(
        "table",
        title,
        description,
        (PanelQuery(share, instant=True),),
        columns={
            "host": TableColumn("Host", leads_to="host?host"),
            "gpu": TableColumn("GPU"),
            "cluster": TableColumn("Cluster"),
            label: TableColumn(label.capitalize()),
            "1": TableColumn("Share", "ratio"),
        },
    )
