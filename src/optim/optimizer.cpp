// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/optim/optimizer.hpp>

#include <array>

#include <kozero/core/error.hpp>

#include "kinds.hpp"

namespace kozero::optim {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const Config&, std::vector<Segment>, MemoryLedger&);
};

constexpr std::array kKinds = {Kind{"adamw", make_adamw}, Kind{"sgd", make_sgd}};

std::string accepted_kinds() {
  std::string names;
  for (const Kind& kind : kKinds) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger) {
  for (const Kind& kind : kKinds) {
    if (config.kind == kind.name) return kind.make(config, std::move(segments), ledger);
  }
  throw Error(Failure::deck, "optim.kind = \"" + config.kind + "\": accepted are " + accepted_kinds());
}

}  // namespace kozero::optim
