// Matrix multiplication over packed panels: out = alpha * A B + beta * self, for
// cpu-class devices (product_gpu.cl is for the others).
//
// A work-item computes tiles of ROWS x COLUMNS outputs in registers (COLUMNS / 16
// vectors a row, ROWS_AT_ONCE of the rows together), with neither local memory nor
// barriers. Sums run over k in order, so results are the same at every run; every
// SUM_BLOCK products they are added to a total, which keeps the error of long sums
// (weight gradients) small.
//
// One operand may be unpacked, in its original layout. RIGHT_IN_PLACE: rows of
// contiguous columns; LEFT_IN_PLACE: rows of contiguous depth. They are
// `stride_in_place` apart. SHARES_PANELS: those of the other serve the batch.

#include "types.clh"
#include "lanes.clh"
#include "panels.clh"

// Columns of `out` have two levels, so that images of a batch follow each
// other in one product.
#define GEMM_PARAMETERS                                                      \
  CONST_TENSOR(compute_t, left), CONST_TENSOR(compute_t, right),             \
      TENSOR(storage_t, out), CONST_TENSOR(storage_t, self), const int rows, \
      const int columns, const int depth, const index_t stride_in_place,     \
      const index_t batch_stride_in_place, const int tiles_at_once,          \
      const int row_tiles_of_strip, OUT_PARAMETERS

#ifndef SUM_BLOCK
#define SUM_BLOCK 256  // a multiple of STEP
#endif

#include "transpose_vectors.clh"
#include "prefetch.clh"
#include "tile.clh"

#define LEFT(i) a[i * row_step]
#define PREFETCH_DEPTH 128  // of the left panels: a page of 4 KiB
#define PREFETCH_LINES 8    // of a right operand in place, each from a page of its own

#define IS_PLAIN_float32 1
#define IS_PLAIN_float64 1

// ROWS values that follow each other.
static inline void store_rows(global storage_t *p, lanes_t values) {
#if CONCAT(IS_PLAIN_, DTYPE) && ROWS == 16
  vstore16(values, 0, p);
#elif CONCAT(IS_PLAIN_, DTYPE)
  vstore8(values.lo, 0, p);
#else
  compute_t lane[LANES];
  vstore16(values, 0, lane);
  for (int i = 0; i < ROWS; ++i) STORE(p, i, lane[i]);
#endif
}

// Where a tile begins. What lies as it is has no padding: the last tile overlaps its
// neighbour.
static inline int2 corner_of_tile(int tile, int rows, int columns, int row_tiles_of_strip) {
  const int row_tiles = (rows + ROWS - 1) / ROWS;
  const int column_tiles = (columns + COLUMNS - 1) / COLUMNS;
  const int first_row_tile =
      tile / (row_tiles_of_strip * column_tiles) * row_tiles_of_strip;
  const int of_strip = tile - first_row_tile * column_tiles;
  const int strip_rows = min(row_tiles_of_strip, row_tiles - first_row_tile);
  int2 corner = (int2)((first_row_tile + of_strip % strip_rows) * ROWS,
                       of_strip / strip_rows * COLUMNS);
#ifdef LEFT_IN_PLACE
  corner.x = min(corner.x, rows - ROWS);
#endif
#ifdef RIGHT_IN_PLACE
  corner.y = min(corner.y, columns - COLUMNS);
#endif
  return corner;
}

// One work-item: the tiles from get_global_id(0) * tiles_at_once on. They come in
// strips of `row_tiles_of_strip` rows of tiles; in one, those that read the same
// columns follow each other. TILES_OF_BLOCK of them are blocked over SUM_BLOCK of the
// depth, so that what several of them read stays in the caches (Goto and van de Geijn,
// Anatomy of High-Performance Matrix Multiplication, 2008).
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_cpu(GEMM_PARAMETERS) {
  const int row_tiles = (rows + ROWS - 1) / ROWS;
  const int column_tiles = (columns + COLUMNS - 1) / COLUMNS;
  const int last_tile =
      min(row_tiles * column_tiles, ((int)get_global_id(0) + 1) * tiles_at_once);
  const size_t batch = get_global_id(1);
  global storage_t *target = POINTER(out) + batch * batch_stride;
  const global storage_t *base = POINTER(self) + batch * self_batch_stride;

  for (int first_tile = get_global_id(0) * tiles_at_once; first_tile < last_tile;
       first_tile += TILES_OF_BLOCK) {
    const int tiles = min(TILES_OF_BLOCK, last_tile - first_tile);
    int2 corners[TILES_OF_BLOCK];
    VECTOR totals_of_tiles[TILES_OF_BLOCK][ROWS][VECTORS];
    for (int t = 0; t < tiles; ++t) {
      corners[t] = corner_of_tile(first_tile + t, rows, columns, row_tiles_of_strip);
    }
    int k = 0;
    do {
      const int count = min(depth - k, SUM_BLOCK);
      for (int t = 0; t < tiles; ++t) {
        const int first_row = corners[t].x, first_column = corners[t].y;
#ifdef LEFT_IN_PLACE
        const global compute_t *left_at = POINTER(left) + batch * batch_stride_in_place +
            first_row * stride_in_place + k;
        const index_t row_step = stride_in_place;
        const int depth_step = 1;
#else
        const global compute_t *left_at =
            POINTER(left) + (size_t)first_row * depth + (size_t)k * ROWS;
        const int row_step = 1;
        const int depth_step = ROWS;
#ifndef SHARES_PANELS
        left_at += batch * row_tiles * ROWS * depth;
#endif
#endif
#ifdef RIGHT_IN_PLACE
        const global compute_t *right_at = POINTER(right) +
            batch * batch_stride_in_place + first_column + k * stride_in_place;
        const index_t next_line = stride_in_place;
#else
        const global compute_t *right_at =
            POINTER(right) + (size_t)first_column * depth + (size_t)k * COLUMNS;
        const index_t next_line = COLUMNS;
#ifndef SHARES_PANELS
        right_at += batch * column_tiles * COLUMNS * depth;
#endif
#endif

        VECTOR (*totals)[VECTORS] = totals_of_tiles[t];
        FOR_EACH_PART(part) {
          VECTOR sums[ROWS_AT_ONCE][VECTORS];
          FOR_EACH_VECTOR_OF_PART(part, i, j) sums[i - part][j] = 0;
          const global compute_t *a = left_at;
          const global compute_t *b = right_at;
          for (int l = 0; l < count; ++l) {
            // Few processors prefetch panels early enough by themselves.
#ifndef LEFT_IN_PLACE
            if (part == 0) PREFETCH(a + PREFETCH_DEPTH * ROWS);
#endif
#ifdef RIGHT_IN_PLACE
            if (part == 0) {
#pragma unroll
              for (int j = 0; j < VECTORS; ++j)
                PREFETCH(b + PREFETCH_LINES * next_line + j * 16);
            }
#endif
            ADD_OUTER_PRODUCT(sums, part, LEFT, b)
            a += depth_step;
            b += next_line;
          }
          if (k > 0) {
            FOR_EACH_VECTOR_OF_PART(part, i, j) sums[i - part][j] += totals[i][j];
          }
          FOR_EACH_VECTOR_OF_PART(part, i, j) totals[i][j] = sums[i - part][j];
        }
      }
      k += count;
    } while (k < depth);

    for (int t = 0; t < tiles; ++t) {
      const int first_row = corners[t].x, first_column = corners[t].y;
      VECTOR (*totals)[VECTORS] = totals_of_tiles[t];
      const int width = min(COLUMNS, columns - first_column);
      const int is_dense = column_stride == 1 &&
          first_column / column_size == (first_column + width - 1) / column_size;
      const index_t first_at = LEVEL_OFFSET(column, first_column);
      // channels_last: rows follow each other, not columns.
      if (row_stride == 1 && column_stride != 1 && first_row + ROWS <= rows &&
          (beta == 0 || self_column_stride == 0)) {
        for (int j = 0; j * LANES < width; ++j) {
          lanes_t transposed[LANES];
#pragma unroll
          for (int i = 0; i < LANES; ++i) {
            transposed[i] = i < ROWS ? alpha * totals[i % ROWS][j] : 0;
            if (beta != 0 && i < ROWS) {
              transposed[i] += beta * LOAD(base, (first_row + i) * self_row_stride);
            }
          }
          transpose(transposed);
          const int first = first_column + j * LANES;
          for (int l = 0; l < min(LANES, width - j * LANES); ++l) {
            store_rows(target + first_row + LEVEL_OFFSET(column, first + l), transposed[l]);
          }
        }
        continue;
      }
      const int row_count = min(rows - first_row, ROWS);
      if (is_dense && width == COLUMNS && row_count == ROWS &&
          (beta == 0 || self_column_stride == 0 ||
           (self_column_stride == 1 && self_row_stride == 0))) {
        lanes_t of_columns[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
          of_columns[j] = 0;
          if (beta != 0 && self_column_stride == 1) {
            of_columns[j] = beta * load_lanes(base, first_column + j * LANES, 1, LANES);
          }
        }
        global storage_t *line = target + first_row * row_stride + first_at;
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          lanes_t of_row = 0;
          if (beta != 0 && self_column_stride == 0) {
            of_row = beta * LOAD(base, (first_row + i) * self_row_stride);
          }
#pragma unroll
          for (int j = 0; j < VECTORS; ++j) {
            store_lanes_nt(line, j * LANES, 1, LANES,
                         alpha * totals[i][j] + (of_row + of_columns[j]));
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
          store_lanes_nt(target, row_at + first_at + j * LANES, 1, LANES, result);
        }
        const compute_t *values = (const compute_t *)totals[i];
        for (int l = whole * LANES; l < width; ++l) {
          WRITE(values[l], row, first_column + l,
                row_at + LEVEL_OFFSET(column, first_column + l))
        }
      }
    }
  }
}
