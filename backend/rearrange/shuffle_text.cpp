#include "shuffle_text.h"

#include <algorithm>

namespace torch_opencl::ops {
namespace {

// A vector's values out of those of `sources`, which are named `name`0, ...
std::string gathered(const ShuffledVectors& sources,
                     const std::string& name,
                     const ShuffledVector& wanted) {
  std::string text;
  std::array<bool, kLanes> has{};
  for (size_t s = 0; s < sources.size(); ++s) {
    const auto& values = sources[s].values;
    std::string lanes;
    bool adds = false;
    for (int l = 0; l < kLanes; ++l) {
      const auto at = std::find(values.begin(), values.end(), wanted.values[l]);
      const bool takes = !has[l] && at != values.end();
      lanes += ", " + std::to_string(has[l]  ? l
                                     : takes ? kLanes + int(at - values.begin())
                                             : -1);
      has[l] |= takes;
      adds |= takes;
    }
    if (adds) {
      const std::string source = name + std::to_string(s);
      text = "__builtin_shufflevector(" + (text.empty() ? source : text) +
             ", " + source + lanes + ")";
    }
  }
  return text;
}

}  // namespace

std::string shuffle_text(const std::vector<ShuffledVectors>& orders) {
  std::string text;
  std::string name = "a";
  for (size_t v = 0; v < orders[0].size(); ++v)
    text += "const vector_t a" + std::to_string(v) + " = LOAD_VECTOR(" +
            orders[0][v].address + "); ";
  for (size_t s = 1; s < orders.size(); ++s) {
    const std::string next(1, static_cast<char>('a' + s));
    for (size_t v = 0; v < orders[s].size(); ++v) {
      const std::string value = gathered(orders[s - 1], name, orders[s][v]);
      text +=
          s + 1 < orders.size()
              ? "const vector_t " + next + std::to_string(v) + " = " + value +
                    "; "
              : "STORE_VECTOR(" + value + ", " + orders[s][v].address + "); ";
    }
    name = next;
  }
  return text;
}

}  // namespace torch_opencl::ops
