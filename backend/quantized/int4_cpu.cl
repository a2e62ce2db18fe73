// Products of FEW rows by packed weights of four bits for cpu-class devices, as an LLM
// decodes: out = x W^T.
//
// A work-item has the eight lines of a tile, whose words it reads in the order of memory.
// A vector is all words of a line in a tile; eight shifts of it are eight vectors of
// weights. The rows are brought into the same order in registers.

#include "types.clh"
#include "lanes.clh"
#include "int4_layout.clh"

#define GROUPS (DEPTH / GROUP)
#if HALF == 4
typedef float16 vector_t;
typedef uint16 words_t;
#define LOAD_WORDS(p) vload16(0, p)
#define VALUES(w, j) convert_float16(as_int16(w << (28 - 4 * (j))) >> 28)
static inline vector_t interleaved(const float4 *q) {
  const float4 a = q[0], b = q[1], c = q[2], d = q[3];
  return (float16)(a.x, b.x, c.x, d.x, a.y, b.y, c.y, d.y, a.z, b.z, c.z, d.z, a.w, b.w, c.w,
                   d.w);
}
static inline float total_of(vector_t v) { return LANES_SUM(v); }
#elif HALF == 2
typedef float8 vector_t;
typedef uint8 words_t;
#define LOAD_WORDS(p) vload8(0, p)
#define VALUES(w, j) convert_float8(as_int8(w << (28 - 4 * (j))) >> 28)
static inline vector_t interleaved(const float4 *q) {
  const float4 a = q[0], b = q[1];
  return (float8)(a.x, b.x, a.y, b.y, a.z, b.z, a.w, b.w);
}
static inline float total_of(vector_t v) {
  return ((v.s0 + v.s4) + (v.s2 + v.s6)) + ((v.s1 + v.s5) + (v.s3 + v.s7));
}
#else
typedef float4 vector_t;
typedef uint4 words_t;
#define LOAD_WORDS(p) vload4(0, p)
#define VALUES(w, j) convert_float4(as_int4(w << (28 - 4 * (j))) >> 28)
static inline vector_t interleaved(const float4 *q) { return q[0]; }
static inline float total_of(vector_t v) { return (v.x + v.z) + (v.y + v.w); }
#endif

// What the lanes of a line in a tile have of its groups.
static inline vector_t by_lanes(const float *groups) {
#if GROUPS <= 1
  return groups[0];
#elif GROUPS == 2 && HALF == 2
  const float2 pair = (float2)(groups[0], groups[1]);
  return (float8)(pair, pair, pair, pair);
#else
  const float4 four =
      (float4)(groups[0], groups[GROUPS / 4], groups[GROUPS / 2], groups[GROUPS - 1]);
  return (float16)(four, four, four, four);
#endif
}
#define GROUPS_OF_TILE (GROUPS > 1 ? GROUPS : 1)

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void int4_few(CONST_TENSOR(storage_t, x), CONST_TENSOR(uint, weight),
              CONST_TENSOR(storage_t, scales), TENSOR(storage_t, out), const int lines,
              const int depth) {
  const size_t first = get_global_id(0) * 8;
  const int tiles = depth / DEPTH;
  const global uint *words = POINTER(weight) + get_global_id(0) * tiles * TILE;
  vector_t sums[FEW][8];
#pragma unroll
  for (int f = 0; f < FEW; ++f) {
#pragma unroll
    for (int r = 0; r < 8; ++r) sums[f][r] = 0;
  }
  for (int tile = 0; tile < tiles; ++tile, words += TILE) {
    vector_t factors[FEW][8];
    vector_t factor_sums[FEW];
#pragma unroll
    for (int f = 0; f < FEW; ++f) {
      const global storage_t *row = POINTER(x) + (size_t)f * depth + tile * DEPTH;
      float16 even[HALF], odd[HALF];
#pragma unroll
      for (int i = 0; i < HALF; ++i) {
        const float16 low = CONCAT(load_lanes_, DTYPE)(row + i * 32);
        const float16 high = CONCAT(load_lanes_, DTYPE)(row + i * 32 + 16);
        even[i] = (float16)(low.even, high.even);
        odd[i] = (float16)(low.odd, high.odd);
      }
#define FACTORS(j, side, lanes)                                      \
  {                                                                  \
    float4 quads[HALF];                                              \
    _Pragma("unroll") for (int i = 0; i < HALF; ++i) quads[i] = side[i].lanes; \
    factors[f][j] = interleaved(quads);                               \
  }
      FACTORS(0, even, s0123)
      FACTORS(1, even, s4567)
      FACTORS(2, even, s89ab)
      FACTORS(3, even, scdef)
      FACTORS(4, odd, s0123)
      FACTORS(5, odd, s4567)
      FACTORS(6, odd, s89ab)
      FACTORS(7, odd, scdef)
      factor_sums[f] = ((factors[f][0] + factors[f][1]) + (factors[f][2] + factors[f][3])) +
                       ((factors[f][4] + factors[f][5]) + (factors[f][6] + factors[f][7]));
    }
    const global storage_t *pairs =
        POINTER(scales) + ((size_t)(tile * DEPTH / GROUP) * lines + first) * 2;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      float scale[GROUPS_OF_TILE], zero[GROUPS_OF_TILE];
#pragma unroll
      for (int g = 0; g < GROUPS_OF_TILE; ++g) {
        const global storage_t *pair = pairs + ((size_t)g * lines + r) * 2;
        scale[g] = LOAD(pair, 0);
        zero[g] = LOAD(pair, 1);
      }
      const vector_t scale_lanes = by_lanes(scale);
      const vector_t zero_lanes = by_lanes(zero);
      const words_t flipped = LOAD_WORDS(words + r * WORDS) ^ FLIP;
      vector_t values[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) values[j] = VALUES(flipped, j);
#pragma unroll
      for (int f = 0; f < FEW; ++f) {
        vector_t sum = values[0] * factors[f][0];
#pragma unroll
        for (int j = 1; j < 8; ++j) sum = fma(values[j], factors[f][j], sum);
        sum = fma(scale_lanes, sum, sums[f][r]);
        sums[f][r] = fma(zero_lanes, factor_sums[f], sum);
      }
    }
  }
#pragma unroll
  for (int f = 0; f < FEW; ++f) {
#pragma unroll
    for (int r = 0; r < 8; ++r) STORE(POINTER(out), (size_t)f * lines + first + r, total_of(sums[f][r]));
  }
}
