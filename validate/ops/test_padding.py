"""Padding that repeats the border, forward and backward."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, check, contiguous, offset, strided, transposed

PADDINGS = [(0, 0), (2, 3), (70, 1), (-2, 3), (4, -5)]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 7), (2, 3, 130), (0, 3, 7)])
def test_replication_1d(device, padding, shape):
    check(lambda x: F.pad(x, padding, "replicate"), [torch.randn(shape)], device)


@pytest.mark.parametrize("layout", [contiguous, transposed, strided, offset])
@pytest.mark.parametrize("dtype", FLOATS)
def test_replication_1d_layouts_and_dtypes(device, layout, dtype):
    x = layout(torch.randn(2, 5, 65))
    check(lambda x: F.pad(x, (3, 2), "replicate"), [x], device, dtype)


def test_replication_1d_refuses_what_the_cpu_refuses(device):
    for shape in ((7,), (2, 3, 0)):
        errors = []
        for place in ("cpu", device):
            with pytest.raises(RuntimeError) as error:
                torch._C._nn.replication_pad1d(torch.empty(shape, device=place), (1, 1))
            errors.append(str(error.value))
        assert errors[0] == errors[1]
