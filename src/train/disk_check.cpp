// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_check.cpp: hashes of arrays on disk, whole and by the elements that a file takes.
#include <algorithm>
#include <functional>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include "kernels/launch/reduce.hpp"
#include "src/train/disk_check.hpp"

namespace kozero::train {
namespace {

std::uint64_t hash_of(const DiskCheck::Array& words) { return kernels::bit_hash(Device(), words); }

}  // namespace

std::string text_of_change(const DiskCheck::Array& words) {
  return name_on_disk(words.data()) +
         ": its file on disk (zero.offload_*) was changed or damaged after the run wrote it; resume from the newest "
         "checkpoint (each is compared when it is written), or begin anew if there is none, with another "
         "zero.offload_dir if the disk fails";
}

DiskCheck::DiskCheck(const std::vector<std::vector<Array>>& parts, const std::vector<Array>& resting) {
  for (const auto& part : parts) {
    for (const Array& array : part) watch(array, false);
  }
  for (const Array& array : resting) watch(array, true);
  const auto address = [](const Watched& array) { return array.words.data(); };
  std::ranges::sort(arrays_, std::less<>(), address);
  for (const auto& part : parts) {
    auto& indices = parts_.emplace_back();
    for (const Array& array : part) {
      const auto found = std::ranges::lower_bound(arrays_, array.data(), std::less<>(), address);
      if (found == arrays_.end() || found->words.data() != array.data()) continue;
      indices.push_back(static_cast<std::size_t>(found - arrays_.begin()));
    }
  }
}

void DiskCheck::watch(const Array& array, bool rests) {
  if (array.extent(0) > 0 && !name_on_disk(array.data()).empty()) arrays_.push_back({.words = array, .rests = rests});
}

void DiskCheck::record_all() {
  for (Watched& array : arrays_) {
    array.hash = hash_of(array.words);
    release_pages(array.words);
  }
}

void DiskCheck::record(std::size_t part) {
  for (const std::size_t index : parts_[part]) arrays_[index].hash = hash_of(arrays_[index].words);
}

void DiskCheck::compare(std::size_t part) const {
  for (const std::size_t index : parts_[part]) {
    const Watched& array = arrays_[index];
    if (hash_of(array.words) != array.hash) throw Error(Failure::input, text_of_change(array.words));
  }
}

std::string DiskCheck::first_changed() const {
  for (const Watched& array : arrays_) {
    if (hash_of(array.words) != array.hash) return text_of_change(array.words);
    release_pages(array.words);
  }
  return "";
}

void DiskCheck::begin() {
  for (Watched& array : arrays_) {
    array.sum = 0;
    array.elements_read.clear();
  }
}

void DiskCheck::read(std::span<const float> values) {
  const auto* const first = reinterpret_cast<const std::uint32_t*>(values.data());
  const auto* const last = first + values.size();
  const auto end_of = [](const Watched& array) { return array.words.data() + array.words.extent(0); };
  auto array = std::ranges::upper_bound(arrays_, first, std::less<>(), end_of);
  for (; array != arrays_.end() && array->words.data() < last; ++array) {
    const std::int64_t begin = std::max(first, array->words.data()) - array->words.data();
    const std::int64_t end = std::min(last, end_of(*array)) - array->words.data();
    array->sum += kernels::bit_hash(Device(), slice(array->words, begin, end - begin), begin);
    array->elements_read.emplace_back(begin, end);
  }
}

void DiskCheck::add_unread(Watched& array) {
  std::ranges::sort(array.elements_read);
  const auto extent = static_cast<std::int64_t>(array.words.extent(0));
  array.elements_read.emplace_back(extent, extent);
  std::int64_t at = 0;
  for (const auto& [first, last] : array.elements_read) {
    if (first > at) array.sum += kernels::bit_hash(Device(), slice(array.words, at, first - at), at);
    at = last;
  }
  release_pages(array.words);
}

void DiskCheck::require_unchanged() {
  for (Watched& array : arrays_) {
    if (array.elements_read.empty() && !array.rests) continue;
    add_unread(array);
    if (array.sum != array.hash) throw Error(Failure::input, text_of_change(array.words));
  }
}

}  // namespace kozero::train
