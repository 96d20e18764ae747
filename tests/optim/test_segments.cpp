// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_segments.cpp: the elements of a rank's ranges that have weight decay, and those that are trained.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/optim/optimizer.hpp>

namespace kozero::optim {
namespace {

/// Two units: weight (100, decays), bias (30), q and k joined (40 + 24) | a scale (64), weight (10, decays).
ParameterTable table() {
  ParameterTable made;
  made.add_unit("first", 0);
  made.add({.name = "weight", .shape = {10, 10}});
  made.add({.name = "bias", .shape = {30}, .decay = false});
  made.add({.name = "q", .shape = {40}});
  made.add_joined({.name = "k", .shape = {24}});
  made.add_unit("second", 1);
  made.add({.name = "scale", .shape = {64}, .decay = false});
  made.add({.name = "last", .shape = {10}});
  return made;
}

/// One letter per element: d with weight decay, . without (pads too).
std::string letters(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) {
    REQUIRE(segment.first == static_cast<std::int64_t>(text.size()));
    for (std::int64_t i = 0; i < segment.extent; ++i) text += segment.decay ? 'd' : '.';
  }
  return text;
}

std::string run_of(std::size_t extent, char letter) { return std::string(extent, letter); }

const std::string kWhole =
    run_of(100, 'd') + run_of(92, '.') + run_of(64, 'd') + run_of(64, '.') + run_of(10, 'd') + run_of(54, '.');

TEST_CASE("segments decay as their tensors do, pads do not, equal neighbors are merged") {
  const auto segments = segments_of(table(), {{0, 0, 256, 0}, {1, 0, 128, 256}});
  CHECK(letters(segments) == kWhole);
  CHECK(segments.size() == 6);
}

TEST_CASE("the shards of any number of ranks put together give the whole") {
  for (int num_ranks = 1; num_ranks <= 9; ++num_ranks) {
    std::string first, second;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Partition a(256, num_ranks);
      const Partition b(128, num_ranks);
      const std::vector<UnitRange> ranges = {{0, a.begin(rank), a.size(rank), 0},
                                             {1, b.begin(rank), b.size(rank), a.size(rank)}};
      const std::string mine = letters(segments_of(table(), ranges));
      REQUIRE(mine.size() == static_cast<std::size_t>(a.size(rank) + b.size(rank)));
      first += mine.substr(0, static_cast<std::size_t>(a.size(rank)));
      second += mine.substr(static_cast<std::size_t>(a.size(rank)));
    }
    CHECK(first + second == kWhole);
  }
}

TEST_CASE("a range may start inside a tensor, and no range gives no segment") {
  CHECK(letters(segments_of(table(), {{0, 90, 20, 0}})) == run_of(10, 'd') + run_of(10, '.'));
  CHECK(segments_of(table(), {}).empty());
}

TEST_CASE("frozen tensors do not decay") {
  ParameterTable some = table();
  for (const int tensor : {0, 3, 4}) some.freeze(tensor);
  CHECK(letters(segments_of(some, {{0, 0, 256, 0}, {1, 0, 128, 256}})) ==
        run_of(192, '.') + run_of(40, 'd') + run_of(88, '.') + run_of(10, 'd') + run_of(54, '.'));
}

TEST_CASE("rates fall from the last block to the embedding, on any number of ranks") {
  ParameterTable made;
  made.add_unit("embedding", 0);
  made.add({.name = "wte.weight", .shape = {6, 5}});
  for (const std::string block : {"0", "1"}) {
    made.add_unit("h." + block, 1);
    made.add({.name = "h." + block + ".ln.weight", .shape = {5}, .decay = false});
    made.add({.name = "h." + block + ".mlp.weight", .shape = {5, 3}});
  }
  made.add_unit("end", 2);
  made.add({.name = "ln_f.weight", .shape = {5}, .decay = false});
  CHECK(layer_rates(made, 0.5) == std::vector<double>{0.25, 0.5, 0.5, 1.0, 1.0, 1.0});
  for (int num_ranks = 1; num_ranks <= 5; ++num_ranks) {
    for (int unit = 0; unit < made.num_units(); ++unit) {
      const Partition cut(made.unit(unit).extent, num_ranks);
      for (int rank = 0; rank < num_ranks; ++rank) {
        const auto segments = segments_of(made, {{unit, cut.begin(rank), cut.size(rank), 0}}, 0.5);
        for (const Segment& segment : segments) {
          const double wanted = std::vector<double>{0.25, 0.5, 1.0, 1.0}[static_cast<std::size_t>(unit)];
          if (segment.decay) CHECK(segment.rate == wanted);
        }
      }
    }
  }
  const auto all =
      segments_of(made, {{1, 0, made.unit(1).extent, 0}, {2, 0, made.unit(2).extent, made.unit(1).extent}}, 0.5);
  double weighted = 0.0;
  for (const Segment& segment : all) weighted += segment.rate * static_cast<double>(segment.extent);
  CHECK(weighted == 0.5 * static_cast<double>(made.unit(1).extent) + static_cast<double>(made.unit(2).extent));
}

TEST_CASE("ranges that leave a gap are refused") {
  CHECK_THROWS_AS(segments_of(table(), {{0, 0, 64, 0}, {1, 0, 64, 128}}), Error);
}

}  // namespace
}  // namespace kozero::optim
