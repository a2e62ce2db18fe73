"""report.html: one file, with plots, and a table that sorts."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path

from networks.models_report import Report, Row, how, sentence

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Networks on opencl</title>
<style>
body {{ font-family: sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse }}
td, th {{ padding: .2em .6em; text-align: right; border-bottom: 1px solid #ddd }}
td:first-child, th:first-child, td:last-child {{ text-align: left }}
th {{ cursor: pointer; background: #f2f2f2 }}
.fail {{ background: #fdd }}
svg {{ max-width: 100%; height: auto }}
</style>
<h1>Networks on opencl</h1>
{sentences}
<p>{how}</p>
{plot}
<table><thead><tr>{headings}</tr></thead><tbody>
{rows}
</tbody></table>
<script>
for (const [index, heading] of document.querySelectorAll("th").entries())
  heading.onclick = () => {{
    const body = document.querySelector("tbody");
    const up = heading.dataset.up = heading.dataset.up === "1" ? "" : "1";
    const key = row => row.cells[index].dataset.value ?? row.cells[index].innerText;
    const rows = [...body.rows].sort((a, b) => {{
      const x = key(a), y = key(b), n = x - y;
      return (isNaN(n) ? x.localeCompare(y) : n) * (up ? 1 : -1);
    }});
    body.append(...rows);
  }};
</script></html>
"""
_HEADINGS = (
    "network",
    "device",
    "family",
    "input",
    "parameters",
    "worst / limit",
    "tensors",
    "flips",
    "fallbacks",
    "device s",
    "CPU s",
    "peak MiB",
    "result",
)


def _cells(row: Row) -> list[tuple[str, object]]:
    """Text and the value to sort by."""
    result = "pass" if row.passed else "; ".join(row.failures)[:500] or "failed"
    mib = row.peak_memory / 2**20
    return [
        (row.network, row.network),
        (row.device, row.device),
        (row.family, row.family),
        (row.input, row.input),
        (f"{row.parameters / 1e6:.1f} M", row.parameters),
        (f"{row.worst:.2f}", row.worst),
        (str(row.tensors), row.tensors),
        (str(row.flips), row.flips),
        (str(row.fallbacks), row.fallbacks),
        (f"{row.device_seconds:.2f}", row.device_seconds),
        (f"{row.cpu_seconds:.2f}", row.cpu_seconds),
        (f"{mib:.0f}", mib),
        (result, result),
    ]


def _plot(report: Report) -> str:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    devices = sorted(report.names)
    networks = sorted({row.network for row in report.rows})
    place = {network: index for index, network in enumerate(networks)}
    figure, axes = pyplot.subplots(2, 1, figsize=(18, 9), sharex=True)
    for device in devices:
        rows = [row for row in report.rows if row.device == device and row.ratios]
        at = [place[row.network] for row in rows]
        axes[0].plot(at, [row.worst for row in rows], "o", ms=4, label=device)
        times = [row.device_seconds / max(row.cpu_seconds, 1e-3) for row in rows]
        axes[1].plot(at, times, "o", ms=4, label=device)
    axes[0].set_ylabel("error / limit, worst tensor")
    axes[0].axhline(1, color="red", lw=1)
    axes[1].set_ylabel("time / CPU, first step\n(with compiling)")
    for axis in axes:
        axis.set_yscale("log")
        axis.grid(alpha=0.3)
        axis.legend()
    axes[1].set_xticks(range(len(networks)), networks, rotation=90, fontsize=7)
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg")
    pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def write(path: Path, report: Report) -> None:
    rows = []
    for row in sorted(report.rows, key=lambda r: (r.network, r.device)):
        cells = "".join(
            f'<td data-value="{escape(str(value))}">{escape(text)}</td>'
            for text, value in _cells(row)
        )
        rows.append(f"<tr{'' if row.passed else ' class=fail'}>{cells}</tr>")
    sentences = (
        sentence([r for r in report.rows if r.device == device], device)
        for device in sorted(report.names)
    )
    path.write_text(
        _PAGE.format(
            sentences="".join(f"<p>{escape(text)}</p>" for text in sentences),
            how=escape(how()),
            plot=_plot(report),
            headings="".join(f"<th>{name}</th>" for name in _HEADINGS),
            rows="\n".join(rows),
        )
    )
