// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"
#include "allocator/tag/tag.h"

#include <memory>
#include <vector>

namespace spillway::abi {
namespace {

/// The scopes that this thread's pushes opened, innermost last.
std::vector<std::unique_ptr<TagScope>>& scopes() {
  thread_local std::vector<std::unique_ptr<TagScope>> open;
  return open;
}

Status push(const char* tag) {
  if (tag == nullptr) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "spillway_tag_push: tag must be a text, \"\" for no tag");
  }
  scopes().push_back(std::make_unique<TagScope>(intern_tag(tag)));
  return {};
}

Status pop() {
  if (scopes().empty()) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "spillway_tag_pop: this thread has no open spillway_tag_push");
  }
  scopes().pop_back();
  return {};
}

}  // namespace
}  // namespace spillway::abi

int spillway_tag_push(const char* tag) {
  return spillway::abi::at_edge([&] { return spillway::abi::push(tag); });
}

int spillway_tag_pop() {
  return spillway::abi::at_edge(spillway::abi::pop);
}
