"""Fourier transforms on the device against the CPU, with gradients, and none of them
by the CPU."""

from __future__ import annotations

import locale

import pytest
import torch
from against_cpu import check

_LENGTHS = (1, 2, 3, 8, 15, 16, 17, 31, 64, 97, 100, 128, 251, 1009, 1024)
_NORMS = ("backward", "ortho", "forward")
_DTYPES = (torch.float32, torch.float64)

pytestmark = pytest.mark.usefixtures("without_fallbacks")


def _parts(*sizes):
    return torch.randn(*sizes, 2)


def _complex(x):
    return torch.view_as_complex(x.contiguous())


def _real(z):
    return torch.view_as_real(z.resolve_conj())


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("length", _LENGTHS)
def test_complex_lengths(device, length, dtype):
    def transform(x):
        z = _complex(x)
        return _real(torch.fft.fft(z)), _real(torch.fft.ifft(z))

    check(transform, [_parts(3, length)], device, dtype, strides=True)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("length", _LENGTHS)
def test_real_lengths(device, length, dtype):
    def transform(x):
        half = torch.fft.rfft(x)
        return _real(half), torch.fft.irfft(half * 2, n=x.shape[-1])

    check(transform, [torch.randn(4, length)], device, dtype)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("length", [4, 63, 64, 4096])
def test_a_signal_does_not_change_its_neighbours(device, length, dim):
    """Neither the digits of a quiet one beside a loud one, nor a number beside NaN."""
    x = torch.randn(6, length)
    x[::2] *= 1e6
    z = torch.fft.rfft(x.double()).to(torch.complex64)
    z[:, 0].imag.zero_()

    def spectra(x, z):
        x, z = (x, z) if dim else (x.T, z.T)
        found = torch.fft.rfft(x, dim=dim), torch.fft.irfft(z, n=length, dim=dim)
        return [spectrum if dim else spectrum.T for spectrum in found]

    for mine, expected in zip(
        spectra(x.to(device), z.to(device)),
        spectra(x.double(), z.cdouble()),
        strict=True,
    ):
        apart = torch.linalg.vector_norm(mine.cpu() - expected, dim=1)
        assert (apart < 1e-6 * torch.linalg.vector_norm(expected, dim=1)).all()
    x[1, 2], z[4, 1] = torch.nan, torch.nan
    for mine, expected in zip(
        spectra(x.to(device), z.to(device)), spectra(x, z), strict=True
    ):
        assert torch.equal(mine.cpu().isnan().any(1), expected.isnan().any(1))


@pytest.mark.parametrize("norm", _NORMS)
def test_normalisations(device, norm):
    def transform(x):
        z = torch.fft.rfft2(x, norm=norm)
        y = torch.fft.fft(x, dim=0, norm=norm)
        return (
            _real(z),
            torch.fft.irfft2(z, norm=norm),
            _real(torch.fft.ifft(y, norm=norm)),
            torch.fft.hfft(z, norm=norm),
            _real(torch.fft.ihfft(x, norm=norm)),
        )

    check(transform, [torch.randn(6, 8)], device)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2), (2, 0), (1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("sizes", [(4, 6, 5, 8), (3, 1, 17, 2), (2, 7, 1, 9)])
def test_dimensions(device, dims, sizes):
    def transform(x):
        z = torch.fft.rfftn(x, dim=dims)
        y = torch.fft.fftn(x, dim=dims)
        return (
            _real(z),
            _real(y),
            _real(torch.fft.ifftn(z, dim=dims)),
            torch.fft.irfftn(y, dim=dims, s=[x.shape[d] for d in dims]),
        )

    check(transform, [torch.randn(sizes)], device)
    check(transform, [torch.randn(sizes[::-1]).permute(3, 2, 1, 0)], device)


def test_layouts(device):
    def transform(x):
        z = torch.fft.rfft2(x[:, 1:, ::2])
        y = torch.fft.fft(x.mT.expand(3, 4, 10, 7), dim=2)
        return _real(z), _real(y), torch.fft.irfft(y.conj(), dim=1)

    check(transform, [torch.randn(4, 7, 10)], device)


def test_sizes_cut_and_pad(device):
    def transform(x):
        return (
            _real(torch.fft.rfft(x, n=20)),
            _real(torch.fft.fft(x, n=5)),
            torch.fft.irfft(torch.fft.rfft(x), n=9),
            _real(torch.fft.fft2(x, s=(3, 16))),
        )

    check(transform, [torch.randn(4, 11)], device)


def test_out(device):
    x = torch.randn(3, 10)
    for function, dtype in (
        (torch.fft.fft, torch.complex64),
        (torch.fft.rfft, torch.complex64),
        (torch.fft.ifft, torch.complex64),
    ):
        out = torch.empty(0, dtype=dtype, device=device)
        function(x.to(device), out=out)
        torch.testing.assert_close(out.cpu(), function(x))
    z = torch.fft.rfft(x)
    out = torch.empty(10, 3, device=device).t()
    torch.fft.irfft(z.to(device), out=out)
    torch.testing.assert_close(out.cpu(), x)


@pytest.mark.parametrize("last", [7, 8, 17])
def test_spectra_of_no_real_signal(device, last):
    """Imaginary parts of the lowest and highest frequency do not count."""

    def transform(x):
        z = _complex(x)
        return torch.fft.irfft2(z, s=(6, last)), torch.fft.irfft(z, n=last)

    check(transform, [_parts(2, 6, last // 2 + 1)], device)


def test_empty_batches(device):
    x = torch.empty(0, 8, device=device)
    assert torch.fft.rfft(x).shape == (0, 5)
    assert torch.fft.fft(x).shape == (0, 8)
    assert torch.fft.irfft(torch.fft.rfft(x)).shape == (0, 8)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("length", [16, 20])
def test_stft(device, length, center):
    window = torch.hann_window(length)

    def transform(x, window):
        z = torch.stft(x, length, 5, window=window, center=center, return_complex=True)
        return _real(z)

    check(transform, [torch.randn(2, 70), window], device)


def test_istft(device):
    def transform(x, window):
        z = torch.stft(x, 16, 4, window=window, return_complex=True)
        return torch.istft(z * 2, 16, 4, window=window, length=x.shape[-1])

    check(transform, [torch.randn(2, 61), torch.hann_window(16)], device)


def test_convolution_by_transforms(device):
    def convolve(x, y):
        size = x.shape[-1] + y.shape[-1] - 1
        product = torch.fft.rfft(x, n=size) * torch.fft.rfft(y, n=size)
        return torch.fft.irfft(product, n=size)

    check(convolve, [torch.randn(3, 40), torch.randn(3, 17)], device)


def test_shifts_and_frequencies(device):
    x = torch.randn(5, 6, dtype=torch.complex64)
    for function in (torch.fft.fftshift, torch.fft.ifftshift):
        assert torch.equal(function(x.to(device)).cpu(), function(x))
    assert torch.equal(
        torch.fft.rfftfreq(9, device=device).cpu(), torch.fft.rfftfreq(9)
    )


@pytest.mark.slow  # a program for each of the plans is built
def test_plans_are_bounded(device):
    """More problems than plans are kept, and the first once more."""
    for batch in (*range(1, 140), 1):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(torch.fft.fft(x.to(device)).cpu(), torch.fft.fft(x))


def test_streams_do_not_share_temporaries(device):
    x = torch.randn(4, 96).to(device)
    expected = torch.fft.fft(x).cpu()
    streams = [torch.Stream(device) for _ in range(2)]
    results = []
    torch.opencl.synchronize(device)
    for stream in streams:
        with stream:
            results += [torch.fft.fft(x) for _ in range(3)]
    torch.opencl.synchronize(device)
    for result in results:
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.fft.fft(x, n=0),
        lambda x: torch.fft.fft(x, dim=4),
        lambda x: torch.fft.fftn(x, dim=(0, 0)),
        lambda x: torch.fft.rfft(torch.fft.fft(x)),
        lambda x: torch.fft.fft(x, norm="none"),
        lambda x: torch.fft.fft(x.half()),
    ],
)
def test_errors_are_torchs(device, call):
    x = torch.randn(3, 4)
    with pytest.raises(Exception) as expected:
        call(x)
    with pytest.raises(expected.type) as raised:
        call(x.to(device))
    assert str(raised.value).split("\n")[0] == str(expected.value).split("\n")[0]


def test_a_half_spectrum_of_another_size(device):
    x = torch.ones(2, 4, dtype=torch.complex64, device=device)
    for size in (0, 4, 5, 8):
        with pytest.raises(RuntimeError, match="elements along the last dimension"):
            torch.ops.aten._fft_c2r(x, [1], 0, size)
    for size in (6, 7):
        assert torch.ops.aten._fft_c2r(x, [1], 0, size).shape == (2, size)


# Lines of several passes over memory, and half spectra whose lines are no product of
# small primes: (2, 2046) and (3, 90000) have 1024 and 45001 elements in a line.
@pytest.mark.parametrize(
    "shape", [(2, 90000), (2, 131072), (3, 2048), (5, 4, 2046), (2, 1, 3, 2, 32)]
)
def test_long_and_awkward_half_spectra(device, shape):
    x = torch.randn(shape)
    half = torch.fft.rfftn(x.double())
    result = torch.fft.irfftn(half.to(torch.complex64).to(device), s=shape)
    torch.testing.assert_close(result.cpu(), x, rtol=0, atol=5e-6)
    spectrum = torch.view_as_real(torch.fft.rfftn(x.to(device)).cpu()).double()
    distance = (spectrum - torch.view_as_real(half)).norm() / half.abs().norm()
    assert distance < 1e-6


# VkFFT sets the locale of the process while it writes its kernels.
def test_the_locale_stays(device):
    before = locale.setlocale(locale.LC_ALL)
    chosen = locale.setlocale(locale.LC_ALL, "C.UTF-8")
    try:
        torch.fft.fft(torch.randn(3, 1155).to(device))
        assert locale.setlocale(locale.LC_ALL) == chosen
    finally:
        locale.setlocale(locale.LC_ALL, before)
