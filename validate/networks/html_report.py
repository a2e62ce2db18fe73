"""report.html: one file, with a table that sorts and plots to unfold."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path

from networks.models_report import Report, Row, how, sentence, summary

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Networks on opencl</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 15px/1.4 sans-serif; margin: 1em auto; padding: 0 1em; max-width: 80em }}
h1 {{ font-size: 1.4em; margin: 0 }}
ul, p {{ margin: .5em 0 }}
details {{ margin: .3em 0 }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px }}
td, th {{ padding: .2em .4em; text-align: right; border-bottom: 1px solid #ddd }}
td {{ white-space: nowrap }}
td:first-child, th:first-child, td:last-child {{ text-align: left;
  white-space: normal; overflow-wrap: anywhere }}
th {{ cursor: pointer; background: #f2f2f2; position: sticky; top: 0 }}
.fail {{ background: #fdd }}
svg {{ max-width: 100%; height: auto }}
@media (max-width: 900px) {{ .more {{ display: none }} }}
</style></head><body>
<h1>Networks on opencl</h1>
<p>{summary}</p>
<ul>{sentences}</ul>
<details><summary>How a row is made</summary>{how}</details>
<details><summary>Plot of errors and times</summary>{plot}</details>
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
</script></body></html>
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
# Hidden in narrow windows.
_MORE = {"family", "input", "parameters", "tensors", "flips", "CPU s", "peak MiB"}


def _tag(name: str, heading: str, attributes: str, text: str) -> str:
    hidden = ' class="more"' if heading in _MORE else ""
    return f"<{name}{hidden}{attributes}>{escape(text)}</{name}>"


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
        (f"{row.worst:.0%}", row.worst),
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
    for row in sorted(report.rows, key=lambda r: (r.passed, r.network, r.device)):
        cells = "".join(
            _tag("td", heading, f' data-value="{escape(str(value))}"', text)
            for heading, (text, value) in zip(_HEADINGS, _cells(row), strict=True)
        )
        rows.append(f"<tr{'' if row.passed else ' class=fail'}>{cells}</tr>")
    sentences = (
        f"{sentence([r for r in report.rows if r.device == device], device)} "
        f"({report.names[device]})"
        for device in sorted(report.names)
    )
    path.write_text(
        _PAGE.format(
            summary=escape(" ".join(summary())),
            sentences="".join(f"<li>{escape(text)}</li>" for text in sentences),
            how="".join(f"<p>{escape(text)}</p>" for text in how()),
            plot=_plot(report),
            headings="".join(_tag("th", name, "", name) for name in _HEADINGS),
            rows="\n".join(rows),
        )
    )
