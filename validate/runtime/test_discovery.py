"""TORCH_OPENCL_DEVICES and bad variables."""

import torch
from script import run_script

COUNT = "print(torch.opencl.device_count())"


def test_selection_by_name_and_index(device):
    name = torch.opencl.get_device_properties(device).platform
    assert run_script(COUNT, TORCH_OPENCL_DEVICES=name.upper()).strip() == "1"
    assert run_script(COUNT, TORCH_OPENCL_DEVICES="0,0").strip() == "1"


def test_selection_orders():
    count = torch.opencl.device_count()
    order = ",".join(str(index) for index in reversed(range(count)))
    code = """
    for index in range(torch.opencl.device_count()):
        print(torch.opencl.get_device_properties(index).platform)
    """
    forward = run_script(code).split("\n")[:-1]
    backward = run_script(code, TORCH_OPENCL_DEVICES=order).split("\n")[:-1]
    assert backward == forward[::-1]


def test_selecting_nothing_names_the_variable():
    code = """
    assert not torch.opencl.is_available()
    try:
        torch.empty(1, device="opencl")
    except RuntimeError as error:
        print(error)
    """
    output = run_script(code, TORCH_OPENCL_DEVICES="no such device")
    assert "TORCH_OPENCL_DEVICES=no such device selects none" in output


def test_a_bad_variable_is_named_at_first_use():
    code = """
    try:
        torch.empty(1, device="opencl")
    except RuntimeError as error:
        print(error)
    """
    output = run_script(code, TORCH_OPENCL_DEBUG="abc")
    assert "TORCH_OPENCL_DEBUG=abc is not valid" in output
