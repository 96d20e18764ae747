// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_tensor_contents.cpp: statistics and differences of stored tensors are exact, and equal on any rank count.
#include <catch2/catch_test_macros.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <distributed/rank_groups.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <support/thrown.hpp>
#include <train/groups.hpp>
#include <train/shared_folder.hpp>
#include "io/checkpoint/inspection.hpp"
#include "io/posix/file.hpp"

namespace kozero::io {

using namespace tests;

namespace {

using tests::SharedFolder;

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

/// A file that rank 0 writes; the other ranks wait for it.
void write_file(const std::string& path, const std::vector<NamedTensor>& tensors) {
  if (test::world_rank() == 0) {
    Hdf5File file(path, Hdf5Access::create);
    file.create_group("/parameters");
    file.create_group("/optimizer/exp_avg");
    std::vector<std::int64_t> offsets;
    for (const auto& tensor : tensors) offsets.push_back(file.create_dataset(tensor.name, tensor.shape).offset());
    file.close();
    const FileDescriptor values(path, FileDescriptor::Use::update);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto& all = tensors[i].values;
      values.write_at({reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float)}, offsets[i]);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

Hdf5File open(const std::string& path) { return Hdf5File(path, Hdf5Access::read); }

/// More than one block and more than one chunk of values of all magnitudes and both signs.
std::vector<float> many_values() {
  std::vector<float> values((4 << 20) + 5001);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i)) * (i % 977 == 0 ? 1e3F : 1e-3F);
  return values;
}

const float kNan = std::bit_cast<float>(0x7FC00001U);
const float kDenormal = std::bit_cast<float>(0x00000003U);

}  // namespace

TEST_CASE("items are distributed, results come back in order, and a failure is every rank's") {
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    for (const std::size_t items : {0, 1, 2, 5, 9}) {
      const auto all = distributed::map_over_ranks(comm, items, [&](std::size_t item) {
        CHECK(static_cast<int>(item) % comm.size() == comm.rank());
        return std::array{item, 10 * item};
      });
      REQUIRE(all.size() == items);
      for (std::size_t i = 0; i < items; ++i) {
        CHECK(all[i] == std::array{i, 10 * i});
      }
    }
    const auto failed = thrown_by([&] {
      distributed::map_over_ranks(comm, 5, [](std::size_t item) {
        if (item == 3) throw Error(Failure::input, "item 3");
        return item;
      });
    });
    CHECK(failed.status == 3);
    CHECK(failed.text == "item 3");
  });
}

TEST_CASE("norm, extremes and non-finite values, the same bits on 1 to 4 ranks") {
  const SharedFolder folder;
  const auto values = many_values();
  const float infinite = std::numeric_limits<float>::infinity();
  write_file(folder / "a.h5", {{"/parameters/many", {static_cast<std::int64_t>(values.size())}, values},
                               {"/parameters/odd", {2, 3}, {3.0F, kNan, -4.0F, infinite, -0.0F, -infinite}},
                               {"/parameters/tiny", {2}, {kDenormal, -kDenormal}},
                               {"/optimizer/exp_avg/none", {1}, {kNan}}});
  long double squares = 0.0L;
  for (const float value : values) squares += static_cast<long double>(value) * static_cast<long double>(value);
  std::vector<TensorStatistics> of_one_rank;
  tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
    const Hdf5File file = open(folder / "a.h5");
    of_one_rank = statistics_of(comm, file, list_tensors(file));
  });
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    const Hdf5File file = open(folder / "a.h5");
    const auto tensors = list_tensors(file);
    const auto found = statistics_of(comm, file, tensors);
    REQUIRE(found.size() == 4);
    CHECK(tensors[3].name == "/optimizer/exp_avg/none");
    CHECK(std::abs(found[0].norm - static_cast<double>(std::sqrt(squares))) <= 1e-12 * found[0].norm);
    CHECK(found[0].max == static_cast<double>(*std::max_element(values.begin(), values.end())));
    CHECK(found[0].min == static_cast<double>(*std::min_element(values.begin(), values.end())));
    CHECK(found[0].non_finite == 0);
    CHECK(found[1] == TensorStatistics{5.0, -4.0, 3.0, 3});
    CHECK(found[2].max == 3.0 * 0x1p-149);
    CHECK(found[2].min == -3.0 * 0x1p-149);
    CHECK(found[2].norm > 0.0);
    CHECK(found[3].min > found[3].max);
    CHECK(found[3].non_finite == 1);
    if (!of_one_rank.empty()) CHECK(found == of_one_rank);
  });
}

TEST_CASE("the first difference, both values, how many and how far; NaN by its bits") {
  const SharedFolder folder;
  auto values = many_values();
  const auto extent = static_cast<std::int64_t>(values.size());
  const std::vector<float> odd = {0.0F, kNan, 1.0F, 2.0F, kDenormal, 5.0F};
  write_file(folder / "a.h5", {{"/parameters/many", {extent}, values}, {"/parameters/odd", {2, 3}, odd}});
  const float before = values[static_cast<std::size_t>(extent) - 7];
  values[static_cast<std::size_t>(extent) - 7] += 0.5F;
  values.back() -= 0.25F;
  const std::vector<float> other = {-0.0F, kNan, 1.0F, 4.5F, 0.0F, 5.0F};
  write_file(folder / "b.h5", {{"/parameters/many", {extent}, values}, {"/parameters/odd", {2, 3}, other}});
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    const Hdf5File a = open(folder / "a.h5");
    const Hdf5File b = open(folder / "b.h5");
    const auto tensors = list_tensors(a);
    const auto found = differences_of(comm, a, b, tensors);
    REQUIRE(found.size() == 2);
    CHECK(found[0].count == 2);
    CHECK(found[0].first == extent - 7);
    CHECK(found[0].a == before);
    CHECK(found[0].b == values[static_cast<std::size_t>(extent) - 7]);
    CHECK(found[0].largest == std::abs(static_cast<double>(found[0].b) - static_cast<double>(before)));
    CHECK(found[1].count == 3);
    CHECK(found[1].first == 0);
    CHECK(std::signbit(found[1].b));
    CHECK(found[1].largest == 2.5);
    for (const auto& none : differences_of(comm, a, a, tensors)) {
      CHECK(none.count == 0);
      CHECK(none.first == -1);
      CHECK(none.largest == 0.0);
    }
    CHECK(index_of(found[0].first, {extent}) == std::vector<std::int64_t>{extent - 7});
  });
  CHECK(index_of(5, {2, 3}) == std::vector<std::int64_t>{1, 2});
  CHECK(index_of(17, {2, 3, 4}) == std::vector<std::int64_t>{1, 1, 1});
}

TEST_CASE("a denormal's difference is no zero, and a difference with NaN is NaN") {
  const SharedFolder folder;
  write_file(folder / "a.h5", {{"/parameters/d", {2}, {kDenormal, 1.0F}}, {"/parameters/n", {3}, {9.0F, kNan, 1.0F}}});
  write_file(folder / "b.h5", {{"/parameters/d", {2}, {0.0F, 1.0F}}, {"/parameters/n", {3}, {1.0F, 0.0F, 3.0F}}});
  tests::on_first_ranks(2, "mpi", [&](distributed::Communicator& comm) {
    const Hdf5File a = open(folder / "a.h5");
    const auto found = differences_of(comm, a, open(folder / "b.h5"), list_tensors(a));
    CHECK(found[0].largest == 3.0 * 0x1p-149);
    CHECK(std::isnan(found[1].largest));
    CHECK(found[1].count == 3);
  });
}

TEST_CASE("patterns are the shell's, over the full name") {
  const std::vector<ListedTensor> all = {
      {"/parameters/wte.weight", {2, 3}}, {"/parameters/h.0.mlp.bias", {7}}, {"/optimizer/exp_avg/wte.weight", {2, 3}}};
  CHECK(all[0].extent() == 6);
  CHECK(chosen_tensors(all, "").size() == 3);
  CHECK(chosen_tensors(all, "*wte*").size() == 2);
  CHECK(chosen_tensors(all, "/parameters/*").size() == 2);
  CHECK(chosen_tensors(all, "*/h.[0-3].*").size() == 1);
  CHECK(chosen_tensors(all, "wte.weight").empty());
}

}  // namespace kozero::io
