"""Weight gradients of depthwise convolutions, which are added in parts."""

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.sampled(1)
def test_parts_of_a_depthwise_gradient_are_not_rounded(device):
    """Images of opposite signs: their sums have digits that no float16 holds."""
    x = torch.ones(8, 2, 50, 50, dtype=torch.float16)
    grad = torch.full_like(x, 1 + 2**-10)
    grad[1::2] = -1
    weight = torch.ones(2, 1, 3, 3, dtype=torch.float16)

    def gradient(device, dtype):
        w = weight.to(device, dtype).requires_grad_()
        y = F.conv2d(x.to(device, dtype), w, padding=1, groups=2)
        (result,) = torch.autograd.grad(y, w, grad.to(device, dtype))
        return result.cpu().double()

    expected = gradient("cpu", torch.float64)
    assert expected.min() > 9
    assert (gradient(device, torch.float16) / expected - 1).abs().max() < 2**-10
