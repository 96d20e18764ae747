// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host_update.cpp: the pipeline over the parts, and the copies between device and buffers.
#include <algorithm>

#include <kozero/core/precision.hpp>
#include "src/train/host_update.hpp"

namespace kozero::train {

std::vector<UpdatePart> parts_of(const std::vector<UnitRange>& ranges, std::int64_t most) {
  std::vector<UpdatePart> parts;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::int64_t extent = ranges[i].extent;
    for (std::int64_t first = 0; first < extent; first += std::min(most, extent - first)) {
      parts.push_back({i, first, std::min(most, extent - first)});
    }
  }
  return parts;
}

namespace {

template <class T, class U>
void start_copy(DeviceCopies& copies, const Vector<T>& to, const Vector<U>& from) {
  copies.start(to.data(), from.data(), static_cast<std::int64_t>(from.extent(0) * sizeof(T)));
}

/// As many elements as fit three times into `bytes`, at most 2^22, whose floats take 16 MiB.
std::int64_t largest_part(std::int64_t bytes, std::int64_t bytes_per_element) {
  constexpr std::int64_t kMost = std::int64_t{1} << 22;
  return std::clamp(bytes / (3 * bytes_per_element) / kAlignment * kAlignment, kAlignment, kMost);
}

}  // namespace

template <class Scalar>
HostUpdate<Scalar>::HostUpdate(const std::vector<zero::UpdateRange<Scalar>>& ranges, const Offload& offload,
                               MemoryLedger& ledger, MemorySource& host)
    : ranges_(ranges),
      moves_master_(!has_master<Scalar> && offload.parameters != MemorySource::Kind::host),
      moves_stored_(has_master<Scalar> && offload.parameters != MemorySource::Kind::host) {
  const std::int64_t bytes_per_element =
      std::int64_t{sizeof(float)} + (moves_master_ ? sizeof(float) : 0) + (moves_stored_ ? sizeof(Scalar) : 0);
  std::vector<UnitRange> flat;
  for (const auto& owned : ranges_) flat.push_back(owned.range);
  parts_ = parts_of(flat, largest_part(offload.bytes, bytes_per_element));
  std::int64_t extent = 0;
  for (const UpdatePart& part : parts_) extent = std::max(extent, part.extent);
  for (Buffer& buffer : buffers_) {
    buffer.gradient = ledger.take<float>(Memory::staging, "gradients for the host's update", extent, host);
    const std::int64_t of_master = moves_master_ ? extent : 0;
    const std::int64_t of_stored = moves_stored_ ? extent : 0;
    buffer.master = ledger.take<float>(Memory::staging, "weights for the host's update", of_master, host);
    buffer.stored = ledger.take<Scalar>(Memory::staging, "weights from the host's update", of_stored, host);
  }
}

template <class Scalar>
optim::Target<Scalar> HostUpdate<Scalar>::target_on_device(const UpdatePart& part) const {
  const auto& owned = ranges_[part.range];
  return optim::Target<Scalar>{owned.master, owned.stored}.part(part.first, part.extent);
}

template <class Scalar>
void HostUpdate<Scalar>::start_arrival(std::size_t index) {
  const UpdatePart& part = parts_[index];
  const Buffer& to = buffer(index);
  start_copy(arrivals_, to.gradient, slice(ranges_[part.range].gradient, part.first, part.extent));
  if (moves_master_) start_copy(arrivals_, to.master, target_on_device(part).master);
}

template <class Scalar>
void HostUpdate<Scalar>::start_departure(std::size_t index) {
  const UpdatePart& part = parts_[index];
  const Buffer& from = buffer(index);
  const optim::Target<Scalar> to = target_on_device(part);
  if (moves_master_) start_copy(departures_, to.master, slice(from.master, 0, part.extent));
  if (moves_stored_) start_copy(departures_, to.stored, slice(from.stored, 0, part.extent));
}

template <class Scalar>
void HostUpdate<Scalar>::run(optim::Optimizer<Scalar>& optimizer, const optim::Step& step) {
  if (!parts_.empty()) start_arrival(0);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const UpdatePart& part = parts_[i];
    arrivals_.wait();
    if (i + 1 < parts_.size()) start_arrival(i + 1);  // its buffer held part i - 2, whose weights are copied out
    optim::Target<Scalar> target = target_on_device(part);
    const Buffer& here = buffer(i);
    if (moves_master_) target = {slice(here.master, 0, part.extent), {}};
    if (moves_stored_) target.stored = slice(here.stored, 0, part.extent);
    optimizer.update(ranges_[part.range].range.first + part.first, target,
                     Vector<const float>(slice(here.gradient, 0, part.extent)), step);
    departures_.wait();
    start_departure(i);
  }
  departures_.wait();
}

#define KOZERO_INSTANTIATE(T) template class HostUpdate<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

}  // namespace kozero::train
