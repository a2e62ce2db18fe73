"""What Dynamo and Inductor ask of a device."""

from __future__ import annotations

import torch
from torch._dynamo.device_interface import DeviceInterface
from torch._inductor.codegen.common import DeviceOpOverrides

from .. import opencl


class OpenCLInterface(DeviceInterface):
    """Dynamo's view of the device."""

    device = opencl.device
    Event = opencl.Event
    Stream = opencl.Stream

    class Worker:
        @staticmethod
        def set_device(device: int) -> None:
            opencl.set_device(device)

        @staticmethod
        def current_device() -> int:
            return opencl.current_device()

        @staticmethod
        def get_device_properties(device=None):
            return opencl.get_device_properties(device)

    current_device = staticmethod(opencl.current_device)
    set_device = staticmethod(opencl.set_device)
    device_count = staticmethod(opencl.device_count)
    is_available = staticmethod(opencl.is_available)
    stream = staticmethod(opencl.stream)
    current_stream = staticmethod(opencl.current_stream)
    set_stream = staticmethod(opencl.set_stream)
    synchronize = staticmethod(opencl.synchronize)
    memory_allocated = staticmethod(opencl.memory_allocated)

    @staticmethod
    def exchange_device(device: int) -> int:
        return torch._C._accelerator_exchangeDevice(device)

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        return torch._C._accelerator_maybeExchangeDevice(device)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return opencl.current_stream(device_idx).stream_id

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        opencl.set_stream(
            opencl.Stream(
                stream_id=stream_id, device_index=device_index, device_type=device_type
            )
        )

    @staticmethod
    def get_compute_capability(device=None):
        return opencl.get_device_capability(device)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return opencl.is_bf16_supported(including_emulation)


class OpenCLOpOverrides(DeviceOpOverrides):
    """Lines of Inductor's Python wrapper."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return (
            "from torch_opencl.inductor.device import OpenCLInterface\n"
            f"{name} = OpenCLInterface.get_raw_stream"
        )

    def set_device(self, device_idx: int) -> str:
        return f"torch.opencl.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.opencl.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.opencl.device({device_idx})"

    def current_stream(self) -> str:
        return "torch.opencl.current_stream()"
