"""Devices that compute with denormal float32 numbers as with 0: emulated by an option
of the compiler."""

from __future__ import annotations

import pytest
from script import run_script


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
def test_denormals_have_an_order(device, kernels):
    run_script(
        """
        torch.manual_seed(0)
        for columns in (5, 70, 5000):
            x = (torch.randperm(columns) - columns // 2) * 1e-42
            assert x.unique().numel() == columns
            y = x.to(DEVICE)
            for descending in (False, True):
                values, places = y.sort(descending=descending)
                expected = x.sort(descending=descending, stable=True)
                assert torch.equal(places.cpu(), expected[1]), columns
                assert torch.equal(values.cpu(), expected[0]), columns
            assert torch.equal(y.topk(3)[1].cpu(), x.topk(3)[1])
            for k in (1, 3):
                assert torch.equal(y.kthvalue(k)[1].cpu(), x.kthvalue(k)[1])
            assert torch.equal(y.median(0)[1].cpu(), x.median(0)[1])
        """,
        device=device,
        TORCH_OPENCL_BUILD_OPTIONS="-cl-denorms-are-zero",
        TORCH_OPENCL_DEVICE_CLASS=kernels,
    )
