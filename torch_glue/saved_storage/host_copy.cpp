// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/host_copy.h"

#include "torch_glue/base/compat.h"

#include <algorithm>
#include <utility>

namespace spillway {

bool HostCopy::Piece::is_of(const c10::VariableVersion& other) const {
  return compat::counter_identity(version) == compat::counter_identity(other) && other.enabled() &&
         other.current_version() == version_number;
}

Result<Bytes> HostCopy::take(const ByteRange& wanted,
                             const c10::VariableVersion& version,
                             driver::Stream producer) {
  if (pieces_.empty()) return take_first(wanted, version, producer);
  ByteRange whole = wanted;
  std::vector<ByteRange> valid;
  std::vector<ByteRange> of_this_version;  // a counter of its own may belong to the next writer
  const auto is_stale = [&](const Piece& piece) {
    return piece.bytes.overlaps(wanted) && !piece.is_of(version);
  };
  for (const Piece& piece : pieces_) {
    if (is_stale(piece)) {
      whole = hull(whole, piece.bytes);
    } else {
      valid.push_back(piece.bytes);
      if (piece.is_of(version)) of_this_version.push_back(piece.bytes);
    }
  }
  if (uncovered(whole, valid).empty()) return Bytes{};

  const auto missing = uncovered(extend_to_block(whole, of_this_version, size_), valid);
  std::vector<Leaving> leaving;
  for (const ByteRange& bytes : missing)
    leaving.push_back({storage_ + bytes.begin, bytes.size()});
  SPILLWAY_ASSIGN_OR_RETURN(std::vector<Stash> taken, device_.residency().stash(leaving, producer));
  pieces_.erase(std::remove_if(pieces_.begin(), pieces_.end(), is_stale), pieces_.end());
  Bytes copied;
  for (std::size_t each = 0; each < missing.size(); ++each) {
    copied += missing[each].size();
    hold(missing[each], std::move(taken[each]), version, producer);
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& left, const Piece& right) {
    return left.bytes.begin < right.bytes.begin;
  });
  return copied;
}

Result<Bytes> HostCopy::take_first(const ByteRange& wanted,
                                   const c10::VariableVersion& version,
                                   driver::Stream producer) {
  const ByteRange bytes = extend_to_block(wanted, {}, size_);
  SPILLWAY_ASSIGN_OR_RETURN(
      Stash taken, device_.residency().stash(storage_ + bytes.begin, bytes.size(), producer));
  hold(bytes, std::move(taken), version, producer);
  return bytes.size();
}

void HostCopy::hold(const ByteRange& bytes,
                    Stash taken,
                    const c10::VariableVersion& version,
                    driver::Stream producer) {
  last_written_ = taken.written();
  const std::uint32_t number = version.enabled() ? version.current_version() : 0;
  pieces_.push_back({bytes, std::move(taken), version, number, producer.handle()});
}

Bytes HostCopy::size() const {
  Bytes all;
  for (const Piece& piece : pieces_)
    all += piece.bytes.size();
  return all;
}

ByteRange HostCopy::extent() const {
  return hull(pieces_.front().bytes, pieces_.back().bytes);
}

Result<driver::Fence> HostCopy::fetch(driver::DevicePtr destination,
                                      Bytes begin,
                                      driver::Stream consumer,
                                      CopyPriority priority) {
  if (pieces_.size() == 1) {
    Piece& all = pieces_.front();
    return device_.residency().fetch(
        all.stash, destination + (all.bytes.begin - begin), consumer, priority);
  }
  std::vector<Return> returns;
  for (Piece& piece : pieces_)
    returns.push_back({&piece.stash, destination + (piece.bytes.begin - begin)});
  return device_.residency().fetch(returns, consumer, priority);
}

void HostCopy::set_offloaded(bool offloaded) {
  for (Piece& piece : pieces_)
    piece.stash.set_offloaded(offloaded);
}

Status HostCopy::make_producers_wait() const {
  for (const Piece& piece : pieces_) {
    SPILLWAY_RETURN_IF_ERROR(driver::Timeline::wait(
        driver::Stream(piece.producer, device_.device().id), piece.stash.written()));
  }
  return {};
}

}  // namespace spillway
