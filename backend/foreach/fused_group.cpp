#include "fused_group.h"

#include "multi_tensor.h"

#include "../../cpp/device/allocator.h"
#include "../../cpp/runtime/growing_table.h"
#include "../../cpp/runtime/pending_launch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using at::TensorList;

// Longer groups would make more kernels than they save launches.
constexpr size_t kMaxSteps = 16;
// Places of one tensor, each of which may lie in a buffer of its own.
constexpr size_t kMaxLists = 8;
constexpr size_t kMaxOperands = 4;  // of a call: x, y, z and its results

std::string number(size_t value) {
  return std::to_string(value);
}

struct List {
  std::vector<BufferView> places;
  std::vector<c10::Storage> storages;
};

// What the text of a call depends on. Lists are numbers into those of the
// group; the last one is written.
struct StepText {
  const char* op;
  const char* expression;
  uint8_t list_count;
  uint8_t scalar_count;
  std::array<uint8_t, kMaxOperands> lists;
  std::array<bool, 2> is_shared;  // a scalar is one for all tensors

  uint8_t out() const { return lists[list_count - 1]; }
  bool operator==(const StepText&) const = default;
};

struct Step {
  StepText text;
  std::vector<std::vector<double>> scalars;
};

struct ListUse {
  bool is_read = false;  // before it is written
  bool is_written = false;
  bool is_used = false;

  bool operator==(const ListUse&) const = default;
};

// What the text of a launch depends on.
struct KernelKey {
  int device_index;
  DType dtype;
  size_t step_count;
  std::array<StepText, kMaxSteps> steps{};
  std::array<ListUse, kMaxLists> uses{};
  Slots slots = Slots::kFew;

  bool operator==(const KernelKey&) const = default;
};

struct KernelKeyHash {
  size_t operator()(const KernelKey& key) const {
    size_t hash = key.step_count * 64 + static_cast<size_t>(key.dtype);
    const auto mix = [&hash](size_t more) {
      hash = (hash ^ more) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    };
    mix(key.device_index);
    for (size_t i = 0; i < key.step_count; ++i) {
      const StepText& step = key.steps[i];
      uint32_t lists = 0;
      std::memcpy(&lists, step.lists.data(), sizeof(lists));
      mix(reinterpret_cast<uintptr_t>(step.expression));
      mix(lists);
    }
    for (const ListUse& use : key.uses) {
      mix(use.is_read + 2 * use.is_written);
    }
    return hash;
  }
};

// "aten::_foreach_add_" -> "add"
std::string short_name(const char* op) {
  std::string result = std::string(op).substr(std::strlen("aten::_foreach_"));
  if (result.back() == '_') {
    result.pop_back();
  }
  return result;
}

std::string name_of(const KernelKey& key) {
  std::string name;
  for (size_t i = 0; i < key.step_count; ++i) {
    name += (i > 0 ? "_" : "") + short_name(key.steps[i].op);
  }
  return name;
}

// Lists are variables list0, list1, ..., scalars number0, number1, ... in the
// order of the steps.
std::string statements_of(const KernelKey& key) {
  static constexpr const char* kLists[] = {"x", "y", "z"};
  static constexpr const char* kNumbers[] = {"a", "b"};
  std::string text;
  for (size_t list = 0; list < kMaxLists; ++list) {
    const ListUse& use = key.uses[list];
    if (use.is_used && !use.is_read && !use.is_written) {
      text += "    value_t list" + number(list) + ";\n";
    }
  }
  size_t scalars = 0;
  for (size_t i = 0; i < key.step_count; ++i) {
    const StepText& step = key.steps[i];
    text += "    {\n";
    for (int k = 0; k < step.list_count - 1; ++k) {
      text += std::string("    const value_t ") + kLists[k] + " = list" +
              number(step.lists[k]) + ";\n";
    }
    for (int k = 0; k < step.scalar_count; ++k) {
      text += std::string("    const compute_t ") + kNumbers[k] + " = number" +
              number(scalars++) + ";\n";
    }
    text += "    list" + number(step.out()) + " = " + step.expression +
            ";\n    }\n";
  }
  return text;
}

runtime::Kernel& find_kernel(runtime::Device& device,
                             const KernelKey& key,
                             const MultiTensorLaunch& launch) {
  static auto* kernels =
      new runtime::GrowingTable<KernelKey, runtime::Kernel*, KernelKeyHash>();
  return *kernels->find(key, [&] {
    return &build_multi_tensor(
        device, name_of(key), statements_of(key), launch);
  });
}

bool is_same(const std::vector<BufferView>& a,
             const std::vector<BufferView>& b) {
  return std::equal(a.begin(),
                    a.end(),
                    b.begin(),
                    b.end(),
                    [](const BufferView& x, const BufferView& y) {
                      return x.memory == y.memory && x.offset == y.offset;
                    });
}

// What an optimizer computes of equal steps is equal for all. Bits are
// compared: zeros have signs.
std::vector<double> merged(const std::vector<double>& values) {
  const bool is_one = std::equal(
      values.begin() + 1, values.end(), values.begin(), [](double a, double b) {
        return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
      });
  return is_one ? std::vector<double>{values[0]} : values;
}

class FusedGroup : public runtime::PendingLaunch {
 public:
  explicit FusedGroup(const ForeachCall& call)
      : PendingLaunch(call.op),
        dtype_(dtype_of(call.lists[0][0])),
        elements_(elements_of(call.lists[0])) {}

  // False where it needs a group of its own; `places` are those of the call's
  // lists.
  bool add(const ForeachCall& call,
           const std::vector<std::vector<BufferView>>& places) {
    if (steps_.size() == kMaxSteps || dtype_of(call.lists[0][0]) != dtype_ ||
        elements_of(call.lists[0]) != elements_) {
      return false;
    }
    Step step{{call.op,
               call.expression,
               static_cast<uint8_t>(places.size()),
               static_cast<uint8_t>(call.scalars.size()),
               {},
               {}},
              {}};
    size_t next = lists_.size();
    for (size_t k = 0; k < places.size(); ++k) {
      step.text.lists[k] =
          static_cast<uint8_t>(index_of(places, k, step.text.lists, next));
    }
    if (next > kMaxLists) {
      return false;
    }
    for (size_t k = 0; k < places.size(); ++k) {
      if (step.text.lists[k] == lists_.size()) {
        List list{places[k], {}};
        for (const Tensor& tensor : call.lists[k]) {
          list.storages.push_back(tensor.storage());
        }
        lists_.push_back(std::move(list));
      }
    }
    for (size_t k = 0; k < call.scalars.size(); ++k) {
      step.scalars.push_back(merged(call.scalars[k]));
      step.text.is_shared[k] = step.scalars.back().size() == 1;
    }
    steps_.push_back(std::move(step));
    return true;
  }

  void enqueue(runtime::Queue& queue) const override {
    launch(queue, 0, steps_.size());
  }

 private:
  static std::vector<int64_t> elements_of(TensorList tensors) {
    std::vector<int64_t> elements;
    elements.reserve(tensors.size());
    for (const Tensor& tensor : tensors) {
      elements.push_back(tensor.numel());
    }
    return elements;
  }

  // The number of the k-th of a call's lists; `next` counts those that are new.
  size_t index_of(const std::vector<std::vector<BufferView>>& places,
                  size_t k,
                  const std::array<uint8_t, kMaxOperands>& found,
                  size_t& next) const {
    for (size_t list = 0; list < lists_.size(); ++list) {
      if (is_same(lists_[list].places, places[k])) {
        return list;
      }
    }
    for (size_t earlier = 0; earlier < k; ++earlier) {
      if (is_same(places[earlier], places[k])) {
        return found[earlier];
      }
    }
    return next++;
  }

  // Nobody but the group can look at it any more.
  static bool is_dead(const List& list) {
    return std::all_of(list.storages.begin(),
                       list.storages.end(),
                       [](const c10::Storage& storage) {
                         return device::owns_block(storage) &&
                                storage.use_count() == 1;
                       });
  }

  // Steps from `first` to before `end`, one by one where lists of several share
  // memory.
  void launch(runtime::Queue& queue, size_t first, size_t end) const {
    KernelKey key{queue.device().index(), dtype_, end - first};
    MultiTensorLaunch result{dtype_, elements_, {}, {}};
    for (size_t i = first; i < end; ++i) {
      const Step& step = steps_[i];
      key.steps[i - first] = step.text;
      for (int k = 0; k < step.text.list_count - 1; ++k) {
        ListUse& use = key.uses[step.text.lists[k]];
        use.is_read = use.is_read || !use.is_used;
        use.is_used = true;
      }
      ListUse& out = key.uses[step.text.out()];
      out.is_used = out.is_written = true;
      for (const std::vector<double>& values : step.scalars) {
        result.scalars.push_back(
            {"number" + number(result.scalars.size()), values});
      }
    }
    bool writes = false;
    for (size_t list = 0; list < lists_.size(); ++list) {
      ListUse& use = key.uses[list];
      // A step that is launched alone may write for the next one.
      if (end - first > 1 && use.is_written && is_dead(lists_[list])) {
        use.is_written = false;
      }
      writes = writes || use.is_written;
      if (use.is_read || use.is_written) {
        result.lists.push_back({"list" + number(list),
                                lists_[list].places,
                                dtype_,
                                use.is_read,
                                use.is_written});
      }
    }
    if (!writes) {
      return;
    }
    const bool is_separate = are_separate(result);
    if (!is_separate && end - first > 1) {
      for (size_t i = first; i < end; ++i) {
        launch(queue, i, i + 1);
      }
      return;
    }
    key.slots = result.slots = slots_for(queue.device(), result.lists);
    launch_multi_tensor(
        queue, find_kernel(queue.device(), key, result), result, is_separate);
  }

  DType dtype_;
  std::vector<int64_t> elements_;
  std::vector<List> lists_;
  std::vector<Step> steps_;
};

// Whether a result and an operand of the same call and position share some of
// their elements, which no order makes right.
bool overlap_partly(const ForeachCall& call,
                    const std::vector<std::vector<BufferView>>& places) {
  const std::vector<BufferView>& out = places.back();
  for (size_t k = 0; k + 1 < places.size(); ++k) {
    for (size_t t = 0; t < out.size(); ++t) {
      const BufferView& x = places[k][t];
      const uint64_t apart = x.offset < out[t].offset
                                 ? out[t].offset - x.offset
                                 : x.offset - out[t].offset;
      if (x.memory == out[t].memory && apart != 0 &&
          apart < static_cast<uint64_t>(call.lists[0][t].numel())) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

bool run_foreach(const ForeachCall& call) {
  std::vector<std::vector<BufferView>> places;
  for (const TensorList& list : call.lists) {
    std::vector<BufferView> of_list;
    for (const Tensor& tensor : list) {
      const std::optional<BufferView> place = place_of(tensor);
      if (!place.has_value()) {
        return false;
      }
      of_list.push_back(*place);
    }
    places.push_back(std::move(of_list));
  }
  if (overlap_partly(call, places)) {
    return false;
  }
  const Tensor& first = call.lists[0][0];
  runtime::Queue& queue = queue_of(first);
  const at::ScalarType dtype = first.scalar_type();
  const bool may_wait = queue.can_pend() && compute_type(dtype) == dtype;
  if (may_wait && queue.join_pending([&](runtime::PendingLaunch& pending) {
        auto* group = dynamic_cast<FusedGroup*>(&pending);
        return group != nullptr && group->add(call, places);
      })) {
    return true;
  }
  auto group = std::make_unique<FusedGroup>(call);
  group->add(call, places);
  if (may_wait) {
    queue.pend(std::move(group));
  } else {
    queue.flush_pending();
    group->enqueue(queue);
  }
  return true;
}

}  // namespace torch_opencl::ops
