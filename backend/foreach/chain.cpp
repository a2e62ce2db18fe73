#include "chain.h"

#include "grouped.h"

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using at::TensorList;

// Longer chains would make more kernels than they save launches.
constexpr size_t kMaxCalls = 16;
// Places of one tensor, each of which may lie in a buffer of its own.
constexpr size_t kMaxLists = 8;

std::string number(size_t value) {
  return std::to_string(value);
}

struct List {
  std::vector<BufferView> places;
  std::vector<c10::Storage> storages;
};

// A call whose lists are numbers into those of its chain.
struct Link {
  std::string name;
  const char* expression;
  std::vector<size_t> lists;
  size_t out;
  std::vector<std::vector<double>> scalars;
};

struct Range {
  cl_mem memory;
  uint64_t begin;
  uint64_t end;
  size_t list;
};

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

// What an optimizer computes of equal steps is equal for all.
std::vector<double> merged(const std::vector<double>& values) {
  const bool is_one =
      std::equal(values.begin() + 1, values.end(), values.begin());
  return is_one ? std::vector<double>{values[0]} : values;
}

class Chain : public runtime::Deferred {
 public:
  explicit Chain(const ForeachCall& call)
      : dtype_(dtype_of(call.lists[0][0])),
        elements_(elements_of(call.lists[0])) {}

  // False where it needs a chain of its own; `places` are those of the call's
  // lists.
  bool add(const ForeachCall& call,
           const std::vector<std::vector<BufferView>>& places) {
    if (links_.size() == kMaxCalls || dtype_of(call.lists[0][0]) != dtype_ ||
        elements_of(call.lists[0]) != elements_) {
      return false;
    }
    std::vector<size_t> found;
    size_t next = lists_.size();
    for (size_t k = 0; k < places.size(); ++k) {
      found.push_back(index_of(places, k, found, next));
    }
    if (next > kMaxLists) {
      return false;
    }
    for (size_t k = 0; k < places.size(); ++k) {
      if (found[k] == lists_.size()) {
        List list{places[k], {}};
        for (const Tensor& tensor : call.lists[k]) {
          list.storages.push_back(tensor.storage());
        }
        lists_.push_back(std::move(list));
      }
    }
    Link link{call.name, call.expression, found, found.back(), {}};
    link.lists.pop_back();
    for (const std::vector<double>& values : call.scalars) {
      link.scalars.push_back(merged(values));
    }
    links_.push_back(std::move(link));
    return true;
  }

  void enqueue(runtime::Queue& queue) override {
    if (links_.size() == 1 || are_separate()) {
      launch(queue, links_, links_.size() > 1);
      return;
    }
    for (const Link& link : links_) {
      launch(queue, {link}, false);
    }
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
                  const std::vector<size_t>& found,
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

  std::vector<bool> written() const {
    std::vector<bool> result(lists_.size());
    for (const Link& link : links_) {
      result[link.out] = true;
    }
    return result;
  }

  // Whether no element that is written lies in two places of the lists: one
  // work-item takes an element through the whole chain.
  bool are_separate() const {
    const std::vector<bool> is_written = written();
    std::vector<Range> ranges;
    for (size_t list = 0; list < lists_.size(); ++list) {
      for (size_t t = 0; t < elements_.size(); ++t) {
        const BufferView& place = lists_[list].places[t];
        if (elements_[t] > 0) {
          ranges.push_back(
              {place.memory, place.offset, place.offset + elements_[t], list});
        }
      }
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
      return a.memory != b.memory ? a.memory < b.memory : a.begin < b.begin;
    });
    // Of the ranges so far that reach into the next one.
    uint64_t end = 0;
    bool is_any_written = false;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const bool is_apart = i == 0 ||
                            ranges[i].memory != ranges[i - 1].memory ||
                            ranges[i].begin >= end;
      const bool writes = is_written[ranges[i].list];
      if (!is_apart && (writes || is_any_written)) {
        return false;
      }
      end = is_apart ? ranges[i].end : std::max(end, ranges[i].end);
      is_any_written = writes || (!is_apart && is_any_written);
    }
    return true;
  }

  // Nobody but the chain can look at it any more.
  static bool is_dead(const List& list) {
    return std::all_of(
        list.storages.begin(),
        list.storages.end(),
        [](const c10::Storage& storage) { return storage.use_count() == 1; });
  }

  void launch(runtime::Queue& queue,
              const std::vector<Link>& links,
              bool drops_dead_lists) const {
    static constexpr const char* kLists[] = {"x", "y", "z"};
    static constexpr const char* kNumbers[] = {"a", "b"};
    GroupedLaunch result{"", "", dtype_, elements_, {}, {}};
    std::vector<bool> is_used(lists_.size()), is_read(lists_.size()),
        is_written(lists_.size());
    for (size_t i = 0; i < links.size(); ++i) {
      const Link& link = links[i];
      result.name += (i > 0 ? "_" : "") + link.name;
      result.statements += "    {\n";
      for (size_t k = 0; k < link.lists.size(); ++k) {
        const size_t list = link.lists[k];
        is_read[list] = is_read[list] || !is_used[list];
        is_used[list] = true;
        result.statements += std::string("    const value_t ") + kLists[k] +
                             " = list" + number(list) + ";\n";
      }
      for (size_t k = 0; k < link.scalars.size(); ++k) {
        const std::string name = "number" + number(result.scalars.size());
        result.statements += std::string("    const compute_t ") + kNumbers[k] +
                             " = " + name + ";\n";
        result.scalars.push_back({name, link.scalars[k]});
      }
      is_used[link.out] = is_written[link.out] = true;
      result.statements += "    list" + number(link.out) + " = " +
                           link.expression + ";\n    }\n";
    }
    std::string own;
    for (size_t list = 0; list < lists_.size(); ++list) {
      is_written[list] =
          is_written[list] && !(drops_dead_lists && is_dead(lists_[list]));
      const std::string name = "list" + number(list);
      if (is_read[list] || is_written[list]) {
        result.lists.push_back({name,
                                lists_[list].places,
                                dtype_,
                                is_read[list],
                                is_written[list]});
      } else if (is_used[list]) {
        own += "    value_t " + name + ";\n";
      }
    }
    result.statements = own + result.statements;
    if (std::any_of(
            is_written.begin(), is_written.end(), [](bool is) { return is; })) {
      launch_grouped(queue, result);
    }
  }

  DType dtype_;
  std::vector<int64_t> elements_;
  std::vector<List> lists_;
  std::vector<Link> links_;
};

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
  const Tensor& first = call.lists[0][0];
  runtime::Queue& queue = queue_of(first);
  const at::ScalarType dtype = first.scalar_type();
  if (queue.can_defer() && compute_type(dtype) == dtype) {
    queue.defer([&](runtime::Deferred* waiting) {
      auto* chain = dynamic_cast<Chain*>(waiting);
      if (chain != nullptr && chain->add(call, places)) {
        return std::unique_ptr<runtime::Deferred>();
      }
      auto next = std::make_unique<Chain>(call);
      next->add(call, places);
      return std::unique_ptr<runtime::Deferred>(std::move(next));
    });
    return true;
  }
  Chain chain(call);
  chain.add(call, places);
  queue.enqueue_deferred();
  chain.enqueue(queue);
  return true;
}

}  // namespace torch_opencl::ops
