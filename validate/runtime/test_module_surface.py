import pytest
import torch
from script import run_python, run_script


def test_module_is_registered():
    import torch_opencl

    assert torch.opencl.is_available()
    assert torch.opencl.device_count() >= 1
    assert torch.opencl.__name__ == "torch_opencl.opencl"
    assert torch.get_device_module("opencl") is torch.opencl
    assert torch.opencl.__doc__ and torch_opencl.__doc__
    for name in torch.opencl.__all__:
        documented = getattr(torch.opencl, name)
        assert documented.__doc__, name
    import torch.opencl.memory as memory

    assert memory.memory_allocated is torch.opencl.memory_allocated


def test_device_names(device):
    assert torch.device("opencl").type == "opencl"
    assert torch.device("opencl", 0) == torch.device("opencl:0")
    assert str(torch.ones(1, device=device).device) == str(device)
    assert torch.ones(1, device=device).is_opencl
    assert torch.ones(1).opencl(device).device == device


def test_device_context_managers(device):
    outer = torch.opencl.current_device()
    with torch.opencl.device(device):
        assert torch.opencl.current_device() == device.index
        assert torch.ones(1, device="opencl").device == device
    assert torch.opencl.current_device() == outer
    x = torch.ones(1, device=device)
    with torch.opencl.device_of(x):
        assert torch.opencl.current_device() == device.index
    with torch.opencl.device(-1), torch.opencl.device_of(torch.ones(1)):
        assert torch.opencl.current_device() == outer
    with torch.device(device):
        assert torch.ones(1).device == device
    torch.opencl.set_device(device)
    assert torch.accelerator.current_device_index() == device.index
    torch.opencl.set_device(outer)


def test_properties(device):
    properties = torch.opencl.get_device_properties(device)
    assert properties.name == torch.opencl.get_device_name(device)
    assert properties.total_memory >= properties.max_allocation > 0
    assert properties.multi_processor_count > 0
    assert properties.device_class in ("cpu", "gpu")
    assert properties.name in repr(properties)
    assert "cl_khr" not in repr(properties)
    major, minor = torch.opencl.get_device_capability(device)
    assert (major, minor) >= (1, 2)
    free, total = torch.opencl.mem_get_info(device)
    assert 0 < free <= total == properties.total_memory


def test_accelerator(device):
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == "opencl"
    assert torch.accelerator.device_count() == torch.opencl.device_count()
    with torch.accelerator.device_index(device.index):
        assert torch.accelerator.current_device_index() == device.index
        torch.accelerator.synchronize()
        stream = torch.accelerator.current_stream()
        assert stream.device == device
    supported = torch.accelerator.get_device_capability(device)["supported_dtypes"]
    assert torch.float32 in supported
    has_double = torch.opencl.get_device_properties(device).has_fp64
    assert (torch.float64 in supported) == has_double


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.ones(2, device="opencl:99"),
        lambda: torch.ones(2).to("opencl:99"),
        lambda: torch.opencl.set_device(99),
        lambda: torch.opencl.get_device_properties(99),
        lambda: torch.opencl.synchronize(99),
        lambda: torch.opencl.memory_allocated(99),
        lambda: torch.opencl.Stream(99),
        lambda: torch.Generator("opencl:99"),
    ],
)
def test_invalid_index(device, use):
    torch.opencl.init()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        use()


def test_other_device_types_are_refused():
    with pytest.raises(ValueError, match="Expected an opencl device"):
        torch.opencl.get_device_name("cpu")


def test_tensors_on_two_devices(device):
    x = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    assert (x + torch.tensor(1.0)).device == device


def test_amp_surface(device):
    assert torch.amp.is_autocast_available("opencl")
    with torch.autocast("opencl", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("opencl")
        assert torch.get_autocast_dtype("opencl") == torch.bfloat16
    assert torch.opencl.is_bf16_supported()
    with torch.autocast("opencl"):
        half = torch.ones(3, device=device, dtype=torch.float16)
        assert torch.exp(half).dtype == torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            torch.nn.functional.binary_cross_entropy(half, half)


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([1.5, -2.0, float("inf"), float("nan")], torch.float32),
        ([1, -2, 3], torch.int64),
        ([True, False], torch.bool),
        ([0.5, 1.0], torch.float16),
        ([], torch.float32),
        (3.25, torch.float32),
        ([[1e-9, 1e9], [0.0, 1.0]], torch.float32),
    ],
)
def test_printing(device, values, dtype):
    expected = torch.tensor(values, dtype=dtype)
    printed = repr(expected.to(device))
    assert f"device='{device}'" in printed
    numbers = repr(expected).split("(", 1)[1].rsplit(")", 1)[0].split("], dtype")[0]
    assert numbers.replace(" ", "")[:5] in printed.replace(" ", "")


def test_without_a_device():
    output = run_script(
        """
        assert not torch.opencl.is_available()
        assert torch.opencl.device_count() == 0
        torch.manual_seed(0)
        for use in (
            lambda: torch.ones(2, device="opencl"),
            lambda: torch.opencl.current_device(),
            lambda: torch.opencl.synchronize(),
            lambda: torch.nn.Linear(2, 2).to("opencl"),
        ):
            try:
                use()
            except RuntimeError as error:
                print("OpenCL device" in str(error), type(error).__name__)
        """,
        TORCH_OPENCL_DEVICES="no such device",
    )
    assert output.split() == ["True", "RuntimeError"] * 4


def test_import_order_does_not_matter():
    for code in ("import torch_opencl, torch", "import torch, torch_opencl"):
        code += "\nprint(torch.device('opencl'), torch.opencl.device_count() > 0)"
        assert run_python(code).split() == ["opencl", "True"]


def test_another_backend_is_explained_and_breaks_nothing():
    output = run_python(
        """
import torch, warnings
torch.utils.rename_privateuse1_backend("other")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch_opencl
print(len(caught), "'other' has taken it" in str(caught[0].message), torch.ones(2).sum())
""",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert output.split() == ["1", "True", "tensor(2.)"]


def test_seeding_before_the_first_use(device):
    output = run_script(
        """
        torch.manual_seed(77)
        assert not torch.opencl.is_initialized()
        torch.ones(1, device=DEVICE)
        assert torch.opencl.is_initialized()
        with torch.opencl.device(DEVICE):
            print(torch.opencl.initial_seed())
        """,
        device,
    )
    assert output.split() == ["77"]


@pytest.mark.parametrize("attempt", range(3))
def test_process_ends_cleanly_after_backward(device, attempt):
    output = run_script(
        """
        x = torch.ones(3, device=DEVICE, requires_grad=True)
        (x * 2).sum().backward()
        pinned = torch.ones(3).pin_memory()
        stream = torch.opencl.Stream(DEVICE)
        with stream:
            y = x.detach() + 1
        print("done")
        """,
        device,
    )
    assert output.split() == ["done"]


def test_dlpack(device):
    x = torch.arange(4.0).to(device)
    kind, index = x.__dlpack_device__()
    assert (int(kind), index) == (12, device.index)
    y = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert y.device == device and y.data_ptr() == x.data_ptr()
