// The place of the element at a rank of each row of a matrix, without sorting.
//
// Values become unsigned integers in their order. The key at rank k is the greatest
// number that at most k keys are less than; it is found two bits at a time, by
// counting the keys below three numbers, by vectors of LANES. Behind a row, keys are
// the greatest, which are below nothing.
//
// select_rows: a work-item takes `tile` rows one after the other, whose keys it puts
// where the former row's were.
// make_keys, count_below, find_place: for few long rows. A work-item makes the keys,
// or counts, of a part of a row; the next launch's join the counts of all parts.

#include "types.clh"
#define LANES 16
#if IS_FLOATING
#include "lanes.clh"
#endif

#if WIDE_KEY
typedef ulong sort_key_t;
typedef ulong16 keys_t;
typedef long16 counts_t;
#define KEY_BITS 64
#define AS_KEYS as_ulong16
#define CONVERT_KEYS convert_ulong16
#else
typedef uint sort_key_t;
typedef uint16 keys_t;
typedef int16 counts_t;
#define KEY_BITS 32
#define AS_KEYS as_uint16
#define CONVERT_KEYS convert_uint16
#endif
#define SIGN_BIT ((sort_key_t)1 << (KEY_BITS - 1))
#define GREATEST_KEY (~(sort_key_t)0)

// Rules for the rank; NaN are the greatest values.
#define RANK_GIVEN 0
#define RANK_OF_MEDIAN 1     // of the first NaN, if there is one
#define RANK_OF_NANMEDIAN 2  // of the numbers

typedef compute_t values_t __attribute__((ext_vector_type(LANES)));

inline values_t load_values(const global storage_t *p) {
#if IS_FLOATING
  return CONCAT(load_lanes_, DTYPE)(p);
#elif IS_BOOL
  return min(vload16(0, p), (uchar16)(1));
#else
  return vload16(0, p);
#endif
}

inline keys_t ascending_keys(values_t x) {
#if IS_FLOATING
  const keys_t bits = AS_KEYS(x);
  keys_t keys = (bits & SIGN_BIT) != 0 ? ~bits : bits | SIGN_BIT;
  // 0 and -0 are equal. By bits: a device may compare denormals as 0.
  keys = (bits & ~SIGN_BIT) == 0 ? (keys_t)(SIGN_BIT) : keys;
  return x != x ? (keys_t)(GREATEST_KEY) : keys;
#else
  return CONVERT_KEYS(x) ^ ((compute_t)-1 < 0 ? SIGN_BIT : (sort_key_t)0);
#endif
}

// Of counts, which are negative in every lane.
inline long count_of(counts_t counts) {
  const long8 eight = convert_long8(counts.lo) + convert_long8(counts.hi);
  const long4 four = eight.lo + eight.hi;
  const long2 two = four.lo + four.hi;
  return -(two.x + two.y);
}

// Makes keys of `count` elements; the result says how many are less than the greatest.
inline long write_keys(const global storage_t *from, global sort_key_t *keys, int count) {
  counts_t less = 0;
  int i = 0;
  for (; i + LANES <= count; i += LANES) {
    const keys_t made = ascending_keys(load_values(from + i));
    less += made < GREATEST_KEY;
    vstore16(made, 0, keys + i);
  }
  if (i < count) {
    compute_t value[LANES];
    sort_key_t lane[LANES];
    for (int l = 0; l < LANES; ++l) value[l] = LOAD(from, i + min(l, count - i - 1));
    vstore16(ascending_keys(vload16(0, value)), 0, lane);
    for (int l = count - i; l < LANES; ++l) lane[l] = GREATEST_KEY;
    const keys_t made = vload16(0, lane);
    less += made < GREATEST_KEY;
    vstore16(made, 0, keys + i);
  }
  return count_of(less);
}

// What is known of the key at `rank`: `value` without its lowest `shift` bits, and how
// many keys are less, and how many less or the same in the bits known.
typedef struct {
  ulong value;
  ulong rank;
  ulong less;
  ulong more;
  ulong shift;
} state_t;

inline state_t first_state(long rank, const int rule, const long numbers, const long columns) {
  if (rule == RANK_OF_NANMEDIAN) rank = max(numbers - 1, 0L) / 2;
  if (rule == RANK_OF_MEDIAN) rank = numbers == columns ? (columns - 1) / 2 : numbers;
  const state_t state = {0, rank, 0, columns, KEY_BITS};
  return state;
}

inline int is_found(const state_t state) {
  return state.shift == 0 ||
         (state.shift < KEY_BITS && state.more - state.less == 1);
}

typedef struct {
  long below[3];
} below_t;

// The numbers of keys below the three numbers that divide what is possible.
inline below_t below(const global sort_key_t *keys, int vectors, const state_t state) {
  const int shift = (int)state.shift - 2;
  const sort_key_t value = (sort_key_t)state.value;
  const keys_t first = value + ((sort_key_t)1 << shift);
  const keys_t second = value + ((sort_key_t)2 << shift);
  const keys_t third = value + ((sort_key_t)3 << shift);
  counts_t below_first = 0, below_second = 0, below_third = 0;
  for (int v = 0; v < vectors; ++v) {
    const keys_t key = vload16(v, keys);
    below_first += key < first;
    below_second += key < second;
    below_third += key < third;
  }
  const below_t result = {
      {count_of(below_first), count_of(below_second), count_of(below_third)}};
  return result;
}

inline state_t narrowed(state_t state, const below_t counts) {
  state.shift -= 2;
  for (int i = 0; i < 3; ++i) {
    if (counts.below[i] > (long)state.rank) {
      state.more = counts.below[i];
      break;
    }
    state.less = counts.below[i];
    state.value += (ulong)1 << state.shift;
  }
  return state;
}

inline long place_of(const global sort_key_t *keys, int vectors, const state_t state) {
  const sort_key_t shift = (sort_key_t)state.shift;
  const sort_key_t value = (sort_key_t)state.value >> shift;
  long skipped = state.rank - state.less;
  for (int v = 0; v < vectors; ++v) {
    const counts_t same = vload16(v, keys) >> shift == (keys_t)(value);
    if (!any(same)) continue;
    const long count = count_of(same);
    if (count <= skipped) {
      skipped -= count;
      continue;
    }
    for (int i = v * LANES; i < (v + 1) * LANES; ++i)
      if (keys[i] >> shift == value && skipped-- == 0) return i;
  }
  return 0;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void select_rows(
    CONST_TENSOR(storage_t, self),
    TENSOR(sort_key_t, keys),
    TENSOR(long, place),
    const long rows,
    const int columns,
    const long tile,
    const long rank,
    const int rule) {
  const int vectors = (columns + LANES - 1) / LANES;
  global sort_key_t *mine = POINTER(keys) + get_global_id(0) * (size_t)vectors * LANES;
  const long begin = get_global_id(0) * tile;
  for (long row = begin; row < min(begin + tile, rows); ++row) {
    const long numbers =
        write_keys(POINTER(self) + row * (size_t)columns, mine, columns);
    state_t state = first_state(rank, rule, numbers, columns);
    while (!is_found(state)) state = narrowed(state, below(mine, vectors, state));
    POINTER(place)[row] = place_of(mine, vectors, state);
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void make_keys(
    CONST_TENSOR(storage_t, self),
    TENSOR(sort_key_t, keys),
    TENSOR(long, numbers),
    const int columns,
    const int part) {
  const size_t row = get_global_id(1);
  const int begin = get_global_id(0) * part;
  const size_t pitch = (size_t)get_global_size(0) * part;
  POINTER(numbers)[row * get_global_size(0) + get_global_id(0)] =
      write_keys(POINTER(self) + row * columns + begin,
                 POINTER(keys) + row * pitch + begin,
                 min(part, columns - begin));
}

// The host's tensors of states and of counts are of numbers of 64 bits.
#define STATES ((const global state_t *)POINTER(states))
#define COUNTS ((const global below_t *)POINTER(counts))

// The state of a row after the former launch.
inline state_t joined(const global state_t *states,
                      const global below_t *counts,
                      const size_t row,
                      const int parts) {
  const state_t state = states[row];
  if (is_found(state)) return state;
  below_t all = {{0, 0, 0}};
  for (int p = 0; p < parts; ++p)
    for (int i = 0; i < 3; ++i) all.below[i] += counts[row * parts + p].below[i];
  return narrowed(state, all);
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void count_below(
    CONST_TENSOR(sort_key_t, keys),
    CONST_TENSOR(long, numbers),
    CONST_TENSOR(ulong, states),
    CONST_TENSOR(ulong, counts),
    TENSOR(ulong, new_states),
    TENSOR(ulong, new_counts),
    const int columns,
    const int part,
    const int is_first,
    const long rank,
    const int rule) {
  const int parts = get_global_size(0);
  const size_t row = get_global_id(1);
  const int begin = get_global_id(0) * part;
  state_t state;
  if (is_first) {
    long all = 0;
    for (int p = 0; p < parts; ++p) all += POINTER(numbers)[row * parts + p];
    state = first_state(rank, rule, all, columns);
  } else {
    state = joined(STATES, COUNTS, row, parts);
  }
  if (get_global_id(0) == 0) ((global state_t *)POINTER(new_states))[row] = state;
  if (is_found(state)) return;
  ((global below_t *)POINTER(new_counts))[row * parts + get_global_id(0)] =
      below(POINTER(keys) + row * (size_t)parts * part + begin,
            (min(part, columns - begin) + LANES - 1) / LANES,
            state);
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void find_place(
    CONST_TENSOR(sort_key_t, keys),
    CONST_TENSOR(ulong, states),
    CONST_TENSOR(ulong, counts),
    TENSOR(long, place),
    const int columns,
    const int part,
    const int parts) {
  const size_t row = get_global_id(0);
  POINTER(place)[row] =
      place_of(POINTER(keys) + row * (size_t)parts * part,
               (columns + LANES - 1) / LANES,
               joined(STATES, COUNTS, row, parts));
}
