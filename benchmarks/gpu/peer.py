"""CLBlast's programs, by its default parameters, for the same compilers.

CLBlast makes its kernels' text when a routine is called; the recorder stands
in for a driver and takes it down. Debian's libclblast-dev has the library.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from . import tools
from .compile import Program

# Name: rows, columns, depth of a row-major product.
PRODUCTS = {"large": (2048, 2048, 2048), "small": (64, 64, 64)}
_ROW_MAJOR, _NO_TRANSPOSE = 101, 111


def programs(recorder: Path, folder: Path) -> list[Program]:
    """Of the products above.

    Args:
        recorder: the folder of recorder.cpp's library.
        folder: for what is recorded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "clblast.jsonl"
    environment = tools.environment(
        LD_LIBRARY_PATH=str(recorder), RECORDER_FILE=str(file)
    )
    command = [sys.executable, "-m", "gpu.peer"]
    tools.checked(command, "CLBlast", env=environment)
    return read(file.read_text())


def read(lines: str) -> list[Program]:
    """The programs that were launched, of the recorder's lines."""
    records = [json.loads(line) for line in lines.splitlines()]
    launched = {record["of"] for record in records if "launch" in record}
    return [
        Program(record["text"], record["options"])
        for record in records
        if record.get("program") in launched and "text" in record
    ]


def run_products() -> None:
    opencl = ctypes.CDLL("libOpenCL.so.1")
    clblast = ctypes.CDLL("libclblast.so.1")
    handle = ctypes.c_void_p
    for name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer"):
        getattr(opencl, name).restype = handle
    platform, device = handle(), handle()
    opencl.clGetPlatformIDs(1, ctypes.byref(platform), None)
    gpu = ctypes.c_ulong(4)  # CL_DEVICE_TYPE_GPU
    opencl.clGetDeviceIDs(platform, gpu, 1, ctypes.byref(device), None)
    context = handle(
        opencl.clCreateContext(None, 1, ctypes.byref(device), None, None, None)
    )
    queue = handle(opencl.clCreateCommandQueue(context, device, 0, None))
    size = ctypes.c_size_t
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    for rows, columns, depth in PRODUCTS.values():

        def buffer(elements: int) -> ctypes.c_void_p:
            flags = ctypes.c_ulong(1)  # CL_MEM_READ_WRITE
            bytes_ = size(4 * elements)
            return handle(opencl.clCreateBuffer(context, flags, bytes_, None, None))

        left = (buffer(rows * depth), size(0), size(depth))
        right = (buffer(depth * columns), size(0), size(columns))
        out = (buffer(rows * columns), size(0), size(columns))
        kinds = (_ROW_MAJOR, _NO_TRANSPOSE, _NO_TRANSPOSE)
        sizes = (size(rows), size(columns), size(depth))
        call = (*kinds, *sizes, one, *left, *right, zero, *out)
        status = clblast.CLBlastSgemm(*call, ctypes.byref(queue), None)
        if status != 0:
            raise RuntimeError(f"CLBlastSgemm returned {status}")


if __name__ == "__main__":
    run_products()
