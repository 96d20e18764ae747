// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parquet.cpp: the texts in a column of a Parquet file, read by Arrow. Other columns than the text's and the filter's
// are not read. Of each of the two a page is in memory, as it is stored and unpacked, and the dictionary of its row
// group: values are read from the page one at a time. No buffer is larger than the column's chunk of the row group, or
// than a record may be, whatever a page's header declares.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/float16.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <parquet/arrow/reader.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "src/data/records.hpp"

namespace kozero::data {
namespace {

constexpr std::int64_t kReadBytes = std::int64_t{1} << 20;

/// Memory of the system, in buffers of at most `most` bytes.
class BoundedPool final : public arrow::MemoryPool {
 public:
  using arrow::MemoryPool::Allocate;
  using arrow::MemoryPool::Free;
  using arrow::MemoryPool::Reallocate;

  /// Buffers of kMostRecordBytes are always allowed: some writers' sizes of chunks are wrong.
  void bound(std::int64_t most) { most_ = std::max(most, kMostRecordBytes) + kReadBytes; }

  arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override {
    ARROW_RETURN_NOT_OK(require(size));
    return pool_->Allocate(size, alignment, out);
  }
  arrow::Status Reallocate(std::int64_t old_size, std::int64_t size, std::int64_t alignment,
                           std::uint8_t** buffer) override {
    ARROW_RETURN_NOT_OK(require(size));
    return pool_->Reallocate(old_size, size, alignment, buffer);
  }
  void Free(std::uint8_t* buffer, std::int64_t size, std::int64_t alignment) override {
    pool_->Free(buffer, size, alignment);
  }
  [[nodiscard]] std::int64_t bytes_allocated() const override { return pool_->bytes_allocated(); }
  [[nodiscard]] std::int64_t total_bytes_allocated() const override { return pool_->total_bytes_allocated(); }
  [[nodiscard]] std::int64_t num_allocations() const override { return pool_->num_allocations(); }
  [[nodiscard]] std::string backend_name() const override { return pool_->backend_name(); }

 private:
  [[nodiscard]] arrow::Status require(std::int64_t size) const {
    if (size <= most_) return arrow::Status::OK();
    return arrow::Status::OutOfMemory(fmt::format("a page declares {}, and its column has at most {}",
                                                  io::readable_bytes(size), io::readable_bytes(most_ - kReadBytes)));
  }

  arrow::MemoryPool* pool_ = arrow::system_memory_pool();
  std::int64_t most_ = kMostRecordBytes + kReadBytes;
};

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

std::unique_ptr<::parquet::arrow::FileReader> open_reader(const std::string& path, arrow::MemoryPool* pool) {
  return read_from(path, [&]() -> arrow::Result<std::unique_ptr<::parquet::arrow::FileReader>> {
    ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path, pool));
    ::parquet::ReaderProperties pages(pool);
    pages.enable_buffered_stream();
    pages.set_buffer_size(kReadBytes);
    pages.set_page_checksum_verification(true);
    ::parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(std::move(file), pages));
    return builder.memory_pool(pool)->Build();
  });
}

/// Whether ColumnValues reads it as text, or as numbers.
bool has_values(const ::parquet::ColumnDescriptor& column, bool of_text) {
  using ::parquet::Type;
  if (column.max_repetition_level() > 0) return false;
  const auto type = column.physical_type();
  if (of_text) return type == Type::BYTE_ARRAY;
  return type == Type::INT32 || type == Type::INT64 || type == Type::FLOAT || type == Type::DOUBLE ||
         (type == Type::FIXED_LEN_BYTE_ARRAY && column.type_length() == 2);
}

/// The column's number; nullopt if the file has none of this name. A field of a struct is named "doc.text".
std::optional<int> column_of(const ::parquet::arrow::FileReader& reader, const std::string& name) {
  const auto& schema = *reader.parquet_reader()->metadata()->schema();
  for (int i = 0; i < schema.num_columns(); ++i) {
    const auto& column = *schema.Column(i);
    if (column.path()->ToDotString() == name) return i;
  }
  return std::nullopt;
}

/// "; its columns: text, id, score"
std::string columns_of(const arrow::Schema& schema) {
  return fmt::format("; its columns: {}", fmt::join(schema.field_names(), ", "));
}

/// Of the column, or of the field of a struct; null if there is none. pandas' categories have the type of their values.
std::shared_ptr<arrow::DataType> type_of(const std::string& name, const arrow::FieldVector& fields) {
  for (const auto& field : fields) {
    if (field->name() == name) {
      const auto& type = field->type();
      return type->id() == arrow::Type::DICTIONARY ? static_cast<const arrow::DictionaryType&>(*type).value_type()
                                                   : type;
    }
    if (field->type()->id() != arrow::Type::STRUCT || !name.starts_with(field->name() + ".")) continue;
    if (auto inner = type_of(name.substr(field->name().size() + 1), field->type()->fields())) return inner;
  }
  return nullptr;
}

bool is_text(const arrow::DataType& type) {
  return arrow::is_base_binary_like(type.id()) || arrow::is_binary_view_like(type.id());
}

bool is_number(const arrow::DataType& type) { return arrow::is_integer(type.id()) || arrow::is_floating(type.id()); }

/// Why no row can be a document; "" if a row can.
std::string objection_to_schema(const ::parquet::arrow::FileReader& reader, const arrow::Schema& schema,
                                const DocumentRules& rules) {
  const auto objection = [&](const std::string& name, const char* key, bool (*fits)(const arrow::DataType&),
                             const char* wanted) -> std::string {
    const auto same = std::ranges::count(schema.field_names(), name);
    if (same > 1) return fmt::format("{} columns \"{}\"{}; rename all but one", same, name, columns_of(schema));
    const auto type = type_of(name, schema.fields());
    if (type == nullptr) return fmt::format("no column \"{}\"{}; set {}", name, columns_of(schema), key);
    const auto column = column_of(reader, name);
    const auto& columns = *reader.parquet_reader()->metadata()->schema();
    if (fits(*type) && column && has_values(*columns.Column(*column), fits == is_text)) return "";
    const bool is_struct = type->id() == arrow::Type::STRUCT;
    return fmt::format("column \"{}\" ({}) has {}, not {}{}", name, key, type->ToString(), wanted,
                       is_struct ? "; a field of it is named " + name + ".FIELD" : "");
  };
  const std::string text = objection(rules.text_field, "data.text_field", is_text, "text");
  if (!text.empty() || rules.filter.column.empty()) return text;
  return objection(rules.filter.column, "data.filter", is_number, "numbers");
}

std::shared_ptr<arrow::Schema> schema_of(const std::string& path, ::parquet::arrow::FileReader& reader) {
  return read_from(path, [&]() -> arrow::Result<std::shared_ptr<arrow::Schema>> {
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(reader.GetSchema(&schema));
    return schema;
  });
}

/// The values of a column in a row group, one at a time.
class ColumnValues {
 public:
  explicit ColumnValues(std::shared_ptr<::parquet::ColumnReader> reader, bool is_unsigned = false)
      : reader_(std::move(reader)), is_unsigned_(is_unsigned) {}

  /// The next row's text, valid until the next call; nullopt if it is null.
  std::optional<std::string_view> text() {
    const auto value = next<::parquet::ByteArrayType>();
    if (!value) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(value->ptr), value->len);
  }
  std::optional<long double> number() {
    switch (reader_->type()) {
      case ::parquet::Type::INT32:
        return integer<::parquet::Int32Type, std::uint32_t>();
      case ::parquet::Type::INT64:
        return integer<::parquet::Int64Type, std::uint64_t>();
      case ::parquet::Type::FLOAT:
        return next<::parquet::FloatType>();
      case ::parquet::Type::DOUBLE:
        return next<::parquet::DoubleType>();
      default: {
        const auto bytes = next<::parquet::FLBAType>();  // of two bytes: Parquet's FLOAT16
        if (!bytes) return std::nullopt;
        return arrow::util::Float16::FromLittleEndian(bytes->ptr).ToFloat();
      }
    }
  }

 private:
  template <class Type>
  std::optional<typename Type::c_type> next() {
    std::int16_t level = 0;
    std::int64_t count = 0;
    typename Type::c_type value{};
    auto& typed = static_cast<::parquet::TypedColumnReader<Type>&>(*reader_);
    if (!typed.HasNext() || typed.ReadBatch(1, &level, nullptr, &value, &count) != 1) {
      throw ::parquet::ParquetException("a column ends before its row group");
    }
    return count == 1 ? std::optional(value) : std::nullopt;
  }
  template <class Type, class Unsigned>
  std::optional<long double> integer() {
    const auto value = next<Type>();
    if (!value) return std::nullopt;
    return is_unsigned_ ? static_cast<long double>(static_cast<Unsigned>(*value)) : static_cast<long double>(*value);
  }

  std::shared_ptr<::parquet::ColumnReader> reader_;
  bool is_unsigned_;
};

class ParquetRecords final : public RecordFile {
 public:
  ParquetRecords(const std::string& path, const DocumentRules& rules)
      : path_(path), rules_(rules), reader_(open_reader(path, &pool_)) {
    const auto schema = schema_of(path_, *reader_);
    if (const std::string why = objection_to_schema(*reader_, *schema, rules); !why.empty()) refuse_file(path_, why);
    text_column_ = *column_of(*reader_, rules.text_field);
    if (rules.filter.column.empty()) return;
    filter_column_ = *column_of(*reader_, rules.filter.column);
    is_unsigned_ = arrow::is_unsigned_integer(type_of(rules.filter.column, schema->fields())->id());
  }

  Next next(std::string& text) override {
    while (rows_ == 0) {
      if (group_ == reader_->num_row_groups()) return Next::end;
      read_from(where(), [&]() -> arrow::Result<bool> { return open_group(); });
    }
    --rows_;
    std::optional<std::string_view> bytes;
    std::optional<long double> number;
    read_from(where(), [&]() -> arrow::Result<bool> {
      bytes = texts_->text();
      if (numbers_) number = numbers_->number();
      return true;
    });
    ++number_;
    if (numbers_ && !number) refuse(fmt::format("\"{}\" (data.filter) is null", rules_.filter.column));
    if (numbers_ && !rules_.filter.keeps(*number)) return Next::filtered;
    if (!bytes) refuse(fmt::format("\"{}\" is null", rules_.text_field));
    if (std::ssize(*bytes) > kMostRecordBytes) {
      refuse(fmt::format("longer than {}: split the document", io::readable_bytes(kMostRecordBytes)));
    }
    if (const std::size_t good = io::utf8_prefix(*bytes); good < bytes->size()) {
      refuse(not_utf8(*bytes, good, 0).reason + " of the text");
    }
    text = *bytes;
    return Next::document;
  }

  [[nodiscard]] std::int64_t row() const override { return number_; }
  [[nodiscard]] std::int64_t taken() const override { return taken_; }

 private:
  bool open_group() {
    number_ = first_row_;
    const auto group = reader_->parquet_reader()->metadata()->RowGroup(group_);
    taken_ = group->file_offset() > 0 ? group->file_offset() : taken_;
    rows_ = group->num_rows();
    first_row_ += rows_;
    std::int64_t most = 0;
    for (const int column : {text_column_, filter_column_}) {
      if (column < 0) continue;
      const auto chunk = group->ColumnChunk(column);
      most = std::max({most, chunk->total_uncompressed_size(), std::min(chunk->total_compressed_size(), file_bytes_)});
    }
    texts_.reset();  // before the bound of the next group's pages
    numbers_.reset();
    pool_.bound(most);
    const auto columns = reader_->parquet_reader()->RowGroup(group_++);
    texts_.emplace(columns->Column(text_column_));
    if (filter_column_ >= 0) numbers_.emplace(columns->Column(filter_column_), is_unsigned_);
    return true;
  }

  [[nodiscard]] std::string where() const {
    return fmt::format("{}: row group {}, behind row {}", path_, group_, number_);
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw BadRecord(fmt::format("row {}: {}", number_, io::on_one_line(why)));
  }

  std::string path_;
  DocumentRules rules_;
  BoundedPool pool_;
  std::int64_t file_bytes_ = static_cast<std::int64_t>(std::filesystem::file_size(path_));
  std::unique_ptr<::parquet::arrow::FileReader> reader_;
  int text_column_ = -1;
  int filter_column_ = -1;    ///< < 0: none
  bool is_unsigned_ = false;  ///< the filter's column
  int group_ = 0;             ///< the next one
  std::optional<ColumnValues> texts_, numbers_;
  std::int64_t rows_ = 0;       ///< of the row group that are not read yet
  std::int64_t number_ = 0;     ///< of the current row in the file, from 1
  std::int64_t first_row_ = 0;  ///< rows of the row groups that were opened
  std::int64_t taken_ = 0;
};

}  // namespace

std::unique_ptr<RecordFile> open_parquet(const std::string& path, const DocumentRules& rules) {
  return std::make_unique<ParquetRecords>(path, rules);
}

Objection objection_to_parquet(const std::string& path, const DocumentRules& rules) {
  BoundedPool pool;
  const auto reader = open_reader(path, &pool);
  const std::string why = objection_to_schema(*reader, *schema_of(path, *reader), rules);
  if (why.empty()) return {};
  return {io::on_one_line("Parquet: " + why.substr(0, why.find(';'))), io::on_one_line("Parquet: " + why)};
}

}  // namespace kozero::data
