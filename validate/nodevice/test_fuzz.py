"""The fuzzer itself: the same number is the same case, wrong results are seen, and
what is left of a case that fails is small."""

from __future__ import annotations

import functools
import json
import operator
import os
import random
import runpy
import shlex
import sys
import time

import isolated
import pytest
import run_fuzz
import torch
from fuzz import actions, edits, execute, judge, layers, workers
from fuzz.compiled import Graph
from fuzz.generate import generate
from fuzz.program import Program, Ref, Step
from fuzz.tensors import Input, Layout, draw_layout, draw_values, lay
from rich.console import Console

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


def test_side_streams_are_waited_for_after_an_error(monkeypatch):
    """Else they write to memory that the next case has by then."""
    waits = []
    monkeypatch.setattr(
        execute.Machine, "back_to_first_stream", lambda machine: waits.append(machine)
    )
    inputs = {0: Input(torch.ones(3)), 1: Input(torch.ones(4))}
    steps = [Step(".add_", (Ref(0), Ref(1)), stream=1)]
    result = execute.run(Program(inputs, steps, "sizes"), CPU)
    assert isinstance(result.error, RuntimeError) and len(waits) == 1


def test_the_imaginary_part_of_a_product_is_a_rounding(monkeypatch):
    """Of a row and its adjoint it is 0, or what sums in another order leave of it."""
    imaginary = iter([0, 2e-7] + [0] * 20)  # CPU, device, float64 and perturbed runs

    def matmul(left, right):
        product = left @ right
        if product.is_complex():  # and not of the magnitudes
            product += complex(0, next(imaginary))
        return product

    found = execute.resolve
    monkeypatch.setattr(
        execute,
        "resolve",
        lambda target: matmul if target == "matmul" else found(target),
    )
    row = torch.complex(torch.full((1, 13), 1.5), torch.full((1, 13), -0.7))
    steps = [
        Step("action:attribute", (Ref(0), "mH"), {}, 1),
        Step("matmul", (Ref(0), Ref(1)), {}, 2),
        Step("pow", (Ref(2), Ref(2)), {}, 3),
    ]
    verdict = judge.judge(Program({0: Input(row)}, steps, "complex sequence"), CPU)
    assert verdict.status == "pass", verdict.message


@pytest.mark.parametrize(("off", "status"), [(4e-33, "pass"), (0.1, "wrong")])
def test_a_variance_of_equal_numbers_in_a_graph(monkeypatch, off, status):
    """Their mean may be a rounding off, which the CPU's is not."""
    calls = iter([False, True])

    def run_compiled(graph, _, *tensors):
        (variance,) = graph(*tensors)
        return [variance + off] if next(calls) else [variance]

    monkeypatch.setattr(actions, "run_compiled", run_compiled)
    steps = (Step("var", (Ref(0), 0), {}, 1),)
    call = Step("action:run_compiled", (Graph((0,), steps), False, Ref(0)), {}, 2)
    numbers = torch.full((5,), 0.7, dtype=torch.float64)
    equal = Input(numbers, Layout(expanded=(0,)))
    verdict = judge.judge(Program({0: equal}, [call], "torch.compile"), CPU)
    assert verdict.status == status, verdict.message


@pytest.mark.parametrize("off", [1e-7, 1e-3])
def test_integers_of_rounded_floats_in_a_graph(monkeypatch, off):
    """The sine next to -1 is no error where truncation makes it 0; another one is."""
    calls = iter([False, True])

    def run_compiled(graph, _, *tensors):
        sine, _ = graph(*tensors)
        if next(calls):
            sine = sine + off
        return [sine, sine.long()]

    monkeypatch.setattr(actions, "run_compiled", run_compiled)
    steps = (Step("sin", (Ref(0),), {}, 1), Step(".long", (Ref(1),), {}, 2))
    call = Step("action:run_compiled", (Graph((0,), steps), False, Ref(0)), {}, 3)
    angles = Input(torch.full((7,), -1.5706514))
    program = Program({0: angles}, [call], "torch.compile")
    if off == 1e-7:
        with pytest.raises(judge.ShowsNothing, match=r"^t3\[1\]"):
            judge.judge(program, CPU)
    else:
        assert judge.judge(program, CPU).status == "wrong"


@pytest.mark.parametrize(
    ("exact", "mine", "status"),
    [
        (-1e6, float("-inf"), "pass"),  # as it is rounded
        (-1e6, float("inf"), "wrong"),
        (-1e6, 1.0, "wrong"),
        (5.0, float("inf"), "pass"),
        (5.0, 1.0, "wrong"),
    ],
)
def test_where_the_cpu_overflows_on_its_way(monkeypatch, exact, mine, status):
    halves = iter([float("nan"), mine])

    def run(*_, double=False, noise=None):
        value = exact if double else float("nan") if noise else next(halves)
        dtype = torch.float64 if double else torch.float16
        return execute.Result({"t3": torch.tensor([value, 2.0], dtype=dtype)})

    monkeypatch.setattr(judge, "run", run)
    assert judge.judge(two_steps(), CPU).status == status


@pytest.mark.parametrize("say_alike", [False, True])
def test_strides_are_the_cpus_or_fake_ones(monkeypatch, say_alike):
    """A convolution may have FakeTensorMode's strides, and no others."""
    orders = iter([False, True, say_alike])  # CPU, device, FakeTensorMode

    def conv2d(image, weight):
        result = torch.nn.functional.conv2d(image, weight)
        columns = result.transpose(-1, -2).contiguous().transpose(-1, -2)
        return columns if next(orders) else result

    monkeypatch.setattr(execute, "resolve", lambda _: conv2d)
    inputs = {0: Input(torch.ones(2, 3, 5, 4)), 1: Input(torch.ones(4, 3, 2, 2))}
    steps = [Step("nn.functional.conv2d", (Ref(0), Ref(1)), {}, 2)]
    verdict = judge.judge(Program(inputs, steps, "convolution"), CPU)
    assert verdict.status == ("pass" if say_alike else "wrong")
    assert say_alike or "as FakeTensorMode says" in verdict.message


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


class InProcess:
    """Answers as isolated.Worker does, without the time that a process takes."""

    def __init__(self, serve, device: str) -> None:
        self._answer = serve(device)

    def ask(self, request, time_limit: float):
        lost = {1: "crash", 2: "timeout"} if self._answer is None else {}
        if kind := lost.get(request[0]):
            raise isolated.Lost(kind, "by decree", 0.0)
        return (self._answer or serve_trouble(""))(request)

    def stop(self) -> None:
        pass


def test_lost_cases_are_outcomes(monkeypatch):
    monkeypatch.setattr(workers, "Worker", InProcess)
    outcomes = workers.run(iter(range(4)), "cpu", 1, 5, 0, lambda device: None)
    found = {outcome.case: outcome.status for outcome in outcomes}
    assert found == {0: "pass", 1: "crash", 2: "timeout", 3: "pass"}


def test_a_process_that_is_lost_is_replaced():
    """One that imports nothing, so that it starts at once."""
    worker = isolated.Worker(operator.methodcaller, "__call__")
    for lost, kind in (
        (functools.partial(os.abort), "crash"),
        (functools.partial(time.sleep, 60), "timeout"),
    ):
        with pytest.raises(isolated.Lost) as caught:
            worker.ask(lost, 2)
        assert caught.value.kind == kind
        assert worker.ask(functools.partial(int, "7"), 60) == 7
    worker.stop()


@pytest.mark.slow  # a worker that starts while others run takes longer than a hang
def test_a_crash_and_a_hang_lose_their_case_only():
    outcomes = workers.run(iter(range(4)), "cpu", 1, 5, 0, serve_trouble)
    found = {outcome.case: outcome.status for outcome in outcomes}
    assert found == {0: "pass", 1: "crash", 2: "timeout", 3: "pass"}


def serve_wrong(device: str):
    """Calls every program wrong that still has a step and more than an element."""

    def judged(program: Program, _: torch.device) -> judge.Verdict:
        sizes = [given.values.numel() for given in program.inputs.values()]
        is_wrong = program.steps and max(sizes, default=0) > 1
        return judge.Verdict("wrong" if is_wrong else "pass", "by decree")

    judge.judge = judged  # of this worker
    return workers.serve(device)


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.slow)])
def wrong_workers(request, monkeypatch):
    """run_fuzz.one and workers.run judge wrong, in processes of their own or here."""
    for module, name in ((judge, "judge"), (torch, "set_num_threads")):
        monkeypatch.setattr(module, name, getattr(module, name))
    make = workers.Worker if request.param else InProcess
    if not request.param:
        monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(workers, "Worker", lambda _, device: make(serve_wrong, device))


def test_the_printed_line_repeats(wrong_workers, capsys):
    """What fails is minimised; its line, given to a shell, fails alike."""
    case = next(c for c in range(100) if len(generate(c).steps) > 1)
    (outcome,) = workers.run(iter([case]), "cpu", 1, 60, 8, serve_wrong)
    assert outcome.status == "wrong"
    assert outcome.edits
    assert outcome.text != edits.listing(generate(case))
    line = run_fuzz.repetition(outcome, "cpu")
    _, program, *arguments = shlex.split(line)
    assert program == "validate/run_fuzz.py"
    console = Console(width=10_000)
    assert run_fuzz.one(run_fuzz.parse([*arguments, "--list"]), console) == 0
    assert capsys.readouterr().out.strip() == outcome.text.strip()
    assert run_fuzz.one(run_fuzz.parse([*arguments, "--json"]), console) == 1
    again = json.loads(capsys.readouterr().out)
    assert (again["status"], again["text"]) == (outcome.status, outcome.text)
    assert again["edits"] == outcome.edits


@pytest.mark.parametrize(("verdict", "status"), [("wrong", 1), ("pass", 0)])
@pytest.mark.parametrize(
    "which", [["--cases", "2", "--minimise", "0"], ["--case", "1"]]
)
def test_the_exit_status(monkeypatch, which, verdict, status):
    def serve(device):
        return lambda request: workers.Outcome(request[0], verdict)

    monkeypatch.setattr(workers, "Worker", lambda _, device: InProcess(serve, device))
    arguments = ["--device", "cpu", "--jobs", "1", "--json", *which]
    monkeypatch.setattr(sys, "argv", [run_fuzz.__file__, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(run_fuzz.__file__, run_name="__main__")
    assert ended.value.code == status


def serve_crash(device):
    def answer(request):
        os.abort()

    return answer


@pytest.mark.slow
def test_a_case_that_cannot_be_made_is_a_crash():
    (outcome,) = workers.run(iter([0]), "cpu", 1, 60, 8, serve_crash)
    assert outcome.status == "crash"
    assert "while it is made" in outcome.message


@pytest.mark.parametrize(
    ("side", "padding", "is_empty"), [(1, 1, True), (2, 1, False), (1, 0, False)]
)
def test_windows_without_an_element(side, padding, is_empty):
    options = {"kernel_size": 2, "stride": 1, "padding": padding, "ceil_mode": False}
    sides = (5, side)
    assert layers._has_empty_window(sides, 2, **options) == is_empty
    assert not layers._has_empty_window(sides, 1, **options)
