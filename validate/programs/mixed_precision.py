"""Automatic mixed precision by each of the names it has had."""

import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore", FutureWarning)
torch.manual_seed(0)
device = "cuda:0" if torch.cuda.is_available() else "cpu"
kind = torch.device(device).type
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(device)
data, target = torch.randn(8, 16).to(device), torch.randn(8, 4).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
if kind == "cuda":
    contexts = [
        torch.cuda.amp.autocast(),
        torch.autocast("cuda", dtype=torch.float16),
        torch.amp.autocast(device_type=data.device.type, dtype=torch.float16),
    ]
    scalers = [
        torch.cuda.amp.GradScaler(init_scale=256.0),
        torch.amp.GradScaler("cuda", init_scale=256.0),
        torch.GradScaler(init_scale=256.0),
    ]
else:
    contexts = [torch.autocast("cpu", dtype=torch.bfloat16, enabled=False)] * 3
    scalers = [torch.amp.GradScaler("cpu", enabled=False)] * 3
losses = []
for context, scaler in zip(contexts, scalers, strict=True):
    optimizer.zero_grad(set_to_none=True)
    with context:
        output = model(data)
        loss = nn.functional.mse_loss(output, target)
    assert (output.dtype == torch.float16) == (kind == "cuda")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())


class Square(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Cast(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx, x):
        return x + 1

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return grad


@torch.library.custom_op("mixed_precision::plus_one", mutates_args=())
def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


if kind == "cuda":
    torch.library.register_autocast("mixed_precision::plus_one", "cuda", torch.float16)
    assert Cast.apply(data).dtype == plus_one(data).dtype == torch.float32
    with torch.autocast("cuda", dtype=torch.float16):
        assert Cast.apply(data).dtype == torch.float16
        assert torch.compile(Cast.apply, backend="eager")(data).dtype == torch.float16
        assert plus_one(data).dtype == torch.float16
        assert plus_one(data.double()).dtype == torch.float64

    # The forms without a device are of CUDA.
    assert not torch.is_autocast_enabled()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_gpu_dtype() == torch.bfloat16
        assert not torch.is_autocast_enabled("cpu")
        with torch.autocast("cuda", enabled=False):
            assert not torch.is_autocast_enabled()
    with torch.autocast("cpu"):
        assert not torch.is_autocast_enabled()
    torch.set_autocast_enabled(True)
    torch.set_autocast_gpu_dtype(torch.bfloat16)
    assert (data @ data.mT).dtype == torch.bfloat16
    torch.set_autocast_gpu_dtype(torch.float16)
    assert (data @ data.mT).dtype == torch.float16
    torch.set_autocast_enabled(False)
    assert (data @ data.mT).dtype == torch.float32

x = torch.arange(3.0).to(device).requires_grad_()
Square.apply(x).sum().backward()
torch.save({"losses": torch.tensor(losses), "grad": x.grad.cpu()}, sys.argv[1])
