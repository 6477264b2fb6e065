// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/known_step.h"

#include <algorithm>
#include <cmath>

namespace spillway {
namespace {

/// Sums of larger sizes might overflow.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;
constexpr std::size_t kMaxEvents = std::size_t{1} << 32;

bool is_time(double seconds) {
  return std::isfinite(seconds) && seconds >= 0;
}

bool is_sound(const RecordedStep& step, std::size_t index) {
  const Operand& operand = step.operands[index];
  if (operand.storage >= step.storages || operand.bytes > kMaxBytes) return false;
  if (operand.from >= operand.to || operand.to > step.peaks.size()) return false;
  return std::all_of(
      operand.products.begin(), operand.products.end(), [&](const Operand::Product& product) {
        if (product.storage >= step.storages) return false;
        if (product.within == Operand::kAlways) return true;
        return product.within < index && step.operands[product.within].storage == product.storage;
      });
}

const char* wrong_with_operands(const RecordedStep& step) {
  if (step.besides.size() != step.storages) return "besides";
  for (const std::size_t storage : step.operands_only)
    if (storage >= step.storages) return "operands_only";
  for (const std::uint64_t bytes : step.besides)
    if (bytes > kMaxBytes) return "besides";
  // end of the preceding absence, by storage
  std::vector<std::size_t> end(step.storages, step.peaks.size());
  for (std::size_t index = 0; index < step.operands.size(); ++index) {
    if (!is_sound(step, index)) return "operands";
    const Operand& operand = step.operands[index];
    if (operand.to > end[operand.storage]) return "operands";
    end[operand.storage] = operand.from;
  }
  return nullptr;
}

const char* wrong_with(const RecordedStep& step, std::size_t storages) {
  const std::size_t events = step.peaks.size();
  if (events == 0 || step.edges.size() != events || events > kMaxEvents) return "event counts";
  if (step.storages != storages) return "storages";
  if (!std::is_sorted(step.edges.begin(), step.edges.end())) return "edges";
  for (const std::uint64_t peak : step.peaks)
    if (peak > kMaxBytes) return "peaks";
  if (step.begin.count() > kMaxBytes) return "begin";
  std::size_t before = 0;
  for (const RecordedStep::Absence& offloaded : step.absences) {
    if (offloaded.storage >= storages || offloaded.storage < before) return "absences";
    if (offloaded.from >= offloaded.to || offloaded.to > events) return "absences";
    if (offloaded.bytes > kMaxBytes) return "absences";
    before = offloaded.storage;
  }
  return wrong_with_operands(step);
}

const char* wrong_with(const StepTimes& times, std::size_t storages) {
  if (times.recompute.size() > storages) return "times";
  double before = 0;
  for (const StepTimes::Mark& mark : times.marks) {
    if (!is_time(mark.seconds) || mark.seconds < before) return "marks";
    before = mark.seconds;
  }
  if (!is_time(times.end) || times.end < before) return "end";
  if (!std::all_of(times.recompute.begin(), times.recompute.end(), is_time)) return "recompute";
  const LinkRates& link = times.link;
  if (!is_time(link.out) || !is_time(link.in) || !is_time(link.per_copy)) return "link";
  return nullptr;
}

}  // namespace

Status check_known(const KnownStep& step) {
  const std::size_t storages = step.sizes.size();
  const char* wrong = step.recomputable.size() == storages ? nullptr : "recomputable";
  if (storages == 0) wrong = "sizes";
  for (const Bytes size : step.sizes)
    if (size.count() > kMaxBytes) wrong = "sizes";
  if (wrong == nullptr) wrong = wrong_with(step.recorded, storages);
  if (wrong == nullptr && step.times) wrong = wrong_with(*step.times, storages);
  if (wrong == nullptr) return {};
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      "the recorded step is invalid: its " + std::string(wrong) + " are inconsistent");
}

}  // namespace spillway
