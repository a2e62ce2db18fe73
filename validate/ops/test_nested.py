"""Strided nested tensors: views and moves on the device, the rest on the CPU.

The tests' process forbids ops on the CPU, so what needs them runs in one of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
import torch
import torch_opencl  # noqa: F401
from torch.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
SHAPES = (((5, 16), (3, 16)), ((1, 16), (0, 16), (7, 16)))
WEIGHT, BIAS = torch.randn(8, 16), torch.randn(8)


def nested(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.nested_tensor(tensors)


def heads(tensors: list[torch.Tensor]) -> torch.Tensor:
    split = [tensor.view(-1, 2, 8).transpose(0, 1) for tensor in tensors]
    return nested(split).contiguous()


def leaves(result) -> list[torch.Tensor]:
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in leaves(part)]
    parts = result.unbind() if result.is_nested else [result]
    return [part.cpu() for part in parts]


def parts(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape) for shape in shapes]


ON_DEVICE = {
    "chunk": lambda n: n.chunk(2, -1),
    "clone": lambda n: n.clone(),
    "contiguous": lambda n: n.transpose(-1, -2).contiguous(),
    "copy_": lambda n: n.clone().copy_(n),
    "detach": lambda n: n.detach(),
    "fill_": lambda n: n.fill_(3),
    "half": lambda n: n.half(),
    "in place": lambda n: n.add_(n).mul_(2).relu_(),
    "padded": lambda n: n.to_padded_tensor(-1.0),
    "select": lambda n: n[1],
    "sizes": lambda n: n._nested_tensor_size(),
    "transpose": lambda n: n.transpose(-1, -2),
    "unbind": lambda n: n.unbind(),
    "view": lambda n: n.view(n.size(0), -1, 4, 4),
    "zero_": lambda n: n.clone().zero_(),
}
ON_CPU = {
    "add": lambda n: n + n,
    "bool": lambda n: n > 0,
    "cat": lambda n: torch.cat([n, n]),
    "div": lambda n: n / 3,
    "dropout": lambda n: F.dropout(n, 1.0),
    "gelu": F.gelu,
    "layer_norm": lambda n: F.layer_norm(n, (16,), torch.ones(16).to(n.device)),
    "linear": lambda n: F.linear(n, WEIGHT.to(n.device), BIAS.to(n.device)),
    "matmul": lambda n: n @ n.transpose(-1, -2),
    "mul": lambda n: n * n,
    "padded": lambda n: n.view(n.size(0), -1, 4, 4).to_padded_tensor(-1.0),
    "relu": torch.relu,
    "softmax": lambda n: n.softmax(-1),
    "sum": lambda n: n.sum(-1, keepdim=True),
}


def outcome(call, argument) -> list[torch.Tensor] | str:
    try:
        return leaves(call(argument))
    except (RuntimeError, ValueError) as error:
        return str(error)


def check_op(device, call, shapes) -> None:
    given = parts(*shapes)
    found = outcome(call, nested(given).to(device))
    expected = outcome(call, nested(given))
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    assert len(found) == len(expected)
    for mine, reference in zip(found, expected, strict=True):
        assert mine.dtype == reference.dtype
        torch.testing.assert_close(mine, reference)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ON_DEVICE)
@pytest.mark.parametrize("shapes", SHAPES)
def test_on_the_device(device, name, shapes):
    check_op(device, ON_DEVICE[name], shapes)


def test_views_share_the_buffer(device):
    n = nested([part.to(device) for part in parts((5, 16), (3, 16))])
    n[1].fill_(7)
    n.unbind()[0][:, 3] = 5
    first, second = (part.cpu() for part in n.unbind())
    assert bool((second == 7).all())
    assert bool((first[:, 3] == 5).all())


def test_where_it_lies(device):
    n = nested(parts((5, 16), (3, 16))).to(device)
    assert n.device == device
    assert n.cpu().device.type == "cpu"


def check_ops(device):
    for name, call in ON_CPU.items():
        for shapes in SHAPES:
            torch.opencl.reset_fallback_stats()
            check_op(device, call, shapes)
            assert torch.opencl.fallback_stats(), name
    n = nested(parts((5, 16), (3, 16))).to(device)
    assert (n + n).device == n.to_padded_tensor(0.0).device == device
    assert f"device='{device}'" in str(n)


def check_attention(device):
    given = parts((5, 16), (3, 16))
    expected = F.scaled_dot_product_attention(*[heads(given)] * 3)
    moved = heads([part.to(device) for part in given])
    found = F.scaled_dot_product_attention(*[moved] * 3)
    for mine, reference in zip(leaves(found), leaves(expected), strict=True):
        torch.testing.assert_close(mine, reference)


def check_attention_of_jagged_tensors(device):
    weight = torch.arange(16.0)
    rows = parts(*[(12, 16)] * 3)

    def gradients(there):
        leaves = [row.to(there).requires_grad_() for row in rows]
        offsets = torch.tensor([0, 3, 8, 12], device=there)
        heads = [
            torch.nested.nested_tensor_from_jagged(leaf, offsets)
            .unflatten(-1, [2, 8])
            .transpose(1, 2)
            for leaf in leaves
        ]
        out = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        (out.values() * weight.to(there)).sum().backward()
        return [out.values().cpu(), *(leaf.grad.cpu() for leaf in leaves)]

    torch.testing.assert_close(gradients(device), gradients("cpu"))


def check_gradients(device):
    given = parts((5, 16), (3, 16))

    def gradients(there):
        inputs = [part.to(there).requires_grad_() for part in given]
        weight = WEIGHT.to(there).requires_grad_()
        n = torch.nested.as_nested_tensor(inputs)
        padded = F.linear(n, weight).relu().to_padded_tensor(0.0)
        padded.square().sum().backward()
        return [tensor.grad.cpu() for tensor in (*inputs, weight)]

    for mine, reference in zip(gradients(device), gradients("cpu"), strict=True):
        torch.testing.assert_close(mine, reference)


def check_writing_where_nothing_writes_is_refused(device):
    n = nested([part.to(device) for part in parts((5, 16), (3, 16))])
    with pytest.raises(NotImplementedError, match="does not write to nested tensors"):
        n.masked_fill_(n > 0, 0.0)


def test_a_forgotten_operand_is_refused(device):
    n = nested([part.to(device) for part in parts((5, 16), (3, 16))])
    for call in (lambda: F.linear(n, WEIGHT), lambda: n + torch.randn(2, 1, 16)):
        with pytest.raises(RuntimeError, match="on the same device"):
            call()


def test_an_op_on_the_cpu_is_told(device):
    n = nested([part.to(device) for part in parts((5, 16), (3, 16))])
    with pytest.raises(NotImplementedError, match=r"aten::add\.Tensor"):
        n + n


def main(device: torch.device) -> None:
    warnings.simplefilter("ignore")
    check_ops(device)
    check_attention(device)
    check_attention_of_jagged_tensors(device)
    check_gradients(device)
    check_writing_where_nothing_writes_is_refused(device)


def test_what_the_cpu_computes(device):
    done = subprocess.run(
        [sys.executable, __file__, str(device)],
        env={**os.environ, "TORCH_OPENCL_FALLBACK": "silent"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    main(torch.device(sys.argv[1]))
