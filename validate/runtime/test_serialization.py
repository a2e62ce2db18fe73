import copy
import io
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch import multiprocessing


def round_trip(value, **load_options):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **load_options)


@pytest.fixture
def tensors(device):
    base = torch.arange(24.0).reshape(4, 6)
    return {
        "contiguous": base.to(device),
        "view": base.to(device)[1:, ::2],
        "empty": torch.empty(0, 3, device=device),
        "scalar": torch.tensor(3, device=device),
        "half": base.half().to(device),
        "bool": (base > 3).to(device),
    }


def assert_equal(actual: dict, expected: dict, device: torch.device) -> None:
    for name, value in expected.items():
        assert actual[name].device == device
        assert actual[name].dtype == value.dtype
        assert torch.equal(actual[name].cpu(), value.cpu()), name


def test_saved_tensors_return_to_their_device(tensors, device):
    assert_equal(round_trip(tensors), tensors, device)


@pytest.mark.parametrize("spell", [str, torch.device], ids=["str", "device"])
def test_map_location(tensors, device, spell):
    on_cpu = round_trip(tensors, map_location=spell("cpu"))
    assert_equal(on_cpu, tensors, torch.device("cpu"))
    back = round_trip(on_cpu, map_location=spell(str(device)))
    assert_equal(back, tensors, device)


def test_map_location_by_type_means_the_current_device(device):
    with torch.opencl.device(device):
        loaded = round_trip(torch.ones(3), map_location="opencl")
    assert loaded.device.type == "opencl"


def test_legacy_format(tensors, device):
    buffer = io.BytesIO()
    torch.save(tensors, buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    assert_equal(torch.load(buffer), tensors, device)


def test_mmap(tensors, device, tmp_path):
    path = tmp_path / "tensors.pt"
    torch.save(tensors, path)
    loaded = torch.load(path, mmap=True, map_location="cpu")
    assert_equal(loaded, tensors, torch.device("cpu"))


def test_views_keep_sharing_their_storage(device):
    x = torch.zeros(10, device=device)
    x_again, view = round_trip((x, x[2:5]))
    view.fill_(1)
    assert x_again.sum().item() == 3
    assert view.data_ptr() == x_again.data_ptr() + 8


def test_absent_device_is_a_clear_error(device):
    x = round_trip(torch.ones(3, device=device), map_location="cpu")
    with pytest.raises(RuntimeError, match="opencl"):
        round_trip(x, map_location="opencl:99")


def test_pickle_and_deepcopy(tensors, device):
    assert_equal(pickle.loads(pickle.dumps(tensors)), tensors, device)
    copied = copy.deepcopy(tensors)
    assert_equal(copied, tensors, device)
    assert copied["contiguous"].data_ptr() != tensors["contiguous"].data_ptr()


def test_module_state_round_trip(device):
    model = torch.nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = round_trip({"model": model.state_dict(), "optim": optimizer.state_dict()})
    other = torch.nn.Linear(4, 3)
    other.load_state_dict(state["model"])
    assert torch.equal(other.weight, model.weight.cpu())
    optimizer.load_state_dict(state["optim"])


def test_moving_a_module_keeps_its_parameters(device):
    model = torch.nn.Linear(4, 4)
    model.tied = model.weight
    weight = model.weight
    model.to(device)
    assert model.weight is weight
    assert model.tied is model.weight
    assert weight.device == device


def test_sending_to_another_process_raises(device):
    x = torch.arange(6.0).to(device)
    shared = {"state": [torch.nn.Linear(2, 2).to(device)]}
    for value in (x, x[::2], torch.nn.Parameter(x), x.untyped_storage(), shared):
        with pytest.raises(RuntimeError, match=r"(?s)opencl.*Send tensor\.cpu\(\)"):
            ForkingPickler.dumps(value)
    received = pickle.loads(ForkingPickler.dumps(x.cpu()))
    assert torch.equal(received.to(device).cpu(), x.cpu())


def test_sharing_memory_raises(device):
    x = torch.arange(6.0).to(device)
    model = torch.nn.Linear(2, 2).to(device)
    for share in (
        x.share_memory_,
        x.untyped_storage().share_memory_,
        model.share_memory,
    ):
        with pytest.raises(RuntimeError, match=r"Send tensor\.cpu\(\)"):
            share()
    assert x.cpu().share_memory_().is_shared()


def test_a_pipe_raises_where_it_is_written_to(device):
    ours, theirs = multiprocessing.Pipe()
    with pytest.raises(RuntimeError, match="another process"):
        ours.send(torch.ones(3, device=device))
    ours.send(torch.ones(3))
    assert theirs.poll(10) and theirs.recv().tolist() == [1, 1, 1]


def _receive(queue, received):
    received.put(queue.get(timeout=60).tolist())


def test_a_queue_goes_on_without_what_cannot_be_sent(device, capsys):
    """Its thread pickles: the error is printed, and the receiver gets the next one."""
    context = multiprocessing.get_context("spawn")
    queue, received = context.Queue(), context.Queue()
    process = context.Process(target=_receive, args=(queue, received))
    process.start()
    queue.put(torch.ones(3, device=device))
    queue.put(torch.ones(2))
    try:
        assert received.get(timeout=60) == [1, 1]
    finally:
        process.join(60)
        process.kill()
    assert process.exitcode == 0
    assert "another process could open" in capsys.readouterr().err


def test_storage_methods(device):
    storage = torch.arange(4.0).to(device).untyped_storage()
    assert storage.is_opencl
    assert storage.cpu().device.type == "cpu"
    storage.resize_(32)
    assert storage.nbytes() == 32
    x = torch.empty(0, device=device).set_(storage, 0, (4,))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert torch.ones(3).opencl(device.index).device == device
