// Adds the parts [part][element][channel] of a depthwise weight's gradient.

#include "types.clh"
#include "lanes.clh"

// One work-item: `channels_at_once` channels. The weight's strides are (first element,
// channel, h, w).
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_weight_total(CONST_TENSOR(compute_t, partial), TENSOR(storage_t, weight),
                            const int channels, const int channels_at_once, const int parts,
                            const int2 kernel_size, const int4 weight_stride) {
  const int filter_size = kernel_size.s0 * kernel_size.s1;
  const int first = get_global_id(0) * channels_at_once;
  const int end = min(channels, first + channels_at_once);
  for (int c = first; c < end; c += LANES) {
    const int channel = min(c, channels - LANES);  // the last one overlaps
    for (int element = 0; element < filter_size; ++element) {
      const global compute_t *in = POINTER(partial) + (size_t)element * channels + channel;
      lanes_t sum = 0;
      for (int part = 0; part < parts; ++part) {
        sum += vload16(0, in + (size_t)part * filter_size * channels);
      }
      store_lanes(POINTER(weight),
                  channel * weight_stride.s1 + element / kernel_size.s1 * weight_stride.s2 +
                      element % kernel_size.s1 * weight_stride.s3,
                  weight_stride.s1, LANES, sum);
    }
  }
}
