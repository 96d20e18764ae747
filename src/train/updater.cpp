// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// updater.cpp: the parts of an update, and their way through pages of files or the host's memory.
#include <algorithm>
#include <limits>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/distributed/agreement.hpp>
#include "src/train/evaluator.hpp"
#include "src/train/updater.hpp"

namespace kozero::train {

template <class Scalar>
Updater<Scalar>::Updater(const Settings& settings, const ParameterTable& table, const zero::ShardedState<Scalar>& state,
                         MemoryLedger& ledger, MemorySource* offloaded)
    : state_(state) {
  for (const auto& owned : state.update_ranges()) ranges_.push_back(owned.range);
  optimizer_ =
      optim::make_optimizer<Scalar>(settings.optim, optim::segments_of(table, ranges_, settings.optim.layer_decay),
                                    ledger, state_memory(settings, offloaded).optimizer);
  if (settings.offload.optimizer == MemorySource::Kind::host) {
    host_update_ = std::make_unique<HostUpdate<Scalar>>(state.update_ranges(), settings.offload, ledger, *offloaded);
  } else {
    parts_ = parts_of_update(settings.offload);
  }
  if (!settings.offload.uses(MemorySource::Kind::disk)) return;
  pages_bytes_ = settings.offload.bytes;
  ledger.book(Memory::staging, "pages of state on disk", std::min(pages_bytes_, ledger.bytes(Memory::disk)));
}

template <class Scalar>
std::vector<UpdatePart> Updater<Scalar>::parts_of_update(const Offload& offload) const {
  constexpr std::int64_t kPartsInMemory = 8;
  constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // 4 MiB of each array: large requests for any disk
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (offload.uses(MemorySource::Kind::disk)) {
    const auto arrays = static_cast<std::int64_t>(optimizer_->states().size()) + 2;  // + master and stored weights
    const std::int64_t in_memory = offload.bytes / (kPartsInMemory * arrays * static_cast<std::int64_t>(sizeof(float)));
    most = std::clamp<std::int64_t>(in_memory / kAlignment * kAlignment, kAlignment, kMostElements);
  }
  return parts_of(ranges_, most);
}

template <class Scalar>
std::vector<std::vector<DiskCheck::Array>> Updater<Scalar>::arrays_of_parts() const {
  std::vector<std::vector<DiskCheck::Array>> arrays;
  for (const UpdatePart& part : parts_) {
    const auto& owned = state_.update_ranges()[part.range];
    auto& of_part = arrays.emplace_back();
    of_part.emplace_back(words_of(slice(owned.master, part.first, part.extent)));
    if (has_master<Scalar>) of_part.emplace_back(words_of(slice(owned.stored, part.first, part.extent)));
    for (const auto& state : optimizer_->states()) {
      of_part.emplace_back(words_of(slice(state.values, owned.range.first + part.first, part.extent)));
    }
  }
  return arrays;
}

template <class Scalar>
std::vector<DiskCheck::Array> Updater<Scalar>::resting_arrays() const {
  std::vector<DiskCheck::Array> arrays;
  for (const auto& array : state_.weights().at_rest()) {
    const auto trains = [&](const UnitRange& range) { return range.unit == array.unit; };
    if (std::ranges::none_of(ranges_, trains)) arrays.emplace_back(array.words);
  }
  return arrays;
}

template <class Scalar>
void Updater<Scalar>::begin() {
  if (pages_bytes_ == 0) return;
  auto arrays = arrays_of_parts();
  std::vector<std::vector<PageRange>> pages(arrays.size());
  for (std::size_t part = 0; part < arrays.size(); ++part) {
    for (const auto& array : arrays[part]) pages[part].push_back(range_of(array));
  }
  disk_.check = std::make_unique<DiskCheck>(arrays, resting_arrays());
  disk_.check->record_all();
  if (disk_.pages == nullptr) disk_.pages = std::make_unique<PageStream>(std::move(pages), pages_bytes_);
}

template <class Scalar>
void Updater<Scalar>::take_as_right() {
  if (disk_.check != nullptr) disk_.check->record_all();
}

template <class Scalar>
void Updater<Scalar>::update(const optim::Step& step) {
  if (host_update_ != nullptr) return host_update_->run(*optimizer_, step);
  for (std::size_t number = 0; number < parts_.size(); ++number) {
    const UpdatePart& part = parts_[number];
    const auto& owned = state_.update_ranges()[part.range];
    const optim::Target<Scalar> all{owned.master, owned.stored};
    if (disk_.pages != nullptr) {
      disk_.pages->await();
      disk_.check->compare(number);
    }
    optimizer_->update(owned.range.first + part.first, all.part(part.first, part.extent),
                       slice(owned.gradient, part.first, part.extent), step);
    if (disk_.pages != nullptr) {
      disk_.check->record(number);
      disk_.pages->release();
    }
  }
}

template <class Scalar>
void Updater<Scalar>::require_unchanged_disk(distributed::Communicator& comm) const {
  if (disk_.check == nullptr) return;
  for (const auto& text : distributed::gather_text(comm, disk_.check->first_changed())) {
    if (!text.empty()) throw Error(Failure::input, text, Error::Seen::by_all_ranks);
  }
}

#define KOZERO_INSTANTIATE(T) template class Updater<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::train
