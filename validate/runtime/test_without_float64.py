"""A device without float64 (Intel's Arc, Arm's Mali): float64 is stored, moved and
printed there, and computed on the CPU."""

from __future__ import annotations

import re

import pytest
import torch
from script import run_script

pytestmark = pytest.mark.gpu_class
DOUBLES = (torch.float64, torch.complex128)
OTHERS = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.int64, torch.bool, torch.complex64),
)


@pytest.fixture(autouse=True)
def _lacks_float64(device):
    if torch.opencl.get_device_properties(device).has_fp64:
        pytest.skip("has float64")


@pytest.mark.parametrize("dtype", DOUBLES)
def test_factories(device, dtype):
    for make in (torch.zeros, torch.ones):
        x = make(3, 5, dtype=dtype, device=device)
        assert torch.equal(x.cpu(), make(3, 5, dtype=dtype))
    value = 0.1 + 0.2j if dtype.is_complex else 0.1
    x = torch.full((2, 7), value, dtype=dtype, device=device)
    x[:, ::3] = value * 3
    expected = torch.full((2, 7), value, dtype=dtype)
    expected[:, ::3] = value * 3
    assert torch.equal(x.cpu(), expected)
    assert x[1, 2].item() == expected[1, 2].item()


@pytest.mark.parametrize("dtype", DOUBLES)
def test_copies_of_any_layout(device, dtype):
    x = torch.randn(6, 5, 4, 3, dtype=dtype)
    there = x.to(device)
    for view in (
        lambda t: t[1:, ::2],
        lambda t: t.transpose(0, 2),
        lambda t: t.mT.conj(),
        lambda t: t[:1].expand(3, -1, -1, -1),
        lambda t: t[..., :0],
    ):
        assert torch.equal(view(there).contiguous().cpu(), view(x))
        assert torch.equal(view(there).cpu(), view(x))
    last = there.to(memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last.cpu(), x)


@pytest.mark.parametrize("dtype", DOUBLES)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_conversions(device, dtype, other):
    x = (torch.randn(5, 4) * 50).to(dtype)[:, 1:]
    there = x.to(device)
    assert torch.equal(there.to(other).cpu().view(torch.uint8), _bytes(x.to(other)))
    y = x.to(other)
    assert torch.equal(y.to(device).to(dtype).cpu(), y.to(dtype))


def _bytes(x):
    return x.contiguous().view(torch.uint8)


@pytest.mark.parametrize(
    "dtype",
    [*DOUBLES, torch.float32, torch.float16, torch.complex64, torch.int64, torch.bool],
)
def test_printing_is_the_cpus(device, dtype):
    def words(x):
        return re.sub(r"device='\S*'|[\s,)]", "", repr(x))

    for scale in (1, 1e5):
        x = (torch.randn(3, 4) * scale).to(dtype)
        assert words(x.to(device)) == words(x)
    if dtype not in DOUBLES:
        x = torch.randn(60, 70).to(dtype)
        assert "..." in repr(x) and words(x.to(device)) == words(x)


def test_an_op_is_refused_where_it_may_not_run_on_the_cpu(device):
    x = torch.ones(3, dtype=torch.float64, device=device)
    with pytest.raises(NotImplementedError, match=r"aten::add\.out"):
        x + 1
    with pytest.raises(NotImplementedError, match="aten::normal_"):
        x.normal_()


def test_ops_run_on_the_cpu(device):
    run_script(
        """
        import torch.nn.functional as F

        def same(function, *shapes):
            inputs = [torch.randn(s, dtype=torch.float64) for s in shapes]
            found, gradients = [], []
            for where in ("cpu", DEVICE):
                leaves = [x.to(where).requires_grad_() for x in inputs]
                out = function(*leaves)
                gradients.append([g.cpu() for g in torch.autograd.grad(out.sum(), leaves)])
                found.append(out.detach().cpu())
            torch.testing.assert_close(found[1], found[0])
            torch.testing.assert_close(gradients[1], gradients[0])

        image, filters = (2, 4, 9, 7), (6, 4, 3, 3)
        same(lambda x, w, b: F.conv2d(x, w, b, padding=1), image, filters, (6,))
        same(lambda x, w: F.conv2d(x, w, stride=2, groups=2), image, (6, 2, 3, 3))
        same(lambda x, w, b: F.conv_transpose2d(x, w, b), image, (4, 6, 3, 3), (6,))
        same(lambda x: F.batch_norm(x, None, None, training=True).sin(), image)
        same(lambda x, w: F.layer_norm(x, (7,), w).sin(), image, (7,))
        same(lambda x, w: F.group_norm(x, 2, w).sin(), image, (4,))
        same(lambda x: F.max_pool2d(x, 3, 2).sin(), image)
        same(lambda x: F.max_pool3d(x, 2).sin(), image)
        same(lambda x: F.adaptive_avg_pool2d(x, 3).sin(), image)
        same(lambda x: F.logsigmoid(x), image)
        same(lambda x: F.binary_cross_entropy(x.sigmoid(), torch.full_like(x, 0.3)), image)
        same(lambda x, y: F.grid_sample(x, y.tanh(), align_corners=False), image, (2, 5, 5, 2))
        same(lambda x: x.median(1).values.sin(), image)
        same(lambda x: x.flatten().kthvalue(5).values, image)
        same(lambda x, y: x.flatten(1) @ y, image, (252, 5))
        same(lambda x: F.scaled_dot_product_attention(x, x, x), image)

        x = torch.randn(50, dtype=torch.float64).round(decimals=1)
        for function in (
            lambda x: x.unique(),
            lambda x: torch.bucketize(x, x[:9].sort().values),
            lambda x: torch.histc(x, 5, -1, 1),
            lambda x: torch.bincount(x.abs().long(), x),
            lambda x: torch.frexp(x)[0],
            lambda x: x.mode().values,
        ):
            torch.testing.assert_close(function(x.to(DEVICE)).cpu(), function(x))

        many = torch.empty(4000, dtype=torch.float64, device=DEVICE)
        assert abs(many.normal_().cpu().mean()) < 0.1
        assert 0.4 < torch.rand_like(many).cpu().mean() < 0.6
        layer = torch.nn.Linear(5, 3, dtype=torch.float64).to(DEVICE)
        optimizer = torch.optim.Adam(layer.parameters(), 0.1)
        data = torch.randn(8, 5, dtype=torch.float64).to(DEVICE)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = layer(data).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] / 2
        """,
        device,
        TORCH_OPENCL_FALLBACK="silent",
    )
