#include "product_wish.h"

#include "../../cpp/aten/solver.h"

#include <cstdio>
#include <string>
#include <vector>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;

namespace {

// Of a problem, the ones that the model expects to be the fastest.
constexpr size_t kMostMeasured = 4;

// "tile_128x64", or "tile_128x64_4" for four parts of the depth.
ProductWish wish_named(const std::string& name) {
  ProductWish wish;
  const size_t tile = name.find("tile_");
  int parts = 0;
  if (tile == std::string::npos || std::sscanf(name.c_str() + tile,
                                               "tile_%dx%d_%d",
                                               &wish.rows,
                                               &wish.columns,
                                               &parts) < 2) {
    return {};
  }
  wish.parts = parts;
  return wish;
}

std::string name_of(const ProductWish& wish) {
  return c10::str("tile_", wish.rows, "x", wish.columns, "_", wish.parts);
}

std::string text_of(const ProductOperand& operand,
                    const OperandAccess& access) {
  return c10::str(access.is_along_lines ? "along lines" : "along depth",
                  access.is_wide ? " by four" : "",
                  operand.line.outer_stride != 0 ? " in panels" : "");
}

std::string text_of(const ProductImage* image) {
  if (image == nullptr) {
    return "";
  }
  return c10::str(
      image->is_weight_gradient ? ", image of a weight gradient" : ", image",
      image->has_channels_innermost ? ", channels_last" : "",
      image->is_checked ? ", with padding" : "",
      image->is_flat ? ", flat" : "");
}

// What a tile's speed depends on besides the device.
std::string key_of(const ProductLaunch& l,
                   const ProductSize& size,
                   at::ScalarType out) {
  return c10::str("tile: ",
                  size.batch,
                  " x (",
                  size.rows,
                  " x ",
                  size.depth,
                  ", ",
                  text_of(l.left, l.left_access),
                  ") (",
                  size.depth,
                  " x ",
                  size.columns,
                  ", ",
                  text_of(l.right, l.right_access),
                  text_of(l.image),
                  "), ",
                  c10::toString(l.operands),
                  l.operands == out ? "" : " to ",
                  l.operands == out ? "" : c10::toString(out),
                  size.units == MatrixUnits::kNone ? "" : ", by matrix units");
}

}  // namespace

bool has_wishes(const at::TensorBase& on) {
  return has_solver_settings.load(std::memory_order_relaxed) ||
         !aten::device_of(on).info().tuning->choices.empty();
}

bool settings_wish_tile() {
  return has_solver_settings.load(std::memory_order_relaxed) &&
         wish_named(solver_settings().only).rows != 0;
}

ProductWish wish_of(const at::TensorBase& on,
                    const ProductLaunch& launch,
                    const ProductSize& size,
                    const ProductDevice& device,
                    const std::function<void(const ProductChoice&)>& run) {
  const SolverSettings settings = solver_settings();
  if (const ProductWish only = wish_named(settings.only); only.rows != 0) {
    return only;
  }
  const std::string key = key_of(launch, size, on.scalar_type());
  const ProductWish known =
      wish_named(known_choice(aten::device_of(on).info(), key));
  if (!settings.measures) {
    return known;
  }
  const std::vector<ProductWish> wishes =
      product_candidates(size, device, kMostMeasured);
  std::vector<std::string> names;
  for (const ProductWish& wish : wishes) {
    names.push_back(name_of(wish));
  }
  std::function<void(size_t)> run_one;
  if (can_measure(on, launch.can_repeat)) {
    run_one = [&](size_t i) { run(choose_product(size, device, wishes[i])); };
  }
  const auto fastest = fastest_solver(on, key, names, run_one);
  return fastest ? wishes[*fastest] : known;
}

}  // namespace torch_opencl::ops
