"""Guard mode compares what a launch says of its buffers with what the kernel declares."""

from __future__ import annotations

from script import run_script

_LAUNCHES = """
from torch_opencl import _C

source = '''
kernel void copied(global float *to, ulong to_offset,
                   const global float *from, ulong from_offset, int unused) {
  to[to_offset] = from[from_offset];
}
'''
torch.opencl.set_device(DEVICE)
x, y = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
for kinds in ("wri", "rri", "wrr", "wwi"):
    try:
        last = y if kinds == "wrr" else 0
        _C._CompiledKernel("copied", source, "", kinds, 1, False)(x, y, last, 1)
        print(kinds, "is launched", x[0].item())
    except RuntimeError as error:
        print(kinds, error)
"""


def test_guard_mode_names_the_argument(device, tmp_path):
    # Built, and again from the disk cache, whose binaries do not tell.
    for _ in range(2):
        printed = run_script(
            _LAUNCHES,
            device,
            TORCH_OPENCL_GUARD="1",
            TORCH_OPENCL_CACHE_DIR=str(tmp_path),
        )
        right, reads, number, both = printed.strip().splitlines()
        assert right == "wri is launched 1.0"
        assert "copied: argument 0 is bound as a buffer that is only read" in reads
        assert "the kernel may write it" in reads
        assert "copied: argument 4 is bound as a buffer, and the kernel" in number
        # It costs packed values that were still right, and nothing else.
        assert both == "wwi is launched 1.0"


def test_a_program_without_notes_is_built_again(device, tmp_path):
    cache = {"TORCH_OPENCL_CACHE_DIR": str(tmp_path)}
    right = _LAUNCHES.replace('"wri", "rri", "wrr", "wwi"', '"wri",')
    assert "is launched 1.0" in run_script(right, device, **cache)
    printed = run_script(_LAUNCHES, device, TORCH_OPENCL_GUARD="1", **cache)
    assert printed.count("is launched 1.0") == 2
