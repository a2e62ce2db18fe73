// Matrix multiplication over packed panels: out = alpha * A B + beta * self.
//
// cpu-class: a work-item computes tiles of ROWS x COLUMNS outputs in
// registers (COLUMNS / 16 vectors a row), with neither local memory nor
// barriers. gpu-class: a work-group of 16 x 16 computes 64 x 64 outputs, 4 x 4
// a work-item, from tiles staged in local memory. Sums run over k in order, so
// results are the same at every run; every SUM_BLOCK products they are added to
// a total, which keeps the error of long sums (weight gradients) small.
//
// IN_PLACE (cpu-class): the right operand is no panels, but rows of columns that
// follow each other, `right_stride` apart; one left operand serves the batch.

#include "types.clh"
#include "lanes.clh"
#include "panels.clh"

// Columns of `out` have two levels, so that images of a batch follow each
// other in one product.
#define GEMM_PARAMETERS                                                       \
  CONST_TENSOR(compute_t, left), CONST_TENSOR(compute_t, right),              \
      TENSOR(storage_t, out), CONST_TENSOR(storage_t, self), const int rows,  \
      const int columns, const int depth, const index_t row_stride,           \
      LEVELS(column), const index_t batch_stride,                             \
      const index_t self_row_stride, const index_t self_column_stride,        \
      const index_t self_batch_stride, const compute_t alpha,                 \
      const compute_t beta, const index_t right_stride,                       \
      const index_t right_batch_stride

#ifndef SUM_BLOCK
#define SUM_BLOCK 256  // a multiple of STEP
#endif

#ifndef IS_GPU
#include "transpose_vectors.clh"
#define VECTORS (COLUMNS / 16)

#define IS_PLAIN_float32 1
#define IS_PLAIN_float64 1

// ROWS values that follow each other.
static inline void store_rows(global storage_t *p, lanes_t values) {
#if CONCAT(IS_PLAIN_, DTYPE)
  vstore8(values.lo, 0, p);
#else
  compute_t lane[LANES];
  vstore16(values, 0, lane);
  for (int i = 0; i < ROWS; ++i) STORE(p, i, lane[i]);
#endif
}

// One work-item: the tiles from get_global_id(0) * tiles_at_once on, those that
// read the same columns after each other.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_cpu(GEMM_PARAMETERS, const int tiles_at_once) {
  const int row_tiles = (rows + ROWS - 1) / ROWS;
  const int all_tiles = row_tiles * ((columns + COLUMNS - 1) / COLUMNS);
  const int last_tile = min(all_tiles, ((int)get_global_id(0) + 1) * tiles_at_once);
  const size_t batch = get_global_id(1);
  global storage_t *target = POINTER(out) + batch * batch_stride;
  const global storage_t *base = POINTER(self) + batch * self_batch_stride;

  for (int tile = get_global_id(0) * tiles_at_once; tile < last_tile; ++tile) {
    const int column_tile = tile / row_tiles;
    const int first_row = tile % row_tiles * ROWS;
#ifdef IN_PLACE
    // The last tile overlaps its neighbour.
    const int first_column = min(column_tile * COLUMNS, columns - COLUMNS);
    const global compute_t *a = POINTER(left) + (size_t)first_row * depth;
    const global compute_t *b =
        POINTER(right) + batch * right_batch_stride + first_column;
    const index_t next_line = right_stride;
#else
    const int first_column = column_tile * COLUMNS;
    const global compute_t *a =
        POINTER(left) + (batch * row_tiles * ROWS + first_row) * depth;
    const global compute_t *b = POINTER(right) +
        (batch * ((columns + COLUMNS - 1) / COLUMNS) + column_tile) * depth * COLUMNS;
    const index_t next_line = COLUMNS;
#endif

    VECTOR totals[ROWS][VECTORS];
    int k = 0;
    do {
      VECTOR sums[ROWS][VECTORS];
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
          sums[i][j] = 0;
        }
      }
      const int is_first = k == 0;
      for (const int end = min(depth, k + SUM_BLOCK); k < end; ++k) {
        VECTOR line[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
          line[j] = vload16(j, b);
        }
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          const VECTOR factor = a[i];
#pragma unroll
          for (int j = 0; j < VECTORS; ++j) {
            sums[i][j] = fma(factor, line[j], sums[i][j]);
          }
        }
        a += ROWS;
        b += next_line;
      }
      if (!is_first) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
#pragma unroll
          for (int j = 0; j < VECTORS; ++j) {
            sums[i][j] += totals[i][j];
          }
        }
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
          totals[i][j] = sums[i][j];
        }
      }
    } while (k < depth);

    const int width = min(COLUMNS, columns - first_column);
    const int is_dense = column_stride == 1 &&
        first_column / column_size == (first_column + width - 1) / column_size;
    const index_t first_at = LEVEL_OFFSET(column, first_column);
    // channels_last: rows follow each other, not columns.
    if (row_stride == 1 && column_stride != 1 && first_row + ROWS <= rows &&
        (beta == 0 || self_column_stride == 0)) {
      for (int j = 0; j * LANES < width; ++j) {
        lanes_t turned[LANES];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          turned[i] = alpha * totals[i][j];
          if (beta != 0) turned[i] += beta * LOAD(base, (first_row + i) * self_row_stride);
          turned[ROWS + i] = 0;
        }
        transpose(turned);
        const int first = first_column + j * LANES;
        for (int l = 0; l < min(LANES, width - j * LANES); ++l) {
          store_rows(target + first_row + LEVEL_OFFSET(column, first + l), turned[l]);
        }
      }
      continue;
    }
    const int row_count = min(rows - first_row, ROWS);
    if (is_dense && width == COLUMNS && row_count == ROWS &&
        (beta == 0 || self_column_stride == 0)) {
      global storage_t *line = target + first_row * row_stride + first_at;
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        lanes_t addend = 0;
        if (beta != 0) addend = beta * LOAD(base, (first_row + i) * self_row_stride);
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
          stream_lanes(line, j * LANES, 1, LANES, alpha * totals[i][j] + addend);
        }
        line += row_stride;
      }
      continue;
    }
    const int whole = is_dense ? width / LANES : 0;
    for (int i = 0; i < row_count; ++i) {
      const int row = first_row + i;
      const index_t row_at = row * row_stride;
      for (int j = 0; j < whole; ++j) {
        lanes_t result = alpha * totals[i][j];
        if (beta != 0) {
          result += beta * load_lanes(base,
                                      row * self_row_stride +
                                          (first_column + j * LANES) * self_column_stride,
                                      self_column_stride, LANES);
        }
        stream_lanes(target, row_at + first_at + j * LANES, 1, LANES, result);
      }
      const compute_t *values = (const compute_t *)totals[i];
      for (int l = whole * LANES; l < width; ++l) {
        WRITE(values[l], row, first_column + l,
              row_at + LEVEL_OFFSET(column, first_column + l))
      }
    }
  }
}

#endif

#ifdef IS_GPU
// A tile is 64 x 64; both operands' panels are 64 wide.
#define TILE 64
#define STEP 16

kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void gemm_gpu(GEMM_PARAMETERS) {
  local compute_t left_tile[STEP][TILE];
  local compute_t right_tile[STEP][TILE];
  const int x = get_local_id(0);
  const int y = get_local_id(1);
  const int lane = y * 16 + x;
  const int row_tile = get_group_id(1);
  const int column_tile = get_group_id(0);
  const size_t batch = get_global_id(2);
  const global compute_t *a = POINTER(left) +
      (batch * ((rows + TILE - 1) / TILE) + row_tile) * depth * TILE;
  const global compute_t *b = POINTER(right) +
      (batch * ((columns + TILE - 1) / TILE) + column_tile) * depth * TILE;
  global storage_t *target = POINTER(out) + batch * batch_stride;
  const global storage_t *base = POINTER(self) + batch * self_batch_stride;

  compute_t sums[4][4];
  compute_t totals[4][4];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      sums[i][j] = totals[i][j] = 0;
    }
  }
  for (int start = 0; start < depth; start += STEP) {
    if (start % SUM_BLOCK == 0) {
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          totals[i][j] += sums[i][j];
          sums[i][j] = 0;
        }
      }
    }
    for (int e = lane; e < STEP * TILE; e += 256) {
      const int k = start + e / TILE;
      left_tile[e / TILE][e % TILE] = k < depth ? a[(size_t)k * TILE + e % TILE] : 0;
      right_tile[e / TILE][e % TILE] = k < depth ? b[(size_t)k * TILE + e % TILE] : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < STEP; ++k) {
      compute_t factors[4];
      compute_t line[4];
      for (int i = 0; i < 4; ++i) {
        factors[i] = left_tile[k][y * 4 + i];
        line[i] = right_tile[k][x + i * 16];
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          sums[i][j] = fma(factors[i], line[j], sums[i][j]);
        }
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < 4; ++i) {
    const int row = row_tile * TILE + y * 4 + i;
    for (int j = 0; j < 4; ++j) {
      const int column = column_tile * TILE + x + j * 16;
      if (row < rows && column < columns) {
        WRITE(totals[i][j] + sums[i][j], row, column,
              row * row_stride + LEVEL_OFFSET(column, column))
      }
    }
  }
}
#endif
