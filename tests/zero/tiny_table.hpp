// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tiny_table.hpp: a table of three units in two slots, whose shards are uneven and, from 3 ranks on, partly empty.
#pragma once
#include <distributed/rank_groups.hpp>
#include <kozero/distributed/make_communicator.hpp>

#include "vector_row.hpp"

namespace kozero::tests {

inline ParameterTable tiny_table() {
  ParameterTable table;
  table.add_unit("embedding", 0);
  table.add(vector_row("a", 130));
  table.add_unit("block.0", 1);
  table.add(vector_row("b", 70));
  Parameter c = vector_row("c", 200);
  c.overwritten = true;
  table.add(c);
  table.add_unit("block.1", 1);
  table.add(vector_row("d", 5));
  return table;
}

/// All ranks of the test program.
inline std::unique_ptr<distributed::Communicator> all_ranks(MemoryLedger& ledger) {
  const test::RankGroup group(0);
  return distributed::make_communicator(group.size() == 1 ? "self" : "mpi", group.ranks(), ledger);
}

}  // namespace kozero::tests
