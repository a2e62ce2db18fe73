"""The Python module that Inductor writes around the kernels; a C++ one there is not."""

from __future__ import annotations

from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.codegen.wrapper import PythonWrapperCodegen


class OpenCLWrapper(PythonWrapperCodegen):
    """Allocates on the device of each buffer, whatever the current one is."""

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        if is_subgraph:
            return PythonWrapperCodegen.create(
                is_subgraph, subgraph_name, parent_wrapper, partition_signatures
            )
        return OpenCLWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline(
            "from torch_opencl.inductor.runtime import compiled_kernel, split_work"
        )
        self.imports.writeline("from torch_opencl.inductor.seeds import draw_seeds")

    def _generate_extern_kernel_out_helper(self, kernel, *args, **kwargs):
        if kernel == "aten.randint.low_out":
            kernel = "draw_seeds"
        super()._generate_extern_kernel_out_helper(kernel, *args, **kwargs)

    def make_allocation(self, name, device, dtype, shape, stride, *args, **kwargs):
        line = super().make_allocation(
            name, device, dtype, shape, stride, *args, **kwargs
        )
        return line.replace("device='opencl'", f"device='{device}'")


class NoCppWrapper(CppWrapperCpu):
    """What AOTInductor and ``config.cpp_wrapper`` ask for."""

    @staticmethod
    def create(*args, **kwargs):
        raise NotImplementedError(
            "no C++ wrapper and no AOTInductor package for opencl: the runtime that "
            "torch compiles into them (parse_device_str in aoti_runtime/model_base.h) "
            "takes cpu, cuda, xpu and mps only. Save the model with torch.export.save "
            "and call torch.compile on what torch.export.load returns"
        )
