"""Random numbers: the generator's algorithm, reproducibility, distributions."""

import pytest
import torch
from scipy import stats

COUNT = 20_011  # a prime, so that the last work-item is partly used


def test_philox_known_answer(device):
    # Random123's test vector for philox4x32-10 with a zero key and counter.
    generator = torch.Generator(device).manual_seed(0)
    x = torch.empty(4, dtype=torch.int64, device=device)
    x.random_(0, 2**32, generator=generator)
    expected = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert x.tolist() == expected


@pytest.mark.parametrize(
    "fill",
    [
        lambda x: x.normal_(),
        lambda x: x.uniform_(-1, 3),
        lambda x: x.random_(0, 100),
        lambda x: x.bernoulli_(0.3),
    ],
    ids=["normal", "uniform", "random", "bernoulli"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_numbers_depend_on_seed_and_shape_only(device, fill, dtype):
    with torch.opencl.device(device):
        torch.manual_seed(7)
        dense = fill(torch.empty(13, 17, device=device, dtype=dtype))
        torch.manual_seed(7)
        strided = torch.full((17, 26), float("nan"), device=device, dtype=dtype)
        view = fill(strided[:, ::2].t())
        assert torch.equal(dense.cpu(), view.cpu())
        assert strided[:, 1::2].isnan().all().item()
        assert not torch.equal(dense.cpu(), fill(dense.clone()).cpu())


@pytest.mark.parametrize(
    ("fill", "distribution"),
    [
        (lambda x: x.uniform_(-2, 3), stats.uniform(-2, 5)),
        (lambda x: x.normal_(1, 2), stats.norm(1, 2)),
        (lambda x: x.exponential_(0.5), stats.expon(scale=2)),
        (lambda x: x.log_normal_(0.1, 0.4), stats.lognorm(0.4, scale=2.718281828**0.1)),
    ],
    ids=["uniform", "normal", "exponential", "log_normal"],
)
def test_distribution(device, fill, distribution):
    torch.manual_seed(11)
    x = fill(torch.full((COUNT,), float("nan"), device=device))
    assert stats.kstest(x.cpu().double().numpy(), distribution.cdf).pvalue > 1e-4


def test_cauchy(device):
    """Apart from the others, of which a simulator runs one: it has a kernel of its own."""
    test_distribution(device, lambda x: x.cauchy_(1, 2), stats.cauchy(1, 2))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16]
)
def test_uniform_excludes_its_end(device, dtype):
    if (
        dtype is torch.float64
        and not torch.opencl.get_device_properties(device).has_fp64
    ):
        pytest.skip("no float64")
    torch.manual_seed(3)
    x = torch.empty(COUNT, device=device, dtype=dtype)
    for low, high in ((0, 1), (1, 1.125), (-3, 5)):
        values = x.uniform_(low, high).cpu()
        assert values.min() >= low and values.max() < high
    assert torch.equal(x.uniform_(2, 2).cpu(), torch.full_like(x, 2).cpu())


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.uint8, torch.float32, torch.bool]
)
def test_random_range(device, dtype):
    torch.manual_seed(5)
    high = 2 if dtype is torch.bool else 10
    x = torch.empty(COUNT, device=device, dtype=dtype).random_(0, high)
    counts = torch.bincount(x.cpu().long(), minlength=high)
    assert len(counts) == high and counts.min() > 0.8 * COUNT / high
    whole = torch.empty(COUNT, device=device, dtype=dtype).random_().cpu()
    assert whole.double().min() >= 0 and len(whole.unique()) > 1


def test_geometric_and_bernoulli(device):
    torch.manual_seed(2)
    x = torch.empty(COUNT, device=device)
    trials = x.geometric_(0.25).cpu()
    assert trials.min() >= 1 and abs(trials.mean().item() - 4) < 0.2
    p = torch.tensor([0.0, 0.2, 1.0], device=device).expand(COUNT, 3)
    hits = torch.bernoulli(p).cpu().mean(0)
    assert hits[0] == 0 and hits[2] == 1 and abs(hits[1].item() - 0.2) < 0.02


@pytest.mark.parametrize("n", [0, 1, 2, 1009])
def test_randperm(device, n):
    torch.manual_seed(4)
    first = torch.randperm(n, device=device)
    assert first.device == device
    assert first.cpu().sort().values.tolist() == list(range(n))
    torch.manual_seed(4)
    assert torch.equal(first.cpu(), torch.randperm(n, device=device).cpu())


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout(device, p):
    torch.manual_seed(6)
    x = torch.ones(COUNT, device=device, requires_grad=True)
    y = torch.nn.functional.dropout(x, p)
    y.backward(torch.full_like(y, 2))
    kept = y.detach().cpu()
    share = (kept != 0).double().mean().item()
    assert abs(share - (1 - p)) < 0.02
    if p < 1:
        assert torch.equal(
            kept[kept != 0], torch.full_like(kept[kept != 0], 1 / (1 - p))
        )
    assert torch.equal(x.grad.cpu(), 2 * kept)
    assert torch.equal(torch.nn.functional.dropout(x, p, training=False).cpu(), x.cpu())


def test_errors(device):
    x = torch.empty(3, device=device)
    with pytest.raises(RuntimeError, match="uniform_ expects to return a"):
        x.uniform_(2, 1)
    with pytest.raises(RuntimeError, match="normal expects std >= 0"):
        x.normal_(0, -1)
    with pytest.raises(
        RuntimeError, match="random_ expects 'from' to be less than 'to'"
    ):
        x.random_(5, 5)
    with pytest.raises(RuntimeError, match="bernoulli_ expects p to be in"):
        x.bernoulli_(1.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rrelu(device, dtype):
    torch.manual_seed(5)
    lower, upper = 0.125, 0.375
    x = torch.randn(67, 101, device=device, dtype=dtype).t().requires_grad_()
    noise = torch.empty_like(x)
    y = torch.ops.aten.rrelu_with_noise(x, noise, lower, upper, True)
    y.sum().backward()
    x, y, noise, slopes = (z.detach().cpu() for z in (x, y, noise, x.grad))
    is_negative = x <= 0
    assert torch.equal(y, torch.where(is_negative, x * noise, x))
    assert torch.equal(slopes, noise)
    assert (noise[~is_negative] == 1).all()
    drawn = noise[is_negative].float()
    assert drawn.min() >= lower
    assert drawn.max() <= upper
    uniform = stats.uniform(lower, upper - lower)
    if dtype == torch.float32:
        assert stats.kstest(drawn.numpy(), uniform.cdf).pvalue > 1e-4
    assert abs(drawn.mean() - 0.25) < 0.01


def test_rrelu_in_evaluation_and_in_place(device):
    x = torch.randn(7, 5)
    expected = torch.rrelu(x, 0.1, 0.3)
    torch.testing.assert_close(torch.rrelu(x.to(device), 0.1, 0.3).cpu(), expected)
    y = x.to(device)
    assert torch.rrelu_(y, 0.1, 0.3, True) is y
    assert torch.equal((y.cpu() < 0), (x < 0))
    assert torch.equal(y.cpu()[x > 0], x[x > 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(device, replacement, dtype):
    torch.manual_seed(3)
    weights = torch.tensor([0.0, 1, 0, 3, 4, 0], dtype=dtype, device=device)
    rows = weights.expand(2000, 6)
    drawn = torch.multinomial(rows, 3, replacement).cpu()
    assert drawn.dtype == torch.int64
    assert drawn.shape == (2000, 3)
    counts = drawn[:, 0].bincount(minlength=6)
    assert counts[weights.cpu() == 0].sum() == 0
    expected = [250.0, 750.0, 1000.0]
    assert stats.chisquare(counts[[1, 3, 4]].numpy(), expected).pvalue > 1e-4
    if replacement:
        counts = drawn.flatten().bincount(minlength=6)[[1, 3, 4]].numpy()
        assert stats.chisquare(counts, [750.0, 2250.0, 3000.0]).pvalue > 1e-4
    else:
        assert torch.equal(drawn.sort(1).values, torch.tensor([[1, 3, 4]] * 2000))


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(
    ("weights", "count"),
    [
        ([1.0, -1.0], 2),
        ([1.0, float("inf")], 2),
        ([0.0, 0.0], 2),
        ([1.0, 2.0], 0),
        ([[1.0, 2.0], [0.0, 0.0]], 2),
        ([[[1.0]]], 1),
        ([1, 2], 1),
        ([1.0], 2),
    ],
)
def test_multinomial_errors_are_the_cpus(device, weights, count, replacement):
    weights = torch.tensor(weights)
    try:
        torch.multinomial(weights, count, replacement)
    except Exception as expected:
        with pytest.raises(type(expected)) as raised:
            torch.multinomial(weights.to(device), count, replacement)
        assert str(raised.value) == str(expected)
    else:
        torch.multinomial(weights.to(device), count, replacement)


def test_multinomial_across_devices(device):
    weights = torch.rand(3, 5)
    for given, place in ((weights.to(device), "cpu"), (weights, device)):
        for replacement in (False, True):
            out = torch.full((3, 2), 7, device=place)
            with pytest.raises(RuntimeError) as raised:
                torch.multinomial(given, 2, replacement, out=out)
            assert (
                str(raised.value) == "multinomial arguments must have the same device"
            )
            assert torch.equal(out.cpu(), torch.full((3, 2), 7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_exponential_is_never_zero(device, dtype):
    """Three of so many draws are of the smallest uniform number."""
    x = torch.empty(50_000_000, device=device, dtype=dtype).exponential_()
    assert x.min() > 0


@pytest.mark.parametrize(
    "weights",
    [
        [3e38, 3e38],
        [3e38, 0, 3e38, 0],
        [1e-45, 0, 1e-45, 0],
        [[3e38, 3e38], [1e-40, 0]],
    ],
)
def test_multinomial_of_extreme_weights(device, weights):
    weights = torch.tensor(weights)
    drawn = torch.multinomial(weights.to(device), 200, replacement=True).cpu()
    assert (weights.gather(-1, drawn) > 0).all()
    assert len(drawn.reshape(-1, 200)[0].unique()) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool])
def test_bernoulli_of_a_small_probability(device, dtype):
    torch.manual_seed(4)
    x = torch.empty(2**24, dtype=dtype, device=device)
    for draw in (x.bernoulli_, lambda p: x.bernoulli_(torch.tensor(p, device=device))):
        assert abs(draw(1e-3).count_nonzero().item() - 16_777) < 700
        hits = sum(draw(1e-8).count_nonzero().item() for _ in range(16))
        assert hits < 10  # of 2.7 expected; 16, were it rounded up to 2^-24


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_log_normal_is_rounded_once(device, dtype):
    draw = torch.empty(100_000, dtype=dtype, device=device).log_normal_(8, 0.1)
    expected = torch.empty(100_000, dtype=dtype).log_normal_(8, 0.1)
    assert len(draw.cpu().unique()) > 0.8 * len(expected.unique())
