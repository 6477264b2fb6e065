// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/tensor_notes.h"

#include "torch_glue/saved_tensors/latest.h"
#include "torch_glue/saved_tensors/thread_notes.h"

#include <array>
#include <cstddef>
#include <utility>

namespace spillway {
namespace {

/// The reference prevents reuse of the cast's address.
struct FrozenCast {
  c10::weak_intrusive_ptr<c10::TensorImpl> cast;
  TensorNote input;
};

struct NotedBias {
  TensorNote given;
  std::optional<TensorNote> cast_of;
};

struct Notes {
  Latest<TensorNote, 16> casts;  // the next operator saves their results
  // Autocast's cast of a frozen layer directly precedes its product.
  std::array<std::optional<FrozenCast>, 8> frozen_casts;
  std::size_t next_frozen = 0;
  Latest<NotedBias, 16> biases;
};

ThreadNotes<Notes>& notes_of_thread() {
  thread_local ThreadNotes<Notes> those;
  return those;
}

template <typename Known, std::size_t kMax>
std::optional<Known> copy_of(const Latest<Known, kMax>& those, const torch::autograd::Node& node) {
  const Known* const found = those.find(node);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

std::optional<TensorNote> input_of_frozen_cast(const Notes& notes, const at::Tensor& cast) {
  for (const auto& each : notes.frozen_casts) {
    if (each && each->cast._unsafe_get_target() == cast.unsafeGetTensorImpl()) return each->input;
  }
  return std::nullopt;
}

}  // namespace

Source TensorNote::source() const {
  at::Tensor alive(tensor_.lock());
  if (alive.defined() && version_of(alive) != version_) alive.reset();
  return {std::move(alive), type_, version_};
}

void note_cast(const at::Tensor& cast, TensorNote input) {
  notes_of_thread().with([&](Notes& notes) { add_first(notes.casts, cast, std::move(input)); });
}

void note_frozen_cast(const at::Tensor& cast, TensorNote input) {
  notes_of_thread().with([&](Notes& notes) {
    notes.frozen_casts.at(notes.next_frozen++ % notes.frozen_casts.size())
        .emplace(FrozenCast{c10::weak_intrusive_ptr<c10::TensorImpl>(cast.getIntrusivePtr()),
                            std::move(input)});
  });
}

void note_bias(const at::Tensor& product, const at::Tensor& bias, TensorNote noted) {
  notes_of_thread().with([&](Notes& notes) {
    add_first(notes.biases, product, {std::move(noted), input_of_frozen_cast(notes, bias)});
  });
}

std::optional<Source> source_of_cast(const torch::autograd::Node& node) {
  const auto input =
      notes_of_thread().with([&](const Notes& notes) { return copy_of(notes.casts, node); });
  return input ? std::optional(input->source()) : std::nullopt;
}

std::optional<Source> bias_of_product(const torch::autograd::Node& node) {
  const auto bias =
      notes_of_thread().with([&](const Notes& notes) { return copy_of(notes.biases, node); });
  if (!bias) return std::nullopt;
  Source source = bias->given.source();
  if (source.tensor.defined() || !bias->cast_of) return source;
  const at::ScalarType type = source.type;
  source = bias->cast_of->source();
  source.type = type;
  return source;
}

}  // namespace spillway
