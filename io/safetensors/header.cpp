// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// header.cpp: a state machine over the JSON events of a header, then the checks of its entries.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/safetensors/float_formats.hpp"
#include "io/safetensors/header.hpp"

namespace kozero::io {
namespace {

constexpr std::size_t kMaxNameBytes = 4096;

/// Receives the events of nlohmann's parser. `state_` is the position in the header's grammar.
class EntryReader {
 public:
  explicit EntryReader(const std::string& path) : path_(path) {}

  [[nodiscard]] std::vector<TensorEntry> take() { return std::move(entries_); }

  bool null() { wrong_value("null"); }
  bool boolean(bool /*value*/) { wrong_value("a boolean"); }
  bool number_integer(std::int64_t /*value*/) { wrong_value("a negative number"); }
  bool number_float(double /*value*/, const std::string& /*text*/) { wrong_value("no whole number of 64 bits"); }
  bool binary(nlohmann::json::binary_t& /*value*/) { wrong_value("binary"); }

  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      wrong_value("no whole number of 64 bits");
    }
    if (state_ == State::shape) {
      if (entry().shape.size() == kMaxTensorDims) {
        fail("more than " + std::to_string(kMaxTensorDims) + " dims in its shape");
      }
      entry().shape.push_back(static_cast<std::int64_t>(value));
    } else if (state_ == State::offsets) {
      if (num_offsets_ == 2) fail("data_offsets has more than two numbers");
      (num_offsets_ == 0 ? entry().begin : entry().end) = static_cast<std::int64_t>(value);
      ++num_offsets_;
    } else {
      wrong_value("a number");
    }
    return true;
  }

  bool string(std::string& value) {
    if (state_ == State::metadata_value) {
      state_ = State::metadata;
    } else if (state_ == State::dtype) {
      entry().dtype = value;
      state_ = State::entry;
    } else {
      wrong_value("a text");
    }
    return true;
  }

  bool start_object(std::size_t /*extent*/) {
    if (state_ == State::before) {
      state_ = State::header;
    } else if (state_ == State::name) {
      state_ = State::entry;
    } else if (state_ == State::metadata_name) {
      state_ = State::metadata;
    } else {
      wrong_value("an object");
    }
    return true;
  }

  bool key(std::string& name) {
    if (state_ == State::header) return open_entry(name);
    if (state_ == State::metadata) {
      state_ = State::metadata_value;
      return true;
    }
    const int bit = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
    if (bit == 0) fail("unknown key " + shown(name));
    if ((seen_ & bit) != 0) fail(name + " is there twice");
    seen_ |= bit;
    state_ = bit == 1 ? State::dtype : bit == 2 ? State::before_shape : State::before_offsets;
    return true;
  }

  bool end_object() {
    if (state_ == State::entry) {
      for (const auto& [bit, name] : {std::pair(1, "dtype"), std::pair(2, "shape"), std::pair(4, "data_offsets")}) {
        if ((seen_ & bit) == 0) fail(std::string("no ") + name);
      }
    }
    state_ = state_ == State::header ? State::after : State::header;
    return true;
  }

  bool start_array(std::size_t /*extent*/) {
    if (state_ == State::before_shape) {
      state_ = State::shape;
    } else if (state_ == State::before_offsets) {
      state_ = State::offsets;
      num_offsets_ = 0;
    } else {
      wrong_value("an array");
    }
    return true;
  }

  bool end_array() {
    if (state_ == State::offsets && num_offsets_ != 2) fail("data_offsets has not two numbers");
    state_ = State::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::json::exception& /*error*/) {
    throw Error(Failure::input, path_ + ": the header is not JSON, at its byte " + std::to_string(position));
  }

 private:
  enum class State {
    before,
    header,
    name,
    entry,
    dtype,
    before_shape,
    shape,
    before_offsets,
    offsets,
    metadata_name,
    metadata,
    metadata_value,
    after
  };

  TensorEntry& entry() { return entries_.back(); }

  bool open_entry(const std::string& name) {
    if (name == "__metadata__") {
      if (metadata_seen_) throw Error(Failure::input, path_ + ": __metadata__ is there twice");
      metadata_seen_ = true;
      state_ = State::metadata_name;
      return true;
    }
    if (entries_.size() == kMaxTensors) {
      throw Error(Failure::input, path_ + ": more than " + std::to_string(kMaxTensors) + " tensors");
    }
    entries_.emplace_back().name = name;
    if (name.size() > kMaxNameBytes) fail("a name of " + std::to_string(name.size()) + " bytes");
    seen_ = 0;
    state_ = State::name;
    return true;
  }

  [[noreturn]] void fail(const std::string& reason) {
    throw Error(Failure::input, path_ + ": tensor " + shown(entry().name) + ": " + reason);
  }

  /// Rejects `what`, which the format does not allow at this position.
  [[noreturn]] void wrong_value(const std::string& what) {
    switch (state_) {
      case State::before:
        throw Error(Failure::input, path_ + ": the header is not an object");
      case State::name:
        fail("its value is " + what + ", not an object");
      case State::dtype:
        fail("dtype is " + what + ", not a text");
      case State::before_shape:
        fail("shape is " + what + ", not a list");
      case State::shape:
        fail("shape holds " + what);
      case State::before_offsets:
        fail("data_offsets is " + what + ", not a list");
      case State::offsets:
        fail("data_offsets holds " + what);
      default:
        throw Error(Failure::input, path_ + ": __metadata__ holds " + what + ", not texts");
    }
  }

  const std::string& path_;
  std::vector<TensorEntry> entries_;
  State state_ = State::before;
  int seen_ = 0;  ///< bits of the keys that the open entry has
  int num_offsets_ = 0;
  bool metadata_seen_ = false;
};

constexpr std::array<std::pair<std::string_view, std::int64_t>, 15> kDtypes = {{{"F64", 8},
                                                                                {"F32", 4},
                                                                                {"F16", 2},
                                                                                {"BF16", 2},
                                                                                {"I64", 8},
                                                                                {"I32", 4},
                                                                                {"I16", 2},
                                                                                {"I8", 1},
                                                                                {"U64", 8},
                                                                                {"U32", 4},
                                                                                {"U16", 2},
                                                                                {"U8", 1},
                                                                                {"BOOL", 1},
                                                                                {"F8_E4M3", 1},
                                                                                {"F8_E5M2", 1}}};

[[noreturn]] void refuse(const std::string& path, const TensorEntry& entry, const std::string& reason) {
  throw Error(Failure::input, path + ": tensor " + shown(entry.name) + ": " + reason);
}

std::string bytes_text(const TensorEntry& entry) {
  return "bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end);
}

/// Checks that dtype * shape = bytes, and that the bytes are in the file.
void check_extent(const std::string& path, const TensorEntry& entry, std::int64_t data_bytes) {
  std::int64_t bytes = bytes_of_dtype(entry.dtype);
  if (bytes == 0) refuse(path, entry, "dtype " + shown(entry.dtype) + " is not one of the format's");
  for (const std::int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      refuse(path, entry, "shape " + shape_text(entry.shape) + " has more bytes than 64 bits can count");
    }
  }
  if (entry.begin > entry.end) refuse(path, entry, bytes_text(entry) + " end before they begin");
  if (entry.end > data_bytes) {
    refuse(
        path, entry,
        bytes_text(entry) + " lie beyond the file's " + std::to_string(data_bytes) + " bytes of data: it is truncated");
  }
  if (entry.end - entry.begin != bytes) {
    refuse(path, entry,
           bytes_text(entry) + " are " + std::to_string(entry.end - entry.begin) + ", but " + entry.dtype + " " +
               shape_text(entry.shape) + " takes " + std::to_string(bytes));
  }
}

/// Checks that the entries, in the order of their bytes, cover [0, data_bytes) exactly.
void check_cover(const std::string& path, const std::vector<TensorEntry>& entries, std::int64_t data_bytes) {
  std::int64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const auto& entry : entries) {
    if (entry.begin < covered) refuse(path, entry, bytes_text(entry) + " overlap tensor " + shown(previous->name));
    if (entry.begin > covered) {
      refuse(path, entry, "a hole of " + std::to_string(entry.begin - covered) + " bytes lies before it");
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered != data_bytes) {
    throw Error(Failure::input, path + ": " + std::to_string(data_bytes - covered) + " bytes behind the last tensor");
  }
}

void check_names(const std::string& path, const std::vector<TensorEntry>& entries) {
  std::unordered_set<std::string_view> names;
  for (const auto& entry : entries) {
    if (entry.name.empty()) throw Error(Failure::input, path + ": a tensor without a name");
    if (!names.insert(entry.name).second) refuse(path, entry, "its name is there twice");
  }
}

}  // namespace

std::vector<TensorEntry> read_header_entries(const std::string& path, std::string_view header) {
  const std::size_t null_byte = header.find('\0');
  if (null_byte != header.npos) {
    throw Error(Failure::input, path + ": the header is not JSON, at its byte " + std::to_string(null_byte + 1));
  }
  EntryReader reader(path);
  nlohmann::json::sax_parse(header, &reader);
  return reader.take();
}

std::int64_t TensorEntry::extent() const { return (end - begin) / bytes_of_dtype(dtype); }

std::int64_t bytes_of_dtype(std::string_view dtype) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& row) { return row.first == dtype; });
  return found == kDtypes.end() ? 0 : found->second;
}

std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 100;
  std::string text(name.substr(0, kMost));
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return name.size() > kMost ? text + "..." : text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

std::string text_of_non_finite(const std::vector<std::int64_t>& shape, std::int64_t first,
                               std::span<const float> values) {
  constexpr std::size_t kBlock = 4096;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    std::uint32_t largest = 0;  // of the bits without the sign; a loop without a branch, for vector instructions
    for (const float value : block) largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
    if (largest < 0x7F800000U) continue;
    const auto bad = std::ranges::find_if_not(block, is_finite);
    std::int64_t rest = first + static_cast<std::int64_t>(begin) + (bad - block.begin());
    std::vector<std::int64_t> indices(shape.size());
    for (std::size_t dim = shape.size(); dim-- > 0; rest /= shape[dim]) indices[dim] = rest % shape[dim];
    const char* const kind = std::isnan(*bad) ? "nan" : *bad > 0.0F ? "inf" : "-inf";
    return "element " + shape_text(indices) + " is " + kind;
  }
  return "";
}

std::vector<TensorEntry> parse_safetensors_header(const std::string& path, std::string_view header,
                                                  std::int64_t data_bytes) {
  auto entries = read_header_entries(path, header);
  check_names(path, entries);
  for (const auto& entry : entries) check_extent(path, entry, data_bytes);
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_cover(path, entries, data_bytes);
  return entries;
}

}  // namespace kozero::io
