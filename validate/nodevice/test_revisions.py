"""What benchmarks/revisions.py says of two builds' times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from revisions import Row, parse


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([[1.03, 1.05], [1.04, 1.04]], "slower"),
        ([[1.03, 1.05], [1.00, 1.01]], ""),
        ([[0.97, 0.97], [0.96, 0.98]], "faster"),
    ],
)
def test_starts_have_to_agree(after, verdict):
    row = Row("add", before=[[1.0, 1.0], [1.0, 1.0]], after=after)
    assert row.verdict(0.02) == verdict


def test_ratios_are_of_bursts_that_followed_each_other():
    # The machine is slower by a factor of two from the second pair on.
    row = Row("add", before=[[1.0, 2.0, 2.0]], after=[[1.1, 2.2, 2.2]])
    assert row.ratio() == pytest.approx(1.1)


def test_one_number_a_start_is_compared_by_lower_quartiles():
    row = Row(
        "add",
        before=[[1.0], [1.0], [1.0], [9.0], [1.0], [1.0], [1.0]],
        after=[[1.1], [9.0], [1.1], [1.1], [1.1], [1.1], [9.0]],
    )
    assert row.ratio() == pytest.approx(1.1)


def test_a_checkout_without_a_build_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parse(["--before", str(tmp_path)])
    assert "no checkout in which" in capsys.readouterr().err
