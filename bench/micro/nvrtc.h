// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <string>

namespace spillway::micro {

/// `source` as a cubin for `architecture` ("sm_90"), by NVRTC: from the library path (`spillway
/// bench` adds the folder of torch's wheels), never linked. Errors: kNoDriver where NVRTC is
/// missing; kInvalidArgument with the compiler's words.
Result<std::string> compile(const std::string& source, const std::string& architecture);

}  // namespace spillway::micro
