"""An OpenCL device for PyTorch.

``import torch`` loads this package through the ``torch.backends`` entry point,
so programs only write ``device="opencl"``. What is public is ``torch.opencl``,
which has the surface of ``torch.cuda``.
"""


def _autoload() -> None:
    """Entry point of ``torch.backends``: the import itself does the work.

    Stands before ``import torch``, because ``import torch_opencl`` comes back
    here through torch's own autoload while this module is half initialised.
    """


import importlib.util  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import warnings  # noqa: E402

import torch  # noqa: E402

__version__ = "0.1.0"


_TAKEN = (
    "PyTorch has room for one out-of-tree device, and {} has taken it in this "
    "process. Uninstall that package, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and "
    "import the one you want"
)


def _load() -> None:
    """Loads the extension and gives PyTorch the device ``opencl``.

    Raises:
        ImportError: the extension does not fit this torch, or another
            PrivateUse1 backend has been loaded before.
    """
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "opencl"):
        raise ImportError(_TAKEN.format(repr(name)))
    if importlib.util.find_spec("torch_opencl._C") is None:
        raise ImportError(
            f"the extension is not built in {os.path.dirname(__file__)}: `make build` "
            "in a checkout, or `pip install .` in its source"
        )
    try:
        from . import _C
    except ImportError as error:
        raise ImportError(
            f"the extension of torch_opencl does not load beside torch "
            f"{torch.__version__}: {error}. It is built for one minor version of "
            "torch: reinstall torch_opencl, or build it again"
        ) from error
    installed = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if installed != _C._torch_version:
        built = ".".join(map(str, _C._torch_version))
        raise ImportError(
            f"torch_opencl was built for torch {built}, and torch "
            f"{torch.__version__} is installed: reinstall torch_opencl, or build "
            "it again"
        )
    if not _C._is_registered:
        raise ImportError(_TAKEN.format("another package"))
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        _C._add_driver_prefix(prefix)
    from . import _tuning

    _tuning.add_file_of_environment()

    torch.utils.rename_privateuse1_backend("opencl")
    from . import opencl

    torch._register_device_module("opencl", opencl)
    for name in ("amp", "memory", "random", "streams"):
        sys.modules[f"torch.opencl.{name}"] = getattr(opencl, name)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    from . import (  # noqa: F401
        _as_cuda,
        _data_parallel,
        _fake,
        _flex_attention,
        _interop,
        _printing,
        _pyopencl,
        _vmap,
        backend,
        distributed,
        kernels,
        nn,
        vision,
    )

    public = {name: getattr(kernels, name) for name in kernels.__all__}
    for name in ("from_pyopencl", "pyopencl_queue", "to_pyopencl"):
        public[name] = getattr(_pyopencl, name)
    public["as_cuda"] = _as_cuda.as_cuda
    globals().update(public)

    _data_parallel.install()
    _fake.install()
    _flex_attention.install()
    _interop.install()
    _printing.install()
    _vmap.install()
    backend.install()
    distributed.install()
    vision.install()
    if _as_cuda.requested():
        _as_cuda.as_cuda()


try:
    _load()
except Exception as error:
    # Raising would break `import torch` for programs that never use opencl.
    warnings.warn(f"the opencl device is not available: {error}", stacklevel=1)
