"""Report on the OpenCL devices of this machine: ``python -m torch_opencl.diagnose``."""
