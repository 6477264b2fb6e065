// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/lifetime/allocation_curve.h"

namespace spillway::test_steps {

/// A gated block, recorded: storage 0 is what the gate's activation took, 1 what that gave, 2 the
/// other half, 3 their product. The backward pass wants 3 first, which is recomputed from 1 and
/// 2, and 1 from 0; then 1 and 2, of which 1 has been released and is recomputed; then 0. Each
/// has 100 bytes.
inline StepCurve gated_block() {
  constexpr std::size_t kNothing = StepCurve::Ask::kNoProduct;
  StepCurve curve;
  curve.allocated = {500, 500, 500, 500, 500, 600, 700, 800, 900, 800, 700, 800, 700, 600, 500};
  curve.absences = {{0, 1, 5, 100},
                    {1, 2, 6, 100},
                    {2, 3, 7, 100},
                    {3, 4, 8, 100},
                    {1, 10, 11, 100},
                    {3, 9, 14, 100},
                    {1, 12, 14, 100},
                    {2, 13, 14, 100},
                    {0, 14, 15, 100}};
  curve.asks = {{0, 5, 1},
                {1, 6, 3},
                {2, 7, 3},
                {3, 8, kNothing},
                {0, 10, 1},
                {1, 11, kNothing},
                {2, 11, kNothing},
                {0, 12, kNothing}};
  return curve;
}

}  // namespace spillway::test_steps
