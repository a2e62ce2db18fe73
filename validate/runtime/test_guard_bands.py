"""TORCH_OPENCL_GUARD=1, which a process reads once: each test has one of its own."""

from __future__ import annotations

import re

from script import run_script

_STRAY = """
kernel = torch_opencl.RawKernel('''
kernel void stray(TENSOR(float, x), long place) { POINTER(x)[place] = 1; }
''', "stray")
torch.opencl.set_device(DEVICE)
x = torch.zeros(1001, device=DEVICE)

def write(tensor, place):
    kernel((1,), (1,), (tensor, place))

def report(name, wait=torch.opencl.synchronize):
    try:
        wait()
        print(f"<{name}>nothing</{name}>")
    except RuntimeError as error:
        print(f"<{name}>{error}</{name}>")
"""


def reports(script: str, device, **environment: str) -> dict[str, str]:
    printed = run_script(_STRAY + script, device, TORCH_OPENCL_GUARD="1", **environment)
    return dict(re.findall(r"<(\w+)>(.*?)</\1>", printed, re.DOTALL))


def test_stray_writes_are_reported_with_their_kernel(device):
    found = reports(
        """
for name, place in (("behind", 1001), ("far", 1500), ("before", -1)):
    write(x, place)
    report(name)
report("again")
x.sum().item()

waits = {
    "copy": lambda: x.cpu(),
    "item": lambda: x[0].item(),
    "stream": lambda: torch.opencl.current_stream().synchronize(),
    "event": lambda: torch.opencl.current_stream().record_event().synchronize(),
}
for name, wait in waits.items():
    write(x, -3)
    report(name, wait)

y = torch.zeros(1001, device=DEVICE)
side = torch.opencl.Stream(DEVICE)
side.wait_stream(torch.opencl.current_stream())
with torch.opencl.stream(side):
    write(y, 1001)
y.record_stream(side)
del y
z = torch.ones(1001, device=DEVICE)
report("free")
""",
        device,
    )
    for name, place in (
        ("behind", "behind the end of a block .* from byte 4004 to 4007"),
        ("far", "behind the end of a block .* from byte 6000 to 6003"),
        ("before", "before a block .* from byte -4 to -1"),
    ):
        text = found[name]
        assert re.search(rf"{place}: 00 00 80 3f\n.* stray.cl:stray", text), text
        assert "of 4004 bytes at 0x" in text and f"on {device}, stream 0" in text
    assert found["again"] == "nothing"
    for name in ("copy", "item", "stream", "event"):
        assert "from byte -12 to -9" in found[name], (name, found[name])
    assert "from byte 4004 to 4007" in found["free"] and "at its free" in found["free"]


def test_all_launches_since_the_last_check_are_named(device):
    """Any of them may have written: latest first, and of many the last 32."""
    found = reports(
        """
source = "kernel void %s(TENSOR(float, x), long i) { POINTER(x)[i] = 2; }"
first = torch_opencl.RawKernel(source % "first", "first")
second = torch_opencl.RawKernel(source % "second", "second")
torch.opencl.synchronize()
for name, kernels in (("two", (first, second)), ("reversed", (second, first))):
    for place, kernel_of in enumerate(kernels):
        kernel_of((1,), (1,), (x, 1001 + 2 * place))
    report(name)
write(x, 1001)
report("next")
for count in (32, 40):
    for _ in range(count):
        write(x, 1001)
    report(f"all{count}")
""",
        device,
    )
    for name, text in found.items():
        assert text.count("behind the end of a block") == 1, (name, text)
    commands = {name: text.split("latest first: ")[1] for name, text in found.items()}
    for name, order in (
        ("two", "second.cl:second, first.cl:first"),
        ("reversed", "first.cl:first, second.cl:second"),
        ("next", "stray.cl:stray"),
    ):
        assert commands[name].startswith(f"{order}. "), (name, commands)
    for name in ("two", "reversed"):  # in one report
        assert "12 bytes, from byte 4004 to 4015" in found[name], found
    for name, more in (("all32", ""), ("all40", ", and 8 more")):
        expected = ", ".join(["stray.cl:stray"] * 32) + more
        assert commands[name].startswith(f"{expected}. "), (name, commands)


def test_each_launch_is_looked_at_with_sync(device):
    found = reports(
        """
write(x, 7)
report("launch", lambda: write(x, 1001))
""",
        device,
        TORCH_OPENCL_SYNC="1",
    )
    assert found["launch"].endswith("latest first: stray.cl:stray"), found


def test_blocks_are_aligned_and_counted_and_new_memory_is_nan(device):
    reports(
        """
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    assert torch.empty(1003, dtype=dtype, device=DEVICE).isnan().all(), dtype
y = torch.randn(1003, device=DEVICE)
torch.testing.assert_close(y.mul(2).cpu(), y.cpu() * 2)

assert x.data_ptr() % 512 == 0
assert x.untyped_storage().nbytes() == 4004
assert x[3:].data_ptr() == x.data_ptr() + 12
x.resize_(5000).fill_(2)
assert x.sum().item() == 10000
before = torch.opencl.memory_allocated()
for size in (1, 511, 512, 513, 100_000, 3_000_001):
    y = torch.ones(size, dtype=torch.uint8, device=DEVICE)
    assert y.data_ptr() % 512 == 0 and y.sum().item() == size
del y
torch.opencl.empty_cache()
assert torch.opencl.memory_allocated() <= before
""",
        device,
    )
