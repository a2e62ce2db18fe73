"""Saves and loads with each form of map_location, and in distributed checkpoints."""

import io
import sys
import tempfile
import warnings

import torch
from torch import nn
from torch.distributed import checkpoint

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
# With whether the result is on the CPU.
locations = [(None, False), ("cpu", True), (device, False), (str(device), False)]
if cuda:
    locations += [
        ("cuda", False),
        (torch.device("cuda"), False),
        ({"cuda:1": "cuda:0"}, False),
        ({"cuda:0": "cpu"}, True),
        ({"cuda:0": "cuda:0"}, False),
        (lambda storage, location: storage.cuda(0), False),
        (lambda storage, location: storage, True),
        (lambda storage, location: {"cuda:0": storage}.get(location), True),
        (lambda storage, location: None, False),
    ]
results = []
for location, on_cpu in locations:
    file.seek(0)
    loaded = torch.load(
        file, map_location=location, weights_only=not callable(location)
    )
    weight = loaded["model"]["weight"]
    assert weight.is_cuda == (cuda and not on_cpu), location
    other = nn.Linear(4, 3)
    other.load_state_dict(loaded["model"])
    if cuda:
        other.cuda()
    results.append(other(torch.ones(1, 4, device=device)).detach().cpu())
clone = torch.load(io.BytesIO(file.getvalue()), map_location=device, mmap=False)
optimizer.load_state_dict(clone["optimizer"])

warnings.simplefilter("ignore", UserWarning)  # no process group: one process saves
with tempfile.TemporaryDirectory() as directory:
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=directory)
    other = nn.Linear(4, 3).to(device)
    checkpoint.load({"model": other.state_dict()}, checkpoint_id=directory)
assert torch.equal(other.weight, model.weight)
torch.save({"results": torch.stack(results)}, sys.argv[1])
