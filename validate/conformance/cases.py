"""The cases of torch's own databases, and how one of them is judged."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

import torch
from conformance import judge, modules, opinfo, optimizers
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.opinfo.core import OpInfo

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}
OP_QUESTIONS = {
    "forward": judge.forward,
    "gradient": judge.gradient,
    "out": judge.out,
    "in_place": judge.in_place,
    "noncontiguous": judge.noncontiguous,
    "errors": judge.errors,
    "compiled": judge.compiled,
    "compiled_gradient": judge.compiled_gradient,
    "dynamic": partial(judge.compiled, dynamic=True),
    "dynamic_gradient": partial(judge.compiled_gradient, dynamic=True),
}
# Seconds a sample: of these only what is asked for.
SLOW_QUESTIONS = ("compiled", "compiled_gradient", "dynamic", "dynamic_gradient")
_GRADIENTS = ("gradient", "compiled_gradient", "dynamic_gradient")
_MODULE_QUESTIONS = {"train": modules.train, "eval": modules.evaluate}


@dataclass(frozen=True)
class Case:
    """``op/nn.functional.softmax/forward/float32`` and the like."""

    database: str
    name: str
    question: str
    dtype: str

    def __str__(self) -> str:
        return "/".join((self.database, self.name, self.question, self.dtype))


class NotJudged(Exception):
    """The CPU is no reference for this case; the text says why."""


def op_name(op) -> str:
    variant = op.variant_test_name
    return f"{op.name}:{variant}" if variant else op.name


def ops_of_one_dtype(
    not_asked: Collection[str],
) -> Iterator[tuple[OpInfo, torch.dtype]]:
    """Each op of the database but ``not_asked``, and those that are CUDA's only, in the
    first of four kinds of numbers that it takes."""
    kinds = (torch.float32, torch.int64, torch.bool, torch.complex64)
    for op in op_db:
        dtype = next((dtype for dtype in kinds if dtype in op.dtypes), None)
        is_left_out = op_name(op) in not_asked or op.name.startswith("jiterator")
        if dtype is not None and not is_left_out:
            yield op, dtype


def select(
    databases: list[str], names: list[str], questions: list[str], dtypes: list[str]
) -> list[Case]:
    """Cases of which the database, the name (a pattern), question and dtype are
    asked for; an empty list asks for all, but not for slow questions."""
    everything = {"op": _op_cases, "module": _module_cases, "optim": _optim_cases}
    return [
        case
        for database in databases or everything
        for case in everything[database]()
        if not names or any(fnmatchcase(case.name, pattern) for pattern in names)
        if not questions or case.question in questions
        if questions or case.question not in SLOW_QUESTIONS
        if not dtypes or case.dtype in dtypes
    ]


def _op_cases() -> Iterator[Case]:
    for op in op_db:
        forward, backward = op.supported_dtypes("cpu"), set()
        if op.supports_autograd:
            backward = op.supported_backward_dtypes("cpu")
        for name, dtype in DTYPES.items():
            for question in OP_QUESTIONS:
                if dtype not in (backward if question in _GRADIENTS else forward):
                    continue
                if question == "out" and not op.supports_out:
                    continue
                if question == "in_place" and op.get_inplace() is None:
                    continue
                if question == "errors" and (
                    op.error_inputs_func is None or dtype != torch.float32
                ):
                    continue
                yield Case("op", op_name(op), question, name)


def _module_cases() -> Iterator[Case]:
    for info in module_db:
        for question in _MODULE_QUESTIONS:
            for name, dtype in DTYPES.items():
                if dtype in info.dtypes:
                    yield Case("module", info.name, question, name)


def _optim_cases() -> Iterator[Case]:
    for info in optim_db:
        for question in optimizers.implementations(info):
            for dtype in ("float32", "float64"):
                yield Case("optim", info.optim_cls.__name__, question, dtype)


def ask(case: Case, device: torch.device, limit: int | None, seed: int) -> None:
    """Judges one case.

    Raises:
        AssertionError: the device does not do what the CPU does.
        NotJudged: the CPU cannot tell.
    """
    torch.manual_seed(seed + zlib.crc32(str(case).encode()))
    _ASK[case.database](case, device, limit, seed)


def _ask_op(case: Case, device, limit, seed) -> None:
    op = _find(op_db, op_name, case.name)
    dtype = DTYPES[case.dtype]
    reason = judge.exemption(op, case.question, dtype, device)
    if reason:
        raise NotJudged(reason)
    question = OP_QUESTIONS[case.question]
    if question is judge.errors:
        question(op, device)
        return
    samples = op.sample_inputs("cpu", dtype, requires_grad=case.question in _GRADIENTS)
    question(op, device, opinfo.take(samples, limit, seed), seed)


def _ask_module(case: Case, device, limit, seed) -> None:
    info = _find(module_db, lambda info: info.name, case.name)
    _MODULE_QUESTIONS[case.question](info, device, DTYPES[case.dtype], seed)


def _ask_optimizer(case: Case, device, limit, seed) -> None:
    info = _find(optim_db, lambda info: info.optim_cls.__name__, case.name)
    optimizers.steps(info, case.question, device, DTYPES[case.dtype], seed)


_ASK = {"op": _ask_op, "module": _ask_module, "optim": _ask_optimizer}


def _find(database, name_of: Callable, name: str):
    return next(entry for entry in database if name_of(entry) == name)
