// Weights of a few bits as float32 (lines, depth), for products of many rows: a work-item
// writes a byte's value, or the eight of a word of int4_layout.clh.

#include "types.clh"

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void dequantize_int8(CONST_TENSOR(char, weight), CONST_TENSOR(storage_t, scale),
                     TENSOR(float, out), const int depth,
                     const long scale_stride) {
  const int column = get_global_id(0);
  const int line = get_global_id(1);
  if (column < depth) {
    const size_t at = (size_t)line * depth + column;
    POINTER(out)[at] =
        (float)POINTER(weight)[at] * (float)LOAD(POINTER(scale), line * scale_stride);
  }
}

#ifdef HALF
#include "int4_layout.clh"

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void dequantize_int4(CONST_TENSOR(uint, weight), CONST_TENSOR(storage_t, scales),
                     TENSOR(float, out), const int first, const int all_lines,
                     const int depth) {
  const int word = get_global_id(0);  // of a line
  const int line = get_global_id(1);
  if (word >= depth / 8) return;
  const int tile = word / WORDS;
  const int i = word % HALF;
  const int k = tile * DEPTH + i * 32 + word % WORDS / HALF * 2;
  const size_t own = first + line;
  const uint values = POINTER(weight)[(own / 8 * (depth / DEPTH) + tile) * TILE +
                                      own % 8 * WORDS + word % WORDS] ^ FLIP;
  const global storage_t *pair = POINTER(scales) + ((size_t)(k / GROUP) * all_lines + own) * 2;
  const float scale = LOAD(pair, 0);
  const float zero = LOAD(pair, 1);
  global float *target = POINTER(out) + (size_t)line * depth + k;
  for (int j = 0; j < 8; ++j) {
    target[DEPTH_OF_VALUE(j)] =
        fma((float)((int)(values << (28 - 4 * j)) >> 28), scale, zero);
  }
}
#endif

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void dequantize_plain_int4(CONST_TENSOR(uint, weight), CONST_TENSOR(storage_t, scales),
                           CONST_TENSOR(char, zeros), TENSOR(float, out), const int first,
                           const int all_lines, const int depth,
                           const int group) {
  const int word = get_global_id(0);
  const int line = get_global_id(1);
  if (word >= depth / 8) return;
  const size_t own = first + line;
  const uint values = POINTER(weight)[own * (depth / 8) + word];
  for (int j = 0; j < 8; ++j) {
    const int k = word * 8 + j;
    const size_t at = (size_t)(k / group) * all_lines + own;
    POINTER(out)[(size_t)line * depth + k] =
        ((float)(values >> 4 * j & 15) - POINTER(zeros)[at]) * LOAD(POINTER(scales), at);
  }
}
