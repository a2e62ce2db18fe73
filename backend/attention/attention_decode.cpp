// Attention with one query a head, as an LLM decodes: keys and values are read
// once, and split in parts where heads are too few for the device.
#include "../common/integers.h"
#include "attention.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Keys that pay for a part, and of a tile of the kernels.
constexpr int64_t kFewestKeys = 128;
constexpr int64_t kTile = 64;
// Work-items that keep a CPU's threads busy to the end.
constexpr int64_t kItemsOfUnit = 2;

// Few widths, hence few programs.
int64_t columns(int64_t head_dim, bool is_cpu) {
  if (is_cpu && head_dim <= 128) {
    return round_up(head_dim, 32);
  }
  return head_dim <= 64 ? 64 : (head_dim <= 128 ? 128 : 256);
}

// Query heads that share what is read of a key head: registers of CPUs hold
// their sums.
int64_t shared_heads(int64_t group, int64_t head_dim, bool is_cpu) {
  const int64_t most = !is_cpu || head_dim <= 64 ? 4 : head_dim <= 128 ? 2 : 1;
  return std::min(group, most);
}

// How the keys of a head are split.
struct KeyParts {
  int64_t heads;   // of queries that share what is read
  int64_t chunks;  // of so many heads
  int64_t keys_of_part;
  int64_t parts;
};

KeyParts parts_of(const Attention& attention, const runtime::Device& device) {
  const AttentionShape& shape = attention.shape;
  const bool is_cpu = device.is_cpu();
  const int64_t group = shape.heads / shape.key_heads;
  const int64_t heads = shared_heads(group, attention.head_dim(), is_cpu);
  const int64_t chunks = shape.key_heads * ceil_div(group, heads);
  const int64_t keys = attention.is_causal ? 1 : shape.keys;
  const runtime::DeviceInfo& info = device.info();
  const auto groups_of_unit =
      static_cast<int64_t>(info.tuning->numbers.attention_groups_of_unit);
  const int64_t wanted =
      ceil_div(info.compute_units * (is_cpu ? kItemsOfUnit : groups_of_unit),
               attention.batch * chunks);
  const int64_t most = std::max<int64_t>(keys / kFewestKeys, 1);
  const int64_t keys_of_part =
      round_up(ceil_div(keys, std::min(wanted, most)), kTile);
  return {heads, chunks, keys_of_part, ceil_div(keys, keys_of_part)};
}

}  // namespace

void attention_decode(const Attention& attention,
                      const Tensor& out,
                      const Tensor& logsumexp) {
  const AttentionShape& shape = attention.shape;
  const runtime::Device& device = aten::device_of(out);
  const bool is_cpu = device.is_cpu();
  const auto [heads, chunks, keys_of_part, parts] = parts_of(attention, device);
  Tensor sums;
  Tensor statistics;
  if (parts > 1) {
    const int64_t rows = attention.batch * shape.heads * parts;
    sums = at::empty({rows, shape.value_dim}, logsumexp.options());
    statistics = at::empty({rows, 2}, logsumexp.options());
  }
  const bool has_mask = attention.mask.defined();
  const at::ScalarType mask_dtype =
      has_mask ? attention.mask.scalar_type() : at::kFloat;
  const bool is_dense = attention.query.stride(3) == 1 &&
                        attention.key.stride(3) == 1 &&
                        attention.value.stride(3) == 1;
  const int64_t items = is_cpu ? 1 : 128;
  launch(out,
         is_cpu ? sources::attention_decode_cpu : sources::attention_decode_gpu,
         is_cpu ? "attention_decode_cpu" : "attention_decode_gpu",
         {{"DTYPE", dtype_of(out)},
          {"HEAD_DIM", columns(attention.head_dim(), is_cpu)},
          {"HEADS", heads},
          {"HAS_PARTS", parts > 1},
          {"IS_DENSE", is_dense},
          {"HAS_MASK", has_mask},
          {"MASK_DTYPE", dtype_of(mask_dtype)},
          {"MASK_IS_BOOL", mask_dtype == at::kBool},
          {"IS_CAUSAL", attention.is_causal}},
         range(parts * items, chunks, attention.batch, items, 1, 1),
         shape,
         arg_in(attention.query),
         arg_in(attention.key),
         arg_in(attention.value),
         arg_in(attention.mask),
         arg(out),
         arg(logsumexp),
         arg(sums),
         arg(statistics),
         static_cast<int32_t>(keys_of_part));
  if (parts > 1) {
    launch(out,
           sources::attention_parts,
           "attention_parts",
           {{"DTYPE", dtype_of(out)}},
           range(shape.value_dim, shape.heads, attention.batch, 64, 1, 1),
           shape,
           arg_in(sums),
           arg_in(statistics),
           static_cast<int32_t>(parts),
           arg(out),
           arg(logsumexp));
  }
}

}  // namespace torch_opencl::ops
