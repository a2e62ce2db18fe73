"""Connectionist temporal classification, its gradient and its errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import check, contiguous, move, offset, strided, transposed

STEPS, BATCH, LABELS = 12, 4, 6
INPUT_LENGTHS = (12, 9, 12, 5)
TARGET_LENGTHS = (5, 0, 1, 2)
# the first with labels twice in a row
PADDED = torch.tensor(
    [[1, 1, 3, 2, 2], [0, 0, 0, 0, 0], [5, 0, 0, 0, 0], [2, 4, 0, 0, 0]]
)
CONCATENATED = torch.tensor([1, 1, 3, 2, 2, 5, 2, 4])


def _loss(log_probs, targets, **options):
    return F.ctc_loss(log_probs, targets, INPUT_LENGTHS, TARGET_LENGTHS, **options)


def _log_probs(*size):
    return torch.randn(size).log_softmax(-1)


@pytest.mark.parametrize("layout", [contiguous, transposed, strided, offset])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_layouts(device, reduction, layout):
    for targets in (PADDED, CONCATENATED, strided(PADDED)):
        check(
            lambda x, t: _loss(x, t, reduction=reduction),
            [layout(_log_probs(STEPS, BATCH, LABELS)), targets],
            device,
        )


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes(device, dtype, integers):
    check(
        _loss,
        [_log_probs(STEPS, BATCH, LABELS), PADDED.to(integers)],
        device,
        dtype,
    )


def test_gradient_from_logits(device):
    check(
        lambda x, t: _loss(x.log_softmax(-1), t),
        [torch.randn(STEPS, BATCH, LABELS), PADDED],
        device,
    )


def test_blank_of_another_number(device):
    targets = PADDED.clone()
    targets[targets == 5] = 0
    check(
        lambda x, t: _loss(x, t, blank=5),
        [_log_probs(STEPS, BATCH, LABELS), targets],
        device,
    )


@pytest.mark.parametrize("lengths", [(200, 70), (71, 1), (1, 1), (64, 32)])
def test_sizes(device, lengths):
    # Around the states that a work-group takes at once.
    steps, count = lengths
    targets = torch.randint(1, 20, (2, count))
    check(
        lambda x, t: F.ctc_loss(x, t, (steps, steps), (count, count // 2)),
        [_log_probs(steps, 2, 20), targets],
        device,
    )


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_no_path(device, zero_infinity):
    # Five labels, two of them twice in a row, do not fit into five steps.
    check(
        lambda x, t: F.ctc_loss(
            x, t, (5, 0), (5, 0), reduction="none", zero_infinity=zero_infinity
        ),
        [_log_probs(5, 2, LABELS), PADDED[:2]],
        device,
    )


def test_one_sample(device):
    check(
        lambda x, t: F.ctc_loss(x, t, torch.tensor(7), torch.tensor(3)),
        [_log_probs(7, LABELS), torch.tensor([1, 2, 2])],
        device,
    )


def test_strided_concatenated_targets(device):
    # The CPU reads beyond the end of such targets.
    log_probs = _log_probs(STEPS, BATCH, LABELS)
    result = _loss(log_probs.to(device), move(strided(CONCATENATED), device))
    torch.testing.assert_close(result.cpu(), _loss(log_probs, CONCATENATED))


def test_lengths_on_the_device(device):
    log_probs = _log_probs(STEPS, BATCH, LABELS)
    expected = _loss(log_probs, PADDED)
    result = F.ctc_loss(
        log_probs.to(device),
        PADDED.to(device),
        torch.tensor(INPUT_LENGTHS, device=device),
        torch.tensor(TARGET_LENGTHS, device=device),
    )
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, t: F.ctc_loss(x[:0], t, INPUT_LENGTHS, TARGET_LENGTHS),
        lambda x, t: F.ctc_loss(x, t, INPUT_LENGTHS, TARGET_LENGTHS, blank=LABELS),
        lambda x, t: F.ctc_loss(x, t, INPUT_LENGTHS[:3], TARGET_LENGTHS),
        lambda x, t: F.ctc_loss(x, t, INPUT_LENGTHS, TARGET_LENGTHS[:3]),
        lambda x, t: F.ctc_loss(x, t, INPUT_LENGTHS, (-1, 0, 0, 0)),
        lambda x, t: F.ctc_loss(x, t, INPUT_LENGTHS, (6, 0, 0, 0)),
        lambda x, t: F.ctc_loss(x, t[:3], INPUT_LENGTHS, TARGET_LENGTHS),
        lambda x, t: F.ctc_loss(x, t[0], INPUT_LENGTHS, TARGET_LENGTHS),
        lambda x, t: F.ctc_loss(x, t, (13, 1, 1, 1), TARGET_LENGTHS),
        lambda x, t: F.ctc_loss(x, t, (-1, 1, 1, 1), TARGET_LENGTHS),
        lambda x, t: F.ctc_loss(x.half(), t, INPUT_LENGTHS, TARGET_LENGTHS),
        lambda x, t: F.ctc_loss(
            x, t, torch.ones(4, device=x.device), torch.ones(4, device=x.device)
        ),
    ],
)
def test_errors_are_the_cpus(device, call):
    tensors = _log_probs(STEPS, BATCH, LABELS), PADDED
    with pytest.raises(Exception) as expected:
        call(*tensors)
    with pytest.raises(type(expected.value)) as raised:
        call(*(x.to(device) for x in tensors))
    texts = [
        str(x.value)
        .replace("CPU", "")
        .replace("opencl", "")
        .replace("torch.FloatTensor", "FloatType")
        for x in (raised, expected)
    ]
    assert texts[0] == texts[1]
