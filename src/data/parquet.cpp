// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parquet.cpp: the texts in a column of a Parquet file, read by Arrow. Other columns than the text's and the filter's
// are not read. Of a row group, pages of these columns are in memory one at a time.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <optional>
#include <utility>
#include <vector>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "src/data/records.hpp"

namespace kozero::data {
namespace {

constexpr std::int64_t kBatchRows = 64;
constexpr std::int64_t kReadBytes = std::int64_t{1} << 20;

[[noreturn]] void refuse_file(const std::string& path, std::string why) {
  if (why.ends_with('.')) why.pop_back();
  throw Error(Failure::input, io::on_one_line(fmt::format(
                                  "{}: Parquet: {}; make or fetch the file again, or leave it out", path, why)));
}

/// What `read` returns; Arrow's failures, by status or exception, are Error(input) with the path.
template <class Read>
auto read_from(const std::string& path, const Read& read) {
  try {
    auto result = read();
    if (!result.ok()) refuse_file(path, result.status().message());
    return std::move(result).ValueUnsafe();
  } catch (const ::parquet::ParquetException& problem) {
    refuse_file(path, problem.what());
  }
}

std::unique_ptr<::parquet::arrow::FileReader> open_reader(const std::string& path) {
  return read_from(path, [&]() -> arrow::Result<std::unique_ptr<::parquet::arrow::FileReader>> {
    auto* const pool = arrow::system_memory_pool();
    ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path, pool));
    ::parquet::ReaderProperties pages(pool);
    pages.enable_buffered_stream();
    pages.set_buffer_size(kReadBytes);
    pages.set_page_checksum_verification(true);
    ::parquet::ArrowReaderProperties columns(/*use_threads=*/false);
    columns.set_pre_buffer(false);
    columns.set_batch_size(kBatchRows);
    ::parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(std::move(file), pages));
    return builder.memory_pool(pool)->properties(columns)->Build();
  });
}

/// The column's number in a file of flat columns; nullopt if it has none of this name, or a nested one.
std::optional<int> column_of(const ::parquet::arrow::FileReader& reader, const std::string& name) {
  const auto& schema = *reader.parquet_reader()->metadata()->schema();
  for (int i = 0; i < schema.num_columns(); ++i) {
    if (schema.Column(i)->path()->ToDotString() == name) return i;
  }
  return std::nullopt;
}

/// "; its columns: text, id, score"
std::string columns_of(const arrow::Schema& schema) {
  return fmt::format("; its columns: {}", fmt::join(schema.field_names(), ", "));
}

bool is_text(const arrow::DataType& type) {
  return arrow::is_base_binary_like(type.id()) || arrow::is_binary_view_like(type.id());
}

bool is_number(const arrow::DataType& type) { return arrow::is_integer(type.id()) || arrow::is_floating(type.id()); }

/// Why no row can be a document; "" if a row can.
std::string objection_to_schema(const ::parquet::arrow::FileReader& reader, const arrow::Schema& schema,
                                const DocumentRules& rules) {
  const auto lacks = [&](const std::string& name, const char* key) {
    return fmt::format("no column \"{}\"{}; set {}", name, columns_of(schema), key);
  };
  const auto text = schema.GetFieldByName(rules.text_field);
  if (text == nullptr) return lacks(rules.text_field, "data.text_field");
  if (!is_text(*text->type()) || !column_of(reader, rules.text_field)) {
    return fmt::format("column \"{}\" has {}, not text", rules.text_field, text->type()->ToString());
  }
  if (rules.filter.column.empty()) return "";
  const auto number = schema.GetFieldByName(rules.filter.column);
  if (number == nullptr) return lacks(rules.filter.column, "data.filter");
  if (is_number(*number->type()) && column_of(reader, rules.filter.column)) return "";
  return fmt::format("column \"{}\" (data.filter) has {}, not numbers", rules.filter.column,
                     number->type()->ToString());
}

std::shared_ptr<arrow::Schema> schema_of(const std::string& path, ::parquet::arrow::FileReader& reader) {
  return read_from(path, [&]() -> arrow::Result<std::shared_ptr<arrow::Schema>> {
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(reader.GetSchema(&schema));
    return schema;
  });
}

class ParquetRecords final : public RecordFile {
 public:
  ParquetRecords(const std::string& path, const DocumentRules& rules)
      : path_(path), rules_(rules), reader_(open_reader(path)) {
    const auto schema = schema_of(path_, *reader_);
    if (const std::string why = objection_to_schema(*reader_, *schema, rules); !why.empty()) refuse_file(path_, why);
    columns_.push_back(*column_of(*reader_, rules.text_field));
    if (!rules.filter.column.empty()) columns_.push_back(*column_of(*reader_, rules.filter.column));
  }

  Next next(std::string& text) override {
    while (batch_ == nullptr || row_ == batch_->num_rows()) {
      if (!next_batch()) return Next::end;
    }
    const std::int64_t row = row_++;
    ++number_;
    if (!rules_.filter.column.empty()) {
      const auto number = scalar(rules_.filter.column, row);
      if (!number->is_valid) refuse(fmt::format("\"{}\" (data.filter) is null", rules_.filter.column));
      if (!rules_.filter.keeps(value_of(*number))) return Next::filtered;
    }
    const auto value = scalar(rules_.text_field, row);
    if (!value->is_valid) refuse(fmt::format("\"{}\" is null", rules_.text_field));
    const std::string_view bytes = static_cast<const arrow::BaseBinaryScalar&>(*value).view();
    if (std::ssize(bytes) > kMostRecordBytes) {
      refuse(fmt::format("longer than {}: split the document", io::readable_bytes(kMostRecordBytes)));
    }
    if (const std::size_t good = io::utf8_prefix(bytes); good < bytes.size()) {
      refuse(not_utf8(bytes, good, 0).reason + " of the text");
    }
    text = bytes;
    return Next::document;
  }

  [[nodiscard]] std::int64_t taken() const override { return taken_; }

 private:
  /// False at the end of the last row group.
  bool next_batch() {
    batch_ = nullptr;
    row_ = 0;
    while (batch_ == nullptr) {
      if (batches_ == nullptr) {
        if (group_ == reader_->num_row_groups()) return false;
        number_ = first_row_;
        const auto group = reader_->parquet_reader()->metadata()->RowGroup(group_);
        first_row_ += group->num_rows();
        taken_ = group->file_offset() > 0 ? group->file_offset() : taken_;
        batches_ = read_from(where(), [&] { return reader_->GetRecordBatchReader({group_}, columns_); });
        ++group_;
      }
      batch_ = read_from(where(), [&] { return batches_->Next(); });
      if (batch_ == nullptr) batches_ = nullptr;
    }
    return true;
  }

  [[nodiscard]] std::string where() const {
    return fmt::format("{}: row group {}, behind row {}", path_, group_, number_);
  }

  [[nodiscard]] std::shared_ptr<arrow::Scalar> scalar(const std::string& column, std::int64_t row) const {
    return read_from(where(), [&] { return batch_->GetColumnByName(column)->GetScalar(row); });
  }

  [[nodiscard]] double value_of(const arrow::Scalar& number) const {
    const auto as_double = read_from(where(), [&] { return number.CastTo(arrow::float64()); });
    return static_cast<const arrow::DoubleScalar&>(*as_double).value;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw BadRecord(fmt::format("row {}: {}", number_, io::on_one_line(why)));
  }

  std::string path_;
  DocumentRules rules_;
  std::unique_ptr<::parquet::arrow::FileReader> reader_;
  std::vector<int> columns_;
  int group_ = 0;  ///< the next one
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t row_ = 0;        ///< the next one in the batch
  std::int64_t number_ = 0;     ///< of the current row in the file, from 1
  std::int64_t first_row_ = 0;  ///< rows of the row groups that were opened
  std::int64_t taken_ = 0;
};

}  // namespace

std::unique_ptr<RecordFile> open_parquet(const std::string& path, const DocumentRules& rules) {
  return std::make_unique<ParquetRecords>(path, rules);
}

Objection objection_to_parquet(const std::string& path, const DocumentRules& rules) {
  const auto reader = open_reader(path);
  const std::string why = objection_to_schema(*reader, *schema_of(path, *reader), rules);
  if (why.empty()) return {};
  return {io::on_one_line("Parquet: " + why.substr(0, why.find(';'))), io::on_one_line("Parquet: " + why)};
}

}  // namespace kozero::data
