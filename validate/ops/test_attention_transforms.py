"""scaled_dot_product_attention under torch.vmap and forward-mode gradients."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

pytestmark = pytest.mark.usefixtures("attention_compiles")


def _squares(*tensors):
    return attention(*tensors).square().sum()


_CALLS = {
    "queries and keys": lambda q, k, v, _: vmap(attention, (0, 0, None))(q, k, v[0]),
    "one operand": lambda q, k, v, _: vmap(attention, (None, None, 0))(q[0], k[0], v),
    "masks": lambda q, k, v, mask: vmap(attention)(q, k, v, mask),
    "one mask": lambda q, k, v, mask: vmap(attention, (0, 0, 0, None))(
        q, k, v, mask[0]
    ),
    "last dimension": lambda q, k, v, _: vmap(attention, (4, 1, 0), 2)(
        q.movedim(0, 4), k.movedim(0, 1), v
    ),
    "two": lambda q, k, v, _: vmap(vmap(attention, (0, None, 0)), (None, 0, None))(
        q, k, v
    ),
    "gradients": lambda q, k, v, mask: vmap(grad(_squares, (0, 1, 2)))(q, k, v, mask),
    "gradients of one": lambda q, k, v, _: vmap(
        grad(_squares, (0, 1, 2)), (0, None, 0)
    )(q, k[0], v),
    "gradient of vmap": lambda q, k, v, _: grad(
        lambda q: vmap(attention)(q, k, v).square().sum()
    )(q),
    "jacrev": lambda q, k, v, _: jacrev(attention)(q[0], k[0], v[0]),
    "jacfwd": lambda q, k, v, _: jacfwd(attention)(q[0], k[0], v[0]),
    "jvp": lambda q, k, v, _: jvp(attention, (q[0], k[0], v[0]), (q[1], k[1], v[1])),
}


@pytest.mark.gpu_class
@pytest.mark.parametrize("name", _CALLS)
def test_as_on_the_cpu(device, name):
    operands = [torch.randn(3, 2, 4, size, 8) for size in (7, 9)]
    operands.append(torch.randn(3, 2, 4, 9, 6))
    operands.append(torch.rand(3, 7, 9) > 0.3)
    # The CPU's fused form has no forward-mode gradient.
    with sdpa_kernel(SDPBackend.MATH):
        expected = _CALLS[name](
            *(x.double() if x.is_floating_point() else x for x in operands)
        )
    result = _CALLS[name](*(x.to(device) for x in operands))
    torch.testing.assert_close(
        result, expected, rtol=1e-4, atol=1e-5, check_device=False, check_dtype=False
    )


def test_randomness(device):
    q, k = (
        torch.randn(3, 2, 4, 7, 8, device=device),
        torch.rand(2, 4, 9, 8, device=device),
    )

    def call(randomness):
        return vmap(lambda q: attention(q, k, k, dropout_p=0.5), randomness=randomness)(
            q
        )

    with pytest.raises(RuntimeError, match="in randomness error mode"):
        call("error")
    with pytest.raises(NotImplementedError, match="randomness 'same'"):
        call("same")
    q = q[:1].expand_as(q)
    first, second, _ = call("different")
    assert not torch.equal(first, second)


@pytest.mark.parametrize("transform", [vmap, lambda *f, **r: vmap(grad(*f), **r)])
def test_randomness_of_operands_that_are_not_batched(device, transform):
    q, k = (torch.randn(2, 4, size, 8, device=device) for size in (7, 9))

    def call(randomness):
        return transform(
            lambda x: attention(q, k, k, dropout_p=0.5).sum() * x, randomness=randomness
        )(torch.ones(2, device=device))

    with pytest.raises(RuntimeError, match="in randomness error mode"):
        call("error")
    first, second = call("same")
    assert torch.equal(first, second)
    first, second = call("different")
    assert not torch.equal(first, second)


def test_gradients_of_one_dropout(device):
    q, k = (torch.randn(1, 2, size, 8, device=device) for size in (7, 9))
    _, pullback = vjp(lambda *x: attention(*x, dropout_p=0.5), q, k, k)
    rows = torch.randn(3, 1, 2, 7, 8, device=device)
    expected = [torch.stack(x) for x in zip(*map(pullback, rows), strict=True)]
    torch.testing.assert_close([*vmap(pullback)(rows)], expected)
