"""Weight gradients of depthwise and grouped convolutions, which are added in parts."""

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


@pytest.mark.parametrize(("channels", "outs", "groups"), [(3, 4, 1), (8, 8, 4)])
@pytest.mark.parametrize("images", [2, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_infinite_values_stay_where_they_are(
    device, channels, outs, groups, images, stride
):
    """Elements of the filter that never meet one are finite."""
    x = torch.randn(images, channels, 9, 9)
    x[0, 0, 0, 0] = x[-1, -1, 4, 0] = float("inf")
    weight = torch.randn(outs, channels // groups, 3, 3)
    grads = []
    for place in (torch.device("cpu"), device):
        w = weight.to(place).requires_grad_()
        y = F.conv2d(x.to(place), w, padding=1, stride=stride, groups=groups)
        ones = torch.ones(y.shape).to(place)
        grads.append(torch.autograd.grad(y, w, ones)[0].cpu())
    assert grads[0].isfinite().any()
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4, equal_nan=True)
