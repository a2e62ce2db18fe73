"""What cannot run on opencl says so."""

import sys

import torch

messages = []


def refused(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except (NotImplementedError, RuntimeError) as error:
        messages.append(str(error))
    else:
        raise AssertionError(f"{function} did not raise")


refused(torch.cuda.utilization)
refused(torch.cuda.nccl.all_reduce, [])
refused(torch.cuda.jiterator._create_jit_fn, "")

from torch.utils import cpp_extension  # noqa: E402

refused(cpp_extension.load, "name", ["kernel.cu"])
refused(cpp_extension.load_inline, "name", "", "__global__ void f() {}")
refused(cpp_extension.CUDAExtension, "name", ["kernel.cu"])
print(*messages, sep="\n")
if len(sys.argv) > 1:
    import cupy  # noqa: F401
