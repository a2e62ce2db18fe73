"""CUDA graphs: a captured step of training, callables, a pool that graphs share."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
has_cuda = torch.cuda.is_available()
device = "cuda" if has_cuda else "cpu"
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
static_x, static_y = torch.zeros(8, 6, device=device), torch.zeros(8, 3, device=device)
batches = [(torch.randn(8, 6), torch.randn(8, 3)) for _ in range(6)]


def step():
    loss = nn.functional.mse_loss(model(static_x), static_y)
    loss.backward()
    optimizer.step()
    return loss


for x, y in batches[:3]:
    static_x.copy_(x), static_y.copy_(y)
    if has_cuda:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            optimizer.zero_grad(set_to_none=True)
            warm = step()  # it lives during the capture, and with it this stream
        torch.cuda.current_stream().wait_stream(side)
    else:
        optimizer.zero_grad(set_to_none=True)
        step()
optimizer.zero_grad(set_to_none=True)
if has_cuda:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        loss = step()
    assert not torch.cuda.is_current_stream_capturing()
losses = []
for x, y in batches[3:]:
    static_x.copy_(x), static_y.copy_(y)
    if has_cuda:
        graph.replay()
    else:
        optimizer.zero_grad(set_to_none=True)
        loss = step()
    losses.append(loss.item())

layer = nn.Sequential(nn.Linear(6, 16), nn.GELU()).to(device)
if has_cuda:
    sample = torch.randn(8, 6, device=device, requires_grad=True)
    layer = torch.cuda.make_graphed_callables(layer, (sample,))
grads = []
for x, _ in batches:
    given = x.to(device).requires_grad_()
    layer(given).square().sum().backward()
    grads.append(given.grad.cpu())

ones = torch.ones(5, device=device)
if has_cuda:
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(first, pool=torch.cuda.graph_pool_handle()):
        more = ones + 1
    with torch.cuda.graph(second, pool=first.pool(), stream=torch.cuda.Stream()):
        result = more * 2
    first.replay(), second.replay()
    try:
        second.raw_cuda_graph()
    except NotImplementedError as error:
        assert "debug_dump" in str(error)
    second.reset()
else:
    result = (ones + 1) * 2
torch.save(
    {
        "losses": torch.tensor(losses),
        "grads": torch.stack(grads),
        "weight": model[0].weight.detach().cpu(),
        "result": result.cpu(),
    },
    sys.argv[1],
)
