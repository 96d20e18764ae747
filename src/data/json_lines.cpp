// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// json_lines.cpp: the texts in files with a JSON object on each line.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "io/posix/readable.hpp"
#include "io/text/byte_stream.hpp"
#include "src/data/chat_templates.hpp"
#include "src/data/conversations.hpp"
#include "src/data/json_files.hpp"
#include "src/data/records.hpp"

namespace kozero::data {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kReadBytes = std::size_t{256} << 10;

/// The lines of a stream, numbered from 1. Holds one line and a buffer of what follows.
class Lines {
 public:
  explicit Lines(const std::string& path) : stream_(io::open_bytes(path)) {}

  [[nodiscard]] std::int64_t number() const { return number_; }
  [[nodiscard]] std::int64_t taken() const { return stream_->taken(); }

  /// The next line without its end, valid until the next call; nullopt behind the last. Throws BadRecord for a line of
  /// more than kMostRecordBytes, which is passed over.
  std::optional<std::string_view> next() {
    std::size_t searched = begin_;
    bool too_long = false;
    for (;;) {
      const std::size_t end = buffer_.find('\n', searched);
      if (end != std::string::npos) return line(end, end + 1, too_long);
      buffer_.erase(0, begin_);  // once per read, not per line
      begin_ = 0;
      if (std::ssize(buffer_) > kMostRecordBytes) {
        too_long = true;
        buffer_.clear();
      }
      searched = buffer_.size();
      if (!read_more()) break;
    }
    if (buffer_.empty() && !too_long) return std::nullopt;
    return line(buffer_.size(), buffer_.size(), too_long);
  }

 private:
  std::string_view line(std::size_t end, std::size_t next, bool too_long) {
    const std::size_t begin = std::exchange(begin_, next);
    ++number_;
    if (too_long) {
      throw BadRecord(
          fmt::format("row {}: longer than {}: split the document", number_, io::readable_bytes(kMostRecordBytes)));
    }
    const std::string_view whole = std::string_view(buffer_).substr(begin, end - begin);
    return number_ == 1 && whole.starts_with("\xEF\xBB\xBF") ? whole.substr(3) : whole;
  }

  bool read_more() {
    const std::size_t held = buffer_.size();
    buffer_.resize(held + kReadBytes);
    const std::size_t got = stream_->read(std::span(buffer_).subspan(held));
    buffer_.resize(held + got);
    return got > 0;
  }

  std::unique_ptr<io::ByteStream> stream_;
  std::string buffer_;
  std::size_t begin_ = 0;  ///< of the next line
  std::int64_t number_ = 0;
};

std::string no_number(const std::string& column) { return fmt::format("no number \"{}\" (data.filter)", column); }

/// Takes two members of the outermost object while it is parsed, so that nothing else of it is kept.
class RecordParser final : public JsonVisitor {
 public:
  RecordParser(const DocumentRules& rules, std::string_view row, std::string& text)
      : rules_(rules), row_(row), text_(text) {}

  [[nodiscard]] bool is_object() const { return is_object_; }
  [[nodiscard]] bool has_text() const { return text_type_ == kText; }
  [[nodiscard]] const char* text_type() const { return text_type_; }
  [[nodiscard]] std::optional<long double> number() const { return number_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override { return value("null"); }
  bool boolean(bool /*value*/) override { return value("true or false"); }
  bool number_integer(Json::number_integer_t value) override { return a_number(static_cast<long double>(value)); }
  bool number_unsigned(Json::number_unsigned_t value) override { return a_number(static_cast<long double>(value)); }
  bool number_float(Json::number_float_t value, const std::string& /*digits*/) override { return a_number(value); }
  bool string(std::string& value) override {
    if (depth_ == 1 && is_text_) text_.swap(value);
    return this->value(kText);
  }
  bool start_object(std::size_t /*elements*/) override {
    if (depth_ == 0) is_object_ = true;
    return begin("an object");
  }
  bool start_array(std::size_t /*elements*/) override { return begin("a list"); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    is_text_ = name == rules_.text_field;
    is_number_ = name == rules_.filter.column;
    const bool is_again =
        (is_text_ && std::exchange(had_text_, true)) || (is_number_ && std::exchange(had_number_, true));
    if (is_again) problem_ = key_twice(name);
    return !is_again;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& problem) override {
    problem_ = not_json(row_, position, problem.what());
    return false;
  }

 private:
  static constexpr const char* kText = "text";

  bool value(const char* type) {
    if (depth_ == 1 && is_text_) text_type_ = type;
    if (depth_ == 1) is_text_ = is_number_ = false;
    return true;
  }
  bool a_number(long double value) {
    if (depth_ == 1 && is_number_) number_ = value;
    return this->value("a number");
  }
  bool begin(const char* type) {
    value(type);
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  const DocumentRules& rules_;
  std::string_view row_;
  std::string& text_;
  std::int64_t depth_ = 0;
  bool is_object_ = false;
  bool is_text_ = false;    ///< the next value is the text
  bool is_number_ = false;  ///< the next value is the filter's
  bool had_text_ = false;
  bool had_number_ = false;
  const char* text_type_ = nullptr;
  std::optional<long double> number_;
  std::string problem_;
};

/// Takes the names of the outermost object's members, the first few.
class KeyNames final : public JsonVisitor {
 public:
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  bool start_object(std::size_t /*elements*/) override { return ++depth_ > 0; }
  bool start_array(std::size_t /*elements*/) override { return ++depth_ > 0; }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool key(std::string& name) override {
    constexpr std::size_t kMostNames = 20, kMostBytes = 64;
    if (depth_ != 1) return true;
    names_.push_back(names_.size() + 1 == kMostNames ? "..." : name.substr(0, kMostBytes));
    return names_.size() < kMostNames;
  }

 private:
  std::int64_t depth_ = 0;
  std::vector<std::string> names_;
};

/// "; its keys: id, content" for a row that is a JSON object.
std::string keys_of(std::string_view row) {
  KeyNames keys;
  Json::sax_parse(row, &keys);
  return keys.names().empty() ? "" : io::on_one_line(fmt::format("; its keys: {}", fmt::join(keys.names(), ", ")));
}

bool is_conversation(std::string_view row) {
  try {
    return conversation_shape(json_tree(row)) != nullptr;
  } catch (const BadRecord&) {
    return false;
  }
}

/// A number as it is written: integers of 64 bits are exact.
long double number_in(const Json& value) {
  if (value.is_number_unsigned()) return static_cast<long double>(value.get<std::uint64_t>());
  return value.is_number_integer() ? static_cast<long double>(value.get<std::int64_t>())
                                   : static_cast<long double>(value.get<double>());
}

/// Turns records into conversations of the shape that the first one has.
class Conversations {
 public:
  explicit Conversations(const DocumentRules& rules) : rules_(rules) {}

  /// Throws BadRecord, without the row.
  RecordFile::Next next(std::string_view line, std::string& text) {
    const Json record = json_tree(line);
    if (shape_ == nullptr) shape_ = conversation_shape(record);
    if (shape_ == nullptr) throw BadRecord("no conversation" + keys_of(line) + accepted_shapes());
    ChatText chat = chat_text(rules_.chat_template, messages_of(record, *shape_));
    text = std::move(chat.text);
    parts_ = std::move(chat.parts);
    const std::string& column = rules_.filter.column;
    if (column.empty()) return RecordFile::Next::document;
    const auto number = record.find(column);
    if (number == record.end() || !number->is_number()) throw BadRecord(no_number(column));
    return rules_.filter.keeps(number_in(*number)) ? RecordFile::Next::document : RecordFile::Next::filtered;
  }
  std::vector<io::TextPart> take_parts() { return std::move(parts_); }

  static std::string accepted_shapes() { return "; accepted: " + conversation_shapes(); }

 private:
  DocumentRules rules_;
  const ConversationShape* shape_ = nullptr;
  std::vector<io::TextPart> parts_;
};

class JsonLines final : public RecordFile {
 public:
  JsonLines(const std::string& path, const DocumentRules& rules) : rules_(rules), conversations_(rules), lines_(path) {}

  Next next(std::string& text) override {
    for (;;) {
      const auto line = lines_.next();
      if (!line) return Next::end;
      if (line->find_first_not_of(" \t\r") != std::string_view::npos) return parse(*line, text);
    }
  }
  [[nodiscard]] std::vector<io::TextPart> take_parts() override { return conversations_.take_parts(); }
  [[nodiscard]] std::int64_t row() const override { return lines_.number(); }
  [[nodiscard]] std::int64_t taken() const override { return lines_.taken(); }

 private:
  Next parse(std::string_view line, std::string& text) {
    if (!rules_.chat_template.empty()) return parse_conversation(line, text);
    RecordParser record(rules_, line, text);
    const bool whole = Json::sax_parse(line, &record);
    if (!whole) refuse(record.problem());
    if (!record.is_object()) refuse("not a JSON object");
    if (record.text_type() == nullptr) {
      refuse(fmt::format("no field \"{}\" (data.text_field){}", rules_.text_field, keys_of(line)));
    }
    if (!record.has_text()) refuse(fmt::format("\"{}\" is {}, not text", rules_.text_field, record.text_type()));
    if (rules_.filter.column.empty()) return Next::document;
    if (!record.number()) refuse(no_number(rules_.filter.column));
    return rules_.filter.keeps(*record.number()) ? Next::document : Next::filtered;
  }

  Next parse_conversation(std::string_view line, std::string& text) {
    try {
      return conversations_.next(line, text);
    } catch (const BadRecord& bad) {
      refuse(bad.what());
    }
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw BadRecord(fmt::format("row {}: {}", lines_.number(), io::on_one_line(why)));
  }

  DocumentRules rules_;
  Conversations conversations_;
  Lines lines_;
};

Objection objection_to_conversation(std::string_view line, std::int64_t row) {
  try {
    if (conversation_shape(json_tree(line)) != nullptr) return {};
  } catch (const BadRecord&) {
    return {};  // the reader names it
  }
  const std::string reason = fmt::format("JSON lines: row {} is no conversation", row);
  return {reason, reason + keys_of(line) + Conversations::accepted_shapes()};
}

}  // namespace

bool begins_with_object(const std::string& path) {
  Lines lines(path);
  try {
    for (auto line = lines.next(); line; line = lines.next()) {
      if (line->find_first_not_of(" \t\r") != std::string_view::npos) return Json::accept(*line);
    }
  } catch (const BadRecord&) {  // longer than a record may be
  }
  return false;
}

std::unique_ptr<RecordFile> open_json_lines(const std::string& path, const DocumentRules& rules) {
  return std::make_unique<JsonLines>(path, rules);
}

Objection objection_to_json_lines(const std::string& path, const DocumentRules& rules) {
  constexpr int kMostRows = 16;  // of those that are no objects: the reader names them
  Lines lines(path);
  for (int row = 0; row < kMostRows; ++row) {
    std::optional<std::string_view> line;
    try {
      line = lines.next();
    } catch (const BadRecord&) {
      continue;
    }
    if (!line) break;
    std::string text;
    RecordParser record(rules, *line, text);
    if (!Json::sax_parse(*line, &record) || !record.is_object()) continue;
    if (!rules.chat_template.empty()) return objection_to_conversation(*line, lines.number());
    const bool has_text = record.text_type() != nullptr;
    if (has_text && (rules.filter.column.empty() || record.number())) break;
    const std::string reason = io::on_one_line(
        has_text ? fmt::format("JSON lines: row {} has no number \"{}\"", lines.number(), rules.filter.column)
                 : fmt::format("JSON lines: row {} has no field \"{}\"", lines.number(), rules.text_field));
    const char* const remedy = has_text                 ? "; see data.filter"
                               : is_conversation(*line) ? "; they are conversations: set data.chat_template"
                                                        : "; set data.text_field";
    return {reason, reason + keys_of(*line) + remedy};
  }
  return {};
}

}  // namespace kozero::data
