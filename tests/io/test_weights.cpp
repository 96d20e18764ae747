// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_weights.cpp: weights files on one process: contents as h5dump sees them, replacement, and rejected files.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <utility>

#include <kozero/distributed/communicator.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "io/hdf5/file.hpp"

#include "weights_case.hpp"

namespace kozero::io {

using namespace tests;

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

const std::string kModel = R"({"arch": "small", "layers": 1})";

std::string write_small(const ScratchFolder& folder) {
  const ParameterTable table = small_table();
  RankSlices all(table, 0, 1);
  all.set_values();
  const auto comm = distributed::make_self_communicator();
  write_weights(*comm, folder / "weights.h5", table, all.readable(), {kModel, 7, 99});
  return folder / "weights.h5";
}

Thrown read_error(const std::string& path, const ParameterTable& table) {
  const auto comm = distributed::make_self_communicator();
  RankSlices all(table, 0, 1);
  return thrown_by([&] { read_weights(*comm, path, table, all.shards); });
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  for (int character = std::fgetc(pipe); character != EOF; character = std::fgetc(pipe)) {
    text.push_back(static_cast<char>(character));
  }
  CHECK(::pclose(pipe) == 0);
  return text;
}

}  // namespace

TEST_CASE("a weights file describes itself without a communicator") {
  const ScratchFolder folder("describe");
  const auto description = read_weights_header(write_small(folder));
  CHECK(description.model == kModel);
  CHECK(description.step == 7);
  CHECK(description.tokens == 99);
}

TEST_CASE("h5dump reads a weights file: published names and shapes, f32, contiguous") {
  const ScratchFolder folder("h5dump");
  const std::string path = write_small(folder);
  const std::string text = output_of(std::string(KOZERO_H5DUMP) + " -p -H " + path);
  CHECK_THAT(text, ContainsSubstring("GROUP \"parameters\"") && ContainsSubstring("DATASET \"h.0.q\"") &&
                       ContainsSubstring("SIMPLE { ( 3, 5, 7 ) / ( 3, 5, 7 ) }") &&
                       ContainsSubstring("H5T_IEEE_F32LE") && ContainsSubstring("CONTIGUOUS") &&
                       ContainsSubstring("ATTRIBUTE \"format_version\""));
  CHECK_THAT(output_of(std::string(KOZERO_H5DUMP) + " -d /parameters/ln_f.weight " + path),
             ContainsSubstring("(0): 2000.25"));
}

TEST_CASE("writing again replaces the file whole") {
  const ScratchFolder folder("again");
  folder.put("weights.h5.partial", "left by a crash");
  const std::string path = write_small(folder);
  CHECK(write_small(folder) == path);
  CHECK(read_weights_header(path).step == 7);
  CHECK(!std::filesystem::exists(path + ".partial"));
}

TEST_CASE("large tensors of a state are aligned to 1 MiB") {
  const ScratchFolder folder("aligned");
  ParameterTable table;
  table.add_unit("all", 0);
  table.add({.name = "small", .shape = {3}});
  table.add({.name = "big", .shape = {300, 301}});
  table.add({.name = "bigger", .shape = {70001}});
  RankSlices all(table, 0, 1);
  all.set_values();
  const auto comm = distributed::make_self_communicator();
  write_tensor_file(*comm, folder / "w.h5", table, {{kParameterGroup, all.readable()}}, {});
  const std::string bytes = bytes_of(folder / "w.h5");
  const auto begins_at = [&](const Parameter& row) {
    const float first = value_of(0, row.offset), second = value_of(0, row.offset + 1);
    std::string pattern(reinterpret_cast<const char*>(&first), 4);
    pattern.append(reinterpret_cast<const char*>(&second), 4);
    return bytes.find(pattern);
  };
  CHECK(begins_at(table.row(1)) % (1 << 20) == 0);
  CHECK(begins_at(table.row(2)) % (1 << 20) == 0);
  CHECK(begins_at(table.row(1)) != begins_at(table.row(2)));
}

TEST_CASE("values that are not finite are neither written nor read") {
  const ScratchFolder folder("not_finite");
  const ParameterTable table = small_table();
  const auto comm = distributed::make_self_communicator();
  RankSlices all(table, 0, 1);
  all.set_values();
  constexpr std::int64_t kElement = 9;  // (0, 1, 2) of (3, 5, 7)
  const int tensor = [&] {
    const auto is_q = [](const Tensor& each) { return each.name == "h.0.q"; };
    return static_cast<int>(std::ranges::find_if(table.tensors(), is_q) - table.tensors().begin());
  }();
  const Parameter& row = table.rows_of_tensor(tensor).front();
  float& value = all.shards[static_cast<std::size_t>(row.unit)].values(static_cast<std::size_t>(row.offset + kElement));
  const float was = std::exchange(value, -std::numeric_limits<float>::infinity());
  const auto written = thrown_by([&] {
    write_weights(*comm, folder / "weights.h5", table, all.readable(), {kModel, 7, 99});
  });
  CHECK(written.status == 6);
  CHECK(written.text ==
        "tensor h.0.q: element (0, 1, 2) is -inf: an update overflowed, and nothing is saved; resume from an older "
        "checkpoint with a lower optim.lr");
  CHECK(std::filesystem::is_empty(folder.path()));
  // A file of an older program: its hash fits.
  value = was;
  const std::string path = write_small(folder);
  std::string bytes = bytes_of(path);
  const float next = *(&value + 1);
  std::string pair(reinterpret_cast<const char*>(&was), 4);
  pair.append(reinterpret_cast<const char*>(&next), 4);
  const auto at = bytes.find(pair);
  REQUIRE(at != std::string::npos);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  bytes.replace(at, 4, reinterpret_cast<const char*>(&nan), 4);
  folder.put("weights.h5", bytes);
  write_weights_header(*comm, path, {kModel, 7, 99});
  const Thrown refused = read_error(path, table);
  CHECK(refused.status == 3);
  CHECK(refused.text == path +
                            ": tensor h.0.q: element (0, 1, 2) is nan; accepted are finite numbers; use an older "
                            "checkpoint or another file");
}

TEST_CASE("a file of another model is refused, naming tensor and reason") {
  const ScratchFolder folder("other");
  const std::string path = write_small(folder);
  ParameterTable larger = small_table();
  larger.add({.name = "ln_f.bias", .shape = {1}});
  CHECK(read_error(path, larger).text == path + ": tensor ln_f.bias is missing");
  CHECK(read_error(path, larger).status == 3);

  ParameterTable smaller;
  smaller.add_unit("embedding", 0);
  smaller.add({.name = "wte", .shape = {17, 13}});
  CHECK_THAT(read_error(path, smaller).text, EndsWith("is not one of the model's"));

  const ParameterTable small = small_table();
  ParameterTable transposed;
  for (const auto& row : small.rows()) {
    if (transposed.num_units() == row.unit) transposed.add_unit("u", 0);
    auto copy = row;
    if (row.name == "wte") copy.shape = {13, 17};
    transposed.add(copy);
  }
  CHECK(read_error(path, transposed).text == path + ": tensor wte has shape (17, 13), the model's is (13, 17)");
}

TEST_CASE("what is not a weights file is refused in one line") {
  const ScratchFolder folder("nofile");
  const std::string path = write_small(folder);
  const auto refused = [&](const std::string& file, const std::string& reason) {
    const auto error = read_error(file, small_table());
    CHECK(error.status == 3);
    CHECK_THAT(error.text, ContainsSubstring(file) && ContainsSubstring(reason) && !ContainsSubstring("\n"));
  };
  refused(folder / "none.h5", "cannot open");
  refused(folder.put("text.h5", "not HDF5 at all"), "file signature not found");
  const std::string bytes = bytes_of(path);
  refused(folder.put("cut.h5", bytes.substr(0, bytes.size() - 100)), "truncated file");
  Hdf5File(folder / "bare.h5", Hdf5Access::create).close();
  refused(folder / "bare.h5", "cannot");
  Hdf5File later(folder / "later.h5", Hdf5Access::create);
  later.write_attribute("format_version", std::int64_t{9});
  later.close();
  CHECK_THAT(read_error(folder / "later.h5", small_table()).text,
             EndsWith("later.h5: format_version 9, accepted is 1"));
}

TEST_CASE("HDF5 files refuse wrong types") {
  const ScratchFolder folder("types");
  Hdf5File file(folder / "t.h5", Hdf5Access::create);
  file.write_attribute("number", std::int64_t{3});
  file.write_attribute("text", std::string(100000, 'x'));
  CHECK(file.read_number_attribute("number") == 3);
  CHECK(file.read_text_attribute("text").size() == 100000);
  CHECK_THAT(thrown_by([&] { (void)file.read_text_attribute("number"); }).text,
             EndsWith("attribute number is not a text of fixed length"));
  CHECK_THAT(thrown_by([&] { (void)file.read_number_attribute("text"); }).text,
             EndsWith("attribute text is not an integer"));
  file.create_group("g");
  CHECK_THAT(thrown_by([&] { file.create_group("g"); }).text, ContainsSubstring("t.h5: cannot create group g: "));
  CHECK(thrown_by([&] { (void)file.open_dataset("g"); }).status == 3);
}

}  // namespace kozero::io
