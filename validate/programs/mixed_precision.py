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


x = torch.arange(3.0).to(device).requires_grad_()
Square.apply(x).sum().backward()
torch.save({"losses": torch.tensor(losses), "grad": x.grad.cpu()}, sys.argv[1])
