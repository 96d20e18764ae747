// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_attention_documents.cpp: attention inside documents, by every algorithm: against plain loops, and a document
// among others against the document alone, bit for bit.
#include <kozero/core/device.hpp>

#include "attention_case.hpp"

namespace kozero::kernels {
namespace {

using namespace attention_case;

TEMPLATE_LIST_TEST_CASE("documents see themselves alone", "[attention]", reference::StoredTypes) {
  check<TestType>(shape_of(2, 7, 3, 3, 13), {}, {{3, 1, 3}, {7}});
  check<TestType>(shape_of(1, 1, 1, 1, 1), {}, {{1}});
  check<TestType>(shape_of(1, 9, 4, 2, 6), {}, {{1, 1, 1, 1, 1, 1, 1, 1, 1}});
}

TEMPLATE_LIST_TEST_CASE("documents of several blocks see themselves alone", "[attention]", reference::StoredTypes) {
  check<TestType>(shape_of(2, 131, 4, 2, 7), {}, {{5, 70, 1, 33, 22}, {32, 31, 64, 4}});
  check<TestType>(shape_of(1, 200, 2, 1, 64), {}, {{3, 197}});
  check<TestType>(shape_of(1, 150, 2, 2, 128), {}, {{149, 1}});
  check<TestType>(shape_of(1, 70, 2, 1, 200), {}, {{19, 51}});
}

TEMPLATE_LIST_TEST_CASE("documents drop probabilities by the sequence's positions", "[attention]",
                        reference::StoredTypes) {
  AttentionShape shape = shape_of(2, 67, 4, 2, 5);
  shape.dropout = 0.3F;
  shape.key = 99;
  check<TestType>(shape, {7, 3}, {{35, 1, 31}, {2, 65}});
}

/// Rows [first, first + count) of a matrix with `columns` columns.
std::vector<float> rows_of(const std::vector<float>& matrix, std::int64_t columns, std::int64_t first,
                           std::int64_t count) {
  const auto begin = matrix.begin() + first * columns;
  return {begin, begin + count * columns};
}

TEMPLATE_LIST_TEST_CASE("a document has the same bits among others as alone", "[attention]", reference::StoredTypes) {
  const std::int64_t positions = 150;
  const CutDocuments documents({{37, 1, 70, 42}, {3, 65, 1, 81}, {150}});
  AttentionShape shape = shape_of(3, positions, 4, 2, 16);
  shape.documents = documents.view();
  const Inputs<TestType> in(shape);
  for (const Algorithm<TestType>& algorithm : algorithms<TestType>()) {
    CAPTURE(algorithm.name);
    const Results packed = run<TestType>(Device(), algorithm, shape, in.qkv, in.dy);
    for (const DocumentSpan& span : documents.in_order()) {
      CAPTURE(span.sequence, span.first, span.count);
      AttentionShape one = shape_of(1, span.count, 4, 2, 16);
      const CutDocuments whole(tests::DocumentLengths{{span.count}});
      if (!runs_on_host<Device>) one.documents = whole.view();  // without documents cuDNN would compute it
      const std::int64_t first = span.sequence * positions + span.first;
      const auto part = [&](const std::vector<float>& matrix, std::int64_t columns) {
        return rows_of(matrix, columns, first, span.count);
      };
      const Results alone =
          run<TestType>(Device(), algorithm, one, part(in.qkv, shape.qkv_columns()), part(in.dy, shape.y_columns()));
      REQUIRE(reference::same_bits(part(packed.y, shape.y_columns()), alone.y));
      REQUIRE(reference::same_bits(part(packed.dqkv, shape.qkv_columns()), alone.dqkv));
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const std::int64_t line = (span.sequence * shape.heads + h) * positions + span.first;
        REQUIRE(reference::same_bits(rows_of(packed.logsumexp, 1, line, span.count),
                                     rows_of(alone.logsumexp, 1, h * span.count, span.count)));
      }
    }
  }
}

#if defined(KOKKOS_ENABLE_OPENMP) && !defined(KOKKOS_ENABLE_CUDA)
TEMPLATE_LIST_TEST_CASE("documents have the same bits on one thread and on all", "[attention]",
                        reference::StoredTypes) {
  // The long document is divided into tasks if there are several threads, the others are not.
  const CutDocuments documents({{3, 130, 1, 16}});
  AttentionShape shape = shape_of(1, 150, 4, 2, 16);
  shape.documents = documents.view();
  require_same_bits_on_one_thread<TestType>(shape, Inputs<TestType>(shape));
}
#endif

TEST_CASE("every block of every document has one team", "[attention]") {
  const CutDocuments documents({{5, 70, 1, 33, 22}, {32, 31, 64, 4}, {1, 1, 1, 128}});
  AttentionShape shape = shape_of(3, 131, 3, 3, 4);
  shape.documents = documents.view();
  if (!kHostIsDevice) return;  // the list is in the device's memory
  for (const std::int64_t rows : {8, 16, 32, 64}) {
    const TeamBlocks blocks{shape, 3, rows};
    std::vector<int> owners(at(3 * shape.rows()));  // of each head's tokens
    for (std::int64_t team = 0; team < blocks.num_teams(); ++team) {
      const TeamBlocks::Block block = blocks.of_team(team);
      if (block.nth >= block.blocks) continue;
      for (std::int64_t t = block.nth * rows; t < std::min<std::int64_t>((block.nth + 1) * rows, block.document.count);
           ++t) {
        ++owners[at(block.head * shape.rows() + shape.row_of(block.document) + t)];
      }
    }
    CHECK(std::all_of(owners.begin(), owners.end(), [](int owner) { return owner == 1; }));
  }
}

}  // namespace
}  // namespace kozero::kernels
