// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_safetensors_hostile.cpp: hostile files, each with its exact message. tests/fuzz damages a valid file.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/safetensors/reader.hpp"

#include "safetensors_bytes.hpp"

namespace kozero::io {

using namespace tests;

namespace {

struct Hostile {
  std::string bytes;
  std::string message;  ///< after "PATH: "
};

/// A file with one tensor `a` of the given parts and 16 bytes of data.
std::string with_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return safetensors_bytes(header_of(entry_text("a", dtype, shape, offsets)), 16);
}

std::string with_header(const std::string& header) { return safetensors_bytes(header, 16); }

const std::string kA = entry_text("a", "F32", "[4]", "[0,16]");

std::vector<Hostile> files() {
  const std::string two63 = "9223372036854775808";
  return {
      {"", "0 bytes are too few for a safetensors file"},
      {"1234567", "7 bytes are too few for a safetensors file"},
      {length_bytes(100'000'001), "a header of 100000001 bytes; accepted are at most 100000000"},
      {length_bytes(~0ULL) + "{}", "a header of 18446744073709551615 bytes; accepted are at most 100000000"},
      {length_bytes(3) + "{}", "a header of 3 bytes in a file of 10: it is truncated"},
      {length_bytes(0), "the header is not JSON, at its byte 1"},
      {with_header("{"), "the header is not JSON, at its byte 2"},
      {with_header("[]"), "the header is not an object"},
      {with_header("7"), "the header is not an object"},
      {with_header("{} {}"), "the header is not JSON, at its byte 4"},
      {with_header(std::string("{}\0{}", 5)), "the header is not JSON, at its byte 3"},
      {with_header(std::string(100'000, '[')), "the header is not an object"},
      {with_header("{\"a\xFF\":{}}"), "the header is not JSON, at its byte 4"},
      {with_header(header_of(kA + "," + kA)), "tensor a: its name is there twice"},
      {with_header("{\"\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}"), "a tensor without a name"},
      {with_header("{\"a\":7}"), "tensor a: its value is a number, not an object"},
      {with_header("{\"a\":[]}"), "tensor a: its value is an array, not an object"},
      {with_header("{\"a\":{}}"), "tensor a: no dtype"},
      {with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}"), "tensor a: no data_offsets"},
      {with_header("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}"), "tensor a: no shape"},
      {with_header("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}"), "tensor a: dtype is there twice"},
      {with_header("{\"a\":{\"type\":\"F32\"}}"), "tensor a: unknown key type"},
      {with_header("{\"a\":{\"dtype\":32}}"), "tensor a: dtype is a number, not a text"},
      {with_header("{\"a\":{\"shape\":{}}}"), "tensor a: shape is an object, not a list"},
      {with_header("{\"__metadata__\":{\"a\":1}}"), "__metadata__ holds a number, not texts"},
      {with_header("{\"__metadata__\":{\"a\":{}}}"), "__metadata__ holds an object, not texts"},
      {with_header("{\"__metadata__\":{},\"__metadata__\":{}}"), "__metadata__ is there twice"},
      {with_tensor("F31", "[4]", "[0,16]"), "tensor a: dtype F31 is not one of the format's"},
      {with_tensor("F32", "[-4]", "[0,16]"), "tensor a: shape holds a negative number"},
      {with_tensor("F32", "[4.0]", "[0,16]"), "tensor a: shape holds no whole number of 64 bits"},
      {with_tensor("F32", "[" + two63 + "]", "[0,16]"), "tensor a: shape holds no whole number of 64 bits"},
      {with_tensor("F32", "[[4]]", "[0,16]"), "tensor a: shape holds an array"},
      {with_tensor("F32", "[4294967296,4294967296]", "[0,16]"),
       "tensor a: shape (4294967296, 4294967296) has more bytes than 64 bits can count"},
      {with_tensor("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), "tensor a: more than 8 dims in its shape"},
      {with_tensor("F32", "[4]", "[0]"), "tensor a: data_offsets has not two numbers"},
      {with_tensor("F32", "[4]", "[0,16,16]"), "tensor a: data_offsets has more than two numbers"},
      {with_tensor("F32", "[4]", "[0,\"16\"]"), "tensor a: data_offsets holds a text"},
      {with_tensor("F32", "[4]", "[16,0]"), "tensor a: bytes 16 to 0 end before they begin"},
      {with_tensor("F32", "[5]", "[0,20]"),
       "tensor a: bytes 0 to 20 lie beyond the file's 16 bytes of data: it is truncated"},
      {with_tensor("F32", "[3]", "[0,16]"), "tensor a: bytes 0 to 16 are 16, but F32 (3) takes 12"},
      {with_tensor("F32", "[3]", "[0,12]"), "4 bytes behind the last tensor"},
      {with_tensor("F32", "[3]", "[4,16]"), "tensor a: a hole of 4 bytes lies before it"},
      {with_header(header_of(entry_text("a", "F32", "[3]", "[0,12]") + "," + entry_text("b", "F32", "[2]", "[8,16]"))),
       "tensor b: bytes 8 to 16 overlap tensor a"},
      {with_header(header_of(kA + "," + entry_text("b", "F32", "[4]", "[0,16]"))),
       "tensor b: bytes 0 to 16 overlap tensor a"},
      {with_header(header_of(entry_text("a", "F32", "[1]", "[0,4]") + "," + entry_text("b", "F32", "[1]", "[12,16]"))),
       "tensor b: a hole of 8 bytes lies before it"},
      {with_header("{}"), "16 bytes behind the last tensor"},
      {with_header(header_of(entry_text("a\\n\\u001b[31m", "F32", "[3]", "[0,16]"))),
       "tensor a??[31m: bytes 0 to 16 are 16, but F32 (3) takes 12"},
      {with_header(header_of(entry_text(std::string(150, 'n'), "F32", "[3]", "[0,16]"))),
       "tensor " + std::string(100, 'n') + "...: bytes 0 to 16 are 16, but F32 (3) takes 12"},
      {with_header(header_of(entry_text(std::string(5000, 'n'), "F32", "[4]", "[0,16]"))),
       "tensor " + std::string(100, 'n') + "...: a name of 5000 bytes"},
  };
}

TEST_CASE("A file that lies is refused in one line that names file, tensor and reason") {
  const ScratchFolder folder("hostile");
  for (const auto& hostile : files()) {
    const std::string path = folder.put("x.safetensors", hostile.bytes);
    const auto thrown = thrown_by([&] { SafetensorsFile file(path); });
    CHECK(thrown.status == 3);
    CHECK(thrown.text == path + ": " + hostile.message);
  }
}

TEST_CASE("Too many tensors are refused before they are kept") {
  std::string entries;
  for (std::size_t i = 0; i <= kMaxTensors; ++i) {
    entries += (i == 0 ? "" : ",") + entry_text(std::to_string(i), "U8", "[0]", "[0,0]");
  }
  const auto thrown = thrown_by([&] { parse_safetensors_header("x", header_of(entries), 0); });
  CHECK(thrown.text == "x: more than 200000 tensors");
}

}  // namespace
}  // namespace kozero::io
