"""torch.opencl.profile: device times by kernel and by op."""

import pytest
import torch

pytestmark = pytest.mark.gpu_class
PRODUCTS = ("gemm", "product")  # kernels of CPUs, of GPUs


def names(entries):
    return [entry.name for entry in entries]


def step(device):
    a = torch.randn(64, 32, device=device, requires_grad=True)
    torch.relu(a @ a.t()).sum().backward()
    return a


def test_every_launch_is_counted(device):
    step(device)
    before = torch.opencl._C._launch_count(device.index)
    with torch.opencl.profile() as profile:
        step(device)
    after = torch.opencl._C._launch_count(device.index)
    kernels = [e for e in profile.kernels if not e.name.startswith("clEnqueue")]
    assert sum(entry.launches for entry in kernels) == after - before > 0
    assert any(product in name for name in names(kernels) for product in PRODUCTS)
    assert 0 < profile.device_seconds <= profile.wall
    assert profile.launches == sum(entry.launches for entry in profile.kernels)
    assert profile.kernels[0].seconds == max(e.seconds for e in profile.kernels)
    assert profile.ops == []


def test_copies_know_their_bytes(device):
    x = torch.zeros(1 << 16, device=device)
    with torch.opencl.profile() as profile:
        host = x.cpu()
    (entry,) = (e for e in profile.kernels if e.name == "clEnqueueReadBuffer")
    assert entry.moved == host.nbytes and entry.gigabytes > 0


def test_ops_own_their_kernels(device):
    with torch.opencl.profile(by_op=True) as profile:
        step(device)
    ops = {entry.name: entry for entry in profile.ops}
    # A product, and the two of its gradient.
    assert ops["aten::mm"].calls == 3
    assert ops["aten::mm"].flops == 3 * 2 * 64 * 64 * 32
    assert "aten::threshold_backward" in ops
    total = sum(entry.seconds for entry in profile.ops)
    assert total == pytest.approx(profile.device_seconds)
    assert sum(entry.launches for entry in profile.ops) == profile.launches


@pytest.mark.parametrize("layer", ["attention", "encoder layer"])
def test_fused_layers_count_what_their_parts_do(device, layer):
    x = torch.rand(2, 7, 24, device=device)
    if layer == "attention":
        model, inputs = torch.nn.MultiheadAttention(24, 4, batch_first=True), [x, x, x]
    else:
        model = torch.nn.TransformerEncoderLayer(24, 4, 40, 0.0, batch_first=True)
        inputs = [x]
    model.to(device)

    def flops():
        with torch.no_grad(), torch.opencl.profile(by_op=True) as profile:
            model(*inputs)
        return {entry.name: entry.flops for entry in profile.ops if entry.flops}

    parts = flops()
    model.eval()
    fused = flops()
    assert len(fused) == 1 < len(parts)
    assert sum(fused.values()) == sum(parts.values())


@pytest.mark.parametrize(
    "use, op, factor",
    [
        (lambda x: x.add_(1), "aten::add_.Tensor", 2),
        (lambda x: x + x.clone(), "aten::add.Tensor", 3),
        (lambda x: x.copy_(x.flip(0)), "aten::copy_", 2),
        (lambda x: x.fill_(2), "aten::fill_.Scalar", 1),
        (lambda x: torch.exp(x, out=torch.empty_like(x)), "aten::exp.out", 2),
        (lambda x: x * x[:1].expand(1000), "aten::mul.Tensor", 2),
    ],
)
def test_necessary_bytes(device, use, op, factor):
    x = torch.ones(1000, device=device)
    with torch.opencl.profile(by_op=True) as profile:
        use(x)
    (entry,) = (entry for entry in profile.ops if entry.name == op)
    # An operand that is expanded is one element.
    assert entry.moved == pytest.approx(factor * x.nbytes, abs=4)


def test_shapes_keep_calls_apart(device):
    a, b = torch.ones(3, 4, device=device), torch.ones(4, 5, device=device)
    with torch.inference_mode(), torch.opencl.profile(True, True) as profile:
        torch.matmul(a, b)
        torch.matmul(b.t(), a.t())
    assert {"aten::mm 3x4 4x5", "aten::mm 5x4 4x3"} <= set(names(profile.ops))


def test_table_and_values(device):
    with torch.opencl.profile(by_op=True) as profile:
        step(device)
    assert any(product in profile.table() for product in PRODUCTS)
    assert str(profile) == profile.table()
    assert "aten::mm" in profile.table("op")
    assert "others)" in profile.table("op", rows=1)
    values = profile.as_dict()
    assert values["launches"] == profile.launches
    assert values["ops"][0]["name"] == profile.ops[0].name
    with pytest.raises(ValueError, match="kernel or op"):
        profile.table("shape")


def test_empty_block(device):
    with torch.opencl.profile() as profile:
        pass
    assert profile.launches == 0 and "0 launches" in profile.table()


def test_two_at_once_are_refused(device):
    with (
        torch.opencl.profile(),
        pytest.raises(RuntimeError, match="already"),
        torch.opencl.profile(),
    ):
        pass
    with torch.opencl.profile() as profile:
        torch.zeros(4, device=device).add_(1)
    assert profile.launches > 0


def test_ends_when_the_block_raises(device):
    with pytest.raises(KeyError), torch.opencl.profile(by_op=True):
        raise KeyError
    with torch.opencl.profile() as profile:
        torch.ones(4, device=device)
    assert profile.launches > 0
