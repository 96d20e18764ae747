// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checked_communicator.cpp: three numbers a collective, gathered and compared with rank 0's.
#include <algorithm>
#include <array>

#include <kozero/core/error.hpp>
#include <kozero/dist/checked_communicator.hpp>

namespace kozero::dist {
namespace {

constexpr std::size_t kNumbers = 3;  // call, count, element size

}  // namespace

std::string CheckedCommunicator::words(const double* called) {
  constexpr std::array<const char*, 6> kNames = {"reduce_scatter", "all_gather",     "share",
                                                 "barrier",        "gather_control", "broadcast_control"};
  const std::string name = kNames.at(static_cast<std::size_t>(called[0]));
  const auto count = static_cast<std::int64_t>(called[1]);
  if (count < 0) return name;
  return name + " of " + std::to_string(count) + " elements of " +
         std::to_string(static_cast<std::int64_t>(called[2])) + " bytes";
}

void CheckedCommunicator::check(Call call, std::int64_t count, std::size_t element_size) {
  const auto all = checks_->gather_control(
      {static_cast<double>(call), static_cast<double>(count), static_cast<double>(element_size)});
  for (std::size_t r = 1; r * kNumbers < all.size(); ++r) {
    if (std::equal(all.begin(), all.begin() + kNumbers, all.begin() + static_cast<std::ptrdiff_t>(r * kNumbers))) {
      continue;
    }
    throw Error(Failure::internal,
                "the ranks call different collectives of " + name() + ": rank 0 " + words(all.data()) + ", rank " +
                    std::to_string(r) + " " + words(all.data() + r * kNumbers),
                Error::Seen::by_all_ranks);
  }
}

Pending CheckedCommunicator::start_reduce_scatter(const float* full, float* slice, const Partition& partition) {
  check(Call::reduce_scatter, partition.extent(), sizeof(float));
  return inner().start_reduce_scatter(full, slice, partition);
}

Pending CheckedCommunicator::start_all_gather(const void* slice, void* full, const Partition& partition,
                                              std::size_t element_size) {
  check(Call::all_gather, partition.extent(), element_size);
  return inner().start_all_gather(slice, full, partition, element_size);
}

void* CheckedCommunicator::share(const std::string& label, std::int64_t bytes) {
  check(Call::share, -1, 0);  // the ranks' shares may differ
  return inner().share(label, bytes);
}

void CheckedCommunicator::barrier() {
  check(Call::barrier, -1, 0);
  inner().barrier();
}

std::vector<double> CheckedCommunicator::gather_control(const std::vector<double>& values) {
  check(Call::gather_control, static_cast<std::int64_t>(values.size()), sizeof(double));
  return inner().gather_control(values);
}

std::string CheckedCommunicator::broadcast_control(const std::string& bytes) {
  check(Call::broadcast_control, -1, 0);
  return inner().broadcast_control(bytes);
}

}  // namespace kozero::dist
