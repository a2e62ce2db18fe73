"""torch.compile of code that names the device."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        weight = torch.full((4,), 2.0, device=device)
        if x.is_cuda:
            weight = weight.cuda()
        if x.device.type == device:
            weight = weight + torch.ones(4).to(torch.device(device))
        return self.linear(x) * weight


model = Net().to(device)
x = torch.randn(3, 4).to(device)
output = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
output.sum().backward()
results = {"output": output.detach().cpu(), "grad": model.linear.weight.grad.cpu()}
torch.save(results, sys.argv[1])
