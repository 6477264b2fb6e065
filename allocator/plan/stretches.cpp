// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/stretches.h"

#include "allocator/plan/operands.h"

namespace spillway {
namespace {

/// Computes the stretches of one candidate.
class CandidateStretches {
 public:
  CandidateStretches(const StepProfile& profile,
                     std::size_t candidate,
                     std::size_t first_use,
                     bool is_operand)
      : profile_(profile),
        candidate_(candidate),
        known_(profile.candidates[candidate]),
        first_use_(first_use),
        is_operand_(is_operand) {}

  [[nodiscard]] Stretch of(std::size_t from, std::size_t to, std::uint64_t bytes) const {
    const auto& windows = known_.windows;
    const bool recomputable = known_.recompute.has_value();
    const bool first = windows.size() < 2 || from < windows[1].from;
    // Recomputed a second time, it needs no copy either.
    const double in = first || !recomputable ? in_since(from) : 0;
    return {from,
            to,
            static_cast<double>(bytes),
            profile_.out_seconds(candidate_, from),
            in,
            recomputable,
            first};
  }

 private:
  [[nodiscard]] double in_since(std::size_t event) const {
    double seconds = 0;
    for (const Window& window : known_.windows) {
      if (window.in > 0 && is_used_after(window, event))
        seconds += profile_.link.in_seconds(window.in);
    }
    return seconds;
  }

  /// Whether the copy in at the end of the window comes after the event in any case. Windows that
  /// extend over operands may become one.
  [[nodiscard]] bool is_used_after(const Window& window, std::size_t event) const {
    if (!is_operand_) return window.to > event;
    const bool is_first = &window == &known_.windows.front();
    return is_first && event < first_use_ && first_use_ < profile_.events();
  }

  const StepProfile& profile_;
  const std::size_t candidate_;
  const Candidate& known_;
  const std::size_t first_use_;  // with everything offloaded
  const bool is_operand_;
};

}  // namespace

std::vector<Stretch> stretches_of(const StepProfile& profile,
                                  const std::vector<std::size_t>& first_use) {
  const std::size_t candidates = profile.candidates.size();
  std::vector<std::vector<const Operand*>> operands(candidates);
  for (const Operand& operand : profile.memory.operands)
    operands[operand.storage].push_back(&operand);
  std::vector<Stretch> stretches;
  for (std::size_t candidate = 0; candidate < candidates; ++candidate) {
    const CandidateStretches all(
        profile, candidate, first_use[candidate], !operands[candidate].empty());
    for (const Window& window : profile.candidates[candidate].windows)
      stretches.push_back(all.of(window.from, window.to, window.bytes));
    for (const Operand* const operand : operands[candidate])
      stretches.push_back(all.of(operand->from, operand->to, operand->bytes));
  }
  return stretches;
}

}  // namespace spillway
