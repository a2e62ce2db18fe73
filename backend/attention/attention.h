// What the host half of attention hands to the kernels of a device's class.
#pragma once

#include "../../cpp/aten/launch.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// strides_t and attention_t of attention.clh.
struct AttentionStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t column = 0;
};

struct AttentionShape {
  AttentionStrides query;
  AttentionStrides key;
  AttentionStrides value;
  AttentionStrides mask;
  AttentionStrides out;
  AttentionStrides grad_query;
  AttentionStrides grad_key;
  AttentionStrides grad_value;
  uint64_t seed = 0;
  uint64_t offset = 0;
  int32_t heads = 0;
  int32_t key_heads = 0;
  int32_t queries = 0;
  int32_t keys = 0;
  int32_t query_dim = 0;
  int32_t value_dim = 0;
  float scale = 1;
  float keep_scale = 1;
  uint32_t threshold = 0;
};

// Head dimensions that the kernels' tiles hold.
constexpr int64_t kMaxHeadDim = 256;

struct Attention {
  AttentionShape shape;
  int64_t batch;
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor mask;  // expanded over the scores, or undefined
  bool is_causal;
  bool has_dropout;

  int64_t head_dim() const {
    return std::max(shape.query_dim, shape.value_dim);
  }
};

struct AttentionGradients {
  at::Tensor grad_out;
  at::Tensor logsumexp;
  at::Tensor delta;
  at::Tensor grad_query;
  at::Tensor grad_key;
  at::Tensor grad_value;
};

void attention_forward(const Attention& attention,
                       const at::Tensor& out,
                       const at::Tensor& logsumexp);
// The same of one query a head, without dropout.
void attention_decode(const Attention& attention,
                      const at::Tensor& out,
                      const at::Tensor& logsumexp);
void attention_backward(const Attention& attention,
                        const AttentionGradients& gradients);

}  // namespace torch_opencl::ops
