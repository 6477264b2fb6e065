// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/shapes.h"

#include <algorithm>
#include <utility>

namespace spillway {

Shape& Shapes::add(std::vector<Bytes> sizes, std::vector<bool> recomputable) {
  return shapes_.emplace_back(next_id_++, std::move(sizes), std::move(recomputable));
}

const Shape* Shapes::learn(KnownStep step) {
  const bool there = std::any_of(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
    return shape.sizes() == step.sizes && shape.recomputable() == step.recomputable;
  });
  return there || full() ? nullptr : &shapes_.emplace_back(next_id_++, std::move(step));
}

Shape* Shapes::with_id(std::uint64_t id) {
  const auto found = std::find_if(
      shapes_.begin(), shapes_.end(), [&](const Shape& each) { return each.id() == id; });
  return found != shapes_.end() ? &*found : nullptr;
}

const Shape& Shapes::oldest() const {
  return *std::min_element(
      shapes_.begin(), shapes_.end(), [](const Shape& left, const Shape& right) {
        return left.last_used < right.last_used;
      });
}

void Shapes::drop(const Shape& shape) {
  dropped_records_ += shape.records();
  shapes_.remove_if([&](const Shape& each) { return &each == &shape; });
}

std::vector<KnownStep> Shapes::known() const {
  std::vector<KnownStep> known;
  for (const Shape& shape : shapes_)
    if (auto step = shape.known()) known.push_back(*std::move(step));
  return known;
}

Bytes Shapes::predicted_reserved() const {
  Bytes most;
  for (const Shape& shape : shapes_)
    most = std::max(most, shape.predicted_reserved());
  return most;
}

std::uint64_t Shapes::records() const {
  std::uint64_t sum = dropped_records_;
  for (const Shape& shape : shapes_)
    sum += shape.records();
  return sum;
}

}  // namespace spillway
