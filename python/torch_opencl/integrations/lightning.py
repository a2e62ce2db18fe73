"""Lightning: ``Trainer(accelerator="opencl", strategy="single_opencl")``, registered
by importing this."""

from __future__ import annotations

from typing import Any

import torch

try:
    from lightning.pytorch import accelerators, strategies
except ModuleNotFoundError:  # the same library's other name
    from pytorch_lightning import accelerators, strategies


class OpenCLAccelerator(accelerators.Accelerator):
    """Trains on opencl devices; ``devices=1`` or ``devices=[index]``."""

    def setup_device(self, device: torch.device) -> None:
        """Makes ``device`` current.

        Raises:
            ValueError: it is not an opencl device.
        """
        torch.opencl.set_device(device)

    def teardown(self) -> None:
        """Gives cached memory back."""
        torch.opencl.empty_cache()

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """Memory statistics, for ``DeviceStatsMonitor``."""
        return torch.opencl.memory_stats(device)

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """Indices: of the first ``devices``, all for -1, or those named."""
        if isinstance(devices, str):
            named = devices.split(",")
            devices = [int(part) for part in named] if len(named) > 1 else int(devices)
        if isinstance(devices, int):
            count = torch.opencl.device_count() if devices == -1 else devices
            return list(range(count))
        return list(devices)

    @staticmethod
    def get_parallel_devices(devices: int | str | list[int]) -> list[torch.device]:
        """The devices of the indices that :meth:`parse_devices` returned."""
        indices = OpenCLAccelerator.parse_devices(devices)
        return [torch.device("opencl", index) for index in indices]

    @staticmethod
    def auto_device_count() -> int:
        """One: several drivers often offer the same CPU."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """True where there is an OpenCL device."""
        return torch.opencl.is_available()

    @staticmethod
    def name() -> str:
        """``opencl``."""
        return "opencl"


class OpenCLStrategy(strategies.SingleDeviceStrategy):
    """One device. Lightning itself takes the CPU with an accelerator that it does
    not know, whatever devices the accelerator names.

    Args:
        device: device or name; the first one by default.
    """

    strategy_name = "single_opencl"

    def __init__(self, device: torch.device | str = "opencl:0", **kwargs: Any) -> None:
        super().__init__(device=torch.device(device), **kwargs)


accelerators.AcceleratorRegistry.register(
    "opencl", OpenCLAccelerator, description="OpenCL devices", override=True
)
strategies.StrategyRegistry.register(
    OpenCLStrategy.strategy_name, OpenCLStrategy, description="One OpenCL device"
)
