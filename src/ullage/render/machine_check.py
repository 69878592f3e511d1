"""What this machine allows of tracing and counting, as text."""

from __future__ import annotations

from typing import Any

from ullage.errors import harmless

_ANSWER = {"yes": "can be", "no": "can't be", "perhaps": "can perhaps be"}
_OF = {"tracing": "CUDA programs {} traced here", "counters": "hardware counters {} read"}


def text(report: dict[str, Any]) -> str:
    """Return the report of `ullage.cupti.permissions` as text, the answer first, then what stands in the way and what to do."""
    answer = "; ".join(of.format(_ANSWER[report[what]]) for what, of in _OF.items())
    library = f"CUPTI {report['cupti'] or 'of unknown version'} ({harmless(report['library'])})" if report["library"] else "no CUPTI"
    driver = f"a driver of CUDA {report['driver']}" if report["driver"] else "no NVIDIA driver"
    lines = [answer, f"{library}; {driver}"]
    for finding in report["findings"]:
        stops = f" ({'' if finding['surely'] else 'may stop '}{' and '.join(finding['stops'])}{' impossible' if finding['surely'] else ''})"
        lines += ["", harmless(finding["what"], 400) + (stops if finding["stops"] else ""), f"  {harmless(finding['do'], 400)}"]
    return "\n".join(lines) + "\n"
