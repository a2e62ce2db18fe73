// Products of FEW rows by packed weights of four bits for gpu-class devices, as an LLM
// decodes: out = x W^T.
//
// A work-group of 128 has LINES tiles of eight lines. 32 work-items read a tile in the
// order of memory, HALF words each of one line; four such rows of lanes take every
// fourth tile along the depth. Sums are added through local memory, in order.

#include "types.clh"
#include "int4_layout.clh"

#define ROW_LANES 32
#define LANE_ROWS 4

#if HALF == 4
#define LOAD_WORDS(p, words) vstore4(vload4(0, p) ^ FLIP, 0, words)
#elif HALF == 2
#define LOAD_WORDS(p, words) vstore2(vload2(0, p) ^ FLIP, 0, words)
#else
#define LOAD_WORDS(p, words) words[0] = *(p) ^ FLIP
#endif

kernel __attribute__((reqd_work_group_size(ROW_LANES * LANE_ROWS, 1, 1)))
void int4_few(CONST_TENSOR(storage_t, x), CONST_TENSOR(uint, weight),
              CONST_TENSOR(storage_t, scales), TENSOR(storage_t, out), const int lines,
              const int depth) {
  const int lane = get_local_id(0) % ROW_LANES;
  const int lane_row = get_local_id(0) / ROW_LANES;
  const int tiles = depth / DEPTH;
  const int line_tiles = lines / 8;
  const int first = get_group_id(0) * LINES;
  const global uint *tile_at[LINES];
  const global storage_t *pairs[LINES];
  float sums[FEW][LINES];
#pragma unroll
  for (int l = 0; l < LINES; ++l) {
    const size_t own = min(first + l, line_tiles - 1);
    tile_at[l] = POINTER(weight) + own * tiles * TILE + lane * HALF;
    pairs[l] = POINTER(scales) + (own * 8 + lane / 4) * 2;
#pragma unroll
    for (int f = 0; f < FEW; ++f) sums[f][l] = 0;
  }
  for (int tile = lane_row; tile < tiles; tile += LANE_ROWS) {
    uint words[LINES][HALF];
#pragma unroll
    for (int l = 0; l < LINES; ++l) LOAD_WORDS(tile_at[l] + (size_t)tile * TILE, words[l]);
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
      const int k = tile * DEPTH + i * 32;
      const size_t group = (size_t)(k / GROUP) * lines * 2;
#pragma unroll
      for (int f = 0; f < FEW; ++f) {
        float factors[8];
        float factor_sum = 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          factors[j] = LOAD(POINTER(x), (size_t)f * depth + k + lane % 4 * 2 + DEPTH_OF_VALUE(j));
          factor_sum += factors[j];
        }
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
          float sum = 0;
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            sum = fma((float)((int)(words[l][i] << (28 - 4 * j)) >> 28), factors[j], sum);
          }
          sum = fma(LOAD(pairs[l] + group, 0), sum, sums[f][l]);
          sums[f][l] = fma(LOAD(pairs[l] + group, 1), factor_sum, sum);
        }
      }
    }
  }
  local float parts[FEW * LINES][LANE_ROWS][ROW_LANES];
#pragma unroll
  for (int f = 0; f < FEW; ++f) {
#pragma unroll
    for (int l = 0; l < LINES; ++l) parts[f * LINES + l][lane_row][lane] = sums[f][l];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const int i = get_local_id(0);
  if (i < FEW * LINES * 8) {
    const int own = i % (LINES * 8);
    const int f = i / (LINES * 8);
    float total = 0;
    for (int row = 0; row < LANE_ROWS; ++row) {
      for (int t = 0; t < 4; ++t) total += parts[f * LINES + own / 8][row][own % 8 * 4 + t];
    }
    if (first + own / 8 < line_tiles) {
      STORE(POINTER(out), (size_t)f * lines + first * 8 + own, total);
    }
  }
}
