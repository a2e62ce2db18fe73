"""Saves and loads with each form of map_location."""

import io
import sys

import torch
from torch import nn

torch.manual_seed(0)
cuda = torch.cuda.is_available()
device = torch.device("cuda", 0) if cuda else torch.device("cpu")
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 4, device=device)).sum().backward()
optimizer.step()
file = io.BytesIO()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
torch.save(state, file)
locations = [None, "cpu", device, str(device)]
if cuda:
    locations += [
        "cuda",
        {"cuda:1": "cuda:0"},
        lambda storage, location: storage.cuda(0),
    ]
results = []
for location in locations:
    file.seek(0)
    loaded = torch.load(
        file, map_location=location, weights_only=not callable(location)
    )
    weight = loaded["model"]["weight"]
    on_cpu = not cuda or location == "cpu"
    assert weight.is_cuda != on_cpu, location
    other = nn.Linear(4, 3)
    other.load_state_dict(loaded["model"])
    if cuda:
        other.cuda()
    results.append(other(torch.ones(1, 4, device=device)).detach().cpu())
clone = torch.load(io.BytesIO(file.getvalue()), map_location=device, mmap=False)
optimizer.load_state_dict(clone["optimizer"])
torch.save({"results": torch.stack(results)}, sys.argv[1])
