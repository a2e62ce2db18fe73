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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_moved_tensors_keep_their_layout(layout):
    tensor = layout(torch.randn(2, 3, 4, 5))
    moved = move(tensor, torch.device("cpu"), torch.float64)
    assert moved.stride() == tensor.stride()
    assert moved.storage_offset() == tensor.storage_offset()
    assert torch.equal(moved, tensor.double())
