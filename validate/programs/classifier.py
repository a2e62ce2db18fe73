"""Trains a classifier, as PyTorch's tutorials do."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
use_cuda = device.type == "cuda"
if use_cuda:
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.cuda.manual_seed_all(0)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4 * 4 * 4, 3)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.linear(x.flatten(1)) * self.scale


images, labels = torch.randn(48, 1, 8, 8), torch.randint(0, 3, (48,))
workers = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
loader = DataLoader(TensorDataset(images, labels), batch_size=16, **workers)
model = Net()
if use_cuda:
    model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for _ in range(2):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        assert x.is_cuda == use_cuda
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
if use_cuda:
    torch.cuda.synchronize()
model.eval()
with torch.no_grad():
    output = model(images.to(device))
torch.save({"losses": torch.tensor(losses), "output": output.cpu()}, sys.argv[1])
