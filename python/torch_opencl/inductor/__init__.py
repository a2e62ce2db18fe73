"""``torch.compile`` for the device: Inductor writes fused OpenCL C.

Inductor asks ``torch.opencl`` for ``Scheduling`` at its first use, which is when this
package's modules are imported and :func:`register` called.
"""

from __future__ import annotations

import functools


@functools.cache
def register() -> type:
    """Tells Dynamo and Inductor about the device, once.

    Returns:
        The scheduling. Inductor, which asked for it, would register it again, without
        the pass; it does not, for ``torch.opencl`` has no ``CppWrapperCodegen``.
    """
    from torch._dynamo.device_interface import register_interface_for_device
    from torch._inductor import config
    from torch._inductor.codegen.common import (
        register_backend_for_device,
        register_device_op_overrides,
    )
    from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen

    from .. import opencl
    from . import fallbacks, flex_lowering, lowerings, wrapping
    from .cache_key import CacheKey
    from .device import OpenCLInterface, OpenCLOpOverrides
    from .scheduling import Scheduling
    from .wrapper import NoCppWrapper, OpenCLWrapper

    register_interface_for_device("opencl", OpenCLInterface)
    for index in range(opencl.device_count()):
        register_interface_for_device(f"opencl:{index}", OpenCLInterface)
    lowerings.install()
    flex_lowering.install()
    fallbacks.install()
    wrapping.install()
    register_device_op_overrides("opencl", OpenCLOpOverrides())
    register_backend_for_device(
        "opencl",
        Scheduling,
        OpenCLWrapper,
        NoCppWrapper,
        WrapperFxCodegen,
        CacheKey(),
    )
    if getattr(config, "cudagraph_policy", False) is None:
        from .replay import ReplayPolicy

        config.cudagraph_policy = ReplayPolicy()
    return Scheduling
