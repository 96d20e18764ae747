// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapters.cpp: reads and writes a PEFT folder, and adds adapters to the tensors of their base.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include <kozero/core/error.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/huggingface/adapters.hpp>
#include <kozero/model/adapters.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"
#include "io/posix/named_file.hpp"
#include "io/safetensors/writer.hpp"
#include "kernels/launch/reduce.hpp"
#include "src/huggingface/adapter_config.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/folder.hpp"

namespace kozero::huggingface {

using model::kLoraA;
using model::kLoraB;

namespace {

constexpr const char* kPeftPrefix = "base_model.model.";
constexpr const char* kBaseFile = "kozero_base.json";
constexpr const char* kBaseKey = "base_xxh3_128";
constexpr std::int64_t kMaxJsonBytes = 4 << 20;

std::string peft_name(const model::Config& config, const std::string& name) {
  return kPeftPrefix + exported_name(config, name);
}

/// "model.layers.0.self_attn.q_proj" of "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"; "" for
/// another name.
std::string module_of(const std::string& name) {
  if (!name.starts_with(kPeftPrefix)) return "";
  const std::string inner = name.substr(std::string_view(kPeftPrefix).size());
  for (const std::string_view end : {kLoraA, kLoraB}) {
    if (inner.ends_with(end)) return inner.substr(0, inner.size() - end.size());
  }
  return "";
}

/// The modules of a file's tensors, each once, by the order of their numbers in the file.
std::vector<std::string> modules_in(const io::SafetensorsFile& file) {
  std::set<std::string> modules;
  for (const io::TensorEntry& entry : file.entries()) {
    const std::string module = module_of(entry.name);
    if (module.empty()) {
      refuse_tensor(file.path(), entry.name,
                    "it is no part of a low-rank adapter; accepted: base_model.model.MODULE.lora_A.weight and "
                    ".lora_B.weight");
    }
    modules.insert(module);
  }
  if (modules.empty()) throw Error(Failure::input, file.path() + ": it has no adapters");
  return {modules.begin(), modules.end()};
}

std::string adapter_file(const std::string& folder) {
  const std::string path = folder + "/" + kAdapterFile;
  if (io::is_there(path) || !io::is_there(folder + "/adapter_model.bin")) return path;
  throw Error(Failure::input, folder + "/adapter_model.bin: accepted are adapters in " + kAdapterFile +
                                  ", which PEFT's save_pretrained writes");
}

/// The recorded identity of the base; "" without a record.
std::string recorded_base(const std::string& folder) {
  const std::string path = folder + "/" + kBaseFile;
  if (!io::is_there(path)) return "";
  const auto json = nlohmann::json::parse(io::read_named_file(path, kMaxJsonBytes), nullptr, false);
  const auto found = json.is_object() ? json.find(kBaseKey) : json.end();
  if (found != json.end() && found->is_string()) return found->get<std::string>();
  throw Error(Failure::input, path + ": it has no text " + kBaseKey);
}

/// Calls visit(values) for the tensor, chunk by chunk.
template <class Visit>
void for_each_values(const TensorReader& read, std::size_t index, std::int64_t extent, const Visit& visit) {
  std::vector<float> values;
  for_each_chunk(extent, [&](std::int64_t first, std::int64_t count) {
    values.resize(static_cast<std::size_t>(count));
    read(index, first, count, values.data());
    visit(first, values);
  });
}

/// The table's tensors that are adapters.
std::vector<std::size_t> adapters_in(const ParameterTable& table) {
  std::vector<std::size_t> indices;
  for (int i = 0; i < std::ssize(table.tensors()); ++i) {
    if (!table.is_base(i)) indices.push_back(static_cast<std::size_t>(i));
  }
  return indices;
}

/// Throws Error(input) if every B is zero. `read` throws if a value is not finite.
void require_trained(const ParameterTable& table, const TensorReader& read, const std::string& path) {
  bool is_empty = true;
  for (const std::size_t index : adapters_in(table)) {
    const Tensor& tensor = table.tensors()[index];
    for_each_values(read, index, tensor.extent(), [&](std::int64_t, const std::vector<float>& values) {
      const auto is_zero = [](float value) { return value == 0.0F; };
      if (tensor.name.ends_with(kLoraB) && !std::ranges::all_of(values, is_zero)) is_empty = false;
    });
  }
  if (!is_empty) return;
  throw Error(Failure::input, path + ": the adapters change nothing, since every lora_B is zero; nothing is written");
}

/// W (R, C) += scale U V, for the elements of W from `first` on.      U (R, r)   V (r, C)
struct LowRankProduct {
  std::int64_t columns = 0;
  std::int64_t rank = 0;
  double scale = 1.0;
  std::vector<float> u;
  std::vector<float> v;

  void add_to(float* w, std::int64_t first, std::int64_t count) const {
    std::vector<double> sums(static_cast<std::size_t>(columns));
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t row = (first + done) / columns;
      const std::int64_t column = (first + done) % columns;
      const std::int64_t extent = std::min(columns - column, count - done);
      std::fill_n(sums.begin(), extent, 0.0);
      for (std::int64_t k = 0; k < rank; ++k) {
        const double factor = u[static_cast<std::size_t>(row * rank + k)];
        const float* const other = v.data() + k * columns + column;
        for (std::int64_t i = 0; i < extent; ++i) sums[static_cast<std::size_t>(i)] += factor * other[i];
      }
      for (std::int64_t i = 0; i < extent; ++i) {
        w[done + i] = static_cast<float>(w[done + i] + scale * sums[static_cast<std::size_t>(i)]);
      }
      done += extent;
    }
  }
};

std::vector<float> all_of(const TensorReader& read, std::size_t index, std::int64_t extent) {
  std::vector<float> values(static_cast<std::size_t>(extent));
  read(index, 0, extent, values.data());
  return values;
}

/// (n, m) of x (m, n).
std::vector<float> transposed(const std::vector<float>& x, std::int64_t rows, std::int64_t columns) {
  std::vector<float> y(x.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      y[static_cast<std::size_t>(j * rows + i)] = x[static_cast<std::size_t>(i * columns + j)];
    }
  }
  return y;
}

std::size_t index_of(const ParameterTable& table, const std::string& name) {
  const auto found = std::ranges::find(table.tensors(), name, &Tensor::name);
  require(found != table.tensors().end(), "merged_tensors: the adapter of " + name + " lacks a tensor");
  return static_cast<std::size_t>(found - table.tensors().begin());
}

/// The modules of the network with and without adapters, by their names in transformers.
struct Modules {
  std::vector<std::string> adapted;
  std::vector<std::string> others;
};

Modules modules_of(const model::Config& config, const ParameterTable& table) {
  Modules modules;
  std::set<std::string> adapted;
  for (const std::size_t index : adapters_in(table)) {
    adapted.insert(module_of(peft_name(config, table.tensors()[index].name)));
  }
  modules.adapted.assign(adapted.begin(), adapted.end());
  for (int i = 0; i < std::ssize(table.tensors()); ++i) {
    std::string name = exported_name(config, table.tensors()[static_cast<std::size_t>(i)].name);
    name = name.substr(0, name.rfind('.'));
    if (table.is_base(i) && !adapted.contains(name)) modules.others.push_back(name);
  }
  return modules;
}

}  // namespace

AdapterDescription read_adapter(const std::string& folder) {
  const std::string path = folder + "/" + kAdapterConfig;
  if (!io::is_there(path)) throw Error(Failure::input, folder + ": no PEFT folder, since it has no " + kAdapterConfig);
  const std::string text = io::read_named_file(path, kMaxJsonBytes);
  const auto modules = modules_in(io::SafetensorsFile(adapter_file(folder)));
  const AdapterConfig config = parse_adapter_config(path, text, modules);
  return {config.lora, recorded_base(folder), config.note};
}

AdapterWeights::AdapterWeights(const std::string& folder, const model::Config& config, const ParameterTable& table)
    : table_(table), file_(adapter_file(folder)), tensors_(table.tensors().size()) {
  std::set<std::string> left;
  for (const io::TensorEntry& entry : file_.entries()) left.insert(entry.name);
  for (const std::size_t index : adapters_in(table)) {
    const Tensor& tensor = table.tensors()[index];
    const std::string name = peft_name(config, tensor.name);
    const auto entry = std::ranges::find(file_.entries(), name, &io::TensorEntry::name);
    if (entry == file_.entries().end()) refuse_tensor(file_.path(), name, "it is missing");
    if (entry->shape != tensor.shape) {
      refuse_tensor(
          file_.path(), name,
          "shape " + io::shape_text(entry->shape) + ", beside this base it has " + io::shape_text(tensor.shape));
    }
    if (entry->dtype != "F32" && entry->dtype != "F16" && entry->dtype != "BF16") {
      refuse_tensor(file_.path(), name, "dtype " + entry->dtype + "; accepted are F32, F16, BF16");
    }
    tensors_[index] = {&file_, &*entry};
    left.erase(name);
  }
  if (!left.empty()) refuse_tensor(file_.path(), *left.begin(), "this base and these targets have no such adapter");
  const TensorReader read = [&](std::size_t index, std::int64_t first, std::int64_t count, float* to) {
    read_finite(tensors_[index], first, count, to);
  };
  for (const std::size_t index : adapters_in(table)) {
    for_each_values(read, index, table.tensors()[index].extent(), [](std::int64_t, const std::vector<float>&) {});
  }
}

void AdapterWeights::read(const io::RangeValues<float>& shard) const { read_shard(table_, tensors_, shard); }

Exported export_adapters(const ExportOrder& order, const ParameterTable& table, const BaseOfAdapters& base) {
  const StoredType& type = stored_type(order.dtype);
  // Without shards, this reads nothing but compares every name and shape.
  io::read_weights(*distributed::make_self_communicator(), order.weights, table, {});
  const TensorReader read = file_tensors(order.weights, table);
  require_trained(table, read, order.weights);

  std::vector<io::PlannedTensor> planned;
  for (const std::size_t index : adapters_in(table)) {
    const Tensor& tensor = table.tensors()[index];
    planned.push_back({peft_name(order.config, tensor.name), tensor.shape, type.safetensors});
  }
  FolderGuard folder(order.out, order.force);
  io::SafetensorsWriter writer(folder / kAdapterFile, planned);
  Exported result;
  for (const std::size_t index : adapters_in(table)) {
    for_each_values(read, index, table.tensors()[index].extent(), [&](std::int64_t, const std::vector<float>& values) {
      writer.append(values.data(), std::ssize(values));
    });
    result.bytes += planned[static_cast<std::size_t>(result.tensors++)].bytes();
  }
  writer.close();
  const Modules modules = modules_of(order.config, table);
  io::write_whole_file(folder / kAdapterConfig, adapter_config_text({order.config.lora, base.name},
                                                                    target_modules(modules.adapted, modules.others),
                                                                    tensor_names(order.config).inputs_first));
  const nlohmann::ordered_json identity = {{kBaseKey, base.identity}};
  io::write_whole_file(folder / kBaseFile, identity.dump() + "\n");
  folder.commit();
  result.files = 1;
  return result;
}

TensorReader merged_tensors(const model::Config& config, const ParameterTable& table, const TensorReader& base,
                            const TensorReader& adapters, const std::string& path) {
  require_trained(table, adapters, path);
  const bool inputs_first = tensor_names(config).inputs_first;
  const auto products = std::make_shared<std::vector<LowRankProduct>>(table.tensors().size());
  for (const std::size_t a : adapters_in(table)) {
    const Tensor& tensor = table.tensors()[a];
    if (!tensor.name.ends_with(kLoraA)) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - std::string_view(kLoraA).size());
    const std::size_t b = index_of(table, module + kLoraB);
    const std::int64_t rank = tensor.shape[0];
    const std::int64_t inputs = tensor.shape[1];
    const std::int64_t outputs = table.tensors()[b].shape[0];
    LowRankProduct product{inputs_first ? outputs : inputs, rank, config.lora.scale(),
                           all_of(adapters, b, rank * outputs), all_of(adapters, a, rank * inputs)};
    if (inputs_first) {
      std::swap(product.u, product.v);
      product.u = transposed(product.u, rank, inputs);
      product.v = transposed(product.v, outputs, rank);
    }
    (*products)[index_of(table, module + ".weight")] = std::move(product);
  }
  return [products, base, tensors = table.tensors(), path](std::size_t index, std::int64_t first, std::int64_t count,
                                                           float* to) {
    base(index, first, count, to);
    const LowRankProduct& product = (*products)[index];
    if (product.rank > 0) product.add_to(to, first, count);
    io::require_finite(path + ": the merged model", tensors[index], first, {to, static_cast<std::size_t>(count)});
  };
}

std::string base_identity(const ParameterTable& table, const TensorReader& base) {
  std::vector<std::uint64_t> sums(table.num_base_tensors());
  for (std::size_t index = 0; index < sums.size(); ++index) {
    for_each_values(base, index, table.tensors()[index].extent(), [&](std::int64_t first, std::vector<float>& values) {
      sums[index] += kernels::bit_hash(Host(), HostVector<float>(values.data(), values.size()), first);
    });
  }
  return io::xxh3_128({reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(std::uint64_t)});
}

TensorReader folder_tensors(const std::string& folder, const model::Config& config, const ParameterTable& table) {
  const auto opened = std::make_shared<const io::SafetensorsFolder>(folder);
  return [opened, tensors = tensors_of(config, table, *opened)](std::size_t index, std::int64_t first,
                                                                std::int64_t count, float* to) {
    read_finite(tensors[index], first, count, to);
  };
}

}  // namespace kozero::huggingface
