// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"
#include "allocator/tag/tag.h"

namespace spillway::abi {
namespace {

Status push(const char* tag) {
  if (tag == nullptr) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "spillway_tag_push: tag is null. Pass a path such as \"model/layer\".");
  }
  return push_tag(tag).status();
}

Status pop() {
  if (pop_tag()) return {};
  return SPILLWAY_ERROR(
      Code::kNotReady,
      "spillway_tag_pop: this thread has no open tag. Call spillway_tag_push first.");
}

}  // namespace
}  // namespace spillway::abi

int spillway_tag_push(const char* tag) {
  return spillway::abi::at_edge([&] { return spillway::abi::push(tag); });
}

int spillway_tag_pop() {
  return spillway::abi::at_edge(spillway::abi::pop);
}
