"""torch's device-generic test classes, instantiated for the device.

The wheel has their machinery but not the tests: classes and methods here have
the names of torch's own, so that what its databases skip, or expect to fail, is
skipped here.
Values are judged elsewhere (conformance/judge.py); this asks what surrounds them.
"""

from __future__ import annotations

import copy
import functools
import io
import itertools
import unittest
import warnings

import pytest
import torch
from conformance import judge, opinfo
from conformance.cases import op_name
from torch.autograd.gradcheck import gradcheck, gradgradcheck
from torch.testing._internal import composite_compliance
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import TestCase

_SAMPLES = 2
_LEFT_OUT = ("jiterator", "chalf")  # CUDA's only; nothing compares complex32
_OPS = [op for op in op_db if not op.name.startswith(_LEFT_OUT)]
_WITH_OUT = [op for op in _OPS if op.supports_out]
_DOUBLES = [op for op in _OPS if op.supports_autograd and torch.float64 in op.dtypes]

_EVALUATION = "in evaluation the CPU leaves the outs of statistics as they are"
_MUTABLE = "torch negates one argument that is written, not more"
# Test, op and why it is not asked.
_NOT_ASKED = {
    ("test_conj_view", "view_as_real"): "torch refuses a view of what is conjugated",
    ("test_neg_view", "_batch_norm_with_update"): _MUTABLE,
    ("test_neg_view", "_native_batch_norm_legit"): _MUTABLE,
    ("test_neg_view", "view_as_complex"): "an imaginary part has no stride of one",
    ("test_operator", "nn.functional.one_hot"): "torch's looks at the classes",
    ("test_backward", "linalg.eig"): "eigenvectors have any phase",
    ("test_out_warning", "nn.functional.logsigmoid"): "the CPU resizes without a word",
    ("test_out_warning", "native_batch_norm"): _EVALUATION,
    ("test_out_warning", "_native_batch_norm_legit"): _EVALUATION,
}


class _OnDevice:
    """On the first device of the run; ops that fall back are skipped."""

    @pytest.fixture(autouse=True)
    def _first(self, first_device):
        type(self).primary_device = str(first_device)
        with torch.opencl.device(first_device):
            yield

    def samples(self, op, device, dtype, requires_grad=False):
        for (test, name), reason in _NOT_ASKED.items():
            if self._testMethodName.startswith(test) and name == op_name(op):
                self.skipTest(reason)
        question = "out" if "out_warning" in self._testMethodName else ""
        if reason := judge.exemption(op, question, dtype, torch.device(device)):
            self.skipTest(reason)
        made = op.sample_inputs(device, dtype, requires_grad=requires_grad)
        return itertools.islice(made, _SAMPLES)


_FALLBACK = "TORCH_OPENCL_FALLBACK"


def _outcome(op, sample, out):
    """Whether writing to ``out`` raises, or what it warns of, and the strides that
    ``out`` then has."""
    leaves = opinfo.tensors(out)
    places = [leaf.data_ptr() for leaf in leaves]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            op(sample.input, *sample.args, **sample.kwargs, out=out)
        except (RuntimeError, TypeError) as error:
            if _FALLBACK in str(error):
                raise unittest.SkipTest("the CPU runs it") from None
            return "an error"
    resized = sum("was resized" in str(warning.message) for warning in caught)
    moved = [
        leaf.data_ptr() != place for leaf, place in zip(leaves, places, strict=True)
    ]
    return resized, moved, [(leaf.shape, leaf.stride()) for leaf in leaves]


def _larger(tensor):
    return tensor.new_zeros([size + 1 for size in tensor.shape] or [2])


def _other_strides(tensor):
    shape = [*tensor.shape, 2]
    return torch.zeros(shape[::-1], dtype=tensor.dtype).permute(
        *range(len(shape))[::-1]
    )[..., 1]


def _integers(tensor):
    floating = tensor.is_floating_point() or tensor.is_complex()
    return torch.zeros(tensor.shape, dtype=torch.int64 if floating else torch.bool)


_OUTS = {
    "as it has to be": torch.zeros_like,
    "empty": lambda tensor: tensor.new_empty(0),
    "larger": _larger,
    "of other strides": _other_strides,
    "of another dtype": _integers,
}


def _map(function, tree):
    return torch.utils._pytree.tree_map(
        lambda leaf: function(leaf) if torch.is_tensor(leaf) else leaf, tree
    )


@pytest.mark.sampled(240)
class TestCommon(_OnDevice, TestCase):
    @ops(_WITH_OUT, dtypes=OpDTypes.any_one)
    def test_out_warning(self, device, dtype, op):
        for sample in self.samples(op, "cpu", dtype):
            if sample.kwargs.get("as_tuple"):
                continue
            expected = op(sample.input, *sample.args, **sample.kwargs)
            moved = opinfo.to_device(sample, torch.device(device))
            for name, make in _OUTS.items():
                out = _map(make, expected)
                mine = _outcome(op, moved, _map(lambda x: _moved(x, device), out))
                cpu = _outcome(op, opinfo.to_device(sample, torch.device("cpu")), out)
                assert mine == cpu, f"out {name}, {opinfo.describe(sample)}"

    @ops(_OPS, dtypes=OpDTypes.any_one)
    def test_samples_on_the_device(self, device, dtype, op):
        """Made there, results lie there."""
        for sample in self.samples(op, device, dtype):
            for result in opinfo.tensors(opinfo.call(op, sample)):
                assert result.device == torch.device(device) or op.name == "to"


def _moved(tensor, device):
    sample = opinfo.SampleInput(tensor)
    return opinfo.to_device(sample, torch.device(device)).input


@pytest.mark.sampled(240)
class TestCompositeCompliance(_OnDevice, TestCase):
    @ops(_OPS, dtypes=OpDTypes.any_one)
    def test_operator(self, device, dtype, op):
        for sample in self.samples(op, device, dtype):
            args, kwargs = [sample.input, *sample.args], sample.kwargs
            composite_compliance.check_with_mode(op, args, kwargs, self.assertEqual)
            composite_compliance.check_all_permutations(
                op, args, kwargs, self.assertEqual
            )

    @ops([op for op in _OPS if op.supports_autograd], allowed_dtypes=(torch.float32,))
    def test_backward(self, device, dtype, op):
        for sample in self.samples(op, device, dtype, requires_grad=True):
            composite_compliance.check_backward_formula(
                op.get_op(),
                [sample.input, *sample.args],
                sample.kwargs,
                sample.output_process_fn_grad,
                op.gradcheck_wrapper,
                self.assertEqual,
            )


def _as_function(op, sample):
    """Of the differentiable tensors of a sample, which are returned as well."""
    inputs = opinfo.differentiable(sample)
    places = {id(value): index for index, value in enumerate(inputs)}

    def function(*values):
        def replaced(leaf):
            return values[places[id(leaf)]] if id(leaf) in places else leaf

        given = (sample.input, sample.args, sample.kwargs)
        first, args, kwargs = _map(replaced, given)
        result = op.gradcheck_wrapper(op.get_op(), first, *args, **kwargs)
        return sample.output_process_fn_grad(result)

    return function, tuple(inputs)


@pytest.mark.sampled(240)
class TestBwdGradients(_OnDevice, TestCase):
    @ops(_DOUBLES, allowed_dtypes=(torch.float64,))
    def test_fn_grad(self, device, dtype, op):
        for sample in self.samples(op, device, dtype, requires_grad=True):
            function, inputs = _as_function(op, sample)
            assert gradcheck(
                function,
                inputs,
                check_batched_grad=op.check_batched_grad,
                check_grad_dtypes=True,
                nondet_tol=op.gradcheck_nondet_tol,
                fast_mode=op.gradcheck_fast_mode is not False,
            )

    @ops(_DOUBLES, allowed_dtypes=(torch.float64,))
    def test_fn_gradgrad(self, device, dtype, op):
        if not op.supports_gradgrad:
            self.skipTest("torch has no second derivative of it")
        for sample in self.samples(op, device, dtype, requires_grad=True):
            function, inputs = _as_function(op, sample)
            assert gradgradcheck(
                function,
                inputs,
                gen_non_contig_grad_outputs=True,
                check_batched_grad=op.check_batched_gradgrad,
                nondet_tol=op.gradcheck_nondet_tol,
                fast_mode=True,
            )


@pytest.mark.sampled(240)
class TestFwdGradients(_OnDevice, TestCase):
    @ops(_DOUBLES, allowed_dtypes=(torch.float64,))
    def test_forward_mode_AD(self, device, dtype, op):
        if not op.supports_forward_ad:
            self.skipTest("torch has no forward derivative of it")
        for sample in self.samples(op, device, dtype, requires_grad=True):
            function, inputs = _as_function(op, sample)
            assert gradcheck(
                function,
                inputs,
                check_forward_ad=True,
                check_backward_ad=False,
                check_undefined_grad=False,
                check_batched_grad=False,
                nondet_tol=op.gradcheck_nondet_tol,
                fast_mode=op.gradcheck_fast_mode is not False,
            )


def _draws(op, sample):
    with judge.Draws() as draws:
        opinfo.call(op, opinfo.to_device(sample, torch.device("cpu")))
    return draws.seen or op.name in judge.UNINITIALISED


def _conjugated(value):
    if torch.is_tensor(value) and value.is_complex():
        return value.conj().resolve_conj().conj()
    return value


def _negated(value):
    """Equal, by the negative bit: the imaginary part of a conjugate."""
    if not torch.is_tensor(value) or not value.is_floating_point():
        return value
    negative = torch.complex(torch.zeros_like(value), -value).conj().imag
    assert negative.is_neg()
    return negative


@pytest.mark.sampled(240)
class TestMathBits(_OnDevice, TestCase):
    def _compare(self, op, samples, change):
        for sample in samples:
            changed = opinfo.map_sample(sample, change)
            if _draws(op, sample):
                continue
            expected = opinfo.call(op, sample)
            self.assertEqual(opinfo.call(op, changed), expected)

    @ops(_OPS, allowed_dtypes=(torch.complex64,))
    def test_conj_view(self, device, dtype, op):
        self._compare(op, self.samples(op, device, dtype), _conjugated)

    @ops(_OPS, allowed_dtypes=(torch.float32,))
    def test_neg_view(self, device, dtype, op):
        self._compare(op, self.samples(op, device, dtype), _negated)


def _module(info, device, dtype, training):
    """A module of the database and a call of it, both on the device."""
    found = info.module_inputs_func(
        info, device=device, dtype=dtype, requires_grad=False, training=training
    )
    for sample in itertools.islice(found, _SAMPLES):
        if sample.forward_input is None:
            continue
        args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        module = info.module_cls(*args, **kwargs).to(device, dtype).train(training)
        yield module, sample.forward_input


def _call(module, given):
    torch.manual_seed(3)
    return module(*copy.deepcopy(given.args), **copy.deepcopy(given.kwargs))


@pytest.mark.sampled(120)
class TestModule(_OnDevice, TestCase):
    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_pickle(self, device, dtype, module_info, training):
        for module, given in _module(module_info, device, dtype, training):
            _call(module, given)  # what is lazy is made
            file = io.BytesIO()
            torch.save(module, file)
            file.seek(0)
            loaded = torch.load(file, weights_only=False)
            for before, after in zip(
                module.parameters(), loaded.parameters(), strict=True
            ):
                assert after.device == before.device
            state = copy.deepcopy(module.state_dict())
            expected = _call(module, given)
            loaded.load_state_dict(state)
            self.assertEqual(_call(loaded, given), expected)

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_cpu_gpu_parity(self, device, dtype, module_info, training):
        """To the CPU and back every parameter and buffer is what it was."""
        for module, given in _module(module_info, device, dtype, training):
            _call(module, given)
            state = {name: x.cpu() for name, x in module.state_dict().items()}
            module.to("cpu")
            assert all(x.device.type == "cpu" for x in module.state_dict().values())
            module.to(device)
            for name, value in module.state_dict().items():
                assert value.device == torch.device(device)
                self.assertEqual(value.cpu(), state[name], rtol=0, atol=0)

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_non_contiguous_tensors(self, device, dtype, module_info, training):
        for module, given in _module(module_info, device, dtype, training):
            _call(module, given)
            state = copy.deepcopy(module.state_dict())
            expected = _call(module, given)
            sample = opinfo.SampleInput(given.args, kwargs=given.kwargs)
            changed = opinfo.noncontiguous(sample)
            if state:
                module.load_state_dict(state)
            torch.manual_seed(3)
            result = module(*changed.input, **changed.kwargs)
            self.assertEqual(result, expected)

    @modules(module_db, allowed_dtypes=(torch.float64,))
    def test_grad(self, device, dtype, module_info, training):
        for module, given in _module(module_info, device, dtype, training):
            _call(module, given)
            leaves = [x for x in module.parameters() if x.requires_grad]
            if not leaves or module_info.gradcheck_nondet_tol:
                continue

            def function(*_, module=module, given=given):
                result = opinfo.tensors(_call(module, given))
                return tuple(x for x in result if x.is_floating_point())

            assert gradcheck(function, tuple(leaves), fast_mode=True)


def _trained(optim_info, parameters, options, steps, state=None):
    optimizer = optim_info.optim_cls(parameters, **options)
    if state is not None:
        optimizer.load_state_dict(state)

    def closure():
        optimizer.zero_grad()
        loss = sum((p * p * (1 + p.sin())).sum() for p in parameters)
        loss.backward()
        if optim_info.only_supports_sparse_grads:
            for parameter in parameters:
                parameter.grad = parameter.grad.to_sparse()
        return loss

    for _ in range(steps):
        if optim_info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return optimizer


@pytest.mark.sampled(8)
class TestOptimRenewed(_OnDevice, TestCase):
    @optims(optim_db)
    def test_can_load_older_state_dict(self, device, dtype, optim_info):
        """A checkpoint of the CPU goes on here as it would there, and back."""
        for options in optim_info.optim_inputs_func(device=device):
            if options.kwargs.get("capturable"):
                continue
            torch.manual_seed(5)
            start = [torch.randn(5, 3, dtype=torch.float64) for _ in range(2)]
            on_cpu = [x.clone().requires_grad_() for x in start]
            first = _trained(optim_info, on_cpu, options.kwargs, 2)
            state = copy.deepcopy(first.state_dict())
            here = [x.detach().to(device).requires_grad_() for x in on_cpu]
            loaded = copy.deepcopy(state)
            second = _trained(optim_info, here, options.kwargs, 2, loaded)
            for value in opinfo.tensors(list(second.state.values())):
                assert value.device == torch.device(device) or value.dim() == 0
            _trained(optim_info, on_cpu, options.kwargs, 2, state)
            for mine, expected in zip(here, on_cpu, strict=True):
                self.assertEqual(mine.cpu(), expected, msg=options.desc)

    @optims([info for info in optim_db if "foreach" in info.supported_impls])
    def test_foreach_matches_forloop(self, device, dtype, optim_info):
        for options in optim_info.optim_inputs_func(device=device):
            if options.kwargs.get("capturable") or options.kwargs.get("differentiable"):
                continue
            found = []
            for foreach in (False, True):
                torch.manual_seed(5)
                given = [torch.randn(5, 3, device=device) for _ in range(3)]
                for parameter in given:
                    parameter.requires_grad_()
                _trained(optim_info, given, {**options.kwargs, "foreach": foreach}, 4)
                found.append(given)
            self.assertEqual(*found, msg=options.desc)


def _skip_fallbacks(test):
    @functools.wraps(test)
    def run(self):
        try:
            test(self)
        except Exception as error:  # torch.testing wraps what is raised
            if _FALLBACK not in str(error):
                raise
            self.skipTest("the CPU runs it")

    return run


def _instantiate(generic: type) -> dict[str, type]:
    scope = {generic.__name__: generic}
    instantiate_device_type_tests(generic, scope, only_for="privateuse1")
    for found in scope.values():
        for name, test in list(vars(found).items()):
            # What the CPU or CUDA fails need not fail here.
            if getattr(test, "__unittest_expecting_failure__", False):
                setattr(found, name, unittest.skip("torch expects a failure")(test))
            elif name.startswith("test_"):
                setattr(found, name, _skip_fallbacks(test))
    return scope


_GENERIC = (
    TestCommon,
    TestCompositeCompliance,
    TestBwdGradients,
    TestFwdGradients,
    TestMathBits,
    TestModule,
    TestOptimRenewed,
)
for _class in _GENERIC:
    del globals()[_class.__name__]
    globals().update(_instantiate(_class))
del _class, _GENERIC
