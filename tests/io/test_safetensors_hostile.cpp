// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_safetensors_hostile.cpp: files that lie, each with its exact message, and seeded mutations of an honest one.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <vector>

#include <kozero/core/random.hpp>
#include <kozero/io/safetensors.hpp>

#include "safetensors_bytes.hpp"
#include "scratch_folder.hpp"
#include "thrown.hpp"

namespace kozero::io {
namespace {

struct Hostile {
  std::string bytes;
  std::string message;  ///< behind "PATH: "
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

TEST_CASE("Seeded mutations: every file is read or refused in one line") {
  const ScratchFolder folder("mutations");
  const std::string honest = safetensors_bytes(
      header_of("\"__metadata__\":{\"format\":\"pt\"}," + entry_text("wte.weight", "F32", "[2,3]", "[0,24]") + "," +
                entry_text("h.0.bias", "BF16", "[4]", "[24,32]") + "," + entry_text("none", "F16", "[0]", "[32,32]")),
      32);
  const auto key = stream_key(7, "safetensors mutations");
  int refused = 0;
  for (std::uint64_t round = 0; round < 4000; ++round) {
    const auto words = philox(key, counter_of(round));
    std::string bytes = honest;
    for (std::uint32_t change = 0; change <= words.x[0] % 3 && !bytes.empty(); ++change) {
      const auto draw = philox(key, counter_of(round, change + 1));
      const std::size_t place = draw.x[0] % bytes.size();
      switch (draw.x[1] % 5) {
        case 0: bytes[place] = static_cast<char>(bytes[place] ^ (1 << draw.x[2] % 8)); break;
        case 1: bytes[place] = static_cast<char>(draw.x[2]); break;
        case 2: bytes.erase(place, 1 + draw.x[2] % 8); break;
        case 3: bytes.insert(place, bytes.substr(draw.x[2] % bytes.size(), 1 + draw.x[3] % 8)); break;
        default: bytes.resize(place + 1); break;
      }
    }
    const std::string path = folder.put("x.safetensors", bytes);
    const auto thrown = thrown_by([&] {
      const SafetensorsFile file(path);
      std::vector<float> values(64);
      for (const auto& entry : file.entries()) file.read(entry, 0, entry.extent(), values.data());
    });
    refused += thrown.status == 3 ? 1 : 0;
    const bool one_line = thrown.text.find('\n') == std::string::npos;
    const bool named = thrown.text.empty() || thrown.text.starts_with(path + ": ");
    if ((thrown.status != 0 && thrown.status != 3) || !one_line || !named) FAIL("round " << round << ": " << thrown.text);
  }
  CHECK(refused > 3000);
  CHECK(refused < 4000);
}

}  // namespace
}  // namespace kozero::io
