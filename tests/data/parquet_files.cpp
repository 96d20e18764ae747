// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parquet_files.cpp: Arrow's writer of Parquet files.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>
#include <stdexcept>

#include "records_files.hpp"

namespace kozero::tests {
namespace {

void require_ok(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

template <class Builder>
std::shared_ptr<arrow::Array> finished(Builder& builder) {
  std::shared_ptr<arrow::Array> array;
  require_ok(builder.Finish(&array));
  return array;
}

}  // namespace

void write_parquet(const std::string& path, const std::vector<std::string>& texts, int group) {
  arrow::StringBuilder text, id;
  arrow::DoubleBuilder score;
  arrow::Int64Builder int_score;
  const auto tag = std::make_shared<arrow::StringBuilder>();
  arrow::ListBuilder tags(arrow::default_memory_pool(), tag);
  arrow::StringDictionary32Builder kind;
  const auto body = std::make_shared<arrow::StringBuilder>();
  const auto doc_type = arrow::struct_({arrow::field("body", arrow::utf8())});
  arrow::StructBuilder doc(doc_type, arrow::default_memory_pool(), {body});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    require_ok(kind.Append(i % 2 == 0 ? "even" : "odd"));
    require_ok(doc.Append());
    require_ok(body->Append(texts[i]));
    require_ok(text.Append(texts[i]));
    require_ok(id.Append("urn:" + std::to_string(i)));
    require_ok(score.Append(static_cast<double>(i) / 200.0));
    require_ok(int_score.Append(static_cast<std::int64_t>(i % 6)));
    require_ok(tags.Append());
    require_ok(tag->Append("tag"));
  }
  const auto schema = arrow::schema(
      {arrow::field("text", arrow::utf8()), arrow::field("id", arrow::utf8()), arrow::field("score", arrow::float64()),
       arrow::field("int_score", arrow::int64()), arrow::field("tags", arrow::list(arrow::utf8())),
       arrow::field("kind", arrow::dictionary(arrow::int32(), arrow::utf8())), arrow::field("doc", doc_type)});
  const auto table = arrow::Table::Make(schema, {finished(text), finished(id), finished(score), finished(int_score),
                                                 finished(tags), finished(kind), finished(doc)});
  const auto file = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  const auto properties =
      ::parquet::WriterProperties::Builder().compression(arrow::Compression::ZSTD)->enable_page_checksum()->build();
  const auto with_schema = ::parquet::ArrowWriterProperties::Builder().store_schema()->build();
  require_ok(::parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, group, properties, with_schema));
  require_ok(file->Close());
}

}  // namespace kozero::tests
