"""What a soak run does over and over: training steps of changing shapes, threads,
streams, running out of memory. Each returns the step of one kind of work, a function
of the round's number, which raises where a result is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[int], None]

# Rounds in which every shape, an error for want of memory and an emptied cache come.
PERIOD = 8
_THREADS = 4


class WrongResult(AssertionError):
    pass


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise WrongResult(text)


def _train(
    name: str, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]
) -> None:
    optimizer.zero_grad()
    value = loss()
    value.backward()
    optimizer.step()
    _require(value.isfinite().item(), f"{name}: the loss is {value.item()}")


def _convolutional_network(device: torch.device) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=2),
        nn.BatchNorm2d(32),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    ).to(device)


def convolutions(device: torch.device) -> Step:
    network = _convolutional_network(device)
    optimizer = torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9)
    shapes = ((4, 32), (7, 24), (2, 48), (5, 31))

    def step(number: int) -> None:
        batch, size = shapes[number % len(shapes)]
        images = torch.randn(batch, 3, size, size).pin_memory()
        images = images.to(device, non_blocking=True)
        if number % 2:
            images = images.contiguous(memory_format=torch.channels_last)
        labels = torch.randint(10, (batch,)).to(device)
        _train(
            "convolutions",
            optimizer,
            lambda: F.cross_entropy(network(images), labels),
        )

    return step


def transformer(device: torch.device) -> Step:
    tokens = nn.Embedding(100, 64).to(device)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    head = nn.Linear(64, 100).to(device)
    network = nn.Sequential(tokens, layer.to(device), head)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-4)
    shapes = ((2, 40), (3, 17), (1, 96), (4, 33))

    def step(number: int) -> None:
        text = torch.randint(100, shapes[number % len(shapes)]).to(device)

        def loss() -> torch.Tensor:
            return F.cross_entropy(network(text).flatten(0, 1), text.flatten())

        _train("transformer", optimizer, loss)

    return step


def recurrent(device: torch.device) -> Step:
    network = nn.LSTM(16, 32, num_layers=2).to(device)
    optimizer = torch.optim.Adam(network.parameters(), 1e-4)
    shapes = ((12, 3), (5, 8), (20, 1), (9, 4))

    def step(number: int) -> None:
        steps, batch = shapes[number % len(shapes)]
        x = torch.randn(steps, batch, 16, device=device)
        _train("recurrent", optimizer, lambda: network(x)[0].square().mean())

    return step


def inference(device: torch.device) -> Step:
    """The same input gives the same bits, whatever went on in between."""
    network = _convolutional_network(device).eval()
    images = [torch.randn(2, 3, size, size, device=device) for size in (32, 45)]
    first: dict[int, torch.Tensor] = {}

    @torch.no_grad()
    def step(number: int) -> None:
        which = number % len(images)
        for _ in range(3):  # weights are packed and kept, from the second on
            result = network(images[which]).cpu()
        _require(
            torch.equal(result, first.setdefault(which, result)),
            "inference: the result differs from that of the first round",
        )

    return step


def pointwise(device: torch.device) -> Step:
    sizes = (1000, 70_001, 12_345, 300_000)

    def step(number: int) -> None:
        size = sizes[number % len(sizes)]
        x = torch.arange(size, device=device) % 1000
        y = (x * 3 - x).to(torch.float64)
        expected = 2 * sum(divmod(size, 1000)[0] * [499_500])
        expected += 2 * sum(range(size % 1000))
        _require(y.sum().item() == expected, f"pointwise: sum of {size} numbers")
        order = torch.randperm(size, device=device)
        _require(
            torch.equal(order.sort().values.cpu(), torch.arange(size)),
            f"pointwise: sorting {size} numbers",
        )

    return step


def streams(device: torch.device) -> Step:
    sizes = (5000, 260_000, 1_000_000, 77)

    def step(number: int) -> None:
        size = sizes[number % len(sizes)]
        main = torch.opencl.current_stream(device)
        others = [torch.opencl.Stream(device) for _ in range(2)]
        x = torch.full((size,), 2.0, device=device)
        results = []
        for index, stream in enumerate(others):
            stream.wait_stream(main)
            with torch.opencl.stream(stream):
                y = x
                for _ in range(5):
                    y = y * 2 + index
                results.append(y)
            x.record_stream(stream)
        del x
        for index, (stream, y) in enumerate(zip(others, results, strict=True)):
            main.wait_event(stream.record_event())
            expected = 64.0 + 31 * index
            extremes = torch.stack((y.min(), y.max())).tolist()
            _require(extremes == [expected] * 2, f"streams: {extremes}, not {expected}")

    return step


def threads(device: torch.device) -> Step:
    def work(number: int, index: int) -> None:
        with torch.opencl.stream(torch.opencl.Stream(device)):
            x = torch.full((1000 * (1 + number % 4),), float(index), device=device)
            weight = torch.ones(len(x), device=device, requires_grad=True)
            optimizer = torch.optim.Adam([weight], 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                (weight * x).sum().backward()
                optimizer.step()
            _require(
                weight.grad.sum().item() == index * len(x),
                f"threads: the gradient of thread {index}",
            )

    def step(number: int) -> None:
        errors: list[BaseException] = []

        def run(index: int) -> None:
            try:
                work(number, index)
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=run, args=(i,)) for i in range(_THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if errors:
            raise errors[0]

    return step


def out_of_memory(device: torch.device) -> Step:
    """Every fourth round, allocates until there is an error, and goes on."""
    total = torch.opencl.get_device_properties(device).total_memory

    def step(number: int) -> None:
        if number % 4 != 3:
            return
        limit = torch.opencl.memory_reserved(device) + (128 << 20)
        torch.opencl.set_per_process_memory_fraction(limit / total, device)
        held: list[torch.Tensor] = []
        try:
            while len(held) < 100:
                held.append(torch.ones(8 << 20, device=device))
            raise WrongResult("out_of_memory: 3 GiB of a limit of 128 MiB")
        except torch.OutOfMemoryError:
            held.clear()
        finally:
            torch.opencl.set_per_process_memory_fraction(1.0, device)
        _require(
            torch.ones(1000, device=device).sum().item() == 1000,
            "out_of_memory: a sum behind the error",
        )
        if number % 8 == 7:
            torch.opencl.empty_cache()

    return step


KINDS = {
    kind.__name__: kind
    for kind in (
        convolutions,
        transformer,
        recurrent,
        inference,
        pointwise,
        streams,
        threads,
        out_of_memory,
    )
}


def _leak_device_memory(device: torch.device) -> Step:
    held: list[torch.Tensor] = []
    return lambda number: held.append(torch.ones(100_000, device=device))


def _leak_host_memory(device: torch.device) -> Step:
    held: list[bytearray] = []
    return lambda number: held.append(bytearray(b"1") * (4 << 20))


def _build_programs(device: torch.device) -> Step:
    def step(number: int) -> None:
        source = f"kernel void soak_{number}(global float *x) {{ x[0] = {number}; }}"
        kernel = torch.opencl.compile_kernel(source, f"soak_{number}")
        kernel((1,), (1,), (torch.ones(1, device=device),))

    return step


def _slow_down(device: torch.device) -> Step:
    def step(number: int) -> None:
        for _ in range(5 * number**2):
            torch.ones(10, device=device).add_(1)

    return step


def _wrong_result(device: torch.device) -> Step:
    def step(number: int) -> None:
        _require(number < 3, "injected: a wrong result")

    return step


# Faults to make on purpose, to see that a run finds them.
FAULTS = {
    "device-leak": _leak_device_memory,
    "host-leak": _leak_host_memory,
    "programs": _build_programs,
    "slow": _slow_down,
    "wrong": _wrong_result,
}


def steps(names: Iterable[str], fault: str | None, device: torch.device) -> list[Step]:
    made = [KINDS[name](device) for name in names]
    return [*made, FAULTS[fault](device)] if fault else made
