"""torch's op_db through Inductor: a slice that the run's seed picks. The whole is
``run_opinfo.py --databases op --questions compiled compiled_gradient dynamic
dynamic_gradient``."""

from __future__ import annotations

import random

import pytest
from conformance import cases
from conftest import run_seed

_OPS = {False: 5, True: 40}
_SAMPLES = 2

pytestmark = pytest.mark.usefixtures("fresh_inductor")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("question", cases.SLOW_QUESTIONS)
def test_slice_of_op_db(device, request, question):
    every = cases.select(["op"], [], [question], ["float32"])
    count = _OPS[request.config.getoption("full")]
    failures = []
    for case in random.Random(run_seed()).sample(every, count):
        try:
            cases.ask(case, device, _SAMPLES, run_seed())
        except cases.NotJudged:
            continue
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {error}")
    assert not failures, "\n\n".join(failures)
