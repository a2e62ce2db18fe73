// Products of groups that lie one after the other along the rows of the left matrix, or
// along the depth (BY_DEPTH): `ends` has where each group ends. The host does not read
// it: a work-item (on GPUs a work-group) finds the group of its row tile itself. Rows
// behind the last group become zero.
//
// left is (rows, depth), right (groups, depth, columns), or (depth, columns) by depth;
// out (rows, columns), or (groups, rows, columns) by depth. Sums are float32, totalled
// every BLOCK products, which bounds their error.

#include "types.clh"
#include "lanes.clh"

typedef struct {
  int group;
  int row;   // the first
  int rows;  // of this tile; 0: there is nothing to do
  int begin, end;  // of the depth
} tile_t;

inline tile_t tile_of(const global int *ends, int tile, int groups, int rows, int depth) {
  tile_t found = {0, 0, 0, 0, 0};
#if BY_DEPTH
  found.group = get_global_id(2);
  const int last = found.group > 0 ? ends[found.group - 1] : 0;
  found.begin = clamp(last, 0, depth);
  found.end = clamp(ends[found.group], 0, depth);
  found.row = tile * TILE_ROWS;
  found.rows = clamp(rows - found.row, 0, TILE_ROWS);
#else
  int start = 0;
  for (int group = 0; group <= groups; ++group) {
    const int end = group < groups ? clamp(ends[group], start, rows) : rows;
    const int tiles = (end - start + TILE_ROWS - 1) / TILE_ROWS;
    if (tile >= 0 && tile < tiles) {
      found.group = min(group, groups - 1);
      found.row = start + tile * TILE_ROWS;
      found.rows = min(end - found.row, TILE_ROWS);
      found.end = group < groups ? depth : 0;
    }
    tile -= tiles;
    start = end;
  }
#endif
  return found;
}

#define PARAMETERS                                                                 \
  CONST_TENSOR(storage_t, left), CONST_TENSOR(storage_t, right),                   \
      TENSOR(storage_t, out), CONST_TENSOR(int, ends), const int groups,           \
      const int rows, const int depth, const int columns, const long left_row,     \
      const long left_depth, const long right_group, const long right_depth,       \
      const long right_column, const long out_group, const long out_row,           \
      const long out_column

#if BY_DEPTH
#define OUT_OF(tile) (POINTER(out) + (tile).group * out_group)
#define RIGHT_OF(tile) POINTER(right)
#else
#define OUT_OF(tile) POINTER(out)
#define RIGHT_OF(tile) (POINTER(right) + (tile).group * right_group)
#endif

#if LANES > 1

// The columns of `right` follow each other: two vectors of columns a work-item.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void grouped_columns(PARAMETERS) {
  const tile_t tile = tile_of(POINTER(ends), get_global_id(0), groups, rows, depth);
  if (tile.rows == 0) return;
  const int column = get_global_id(1) * 2 * LANES;
  const bool has_second = column + LANES < columns;
  const int second = has_second ? column + LANES : column;
  const global storage_t *b = RIGHT_OF(tile);
  const global storage_t *a[TILE_ROWS];
  lanes_t total[TILE_ROWS][2];
#pragma unroll
  for (int r = 0; r < TILE_ROWS; ++r) {
    a[r] = POINTER(left) + (tile.row + min(r, tile.rows - 1)) * left_row;
    total[r][0] = total[r][1] = 0;
  }
  for (int first = tile.begin; first < tile.end; first += BLOCK) {
    lanes_t sum[TILE_ROWS][2];
#pragma unroll
    for (int r = 0; r < TILE_ROWS; ++r) sum[r][0] = sum[r][1] = 0;
    const int last = min(first + BLOCK, tile.end);
    for (int k = first; k < last; ++k) {
      const global storage_t *line = b + k * right_depth;
      const lanes_t b0 = load_lanes(line, column, 1, columns - column);
      const lanes_t b1 = load_lanes(line, second, 1, columns - second);
#pragma unroll
      for (int r = 0; r < TILE_ROWS; ++r) {
        const lanes_t x = LOAD(a[r], k * left_depth);
        sum[r][0] = fma(x, b0, sum[r][0]);
        sum[r][1] = fma(x, b1, sum[r][1]);
      }
    }
#pragma unroll
    for (int r = 0; r < TILE_ROWS; ++r) {
      total[r][0] += sum[r][0];
      total[r][1] += sum[r][1];
    }
  }
#pragma unroll
  for (int r = 0; r < TILE_ROWS; ++r) {
    if (r < tile.rows) {
      global storage_t *row = OUT_OF(tile) + (tile.row + r) * out_row;
      store_lanes(row, column * out_column, out_column, columns - column, total[r][0]);
      if (has_second) {
        store_lanes(row, second * out_column, out_column, columns - second, total[r][1]);
      }
    }
  }
}

#define DOT_COLUMNS 4

// The depth follows itself in both: dot products, DOT_COLUMNS columns a work-item.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void grouped_dots(PARAMETERS) {
  const tile_t tile = tile_of(POINTER(ends), get_global_id(0), groups, rows, depth);
  if (tile.rows == 0) return;
  const int column = get_global_id(1) * DOT_COLUMNS;
  const global storage_t *a[TILE_ROWS];
  const global storage_t *b[DOT_COLUMNS];
  float total[TILE_ROWS][DOT_COLUMNS];
#pragma unroll
  for (int r = 0; r < TILE_ROWS; ++r) {
    a[r] = POINTER(left) + (tile.row + min(r, tile.rows - 1)) * left_row;
#pragma unroll
    for (int c = 0; c < DOT_COLUMNS; ++c) total[r][c] = 0;
  }
#pragma unroll
  for (int c = 0; c < DOT_COLUMNS; ++c) {
    b[c] = RIGHT_OF(tile) + min(column + c, columns - 1) * right_column;
  }
  for (int first = tile.begin; first < tile.end; first += BLOCK * LANES) {
    const int last = min(first + BLOCK * LANES, tile.end);
    lanes_t sum[TILE_ROWS][DOT_COLUMNS];
#pragma unroll
    for (int r = 0; r < TILE_ROWS; ++r) {
#pragma unroll
      for (int c = 0; c < DOT_COLUMNS; ++c) sum[r][c] = 0;
    }
    int k = first;
    for (; k + LANES <= last; k += LANES) {
      lanes_t y[DOT_COLUMNS];
#pragma unroll
      for (int c = 0; c < DOT_COLUMNS; ++c) y[c] = load_lanes(b[c], k, 1, LANES);
#pragma unroll
      for (int r = 0; r < TILE_ROWS; ++r) {
        const lanes_t x = load_lanes(a[r], k, 1, LANES);
#pragma unroll
        for (int c = 0; c < DOT_COLUMNS; ++c) sum[r][c] = fma(x, y[c], sum[r][c]);
      }
    }
#pragma unroll
    for (int r = 0; r < TILE_ROWS; ++r) {
#pragma unroll
      for (int c = 0; c < DOT_COLUMNS; ++c) {
        float tail = LANES_SUM(sum[r][c]);
        for (int j = k; j < last; ++j) tail = fma(LOAD(a[r], j), LOAD(b[c], j), tail);
        total[r][c] += tail;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < TILE_ROWS; ++r) {
#pragma unroll
    for (int c = 0; c < DOT_COLUMNS; ++c) {
      if (r < tile.rows && column + c < columns) {
        STORE(OUT_OF(tile),
              (tile.row + r) * out_row + (column + c) * out_column, total[r][c]);
      }
    }
  }
}

#else

// A work-group takes TILE_ROWS x TILE_COLUMNS results, a work-item ITEM x ITEM of them.
#define ITEM 4
#define TILE_COLUMNS TILE_ROWS
#define SIDE (TILE_ROWS / ITEM)
#define TILE_DEPTH 16

kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1)))
void grouped_tiles(PARAMETERS) {
  local float a[TILE_DEPTH][TILE_ROWS + 1];
  local float b[TILE_DEPTH][TILE_COLUMNS + 1];
  const tile_t tile = tile_of(POINTER(ends), get_group_id(0), groups, rows, depth);
  const int column = get_group_id(1) * TILE_COLUMNS;
  const int x = get_local_id(0);
  const int y = get_local_id(1);
  const int item = y * SIDE + x;
  float sum[ITEM][ITEM];
  float total[ITEM][ITEM];
  for (int r = 0; r < ITEM; ++r) {
    for (int c = 0; c < ITEM; ++c) sum[r][c] = total[r][c] = 0;
  }
  for (int first = tile.begin; first < tile.end; first += TILE_DEPTH) {
    for (int i = item; i < TILE_DEPTH * TILE_ROWS; i += SIDE * SIDE) {
      // Neighbours load what lies together.
      const int r = left_depth == 1 ? i / TILE_DEPTH : i % TILE_ROWS;
      const int k = left_depth == 1 ? i % TILE_DEPTH : i / TILE_ROWS;
      const bool is_inside = r < tile.rows && first + k < tile.end;
      a[k][r] = is_inside ? LOAD(POINTER(left), (tile.row + r) * left_row +
                                                    (first + k) * left_depth)
                          : 0.0f;
    }
    for (int i = item; i < TILE_DEPTH * TILE_COLUMNS; i += SIDE * SIDE) {
      const int c = right_depth == 1 ? i / TILE_DEPTH : i % TILE_COLUMNS;
      const int k = right_depth == 1 ? i % TILE_DEPTH : i / TILE_COLUMNS;
      const bool is_inside = column + c < columns && first + k < tile.end;
      b[k][c] = is_inside ? LOAD(RIGHT_OF(tile), (column + c) * right_column +
                                                     (first + k) * right_depth)
                          : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int k = 0; k < TILE_DEPTH; ++k) {
#pragma unroll
      for (int r = 0; r < ITEM; ++r) {
#pragma unroll
        for (int c = 0; c < ITEM; ++c) {
          sum[r][c] = fma(a[k][y + r * SIDE], b[k][x + c * SIDE], sum[r][c]);
        }
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((first - tile.begin) / TILE_DEPTH % (BLOCK / TILE_DEPTH) ==
        BLOCK / TILE_DEPTH - 1) {
      for (int r = 0; r < ITEM; ++r) {
        for (int c = 0; c < ITEM; ++c) {
          total[r][c] += sum[r][c];
          sum[r][c] = 0;
        }
      }
    }
  }
  for (int r = 0; r < ITEM; ++r) {
    for (int c = 0; c < ITEM; ++c) {
      const int own_row = y + r * SIDE;
      const int own_column = column + x + c * SIDE;
      if (own_row < tile.rows && own_column < columns) {
        STORE(OUT_OF(tile), (tile.row + own_row) * out_row + own_column * out_column,
              total[r][c] + sum[r][c]);
      }
    }
  }
}

#endif
