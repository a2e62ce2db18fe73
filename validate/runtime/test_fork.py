from script import run_script

CHILD = """
import os

def in_child(function):
    pid = os.fork()
    if pid == 0:
        try:
            print(function(), flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_child_of_a_user_of_devices_gets_an_error(device):
    output = run_script(
        CHILD
        + """
x = torch.ones(3, device=DEVICE)
in_child(lambda: torch.opencl._is_in_bad_fork())
in_child(lambda: torch.ones(2, device=DEVICE))
in_child(lambda: x + 1)
in_child(lambda: x.cpu())
in_child(lambda: torch.opencl.synchronize())
in_child(lambda: torch.manual_seed(3).initial_seed())
print((x + 1).sum().item())
""",
        device,
    )
    lines = output.strip().splitlines()
    assert lines[0] == "True"
    for line in lines[1:5]:
        assert line.startswith("RuntimeError Cannot re-initialize opencl"), line
    assert lines[5:] == ["3", "6.0"]


def test_child_of_a_process_that_only_imported_may_use_the_device(device):
    output = run_script(
        CHILD + "in_child(lambda: (torch.ones(2, device=DEVICE) + 1).sum().item())",
        device,
    )
    assert output.split() == ["4.0"]


def test_child_of_a_process_that_only_asked(device):
    """It may use the device, unless a driver has started threads to answer."""
    output = run_script(
        CHILD
        + """
assert torch.opencl.is_available() and torch.opencl.device_count() > 0
in_child(lambda: (torch.ones(2, device=DEVICE) + 1).sum().item())
print((torch.ones(2, device=DEVICE) + 1).sum().item())
""",
        device,
    )
    child, parent = output.strip().splitlines()
    assert child == "4.0" or child.startswith(
        "RuntimeError Cannot re-initialize opencl in forked subprocess"
    )
    assert parent == "4.0"


def test_child_may_exit_normally(device):
    output = run_script(
        """
        import os, sys
        x = torch.ones(3, device=DEVICE) + 1
        torch.opencl.synchronize(DEVICE)
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        print(os.waitpid(pid, 0)[1])
        """,
        device,
    )
    assert output.split() == ["0"]


def test_a_child_may_free_pinned_memory(device):
    output = run_script(
        CHILD
        + """
pinned = [torch.ones(4096).pin_memory()]
x = pinned[0].to(DEVICE, non_blocking=True)
in_child(lambda: pinned.clear() or "freed")
print(x.sum().item())
""",
        device,
    )
    assert output.split() == ["freed", "4096.0"]
