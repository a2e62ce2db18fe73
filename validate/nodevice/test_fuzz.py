"""The fuzzer itself: the same number is the same case, wrong results are seen, and
what is left of a case that fails is small."""

from __future__ import annotations

import os
import time

import pytest
import torch
from fuzz import edits, execute, judge, known, workers
from fuzz.generate import generate
from fuzz.program import Program, Ref, Step, ops_by_name
from fuzz.tensors import Input, Layout, draw_layout, draw_values, lay

CPU = torch.device("cpu")
CASES = range(40)


def test_a_number_is_a_case():
    for case in CASES:
        again = generate(case)
        assert edits.listing(generate(case)) == edits.listing(again)
        for given in generate(case).inputs.values():
            assert any(
                torch.equal(given.values.nan_to_num(), other.values.nan_to_num())
                for other in again.inputs.values()
            )


def test_the_cpu_agrees_with_itself():
    judged = [judge.judge(generate(case), CPU) for case in CASES]
    assert not [verdict for verdict in judged if verdict.status == "wrong"]


def test_layouts_hold_the_values():
    import random

    rng = random.Random(0)
    for _ in range(200):
        shape = tuple(rng.choice((1, 2, 5)) for _ in range(rng.randint(0, 5)))
        values = draw_values(rng, shape, torch.float32)
        layout = draw_layout(rng, shape)
        assert torch.equal(lay(values, layout), values)


def two_steps() -> Program:
    inputs = {
        0: Input(torch.ones(17, 5), Layout(offset=3)),
        1: Input(torch.ones(17, 5)),
    }
    steps = [
        Step("relu", (Ref(0),), {}, 2),
        Step("add", (Ref(2), Ref(1)), {}, 3),
        Step(".mul_", (Ref(1), 2)),
    ]
    return Program(inputs, steps, "two steps")


@pytest.fixture
def wrong_add(monkeypatch):
    """Every second call of add, the one under test, gives one element too much."""
    calls = iter([False, True] + [False] * 20)

    def add(left, right):
        result = left + right
        if next(calls):
            result[0, 0] += 1e-3
        return result

    found = execute.resolve
    monkeypatch.setattr(
        execute, "resolve", lambda target: add if target == "add" else found(target)
    )


def test_a_wrong_element_is_seen(wrong_add):
    verdict = judge.judge(two_steps(), CPU)
    assert verdict.status == "wrong"
    assert verdict.message.startswith("t3")


@pytest.mark.parametrize("error", [ValueError("text"), RuntimeError("other"), None])
def test_another_error_is_seen(monkeypatch, error):
    errors = iter([RuntimeError("text"), error])

    def run(*_):
        failed = next(errors)
        return execute.Result(error=failed, step=0)

    monkeypatch.setattr(judge, "run", run)
    assert judge.judge(two_steps(), CPU).status == "wrong"


def test_minimised_to_what_fails():
    program = two_steps()

    def still_fails(tried):
        steps = edits.apply(program, tried).steps
        return any(step.target == "add" for step in steps)

    left = edits.apply(program, edits.minimise(program, still_fails, 10))
    assert [step.target for step in left.steps] == ["relu", "add"]
    assert all(given.values.shape == (1, 1) for given in left.inputs.values())
    assert left.inputs[0].layout == Layout()


def serve_trouble(device: str):
    def answer(request):
        case, tried = request
        if case == 1:
            os.abort()
        if case == 2:
            time.sleep(60)
        return workers.Outcome(case, "pass", edits=tried)

    return answer


@pytest.mark.slow  # a worker that starts while others run takes longer than a hang
def test_a_crash_and_a_hang_lose_their_case_only():
    outcomes = workers.run(iter(range(4)), "cpu", 1, 5, 0, serve_trouble)
    found = {outcome.case: outcome.status for outcome in outcomes}
    assert found == {0: "pass", 1: "crash", 2: "timeout", 3: "pass"}


def test_excluded_ops_exist():
    names = {op.name for op in ops_by_name().values()}
    assert set(known.EXCLUDED) <= names
