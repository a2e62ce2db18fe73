// Products of a long matrix A with a matrix B of at most 16 columns, for
// cpu-class devices: alpha * A B + beta * self. Time goes into reading A, so it
// is read once and where it lies; B is packed into panels (panels.clh).

#include "types.clh"
#include "lanes.clh"
#include "panels.clh"

#ifndef SUM_BLOCK
#define SUM_BLOCK 256  // products summed before they are added to a total
#endif

#define OPERANDS                                                              \
  CONST_TENSOR(storage_t, left), CONST_TENSOR(compute_t, right),              \
      TENSOR(storage_t, out), CONST_TENSOR(storage_t, self), const int rows,  \
      const int columns, const int depth, const index_t left_row_stride,      \
      const index_t left_depth_stride, const index_t left_batch_stride,       \
      const index_t row_stride, const index_t column_stride,                  \
      const index_t batch_stride, const index_t self_row_stride,              \
      const index_t self_column_stride, const index_t self_batch_stride,      \
      const compute_t alpha, const compute_t beta

#define BATCH_POINTERS                                                        \
  const size_t batch = get_global_id(1);                                      \
  const global storage_t *a = POINTER(left) + batch * left_batch_stride;      \
  const global compute_t *b = POINTER(right) + batch * depth * COLUMNS;       \
  global storage_t *target = POINTER(out) + batch * batch_stride;             \
  const global storage_t *base = POINTER(self) + batch * self_batch_stride;

#ifdef DEPTH_BY_VECTORS
// A vector holds 16 neighbours along K of a row or of one of COLUMNS panels
// (WIDTH 1). A work-item computes ROWS rows, as many streams along K.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void tall_skinny(OPERANDS) {
  BATCH_POINTERS
  const int first = get_global_id(0) * ROWS;
  const global storage_t *lines[ROWS];
  VECTOR totals[ROWS][COLUMNS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    lines[i] = a + min(first + i, rows - 1) * left_row_stride;
#pragma unroll
    for (int column = 0; column < COLUMNS; ++column) {
      totals[i][column] = 0;
    }
  }
  const int whole = depth / 16 * 16;
  for (int k = 0; k < whole;) {
    VECTOR sums[ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
      for (int column = 0; column < COLUMNS; ++column) {
        sums[i][column] = 0;
      }
    }
    for (const int end = min(whole, k + SUM_BLOCK * 16); k < end; k += 16) {
      VECTOR factors[COLUMNS];
#pragma unroll
      for (int column = 0; column < COLUMNS; ++column) {
        factors[column] = vload16(0, b + (size_t)column * depth + k);
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const VECTOR line = CONCAT(load_lanes_, DTYPE)(lines[i] + k);
#pragma unroll
        for (int column = 0; column < COLUMNS; ++column) {
          sums[i][column] = fma(line, factors[column], sums[i][column]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
      for (int column = 0; column < COLUMNS; ++column) {
        totals[i][column] += sums[i][column];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const int row = first + i;
    if (row < rows) {
#pragma unroll
      for (int column = 0; column < COLUMNS; ++column) {
        compute_t total = LANES_SUM(totals[i][column]);
        for (int k = whole; k < depth; ++k) {
          total = fma(LOAD(lines[i], k), b[(size_t)column * depth + k], total);
        }
        WRITE(total, row, column, row * row_stride + column * column_stride)
      }
    }
  }
}

#elif defined(COLUMNS_BY_VECTORS)
// A vector holds the 16 columns of a row (WIDTH 16). A work-item computes ROWS
// rows: as many streams along K, which a processor prefetches.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void tall_skinny(OPERANDS) {
  BATCH_POINTERS
  const int first = get_global_id(0) * ROWS;
  const global storage_t *lines[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    lines[i] = a + min(first + i, rows - 1) * left_row_stride;
  }
  VECTOR totals[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    totals[i] = 0;
  }
  for (int k = 0; k < depth;) {
    VECTOR sums[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      sums[i] = 0;
    }
    for (const int end = min(depth, k + SUM_BLOCK); k < end; ++k) {
      const VECTOR line = vload16(k, b);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const VECTOR factor = LOAD(lines[i], k * left_depth_stride);
        sums[i] = fma(factor, line, sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      totals[i] += sums[i];
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const int row = first + i;
    compute_t values[16];
    vstore16(totals[i], 0, values);
    if (row < rows) {
      for (int column = 0; column < columns; ++column) {
        WRITE(values[column], row, column, row * row_stride + column * column_stride)
      }
    }
  }
}

#else
// A vector holds 16 neighbouring rows of A, which lie side by side. A work-item
// computes ROWS rows of WIDTH columns, so that it reads long lines of A.
#define VECTORS (ROWS / 16)
// STEPS products are summed before they are added to a total.

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void tall_skinny(OPERANDS) {
  BATCH_POINTERS
  const int first = get_global_id(0) * ROWS;
  const int vectors = min(VECTORS, (rows - first + 15) / 16);
  VECTOR totals[VECTORS][WIDTH];
  for (int v = 0; v < vectors; ++v) {
    for (int column = 0; column < WIDTH; ++column) {
      totals[v][column] = 0;
    }
  }
  int k = 0;
  for (; k + STEPS <= depth; k += STEPS) {
    for (int v = 0; v < vectors; ++v) {
      // The last vector begins early rather than end beyond the matrix.
      const global storage_t *line =
          a + min(first + v * 16, rows - 16) + k * left_depth_stride;
      VECTOR lines[STEPS];
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        lines[step] = CONCAT(load_lanes_, DTYPE)(line + step * left_depth_stride);
      }
#pragma unroll
      for (int column = 0; column < WIDTH; ++column) {
        const global compute_t *factors = b + (size_t)k * WIDTH + column;
        VECTOR sum = lines[0] * (VECTOR)(factors[0]);
#pragma unroll
        for (int step = 1; step < STEPS; ++step) {
          sum = fma(lines[step], (VECTOR)(factors[step * WIDTH]), sum);
        }
        totals[v][column] += sum;
      }
    }
  }
  for (; k < depth; ++k) {
    for (int v = 0; v < vectors; ++v) {
      const VECTOR line = CONCAT(load_lanes_, DTYPE)(
          a + min(first + v * 16, rows - 16) + k * left_depth_stride);
      for (int column = 0; column < WIDTH; ++column) {
        totals[v][column] = fma(line, (VECTOR)(b[(size_t)k * WIDTH + column]), totals[v][column]);
      }
    }
  }
  for (int v = 0; v < vectors; ++v) {
    const int begin = min(first + v * 16, rows - 16);
    for (int column = 0; column < columns; ++column) {
      compute_t values[16];
      vstore16(totals[v][column], 0, values);
      for (int row = first + v * 16; row < begin + 16; ++row) {
        WRITE(values[row - begin], row, column, row * row_stride + column * column_stride)
      }
    }
  }
}
#endif
