"""Every operation of torch.distributed, against gloo on CPU tensors."""

from __future__ import annotations

import datetime
import os
import time
import warnings

import pyopencl
import torch
import torch.distributed as dist
import torch_opencl
from jobs import check, run_checks

DEVICE = torch.device(os.environ["DEVICE"])
CPU = torch.device("cpu")
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]
OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]


def tensor(device, *shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    values = torch.randint(-3, 4, shape, generator=generator)
    return values.to(dtype).to(device)


def outcome(function, device):
    """The results in host memory, or the error."""
    try:
        return [result.cpu() for result in function(device)]
    except (RuntimeError, ValueError, TypeError) as error:
        return [type(error), str(error).split("\n")[0].replace(str(device), "cpu")]


def compare(function) -> None:
    expected, actual = outcome(function, CPU), outcome(function, DEVICE)
    assert len(expected) == len(actual), (expected, actual)
    for one, other in zip(expected, actual, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            assert one.dtype == other.dtype
            torch.testing.assert_close(other, one, rtol=0, atol=0)
        else:
            assert one == other, (expected, actual)


@check
def all_reduce() -> None:
    for dtype in DTYPES:
        for op in OPS:

            def reduced(device, dtype=dtype, op=op):
                x = tensor(device, 5, 7, dtype=dtype)
                dist.all_reduce(x, getattr(dist.ReduceOp, op))
                return [x]

            compare(reduced)


@check
def layouts() -> None:
    world = dist.get_world_size()
    for shape in [(0,), (1,), (), (3, 4), (100003,)]:

        def reduced(device, shape=shape):
            x = tensor(device, *shape)
            dist.all_reduce(x)
            return [x]

        compare(reduced)

    # gloo reads strided CPU tensors as they are in memory; these are right.
    for view in (lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 1:]):
        x = view(tensor(DEVICE, 6, 8))
        expected = x.cpu().contiguous()
        dist.all_reduce(expected)
        dist.all_reduce(x)
        assert torch.equal(x.cpu(), expected)
        gathered = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(gathered, x)
        assert torch.equal(gathered[0].cpu(), expected)
    base = torch.zeros(4, 6, device=DEVICE)
    column = base[:, 2]
    dist.broadcast(column.copy_(tensor(DEVICE, 4)), 0)
    assert base.cpu().count_nonzero() == column.cpu().count_nonzero()
    compare(lambda device: [broadcast_one(device, torch.complex64)])
    compare(lambda device: [broadcast_one(device, torch.bool)])


def broadcast_one(device, dtype):
    x = tensor(device, 3, 5, dtype=dtype)
    dist.broadcast(x, dist.get_world_size() - 1)
    return x


@check
def rooted() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for root in range(world):

        def all_rooted(device, root=root):
            x, y = tensor(device, 4, 3), tensor(device, 5, seed=1)
            dist.broadcast(x, root)
            dist.reduce(y, root, op=dist.ReduceOp.MAX)
            gathered = scattered = None
            if rank == root:
                gathered = [torch.zeros(4, 3, device=device) for _ in range(world)]
                scattered = [tensor(device, 6, seed=r) for r in range(world)]
            dist.gather(x + rank, gathered, dst=root)
            part = torch.zeros(6, device=device)
            dist.scatter(part, scattered, src=root)
            # What reduce leaves elsewhere is not defined.
            return [x, part, *([y, *gathered] if rank == root else [])]

        compare(all_rooted)


@check
def gathering() -> None:
    world = dist.get_world_size()
    for dtype in DTYPES:

        def gathered(device, dtype=dtype):
            x = tensor(device, 2, 3, dtype=dtype)
            parts = [torch.empty_like(x) for _ in range(world)]
            dist.all_gather(parts, x)
            whole = torch.empty(2 * world, 3, dtype=dtype, device=device)
            dist.all_gather_into_tensor(whole, x)
            return [*parts, whole]

        compare(gathered)


@check
def reduce_scatter() -> None:
    world = dist.get_world_size()
    for op in ("SUM", "AVG", "MAX"):

        def scattered(device, op=op):
            op = getattr(dist.ReduceOp, op)
            part, other = torch.zeros(3, device=device), torch.zeros(3, device=device)
            whole = tensor(device, 3 * world)
            dist.reduce_scatter_tensor(part, whole, op)
            dist.reduce_scatter(other, list(whole.chunk(world)), op)
            return [part, other]

        compare(scattered)


@check
def all_to_all() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()

    def exchanged(device):
        x = tensor(device, 2 * world, 3)
        single = torch.empty_like(x)
        dist.all_to_all_single(single, x)
        # To rank r go r + 1 rows.
        rows = tensor(device, sum(range(1, world + 1)), 2, seed=1)
        received = torch.empty(world * (rank + 1), 2, device=device)
        dist.all_to_all_single(
            received, rows, [rank + 1] * world, list(range(1, world + 1))
        )
        parts = [torch.empty(2, 3, device=device) for _ in range(world)]
        dist.all_to_all(parts, list(x.chunk(world)))
        return [single, received, *parts]

    compare(exchanged)


@check
def coalesced() -> None:
    world = dist.get_world_size()
    group = dist.group.WORLD

    def together(device):
        tensors = [tensor(device, n, seed=n) for n in (3, 5, 8)]
        wholes = [torch.empty(n * world, device=device) for n in (3, 5, 8)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.all_reduce_coalesced(tensors)
        group.allgather_into_tensor_coalesced(wholes, tensors).wait()
        parts = [torch.empty(n, device=device) for n in (3, 5, 8)]
        group.reduce_scatter_tensor_coalesced(parts, wholes).wait()
        return [*tensors, *wholes, *parts]

    compare(together)
    x, y = tensor(DEVICE, 4), tensor(DEVICE, 5, seed=2)
    expected = [x.cpu(), y.cpu()]
    for each in expected:
        dist.all_reduce(each)
    with dist._coalescing_manager(device=DEVICE, async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    manager.wait()
    assert torch.equal(x.cpu(), expected[0]) and torch.equal(y.cpu(), expected[1])


@check
def point_to_point() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % world, (rank - 1) % world

    def passed_on(device):
        received = [torch.zeros(4, device=device) for _ in range(3)]
        if rank % 2 == 0:
            dist.send(tensor(device, 4), following)
            dist.recv(received[0], previous)
        else:
            dist.recv(received[0], previous)
            dist.send(tensor(device, 4), following)
        requests = [
            dist.P2POp(dist.isend, tensor(device, 4, seed=1), following),
            dist.P2POp(dist.irecv, received[1], previous),
        ]
        for work in dist.batch_isend_irecv(requests):
            work.wait()
        work = dist.isend(tensor(device, 4, seed=2), following, tag=7)
        if world == 2:
            assert dist.recv(received[2], tag=7) == previous  # from anybody
        else:
            dist.recv(received[2], previous, tag=7)
        work.wait()
        return received

    compare(passed_on)


@check
def a_later_operation_may_come_first() -> None:
    """A receive whose sender first wants a collective of everybody."""
    rank = dist.get_rank()
    x = torch.zeros(4, device=DEVICE)
    work = dist.irecv(x, 1, tag=3) if rank == 0 else None
    total = torch.ones(2, device=DEVICE)
    dist.all_reduce(total)
    if rank == 1:
        dist.send(torch.full((4,), 5.0, device=DEVICE), 0, tag=3)
    if work is not None:
        work.wait()
        assert x.cpu().tolist() == [5.0] * 4
    assert total.cpu().tolist() == [float(dist.get_world_size())] * 2


@check
def asynchronous() -> None:
    world = dist.get_world_size()
    works = []
    for n in range(20):  # freed, and its memory written, while it travels
        x = torch.full((50000,), float(n), device=DEVICE)
        works.append((n, dist.all_reduce(x, async_op=True)))
        del x
        torch.full((50000,), -1.0, device=DEVICE)
    for n, work in reversed(works):
        assert work.wait()
        while not work.is_completed():
            time.sleep(0.001)
        assert work.is_success()
        assert (work.result()[0] == n * world).all().item()

    x = torch.ones(1000, device=DEVICE)
    for _ in range(10):  # kernels and operations take turns
        x.mul_(2)
        dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True).wait()
        x.add_(1)
    assert (x == 2047).all().item()

    doubled = (
        dist.all_reduce(torch.ones(5, device=DEVICE), async_op=True)
        .get_future()
        .then(lambda future: future.value()[0] * 2)
    )
    assert doubled.wait().cpu().tolist() == [2.0 * world] * 5
    with torch.opencl.stream(torch.opencl.Stream(device=DEVICE)):
        x = torch.full((70000,), 3.0, device=DEVICE)
        work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert (x == 3 * world).all().item()


@check
def the_caller_does_not_wait() -> None:
    x = torch.ones(1 << 20, device=DEVICE)
    # Compiles, and allocates pinned memory, for which a driver may wait.
    dist.all_reduce(x)
    torch.opencl.synchronize()
    queue = torch_opencl.pyopencl_queue(DEVICE)
    is_reached = pyopencl.UserEvent(queue.context)
    pyopencl.enqueue_barrier(queue, wait_for=[is_reached])
    computed = torch.opencl.Event()
    computed.record()
    work = dist.all_reduce(x, async_op=True)
    assert not computed.query() and not work.is_completed()
    is_reached.set_status(pyopencl.command_execution_status.COMPLETE)
    work.wait()
    assert computed.query()
    assert (x == dist.get_world_size() ** 2).all().item()


@check
def errors() -> None:
    world = dist.get_world_size()

    def wrong_size(device):
        whole = torch.empty(world, 3, device=device)
        dist.all_gather_into_tensor(whole, tensor(device, 2, 3))

    def wrong_part(device):
        parts = [torch.empty(5, device=device) for _ in range(world)]
        dist.all_gather(parts, tensor(device, 4))

    def wrong_dtype(device):
        parts = [torch.empty(4, device=device).int() for _ in range(world)]
        dist.all_gather(parts, tensor(device, 4))

    def no_such_op(device):
        dist.all_reduce(tensor(device, 4), dist.ReduceOp.BAND)

    def no_such_dtype(device):
        dist.all_reduce(torch.zeros(4, dtype=torch.float8_e4m3fn).to(device))

    for function in (
        wrong_size,
        wrong_part,
        wrong_dtype,
        no_such_op,
        no_such_dtype,
    ):
        expected, actual = outcome(function, CPU), outcome(function, DEVICE)
        assert expected == actual and isinstance(actual[0], type), (expected, actual)

    parts = [torch.empty(4) for _ in range(world)]
    kind, text = outcome(lambda _: dist.all_gather(parts, tensor(DEVICE, 4)), DEVICE)
    assert kind is RuntimeError and "on the same device" in text, text
    works = [dist.all_reduce(tensor(DEVICE, 2), dist.ReduceOp.BOR, async_op=True)]
    try:
        works[0].wait()
    except RuntimeError as error:
        assert "non-integral" in str(error)
    else:
        raise AssertionError("an asynchronous error was lost")
    assert not works[0].is_success() and works[0].is_completed()


@check
def sparse() -> None:
    def reduced(device):
        rank = dist.get_rank()
        indices = torch.tensor([[rank, rank + 1]])
        x = torch.sparse_coo_tensor(indices, torch.ones(2, 3), (8, 3)).to(device)
        dist.all_reduce(x)
        return [x.to_dense()]

    compare(reduced)


@check
def objects_and_groups() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    seen: list = [None] * world
    dist.all_gather_object(seen, {"rank": rank, "x": torch.ones(2, device=DEVICE)})
    assert [item["rank"] for item in seen] == list(range(world))
    dist.barrier()
    alone = dist.new_group([0], backend="opencl_gloo")
    if rank == 0:
        x = torch.ones(3, device=DEVICE)
        dist.all_reduce(x, group=alone)
        y = torch.ones(3)
        dist.all_reduce(y, group=alone)
        assert x.sum().item() == y.sum().item() == 3.0
    dist.barrier(device_ids=[DEVICE.index or 0])


if __name__ == "__main__":
    torch.opencl.set_device(DEVICE)
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    assert dist.get_backend_config() == "cpu:gloo,opencl:opencl_gloo"
    run_checks()
    dist.destroy_process_group()
