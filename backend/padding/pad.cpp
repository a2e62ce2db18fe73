// reflection_pad* and replication_pad*: one problem over five dimensions, with
// sizes of 1 for those that a tensor lacks.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../../cpp/aten/torch_versions.h"
#include "../common/dtype_check.h"
#include "../common/int_size.h"
#include "../common/integers.h"
#include "kernel_sources.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_backward_ops.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad1d_ops.h>
#include <ATen/ops/reflection_pad2d_backward_ops.h>
#include <ATen/ops/reflection_pad2d_ops.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_backward_ops.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/reflection_pad3d_ops.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_backward_ops.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad1d_ops.h>
#include <ATen/ops/replication_pad2d_backward_ops.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/replication_pad3d_backward_ops.h>
#include <ATen/ops/replication_pad3d_meta.h>
#include <ATen/ops/replication_pad3d_ops.h>
#include <ATen/ops/view_as_real.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

constexpr int64_t kElementsOfItem = 4096;  // of a CPU

// geometry_t of pad.cl.
struct PadGeometry {
  int64_t padded_strides[5]{};
  int64_t image_strides[5]{};
  int32_t padded[3]{1, 1, 1};
  int32_t image[3]{1, 1, 1};
  int32_t left[3]{};
  int32_t channels;
};

struct Kind {
  const char* name;
  int spatial;
  bool reflects;
};

bool has_channels_last(const Tensor& tensor) {
  return tensor.size(1) > 1 && tensor.stride(1) == 1;
}

// Whether rows are memory without gaps: of elements, or of pixels where
// channels are innermost.
bool has_dense_rows(const Tensor& tensor, bool channels_last) {
  const int64_t pixel = channels_last ? tensor.size(1) : 1;
  return (!channels_last || tensor.stride(1) == 1) &&
         (tensor.size(-1) == 1 || tensor.stride(-1) == pixel);
}

Tensor to_dense_rows(const Tensor& tensor, bool channels_last) {
  if (has_dense_rows(tensor, channels_last)) {
    return tensor;
  }
  const Tensor rows = channels_last ? tensor.movedim(1, -1) : tensor;
  const Tensor dense = rows.contiguous();  // copy: read as what is written lies
  return channels_last ? dense.movedim(-1, 1) : dense;
}

// `padding` begins with the last dimension's.
PadGeometry geometry_of(const Kind& kind,
                        const Tensor& padded,
                        const Tensor& image,
                        IntArrayRef padding) {
  const int spatial = kind.spatial;
  PadGeometry geometry;
  geometry.channels = int_size(kind.name, image.size(1));
  for (int d = 0; d < 2; ++d) {
    geometry.padded_strides[d] = padded.stride(d);
    geometry.image_strides[d] = image.stride(d);
  }
  for (int i = 0; i < spatial; ++i) {
    const int axis = 3 - spatial + i;
    geometry.padded_strides[2 + axis] = padded.stride(2 + i);
    geometry.image_strides[2 + axis] = image.stride(2 + i);
    geometry.padded[axis] = int_size(kind.name, padded.size(2 + i));
    geometry.image[axis] = int_size(kind.name, image.size(2 + i));
    geometry.left[axis] = static_cast<int32_t>(padding[2 * (spatial - 1 - i)]);
  }
  return geometry;
}

struct PadProblem {
  const Kind& kind;
  bool writes_image;
  bool channels_last;
  const Tensor& written;
  const Tensor& read;
  PadGeometry geometry;
};

void launch_rows(const PadProblem& p, int64_t row) {
  const int64_t all_rows = p.written.numel() / row;
  const int64_t rows = std::max<int64_t>(kElementsOfItem / row, 1);
  launch(p.written,
         sources::pad_rows,
         p.writes_image ? "pad_backward_rows" : "pad_forward_rows",
         {{"DTYPE", dtype_of(p.written)},
          {"REFLECT", p.kind.reflects},
          {"CHANNELS_LAST", p.channels_last},
          {"LANES", p.written.is_floating_point() ? 16 : 1}},
         range(ceil_div(all_rows, rows), 1),
         p.geometry,
         arg(p.written),
         arg_in(p.read),
         static_cast<int32_t>(all_rows),
         static_cast<int32_t>(rows));
}

// `inner` elements lie side by side: of a row or of a pixel.
void launch_elements(const PadProblem& p, int64_t inner) {
  launch(p.written,
         sources::pad,
         p.writes_image ? "pad_backward" : "pad_forward",
         {{"DTYPE", dtype_of(p.written)},
          {"REFLECT", p.kind.reflects},
          {"CHANNELS_LAST", p.channels_last},
          {"WG_SIZE", kWorkGroup}},
         range(inner, p.written.numel() / inner, kWorkGroup, 1),
         p.geometry,
         arg(p.written),
         arg_in(p.read));
}

// Of real tensors with a batch dimension.
void pad_batch(const Kind& kind,
               const Tensor& image,
               const Tensor& given,
               IntArrayRef padding,
               bool writes_image) {
  const Tensor& written = writes_image ? image : given;
  const bool channels_last = has_channels_last(written);
  const int64_t width = written.size(-1);
  const int64_t channels = written.size(1);
  const int64_t row = channels_last ? width * channels : width;
  const bool by_rows =
      aten::device_of(written).is_cpu() && fits_int32(row) &&
      (!writes_image || has_dense_rows(written, channels_last));
  const Tensor padded =
      by_rows && writes_image ? to_dense_rows(given, channels_last) : given;
  const PadProblem problem{kind,
                           writes_image,
                           channels_last,
                           written,
                           writes_image ? padded : image,
                           geometry_of(kind, padded, image, padding)};
  const int64_t inner = channels_last ? channels : width;
  TORCH_CHECK_NOT_IMPLEMENTED(fits_int32(written.numel() / inner),
                              kind.name,
                              ": opencl tensors with 2^31 rows and more");
  if (by_rows) {
    launch_rows(problem, row);
  } else {
    launch_elements(problem, inner);
  }
}

void launch_pad(const Kind& kind,
                const Tensor& image,
                const Tensor& given,
                IntArrayRef padding,
                bool writes_image) {
  if (image.is_complex()) {
    const Tensor images = at::view_as_real(image);
    const Tensor others = at::view_as_real(given);
    for (int part = 0; part < 2; ++part) {
      launch_pad(kind,
                 images.select(-1, part),
                 others.select(-1, part),
                 padding,
                 writes_image);
    }
    return;
  }
  check_number(kind.name, image);
  if ((writes_image ? image : given).numel() == 0) {
    return;
  }
  if (image.dim() == kind.spatial + 1) {
    pad_batch(
        kind, image.unsqueeze(0), given.unsqueeze(0), padding, writes_image);
  } else {
    pad_batch(kind, image, given, padding, writes_image);
  }
}

void forward(const Kind& kind,
             const Tensor& self,
             IntArrayRef padding,
             const Tensor& out) {
  check_scalar_type(out, self.scalar_type());
  launch_pad(kind, self, out, padding, false);
}

void backward(const Kind& kind,
              const Tensor& grad_output,
              IntArrayRef padding,
              const Tensor& grad_input) {
  check_scalar_type(grad_input, grad_output.scalar_type());
  launch_pad(kind, grad_input, grad_output, padding, true);
}

constexpr Kind kReflection1d{"reflection_pad1d", 1, true};
constexpr Kind kReflection2d{"reflection_pad2d", 2, true};
constexpr Kind kReflection3d{"reflection_pad3d", 3, true};
constexpr Kind kReplication1d{"replication_pad1d", 1, false};
constexpr Kind kReplication2d{"replication_pad2d", 2, false};
constexpr Kind kReplication3d{"replication_pad3d", 3, false};

// The meta functions leave the memory format to the kernels.
void take_memory_format(const Tensor& out, const Tensor& self) {
  if (out.is_contiguous()) {
    out.resize_(out.sizes(), self.suggest_memory_format());
  }
}

template <class Meta, const Kind& kind>
struct pad_out : Meta {
  void impl(const Tensor& self, IntArrayRef padding, const Tensor& out) {
    take_memory_format(out, self);
    forward(kind, self, padding, out);
  }
};

template <class Meta, const Kind& kind>
struct pad_backward_out : Meta {
  void impl(const Tensor& grad_output,
            const Tensor& self,
            IntArrayRef padding,
            const Tensor& grad_input) {
    if (grad_output.numel() != 0) {  // as on the CPU
      take_memory_format(grad_input, self);
    }
    backward(kind, grad_output, padding, grad_input);
  }
};

// reflection_pad2d and some of the gradients have no meta function.
std::vector<int64_t> padded_sizes(const Tensor& self, IntArrayRef padding) {
  std::vector<int64_t> sizes = self.sizes().vec();
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    sizes[sizes.size() - 1 - i] += padding[2 * i] + padding[2 * i + 1];
  }
  return sizes;
}

std::vector<int64_t> check_reflection2d(const Tensor& self,
                                        IntArrayRef padding) {
  aten::check_valid_padding<2>(self, padding);
  for (int i = 0; i < 2; ++i) {
    const int64_t dim = self.dim() - 1 - i;
    TORCH_CHECK(
        padding[2 * i] < self.size(dim) && padding[2 * i + 1] < self.size(dim),
        "Argument #",
        4 + 2 * i,
        ": Padding size should be less than the corresponding input "
        "dimension, but got: padding (",
        padding[2 * i],
        ", ",
        padding[2 * i + 1],
        ") at dimension ",
        dim,
        " of input ",
        self.sizes());
  }
  std::vector<int64_t> sizes = padded_sizes(self, padding);
  const int64_t height = sizes[sizes.size() - 2];
  const int64_t width = sizes[sizes.size() - 1];
  TORCH_CHECK(width >= 1 || height >= 1,
              "input (H: ",
              self.size(-2),
              ", W: ",
              self.size(-1),
              ") is too small. Calculated output H: ",
              height,
              " W: ",
              width);
  return sizes;
}

Tensor& reflection_pad2d_out(const Tensor& self,
                             IntArrayRef padding,
                             Tensor& out) {
  at::native::resize_output(out, check_reflection2d(self, padding));
  forward(kReflection2d, self, padding, out);
  return out;
}

Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding) {
  Tensor out = at::empty(check_reflection2d(self, padding),
                         self.options(),
                         self.suggest_memory_format());
  forward(kReflection2d, self, padding, out);
  return out;
}

template <const Kind& kind>
Tensor& unstructured_backward_out(const Tensor& grad_output,
                                  const Tensor& self,
                                  IntArrayRef padding,
                                  Tensor& grad_input) {
  TORCH_CHECK(padding.size() == 2 * kind.spatial,
              "padding size is expected to be ",
              2 * kind.spatial);
  const std::vector<int64_t> sizes = padded_sizes(self, padding);
  TORCH_CHECK(grad_output.dim() == self.dim(),
              kind.name,
              "_backward: expected a gradient of ",
              self.dim(),
              " dimensions, but got ",
              grad_output.dim());
  constexpr const char* kAxes[] = {"width", "height", "depth"};
  for (int i = 0; i < kind.spatial; ++i) {
    const int64_t expected = sizes[sizes.size() - 1 - i];
    TORCH_CHECK(grad_output.size(-1 - i) == expected,
                "gradOutput ",
                kAxes[i],
                " unexpected. Expected: ",
                expected,
                ", Got: ",
                grad_output.size(-1 - i));
  }
  at::native::resize_output(grad_input, self.sizes());
  backward(kind, grad_output, padding, grad_input);
  return grad_input;
}

template <const Kind& kind>
Tensor unstructured_backward(const Tensor& grad_output,
                             const Tensor& self,
                             IntArrayRef padding) {
  Tensor grad_input = at::empty_like(self, self.suggest_memory_format());
  return unstructured_backward_out<kind>(
      grad_output, self, padding, grad_input);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  namespace op = at::_ops;
  constexpr Numbers kNumbers = Numbers::kRealAndComplex;
  structured<pad_out<meta::structured_reflection_pad1d, kReflection1d>,
             op::reflection_pad1d_out,
             kNumbers>(m);
  structured<pad_out<meta::structured_reflection_pad3d, kReflection3d>,
             op::reflection_pad3d_out,
             kNumbers>(m);
  structured<pad_out<meta::structured_replication_pad1d, kReplication1d>,
             op::replication_pad1d_out,
             kNumbers>(m);
  structured<pad_out<meta::structured_replication_pad2d, kReplication2d>,
             op::replication_pad2d_out,
             kNumbers>(m);
  structured<pad_out<meta::structured_replication_pad3d, kReplication3d>,
             op::replication_pad3d_out,
             kNumbers>(m);
  structured<pad_backward_out<meta::structured_reflection_pad1d_backward,
                              kReflection1d>,
             op::reflection_pad1d_backward_grad_input,
             kNumbers>(m);
  structured<pad_backward_out<meta::structured_reflection_pad3d_backward,
                              kReflection3d>,
             op::reflection_pad3d_backward_grad_input,
             kNumbers>(m);
  structured<pad_backward_out<meta::structured_replication_pad1d_backward,
                              kReplication1d>,
             op::replication_pad1d_backward_grad_input,
             kNumbers>(m);
  m.impl("reflection_pad2d",
         TORCH_FN((WithFallback<op::reflection_pad2d,
                                &reflection_pad2d,
                                kNumbers>::call)));
  m.impl("reflection_pad2d.out",
         TORCH_FN((WithFallback<op::reflection_pad2d_out,
                                &reflection_pad2d_out,
                                kNumbers>::call)));
  m.impl("reflection_pad2d_backward",
         TORCH_FN((WithFallback<op::reflection_pad2d_backward,
                                &unstructured_backward<kReflection2d>,
                                kNumbers>::call)));
  m.impl("reflection_pad2d_backward.grad_input",
         TORCH_FN((WithFallback<op::reflection_pad2d_backward_grad_input,
                                &unstructured_backward_out<kReflection2d>,
                                kNumbers>::call)));
  m.impl("replication_pad2d_backward",
         TORCH_FN((WithFallback<op::replication_pad2d_backward,
                                &unstructured_backward<kReplication2d>,
                                kNumbers>::call)));
  m.impl("replication_pad2d_backward.grad_input",
         TORCH_FN((WithFallback<op::replication_pad2d_backward_grad_input,
                                &unstructured_backward_out<kReplication2d>,
                                kNumbers>::call)));
  m.impl("replication_pad3d_backward",
         TORCH_FN((WithFallback<op::replication_pad3d_backward,
                                &unstructured_backward<kReplication3d>,
                                kNumbers>::call)));
  m.impl("replication_pad3d_backward.grad_input",
         TORCH_FN((WithFallback<op::replication_pad3d_backward_grad_input,
                                &unstructured_backward_out<kReplication3d>,
                                kNumbers>::call)));
}

}  // namespace torch_opencl::ops
