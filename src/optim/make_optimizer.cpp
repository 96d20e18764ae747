// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// make_optimizer.cpp: the table of optimizers. A further one is a file beside adamw.cpp, its name in core/choices.hpp
// and a row here.
#include <algorithm>
#include <array>
#include <string_view>

#include <kozero/core/choices.hpp>
#include <kozero/core/error.hpp>
#include <kozero/optim/optimizer.hpp>
#include "src/optim/flat_optimizer.hpp"

namespace kozero::optim {

template <class Scalar>
using Maker = std::unique_ptr<Optimizer<Scalar>>(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);

namespace {

template <class Scalar>
struct Row {
  std::string_view name;
  int num_states;
  Maker<Scalar>* make;
};

template <class Scalar>
constexpr std::array kRows = {Row<Scalar>{"adamw", 2, make_adamw<Scalar>}, Row<Scalar>{"sgd", 1, make_sgd<Scalar>}};
static_assert(std::ranges::equal(kRows<float>, kOptimizers, {}, &Row<float>::name,
                                 [](const char* name) { return std::string_view(name); }),
              "each name of choices.hpp has a row");

template <class Scalar>
const Row<Scalar>& row_of(const std::string& kind) {
  const auto found = std::ranges::find(kRows<Scalar>, kind, &Row<Scalar>::name);
  if (found == kRows<Scalar>.end()) {
    throw Error(Failure::deck, "optim.kind = \"" + kind + "\": accepted are " + list_of(kOptimizers));
  }
  return *found;
}

}  // namespace

int num_states(const std::string& kind) { return row_of<float>(kind).num_states; }

template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_optimizer(const Config& config, std::vector<Segment> segments,
                                                  MemoryLedger& ledger, MemorySource* memory) {
  return row_of<Scalar>(config.kind).make(config, std::move(segments), ledger, memory);
}

#define KOZERO_INSTANTIATE(T)                                                                                  \
  template std::unique_ptr<Optimizer<T>> make_optimizer<T>(const Config&, std::vector<Segment>, MemoryLedger&, \
                                                           MemorySource*);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::optim
