// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/resident_reason.h"

namespace spillway {

const char* resident_reason_name(ResidentReason reason) {
  constexpr std::array kNames{"",
                              "tiny",
                              "other_memory",
                              "sparse",
                              "process_group",
                              "cuda_graph",
                              "address_in_use",
                              "shared_with_processes",
                              "part_of_a_wrapper",
                              "kept_on_device",
                              "ended",
                              "data_ptr",
                              "referenced_elsewhere",
                              "no_host_memory"};
  static_assert(kNames.size() == static_cast<std::size_t>(ResidentReason::kCount));
  return kNames.at(static_cast<std::size_t>(reason));
}

}  // namespace spillway
