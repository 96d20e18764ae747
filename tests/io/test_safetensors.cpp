// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_safetensors.cpp: safetensors written and read in chunks, 16-bit conversions of every value, shards and index.
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <vector>

#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/safetensors/float_formats.hpp"
#include "io/safetensors/reader.hpp"
#include "io/safetensors/writer.hpp"

#include "safetensors_bytes.hpp"

namespace kozero::io {

using namespace tests;

namespace {

std::string folder_refusal(const ScratchFolder& folder) {
  const auto thrown = thrown_by([&] { SafetensorsFolder(folder.path()); });
  CHECK(thrown.status == 3);
  CHECK(thrown.text.find('\n') == std::string::npos);
  return thrown.text;
}

TEST_CASE("16-bit floats become f32 exactly, all of them") {
  for (int value = 0; value < 1 << 16; ++value) {
    const auto bits = static_cast<std::uint16_t>(value);
    const int exponent = (value >> 10) & 31;
    const int fraction = value & 1023;
    const float sign = (value & 0x8000) != 0 ? -1.0F : 1.0F;
    const float ours = float_of_f16(bits);
    bool right = std::isnan(ours);
    if (exponent == 31 && fraction == 0) right = ours == sign * INFINITY;
    if (exponent != 31) {
      const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      right = std::bit_cast<std::uint32_t>(ours) == std::bit_cast<std::uint32_t>(sign * static_cast<float>(size));
    }
    if (!right) FAIL("f16 " << value << " became " << ours);
    if (std::bit_cast<std::uint32_t>(float_of_bf16(bits)) != static_cast<std::uint32_t>(value) << 16)
      FAIL("bf16 " << value);
  }
}

/// The 16-bit value nearest to `value` among all finite ones and, beyond them, infinity; ties to an even last bit.
template <class Widen>
std::uint16_t nearest(float value, std::uint16_t infinity, Widen widen) {
  const auto size = static_cast<double>(std::abs(value));
  std::uint16_t low = 0;
  std::uint16_t high = infinity;  // widen() increases with the bits: bisection finds the two neighbors of `value`
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (static_cast<double>(widen(middle)) <= size ? low : high) = middle;
  }
  const double step = static_cast<double>(widen(low)) - static_cast<double>(widen(static_cast<std::uint16_t>(low - 1)));
  const double above = high == infinity ? static_cast<double>(widen(low)) + step : static_cast<double>(widen(high));
  const double down = size - static_cast<double>(widen(low));
  const double up = above - size;
  const std::uint16_t bits = down < up || (down == up && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000U : 0U));
}

TEST_CASE("f32 becomes the nearest 16-bit float, ties to even") {
  for (int value = 0; value < 1 << 16; ++value) {
    const auto bits = static_cast<std::uint16_t>(value);
    if (!std::isnan(float_of_f16(bits)) && f16_of_float(float_of_f16(bits)) != bits) FAIL("f16 " << value);
    if (!std::isnan(float_of_bf16(bits)) && bf16_of_float(float_of_bf16(bits)) != bits) FAIL("bf16 " << value);
  }
  for (std::uint32_t i = 0; i < 400'000; ++i) {
    // All exponents; every second value is a tie, or nearly one.
    std::uint32_t bits = i * 2654435761U;
    if (i % 2 == 0) bits = (bits & 0xFFFFE000U) + 0x1000U + i / 2 % 3 - 1;
    if (i % 4 == 1) bits = (bits & 0xFFFF0000U) + 0x8000U + i / 4 % 3 - 1;
    if (i % 8 == 3) bits = (bits & 0x87FFFFFFU) | 0x38000000U;  // around f16's subnormals
    const auto value = std::bit_cast<float>(bits);
    if (!std::isfinite(value) || std::fpclassify(value) == FP_SUBNORMAL) continue;
    if (f16_of_float(value) != nearest(value, 0x7C00, float_of_f16))
      FAIL("f16 of " << value << " " << std::hex << bits);
    if (bf16_of_float(value) != nearest(value, 0x7F80, float_of_bf16))
      FAIL("bf16 of " << value << " " << std::hex << bits);
  }
  CHECK(f16_of_float(65519.0F) == 0x7BFF);
  CHECK(f16_of_float(65520.0F) == 0x7C00);
  CHECK(std::isnan(float_of_f16(f16_of_float(std::bit_cast<float>(0x7F800001U)))));
  CHECK(std::isnan(float_of_bf16(bf16_of_float(std::bit_cast<float>(0xFF800001U)))));
  CHECK(f16_of_float(-INFINITY) == 0xFC00);
  CHECK(bf16_of_float(std::bit_cast<float>(0x00008001U)) == 1);  // denormals count too
}

TEST_CASE("A tensor may be stored in 16 bits; a value beyond them is refused by the tensor's name") {
  const ScratchFolder folder("safetensors_narrow");
  const std::string path = folder / "model.safetensors";
  SafetensorsWriter writer(path, {{"h", {2}, "F16"}, {"b", {3}, "BF16"}, {"f", {1}}});
  const std::vector<float> values = {1.5F, -INFINITY, 3.0F, 65520.0F, -0.0F, 0.1F};
  writer.append(values.data(), 4);
  writer.append(values.data() + 4, 2);
  writer.close();
  const SafetensorsFolder read(folder.path());
  std::vector<float> three(3);
  const auto& b = read.tensors().at("b");
  CHECK(b.entry->end - b.entry->begin == 6);
  b.file->read(*b.entry, 0, 3, three.data());
  CHECK(three == std::vector<float>{3.0F, 65536.0F, -0.0F});
  const auto& h = read.tensors().at("h");
  h.file->read(*h.entry, 0, 2, three.data());
  CHECK(three[0] == 1.5F);
  CHECK(three[1] == -INFINITY);
  SafetensorsWriter beyond(folder / "beyond", {{"a", {2}, "F16"}, {"c", {2}, "F16"}});
  const std::vector<float> large = {1.0F, 65519.0F, -65520.0F, 0.0F};
  const auto thrown = thrown_by([&] { beyond.append(large.data(), 4); });
  CHECK(thrown.status == 3);
  CHECK(thrown.text == "tensor c: its value -65520.000000 is beyond F16; accepted is a wider dtype");
}

TEST_CASE("What the writer writes, in chunks, the reader reads, in chunks") {
  const ScratchFolder folder("safetensors");
  const std::string path = folder / "model.safetensors";
  SafetensorsWriter writer(path, {{"b", {3, 5}}, {"a", {}}, {"none", {0, 4}}, {"c", {7}}});
  std::vector<float> values;
  for (int i = 0; i < 23; ++i) values.push_back(static_cast<float>(i) - 0.5F);
  values[3] = std::bit_cast<float>(0x7FC12345U);  // a NaN keeps its payload
  values[4] = std::bit_cast<float>(0x00000001U);  // and a denormal its bit
  writer.append(values.data(), 11);
  writer.append(values.data() + 11, 12);
  CHECK_FALSE(std::filesystem::exists(path));
  writer.close();
  CHECK(std::filesystem::file_size(path) % 8 == 23 * 4 % 8);

  const SafetensorsFolder read(folder.path());
  REQUIRE(read.tensors().size() == 4);
  const auto& b = read.tensors().at("b");
  CHECK(b.entry->shape == std::vector<std::int64_t>{3, 5});
  CHECK(read.tensors().at("none").entry->extent() == 0);
  std::vector<float> part(9);
  b.file->read(*b.entry, 2, 9, part.data());
  CHECK(std::memcmp(part.data(), values.data() + 2, 9 * sizeof(float)) == 0);
  const auto& c = read.tensors().at("c");
  c.file->read(*c.entry, 0, 7, part.data());
  CHECK(std::memcmp(part.data(), values.data() + 16, 7 * sizeof(float)) == 0);
  CHECK(thrown_by([&] { c.file->read(*c.entry, 1, 7, part.data()); }).status == 1);
}

TEST_CASE("Values that were not announced, or do not come, are caught") {
  const ScratchFolder folder("safetensors_short");
  const float value = 1.0F;
  SafetensorsWriter writer(folder / "a", {{"x", {2}}});
  writer.append(&value, 1);
  CHECK(thrown_by([&] { writer.close(); }).status == 1);
  writer.append(&value, 1);
  CHECK(thrown_by([&] { writer.append(&value, 1); }).status == 1);
  CHECK(thrown_by([&] { SafetensorsWriter(folder / "nowhere/a", {}); }).status == 4);
}

TEST_CASE("16-bit tensors are widened while they are read; other types are refused by name") {
  const ScratchFolder folder("safetensors_16");
  const std::string header =
      header_of(entry_text("h", "F16", "[2]", "[0,4]") + "," + entry_text("b", "BF16", "[2]", "[4,8]") + "," +
                entry_text("i", "I32", "[1]", "[8,12]"));
  std::string bytes = safetensors_bytes(header, 0);
  bytes += std::string("\x00\x3C\x00\xC0", 4) + std::string("\x80\x3F\x00\xC0", 4) + std::string(4, '\0');
  const SafetensorsFile file(folder.put("x.safetensors", bytes));
  std::vector<float> pair(2);
  file.read(file.entries()[0], 0, 2, pair.data());
  CHECK(pair == std::vector<float>{1.0F, -2.0F});
  file.read(file.entries()[1], 0, 2, pair.data());
  CHECK(pair == std::vector<float>{1.0F, -2.0F});
  file.read(file.entries()[0], 1, 1, pair.data());
  CHECK(pair[0] == -2.0F);
  const auto refused = thrown_by([&] { file.read(file.entries()[2], 0, 1, pair.data()); });
  CHECK(refused.text == file.path() + ": tensor i: dtype I32; accepted are F32, F16, BF16");
}

TEST_CASE("A file that is cut off after it was opened is an error") {
  const ScratchFolder folder("safetensors_cut");
  const std::string path = folder.put("x", safetensors_bytes(header_of(entry_text("a", "F32", "[4]", "[0,16]")), 16));
  const SafetensorsFile file(path);
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 6);
  std::vector<float> values(4);
  const auto thrown = thrown_by([&] { file.read(file.entries()[0], 0, 4, values.data()); });
  CHECK(thrown.status == 3);
  CHECK(thrown.text == path + ": ends at byte " + std::to_string(size - 6));
}

TEST_CASE("Shards and their index must agree") {
  const ScratchFolder folder("safetensors_shards");
  const std::string one = safetensors_bytes(header_of(entry_text("a", "F32", "[1]", "[0,4]")), 4);
  const std::string two = safetensors_bytes(header_of(entry_text("b", "F32", "[1]", "[0,4]")), 4);
  const std::string index = folder / kSafetensorsIndex;
  CHECK(folder_refusal(folder) == folder.path() + ": no model.safetensors and no model.safetensors.index.json");
  folder.put("pytorch_model.bin", "PK");
  CHECK(folder_refusal(folder) == folder.path() +
                                      ": no model.safetensors and no model.safetensors.index.json; "
                                      "pytorch_model.bin is not read: convert it with transformers, "
                                      "AutoModelForCausalLM.from_pretrained(\"" +
                                      folder.path() + "\").save_pretrained(\"NEW\")");
  std::filesystem::remove(folder / "pytorch_model.bin");
  folder.put("1.safetensors", one);
  folder.put("2.safetensors", two);
  const auto with_map = [&](const std::string& map) {
    folder.put(kSafetensorsIndex, header_of("\"weight_map\":" + map));
    return folder_refusal(folder);
  };

  folder.put(kSafetensorsIndex, safetensors_index_text({{"a", "1.safetensors"}, {"b", "2.safetensors"}}, 8));
  CHECK(SafetensorsFolder(folder.path()).tensors().size() == 2);

  CHECK(with_map("[]") == index + ": not an index: no object weight_map");
  CHECK(with_map("{}") == index + ": weight_map is empty");
  CHECK(with_map("{\"a\":1}") == index + ": tensor a: its file is not a text");
  CHECK(with_map("{\"a\":\"../x\"}") == index + ": tensor a: ../x is not a file name of this folder");
  CHECK(with_map("{\"a\":\"/etc/passwd\"}") == index + ": tensor a: /etc/passwd is not a file name of this folder");
  CHECK(with_map("{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}") == index + ": tensor a: its name is there twice");
  CHECK(with_map("{\"a\":[[[[]]]]}") == index + ": nested deeper than an index is");
  CHECK(with_map("{\"a\":\"3.safetensors\"}") ==
        (folder / "3.safetensors") + ": cannot open: No such file or directory");
  CHECK(with_map("{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}") ==
        index + ": tensor b: it is not in 1.safetensors, where the index has it");
  CHECK(with_map("{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}") ==
        index + ": tensor a: the index has it in 2.safetensors, but it is in 1.safetensors");
  CHECK(with_map("{\"b\":\"2.safetensors\",\"c\":\"1.safetensors\"}") ==
        index + ": tensor c: it is not in 1.safetensors, where the index has it");
  folder.put("2.safetensors", one);
  CHECK(with_map("{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}") ==
        (folder / "2.safetensors") + ": tensor a: it is in 1.safetensors too");
  folder.put("2.safetensors",
             safetensors_bytes(
                 header_of(entry_text("b", "F32", "[1]", "[0,4]") + "," + entry_text("x", "F32", "[1]", "[4,8]")), 8));
  CHECK(with_map("{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}") ==
        (folder / "2.safetensors") + ": tensor x: the index does not know it");
}

}  // namespace
}  // namespace kozero::io
