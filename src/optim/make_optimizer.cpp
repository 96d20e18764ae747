// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// make_optimizer.cpp: the table of optimizers. A further one is a file beside adamw.cpp, its name in core/choices.hpp
// and a row here.
#include <algorithm>
#include <array>

#include <kozero/core/choices.hpp>
#include <kozero/core/error.hpp>
#include <kozero/optim/optimizer.hpp>

namespace kozero::optim {

template <class Scalar>
using Maker = std::unique_ptr<Optimizer<Scalar>>(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);

template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_adamw(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);
template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_sgd(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);

namespace {

/// In the order of kOptimizers.
template <class Scalar>
constexpr std::array<Maker<Scalar>*, kOptimizers.size()> kMakers = {make_adamw<Scalar>, make_sgd<Scalar>};

}  // namespace

template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_optimizer(const Config& config, std::vector<Segment> segments,
                                                  MemoryLedger& ledger, MemorySource* memory) {
  const auto found = std::ranges::find(kOptimizers, config.kind);
  if (found == kOptimizers.end()) {
    throw Error(Failure::deck, "optim.kind = \"" + config.kind + "\": accepted are " + list_of(kOptimizers));
  }
  return kMakers<Scalar>[static_cast<std::size_t>(found - kOptimizers.begin())](config, std::move(segments), ledger,
                                                                                memory);
}

#define KOZERO_INSTANTIATE(T)                                                                                  \
  template std::unique_ptr<Optimizer<T>> make_optimizer<T>(const Config&, std::vector<Segment>, MemoryLedger&, \
                                                           MemorySource*);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::optim
