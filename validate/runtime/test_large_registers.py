"""Kernels with many sums ask Intel's compiler for 256 registers, where it has them."""

from __future__ import annotations

import pytest
from script import recorded_commands

_OPTION = "-cl-intel-256-GRF-per-thread"

_PROGRAM = """
import torch
import torch.nn.functional as F

def ones(*size, dtype=torch.float32):
    return torch.ones(size, dtype=dtype, device="opencl")

ones(512, 1000) @ ones(1000, 512)
query = ones(2, 4, 300, 64).requires_grad_()
F.scaled_dot_product_attention(query, query, query).sum().backward()
F.conv2d(ones(4, 64, 31, 31), ones(64, 64, 3, 3), stride=2)
torch.opencl.synchronize()
"""


def _version(major: int, minor: int) -> str:
    return str(major << 22 | minor << 14)


@pytest.mark.parametrize(
    ("version", "has_them"),
    [
        ("0", False),
        (_version(12, 0), False),  # Xe-LP: Iris Xe
        (_version(12, 55), True),  # Xe-HPG: Arc A
        (_version(20, 1), True),  # Xe2: Arc B
    ],
)
def test_who_asks(tmp_path, version, has_them):
    records = recorded_commands(
        _PROGRAM,
        tmp_path,
        RECORDER_VENDOR="Intel(R) Corporation",
        RECORDER_INTEL_VERSION=version,
    )
    options = {name: [] for name in ("product_gpu", "attention_gpu", "range", "others")}
    for record in records:
        if text := record.get("text"):
            names = [name for name in options if f'#line 1 "{name}.cl"' in text]
            options[(*names, "others")[0]].append(_OPTION in record["options"])
    assert options["range"] == [True] * has_them  # what the option is tried with
    # Of the matrices with 32 sums an item, and of the image.
    assert sorted(options["product_gpu"]) == [False, has_them]
    # Forward, and gradients.
    assert set(options["attention_gpu"]) == {False, has_them}
    assert options["others"]
    assert not any(options["others"])
