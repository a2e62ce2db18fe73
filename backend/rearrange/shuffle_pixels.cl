// Copies between pixels of FACTOR * FACTOR * channels values and FACTOR rows of
// FACTOR times as many pixels, both channels_last, on CPUs. A work-item takes
// `chunk` lines of packed pixels. The host writes ahead of this text what the
// numbers here are and MOVE: loads of PIXELS by CHANNELS packed values, their
// permutation in registers and stores.

typedef CONCAT(storage_, DTYPE) bits_t;
typedef CONCAT(VECTOR, 16) vector_t;

// The host's Problem.
typedef struct {
  long packed_strides[2];  // from image to image and line to line
  long rows_strides[2];
  int lines;
  int height;
  int width;
  int channels;
  int chunk;
} problem_t;

#define LOAD_VECTOR(p) vload16(0, p)
#define STORE_VECTOR_NT(value, p)                               \
  if ((ulong)(p) % sizeof(vector_t) == 0)                       \
    __builtin_nontemporal_store(value, (global vector_t *)(p)); \
  else                                                          \
    vstore16(value, 0, p)
#define STORE_VECTOR(value, p) vstore16(value, 0, p)
#if NON_TEMPORAL && defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#undef STORE_VECTOR
#define STORE_VECTOR(value, p) STORE_VECTOR_NT(value, p)
#endif
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void shuffle_pixels(
    const problem_t problem, TENSOR(bits_t, packed), TENSOR(bits_t, rows)) {
  const problem_t *p = &problem;
  const int first = (int)get_global_id(0) * p->chunk;
  const int channels = CHANNELS < 16 ? CHANNELS : p->channels;
  const int row = (int)p->rows_strides[1];
  for (int line = first; line < min(first + p->chunk, p->lines); ++line) {
    const int image = line / p->height;
    const int y = line - image * p->height;
    global bits_t *packed_line =
        POINTER(packed) + (image * p->packed_strides[0] + y * p->packed_strides[1]);
    global bits_t *rows_line =
        POINTER(rows) + (image * p->rows_strides[0] + y * FACTOR * p->rows_strides[1]);
    // The last pixels and channels of a line are moved with some of those before.
    for (int next_pixel = 0; next_pixel < p->width; next_pixel += PIXELS) {
      const int pixel = min(next_pixel, p->width - PIXELS);
      for (int next = 0; next < channels; next += CHANNELS) {
        const int channel = min(next, channels - CHANNELS);
        global bits_t *packed_at =
            packed_line + (pixel * channels + channel) * (FACTOR * FACTOR);
        global bits_t *rows_at = rows_line + (pixel * FACTOR * channels + channel);
        MOVE
      }
    }
  }
}
