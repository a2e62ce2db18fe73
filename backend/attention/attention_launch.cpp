// Which kernel, tile and range a problem takes on a class of device.
#include "../common/integers.h"
#include "../common/lanes.h"
#include "attention.h"
#include "kernel_sources.h"

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Few widths of tiles, hence few programs.
int64_t cpu_columns(int64_t head_dim) {
  const int64_t step = head_dim <= 128 ? 32 : 64;
  return ceil_div(head_dim, step) * step;
}
int64_t gpu_columns(int64_t head_dim) {
  return head_dim <= 64 ? 64 : (head_dim <= 128 ? 128 : 256);
}

// Two vectors of lanes keep the multipliers busy; one is better where there
// are few rows, and where two panels would leave the cache.
int64_t cpu_vectors(int64_t head_dim, int64_t rows) {
  return rows > kLanes && head_dim <= 128 ? 2 : 1;
}

int64_t cpu_block(int64_t head_dim) {
  return head_dim <= 64 ? 64 : (head_dim <= 128 ? 32 : 16);
}

// Four rows a work-item, where there are that many and their sums fit into
// registers.
int64_t gpu_item_rows(int64_t head_dim, int64_t rows) {
  return rows > 32 && head_dim <= 128 ? 4 : 2;
}

struct Kernels {
  const char* cpu;
  const char* gpu;
};

// A work-item of a CPU, or a work-group of a GPU, has a tile of the `rows` of
// a head.
template <class... Arguments>
void run(const Attention& attention,
         const Kernels& kernels,
         int64_t rows,
         int64_t heads,
         const Arguments&... arguments) {
  const bool is_cpu = aten::device_of(attention.query).is_cpu();
  const int64_t head_dim = attention.head_dim();
  const int64_t vectors = cpu_vectors(head_dim, rows);
  const int64_t item_rows = gpu_item_rows(head_dim, rows);
  const bool has_mask = attention.mask.defined();
  const at::ScalarType mask_dtype =
      has_mask ? attention.mask.scalar_type() : at::kFloat;
  launch(attention.query,
         is_cpu ? sources::attention_cpu : sources::attention_gpu,
         is_cpu ? kernels.cpu : kernels.gpu,
         {{"DTYPE", dtype_of(attention.query)},
          {"HEAD_DIM", is_cpu ? cpu_columns(head_dim) : gpu_columns(head_dim)},
          {"VECTORS", is_cpu ? vectors : 1},
          {"BLOCK", is_cpu ? cpu_block(head_dim) : 1},
          {"ITEM_ROWS", is_cpu ? 1 : item_rows},
          {"HAS_MASK", has_mask},
          {"MASK_DTYPE", dtype_of(mask_dtype)},
          {"MASK_IS_BOOL", mask_dtype == at::kBool},
          {"IS_CAUSAL", attention.is_causal},
          {"HAS_DROPOUT", attention.has_dropout}},
         is_cpu ? range(ceil_div(rows, vectors * kLanes),
                        heads,
                        attention.batch,
                        1,
                        1,
                        1)
                : range(ceil_div(rows, item_rows * 16) * 16,
                        heads * 16,
                        attention.batch,
                        16,
                        16,
                        1),
         attention.shape,
         arg_in(attention.query),
         arg_in(attention.key),
         arg_in(attention.value),
         arg_in(attention.mask),
         arguments...);
}

}  // namespace

void attention_forward(const Attention& attention,
                       const Tensor& out,
                       const Tensor& logsumexp) {
  if (attention.shape.queries == 1 && !attention.has_dropout) {
    attention_decode(attention, out, logsumexp);
    return;
  }
  run(attention,
      {"attention_forward_cpu", "attention_forward_gpu"},
      attention.shape.queries,
      attention.shape.heads,
      arg(out),
      arg(logsumexp));
}

void attention_backward(const Attention& attention,
                        const AttentionGradients& gradients) {
  const AttentionShape& shape = attention.shape;
  if (gradients.grad_query.defined()) {
    run(attention,
        {"attention_grad_query_cpu", "attention_grad_query_gpu"},
        shape.queries,
        shape.heads,
        arg(gradients.grad_out),
        arg(gradients.logsumexp),
        arg(gradients.delta),
        arg(gradients.grad_query));
  }
  if (gradients.grad_key.defined()) {
    run(attention,
        {"attention_grad_key_value_cpu", "attention_grad_key_value_gpu"},
        shape.keys,
        shape.key_heads,
        arg(gradients.grad_out),
        arg(gradients.logsumexp),
        arg(gradients.delta),
        arg(gradients.grad_key),
        arg(gradients.grad_value));
  }
}

}  // namespace torch_opencl::ops
