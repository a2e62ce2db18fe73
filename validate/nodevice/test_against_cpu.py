import itertools
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "ops"))
from against_cpu import LAYOUTS, check, move


def one_order_then_another(first, second):
    """A sum of rows whose first call, ``check``'s on the device, adds in ``first``."""
    orders = itertools.chain([first], itertools.repeat(second))

    def total(x):
        columns = x[:, next(orders)].unbind(1)
        return sum(columns[1:], start=columns[0])

    return total


@pytest.mark.parametrize("rows", [1, 5])
def test_sums_that_cancel_may_be_a_rounding_of_the_inputs_off(rows):
    # The first order rounds in units of 1000, the second in units of 1.
    total = one_order_then_another([0, 1, 2, 3], [0, 2, 1, 3])
    terms = torch.tensor([[1000.0, 1 / 3, -1000.0, 1.0]])
    check(total, [terms.expand(rows, 4)], torch.device("cpu"))


def test_more_than_a_rounding_of_the_inputs_fails():
    terms = torch.tensor([[1000.0, 1 / 3, -1000.0, 1.0]])
    calls = itertools.chain([1e-2], itertools.repeat(0.0))
    with pytest.raises(AssertionError, match="too far"):
        check(lambda x: x.sum(1) + next(calls), [terms], torch.device("cpu"))


def product_with_wrong_gradients(errors):
    """A number times ``x``, whose gradient is ``errors`` off, call by call."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, number, x):
            ctx.save_for_backward(x)
            return number * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return (gradient * x).sum().reshape(1) + next(errors), None

    return Product.apply


@pytest.mark.parametrize("second_error", [0.0, 1.0])
def test_a_gradient_that_cancels_is_judged_by_other_incoming_ones(second_error):
    first = torch.randn(1000, generator=torch.Generator().manual_seed(1)).double()
    x = torch.randn(1000).double()
    x -= first * (first @ x) / (first @ first)
    # Each draw calls for the device, the CPU, float64 and nearby results.
    errors = itertools.chain(
        [1e-4], itertools.repeat(0.0, 10), [second_error], itertools.repeat(0.0)
    )
    product = product_with_wrong_gradients(errors)
    number = torch.ones(1)
    if second_error == 0:
        check(product, [number, x.float()], torch.device("cpu"))
    else:
        with pytest.raises(AssertionError, match="too far"):
            check(product, [number, x.float()], torch.device("cpu"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_moved_tensors_keep_their_layout(layout):
    tensor = layout(torch.randn(2, 3, 4, 5))
    moved = move(tensor, torch.device("cpu"), torch.float64)
    assert moved.stride() == tensor.stride()
    assert moved.storage_offset() == tensor.storage_offset()
    assert torch.equal(moved, tensor.double())
