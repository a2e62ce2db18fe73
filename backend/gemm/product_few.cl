// Products of a few rows by a matrix for gpu-class devices, as an LLM decodes: the
// matrix is read once, coalesced and unpacked: out = alpha * few B + beta * self.
//
// A work-group of 128 is 4 rows of 32 lanes. ALONG_DEPTH: lanes run along the depth of
// LINES columns of the matrix, each row of lanes has its own. Otherwise lanes run along
// columns, WIDTH each, and rows of lanes take every fourth line of the depth. A
// work-item keeps the sums of all FEW rows; what lanes have is added through local
// memory, in order. Where the depth is split, `out` are parts (product_parts.cl).

#include "types.clh"
#include "loads_ahead.clh"
#include "panels.clh"
#include "product_vectors.clh"
#include "product_image.clh"

#define LANES 32
#define LANE_ROWS 4
#define GROUP (LANES * LANE_ROWS)
#define LINES (FEW > 4 ? 1 : 2)

#if WIDTH == 4
typedef vec4_t load_t;
#define LOAD_MATRIX(p) LOAD_FOUR(p)
#define TOTAL(v) ((v.x + v.y) + (v.z + v.w))
#else
typedef compute_t load_t;
#define LOAD_MATRIX(p) LOAD_ONE(p)
#define TOTAL(v) (v)
#endif

// Of a row, the factors of one load along the depth.
#if WIDTH == 4 && FEW_WIDTH == 4
#define LOAD_FEW(p) LOAD_FOUR(p)
#elif WIDTH == 4
#define LOAD_FEW(p)                                                            \
  (vec4_t)(LOAD_ONE(p), LOAD_ONE(p + few_depth_stride),                        \
           LOAD_ONE(p + 2 * few_depth_stride), LOAD_ONE(p + 3 * few_depth_stride))
#else
#define LOAD_FEW(p) LOAD_ONE(p)
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void product_few(TENSOR(out_t, out), CONST_TENSOR(operand_t, few),
                 CONST_TENSOR(operand_t, matrix), CONST_TENSOR(storage_t, self),
                 const int rows, const int columns, const int depth, const int batches,
                 const int depth_of_part, const int last_load,
                 const index_t few_row_stride,
                 const index_t few_depth_stride, const index_t few_batch_stride,
                 const index_t line_stride, const index_t depth_stride,
                 const index_t matrix_batch_stride, OUT_PARAMETERS EPILOGUE_PARAMETERS) {
  const int lane = get_local_id(0) % LANES;
  const int lane_row = get_local_id(0) / LANES;
  const size_t batch = get_group_id(1) % batches;
  const int begin = get_group_id(1) / batches * depth_of_part;
  const int end = min(depth, begin + depth_of_part);
  const global operand_t *b = POINTER(matrix) + batch * matrix_batch_stride;
  const global operand_t *a = POINTER(few) + batch * few_batch_stride;
  const size_t out_from = get_group_id(1) * batch_stride;
  const global storage_t *base = POINTER(self) + batch * self_batch_stride;
  index_t row_at[FEW];
#pragma unroll
  for (int f = 0; f < FEW; ++f) row_at[f] = min(f, rows - 1) * few_row_stride;

#if ALONG_DEPTH
  const int first = (get_group_id(0) * LANE_ROWS + lane_row) * LINES;
  index_t line_at[LINES];
  load_t sums[FEW][LINES];
#pragma unroll
  for (int l = 0; l < LINES; ++l) {
    line_at[l] = min(first + l, columns - 1) * line_stride;
#pragma unroll
    for (int f = 0; f < FEW; ++f) sums[f][l] = 0;
  }
  for (int k = begin + lane * WIDTH; k < end; k += LANES * WIDTH) {
    load_t line[LINES];
#pragma unroll
    for (int l = 0; l < LINES; ++l) line[l] = LOAD_MATRIX(b + line_at[l] + k * depth_stride);
#pragma unroll
    for (int f = 0; f < FEW; ++f) {
      const load_t factors = LOAD_FEW(a + row_at[f] + k * few_depth_stride);
#pragma unroll
      for (int l = 0; l < LINES; ++l) sums[f][l] = fma(factors, line[l], sums[f][l]);
    }
  }
  local compute_t parts[FEW * LINES][LANE_ROWS][LANES + 1];
#pragma unroll
  for (int f = 0; f < FEW; ++f) {
#pragma unroll
    for (int l = 0; l < LINES; ++l) {
      parts[f * LINES + l][lane_row][lane] = TOTAL(sums[f][l]);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const int i = get_local_id(0);
  if (i < FEW * LINES * LANE_ROWS) {
    const int line = i % (LINES * LANE_ROWS);
    const int f = i / (LINES * LANE_ROWS);
    compute_t total = 0;
    for (int l = 0; l < LANES; ++l) total += parts[f * LINES + line % LINES][line / LINES][l];
    WRITE_ONE(f, (int)get_group_id(0) * LANE_ROWS * LINES + line, total)
  }
#else
  const int first = (get_group_id(0) * LANES + lane) * WIDTH;
  b += min(first, last_load) * line_stride;  // panels have lines past `columns`
  load_t sums[FEW];
#pragma unroll
  for (int f = 0; f < FEW; ++f) sums[f] = 0;
  FOR_LOADS_AHEAD(
      int, k, begin + lane_row, end, LANE_ROWS,
      const load_t line = LOAD_MATRIX(b + k * depth_stride);
      _Pragma("unroll") for (int f = 0; f < FEW; ++f) {
        const compute_t factor = LOAD_ONE(a + row_at[f] + k * few_depth_stride);
        sums[f] = fma((load_t)(factor), line, sums[f]);
      })
  local load_t parts[FEW][LANE_ROWS][LANES];
#pragma unroll
  for (int f = 0; f < FEW; ++f) parts[f][lane_row][lane] = sums[f];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int f = lane_row; f < FEW; f += LANE_ROWS) {
    load_t total = 0;
#pragma unroll
    for (int s = 0; s < LANE_ROWS; ++s) total += parts[f][s][lane];
#if WIDTH == 4
    WRITE_LINE(f, first, total)
#else
    WRITE_ONE(f, first, total)
#endif
  }
#endif
}
