"""torch's op_db through Inductor: a slice that the run's seed picks. The whole is
``run_opinfo.py --databases op --questions compiled compiled_gradient``."""

from __future__ import annotations

import random

import pytest
from conformance import cases
from conftest import run_seed

_OPS = {False: 8, True: 40}
_SAMPLES = 2
# They run on the CPU in eager too, which tests forbid.
_ON_THE_CPU = (
    *("_segment_reduce", "complex", "fft.ihfft", "histogram", "nonzero_static"),
    *("nn.functional.pdist", "polar"),
)


@pytest.fixture(autouse=True)
def _fresh_inductor():
    import torch._dynamo
    from torch._inductor.utils import fresh_cache

    with fresh_cache():
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize("question", ["compiled", "compiled_gradient"])
def test_slice_of_op_db(device, request, question):
    every = [
        case
        for case in cases.select(["op"], [], [question], ["float32"])
        if not case.name.startswith(_ON_THE_CPU)
    ]
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
