"""Calls of _foreach_ ops in a row wait for each other and become one launch."""

from __future__ import annotations

import threading

import pytest
import torch

_SHAPES = [(3, 5), (7,), (), (0,), (300, 70), (2, 3, 4)]


def _lists(device, count: int, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [
        [torch.rand(s, generator=generator).to(dtype).to(device) for s in _SHAPES]
        for _ in range(count)
    ]


def _check(mine, expected, **tolerance) -> None:
    for a, b in zip(mine, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, **tolerance)


def _adam(params, grads, first, second) -> None:
    torch._foreach_lerp_(first, grads, 0.1)
    torch._foreach_mul_(second, 0.99)
    torch._foreach_addcmul_(second, grads, grads, 0.01)
    denominators = torch._foreach_sqrt(second)
    torch._foreach_div_(denominators, [1.0 + 0.1 * i for i in range(len(params))])
    torch._foreach_add_(denominators, 1e-8)
    torch._foreach_addcdiv_(params, first, denominators, -0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_chain_computes_what_its_calls_do(device, dtype):
    mine, expected = _lists(device, 4, dtype), _lists("cpu", 4, dtype)
    for lists in (mine, expected):
        for _ in range(3):
            _adam(*lists)
            lists[0][0].add_(1)
    # torch's CPU does not round to bfloat16 between a product and its sum.
    tolerance = {"rtol": 0, "atol": 0.05} if dtype == torch.bfloat16 else {}
    for a, b in zip(mine, expected, strict=True):
        _check(a, b, **tolerance)


def test_results_that_are_kept_are_written(device):
    (x, y), (a, b) = _lists(device, 2), _lists("cpu", 2)
    roots = torch._foreach_sqrt(x)
    torch._foreach_mul_(roots, y)
    sums = torch._foreach_add(roots, 1.0)
    expected_roots = torch._foreach_mul(torch._foreach_sqrt(a), b)
    _check(sums, torch._foreach_add(expected_roots, 1.0))
    _check(roots, expected_roots)


def test_views_of_results_are_written(device):
    x = [torch.full((4, 5), 4.0, device=device)]
    view = torch._foreach_sqrt(x)[0][1:, 2]
    torch._foreach_add_(x, 1.0)
    assert view.tolist() == [2.0] * 3
    assert x[0].eq(5).all()


def test_many_calls(device):
    (x, y), (a, b) = _lists(device, 2), _lists("cpu", 2)
    for lists in ((x, y), (a, b)):
        for i in range(50):
            torch._foreach_add_(lists[0], lists[1], alpha=0.1 * i)
            torch._foreach_mul_(lists[1], 0.9)
    _check(x, a)
    _check(y, b)


def test_many_lists(device):
    mine, expected = _lists(device, 20), _lists("cpu", 20)
    for lists in (mine, expected):
        for i in range(19):
            torch._foreach_add_(lists[i + 1], lists[i])
    _check(mine[19], expected[19])


def test_other_lists_and_dtypes_between(device):
    results = []
    for place in (device, "cpu"):
        (x, y), (half,) = _lists(place, 2), _lists(place, 1, torch.float16)
        torch._foreach_add_(x, 1.0)
        torch._foreach_mul_(x[:3], 2.0)
        torch._foreach_mul_(half, 2.0)
        torch._foreach_add_(x, y)
        torch._foreach_copy_(y, x)
        torch._foreach_zero_(x[1:])
        torch._foreach_add_(half, 1.0)
        results.append([*x, *y, *half])
    _check(*results)


def test_lists_that_share_memory(device):
    results = []
    for place in (device, "cpu"):
        # one tensor at two places of two lists
        a, b, c, d = (torch.arange(1000.0, device=place) + i for i in range(4))
        torch._foreach_mul_([a, b], 2.0)
        torch._foreach_add_([c, d], [b, a])
        torch._foreach_sub_([a, b], [d, c])
        # at one place, of lists that are not the same
        torch._foreach_add_([a, b], 1.0)
        torch._foreach_mul_([a, c], 3.0)
        # parts
        whole = torch.arange(100_000.0, device=place)
        torch._foreach_add_([whole[:-7]], 1.0)
        torch._foreach_mul_([whole[7:]], 3.0)
        results.append([a, b, c, d, whole])
    _check(*results)


def test_lists_of_millions(device):
    # Chunks are longer, the more there is: these are several, and no multiple.
    sizes = (2_500_001, 65_537, 3, 1_000_003)
    x = [torch.arange(float(size), device=device) for size in sizes]
    torch._foreach_mul_(x, 2.0)
    torch._foreach_add_(x, torch._foreach_sqrt(x))
    for tensor in x:
        doubled = torch.arange(float(tensor.numel())).mul_(2.0)
        torch.testing.assert_close(tensor.cpu(), doubled + doubled.sqrt())


def test_transposed_views_of_the_same_memory(device):
    results = []
    for place in (device, "cpu"):
        x = torch.arange(12.0, device=place).reshape(3, 4)
        y = torch.arange(12.0, device=place).reshape(4, 3)
        torch._foreach_mul_([x], 2.0)
        torch._foreach_add_([x.t()], [y.t().contiguous().t()])
        results.append([x])
    _check(*results)


def test_nothing_is_lost_to_what_comes_next(device):
    def deferred(value: int) -> list[torch.Tensor]:
        x = [torch.full((1000,), float(value), device=device)]
        torch._foreach_add_(x, 1.0)
        return x

    assert deferred(1)[0].sum().item() == 2000
    assert deferred(2)[0][3].item() == 3
    assert deferred(3)[0].clone().tolist() == [4] * 1000
    (x,) = deferred(4)
    torch.opencl.synchronize(device)
    assert x.cpu().eq(5).all()
    (x,) = deferred(5)
    event = torch.opencl.Event()
    event.record(torch.opencl.current_stream(device))
    event.synchronize()
    assert event.query()
    with torch.opencl.stream(torch.opencl.Stream(device)) as _:
        torch.opencl.current_stream(device).wait_event(event)
        assert (x + 0).eq(6).all()
    (x,) = deferred(6)
    x.untyped_storage().resize_(8000)
    assert x.cpu().eq(7).all()
    (x,) = deferred(7)
    host = torch.zeros(1000)
    host.copy_(x)
    assert host.eq(8).all()


def test_memory_is_not_kept(device):
    x = [torch.ones(1_000_000, device=device)]
    torch.opencl.synchronize(device)
    before = torch.opencl.memory_allocated(device)
    grads = torch._foreach_mul(x, 2.0)
    torch._foreach_add_(x, grads)
    grads[0].untyped_storage().resize_(0)
    del grads
    assert torch.opencl.memory_allocated(device) == before
    torch._foreach_add_(x, torch._foreach_mul(x, 2.0))
    torch.opencl.empty_cache()
    assert torch.opencl.memory_allocated(device) == before
    assert x[0].eq(9).all()


def test_threads(device):
    failures = []

    def work(seed: int) -> None:
        x = [torch.full((500,), float(seed), device=device) for _ in range(3)]
        for i in range(50):
            torch._foreach_add_(x, 1.0)
            doubled = torch._foreach_mul(x, 2.0)
            torch._foreach_add_(doubled, 1.0)
            total = sum(t.sum().item() for t in doubled)
            if total != 1500 * (2 * (seed + i + 1) + 1):
                failures.append((seed, i, total))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_fused_steps_of_one_element_whatever_its_stride(device):
    results = []
    for place in ("cpu", device):
        param = torch.full((6,), 2.0, device=place)[::3][:1].requires_grad_()
        param.grad = torch.ones(1, device=place)
        torch.optim.AdamW([param], fused=True).step()
        results.append(param.detach().cpu())
    torch.testing.assert_close(*results)


def test_another_storage_of_the_same_memory_is_written(device):
    """A list that nobody holds may have memory that somebody else has."""
    for make in (
        lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x)),
        lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x[4:])),
    ):
        x = torch.zeros(8, device=device)
        other = make(x)
        torch._foreach_add_([other], 1.0)
        torch._foreach_add_([other], 1.0)
        expected = [2.0] * other.numel()
        del other
        assert x.tolist()[-len(expected) :] == expected
        other = make(x)
        torch._foreach_add_([x], 1.0)
        torch._foreach_add_([x], 1.0)
        del x
        assert other.tolist() == [4.0] * len(expected)


def test_zeros_keep_their_signs(device):
    zeros = [0.0, -0.0]
    found = torch._foreach_div([torch.ones(2, device=device) for _ in zeros], zeros)
    assert [x[0].item() for x in found] == [float("inf"), float("-inf")]


def _views(count: int, make) -> list[torch.Tensor]:
    """Each of seven elements, with values of its own."""
    views = [make() for _ in range(count)]
    for i, view in enumerate(views):
        view.copy_(torch.linspace(0.1, 1.0, 7) * (i + 1))
    return views


def _check_steps(lists, numbers) -> None:
    """amsgrad's step, one of foreach ops and GradScaler's, as on the CPU."""
    results = []
    copies = [x.cpu() for x in lists], [x.cpu() for x in numbers]
    for tensors, (step, rate, found, scale) in ((lists, numbers), copies):
        step.fill_(3)
        rate.fill_(0.1)
        found.zero_()
        scale.fill_(4)
        torch._fused_adamw_(
            *([x] for x in tensors),
            [step],
            lr=rate,
            beta1=0.9,
            beta2=0.99,
            weight_decay=0.01,
            eps=1e-8,
            amsgrad=True,
            maximize=False,
            grad_scale=scale,
            found_inf=found,
        )
        _adam(*([x] for x in tensors[:4]))
        inverse = torch.full_like(scale, 0.5)
        torch._amp_foreach_non_finite_check_and_unscale_(tensors[:2], found, inverse)
        tracker = torch.zeros_like(scale, dtype=torch.int32)
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 1)
        results.append([x.cpu() for x in (*tensors, scale)])
    _check(*results)


@pytest.mark.one_device
def test_far_into_a_buffer(device):
    """Of more elements than 29 bits count. Nothing touches most of its memory."""
    buffer = torch.empty((1 << 29) + 4096, device=device)
    parts = iter(buffer[-2048:].split(32))
    lists = _views(5, lambda: next(parts)[:7])
    _check_steps(lists, [next(parts)[:1] for _ in range(4)])
    # Some before the place where counting starts anew, some behind it.
    start = (1 << 29) - 64
    parts = iter(buffer[start : start + 1024].split(28))
    lists = _views(5, lambda: next(parts)[:7])
    _check_steps(lists, [torch.ones(1, device=device) for _ in range(4)])


def test_a_segment_for_every_operand(device):
    torch.opencl.empty_cache()

    def segment() -> torch.Tensor:
        return torch.empty(20 << 20, device=device)

    lists = _views(5, lambda: segment()[:7])
    numbers = [segment()[:1] for _ in range(4)]
    places = [x.untyped_storage().data_ptr() for x in (*lists, *numbers)]
    starts = [s["address"] for s in torch.opencl.memory_snapshot()]
    assert len({max(s for s in starts if s <= place) for place in places}) == 9
    _check_steps(lists, numbers)
