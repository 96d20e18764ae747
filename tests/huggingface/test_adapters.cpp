// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_adapters.cpp: PEFT folders, written and read again bit for bit; adapters added to their base; what is refused.
// check_peft.py compares with PEFT itself.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include <kozero/distributed/communicator.hpp>
#include <kozero/huggingface/adapters.hpp>
#include <kozero/model/model.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "io/posix/file.hpp"
#include "src/huggingface/adapter_config.hpp"
#include "src/huggingface/config_json.hpp"

namespace kozero::huggingface {
namespace {

/// The network of a stored sample.
model::Config network(const std::string& name) {
  return read_config(std::string(KOZERO_TEST_DATA) + "/" + name + "/config.json");
}

/// A network with adapters, and a file with values that differ between all elements.
struct Adapted {
  explicit Adapted(model::Config base, model::Lora lora = {.rank = 2})
      : folder("adapted_" + base.arch), config(std::move(base)) {
    config.lora = std::move(lora);
    table = model::make_model<float>(config)->parameters();
    write([](const Tensor&, std::int64_t i) { return 0.01F * static_cast<float>(i % 37 - 11); });
  }

  /// Writes value(tensor, i) for the adapters' elements.
  template <class Value>
  void write(const Value& value) {
    std::vector<std::vector<float>> memory;
    std::vector<io::RangeValues<const float>> shards;
    for (int unit = 0; unit < table.num_units(); ++unit) {
      auto& values = memory.emplace_back(static_cast<std::size_t>(table.unit(unit).extent));
      if (table.unit(unit).is_base) continue;
      for (const Parameter& row : table.rows_of(unit)) {
        const Tensor& tensor = table.tensors()[static_cast<std::size_t>(row.tensor)];
        for (std::int64_t i = 0; i < row.extent(); ++i) {
          values[static_cast<std::size_t>(row.offset + i)] = value(tensor, i);
        }
      }
      shards.push_back({unit, 0, HostVector<const float>(values.data(), values.size())});
    }
    io::write_weights(*distributed::make_self_communicator(), weights(), table, shards, {"{}", 3, 40, {}, "b"});
  }

  [[nodiscard]] std::string weights() const { return folder / "weights.h5"; }
  [[nodiscard]] ExportOrder order(const std::string& out) const {
    ExportOrder order;
    order.weights = weights();
    order.out = folder / out;
    order.config = config;
    return order;
  }
  Exported exported(const std::string& out) const { return export_adapters(order(out), table, {"base", "b"}); }

  tests::ScratchFolder folder;
  model::Config config;
  ParameterTable table;
};

nlohmann::json config_in(const std::string& folder) {
  return nlohmann::json::parse(io::read_whole_file(folder + "/adapter_config.json", 1 << 20));
}

/// The message for a config with one key changed.
std::string refusal(const nlohmann::json& change) {
  nlohmann::json json = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"target_modules", {"q_proj"}}};
  json.update(change);
  return tests::thrown_by([&] { parse_adapter_config("a.json", json.dump(), {"model.layers.0.self_attn.q_proj"}); })
      .text;
}

}  // namespace

TEST_CASE("adapters are written for PEFT and read again with the same bits, in any shard") {
  for (const model::Config& config : {network("gpt2"), network("llama"), network("qwen2"), network("qwen3")}) {
    INFO(config.arch);
    const Adapted adapted(config, {.rank = 3, .alpha = 0.3F, .rslora = true});
    const std::string out = adapted.folder / "peft";
    adapted.exported("peft");
    const AdapterDescription found = read_adapter(out);
    CHECK(found.lora == [&] {
      model::Lora lora = adapted.config.lora;
      lora.targets = found.lora.targets;
      return lora;
    }());
    CHECK(found.base == "b");
    model::Config again = adapted.config;
    again.lora.targets = found.lora.targets;
    CHECK(model::make_model<float>(again)->parameters().num_trainable() == adapted.table.num_trainable());
    const AdapterWeights weights(out, adapted.config, adapted.table);
    const TensorReader stored = file_tensors(adapted.weights(), adapted.table);
    for (const Parameter& row : adapted.table.rows()) {
      if (adapted.table.is_base(row.tensor)) continue;
      std::vector<float> wanted(static_cast<std::size_t>(row.extent()));
      stored(static_cast<std::size_t>(row.tensor), 0, row.extent(), wanted.data());
      for (const std::int64_t skipped : {0, 1, 5}) {
        std::vector<float> values(static_cast<std::size_t>(row.extent() - skipped), -1.0F);
        weights.read({row.unit, row.offset + skipped, HostVector<float>(values.data(), values.size())});
        CHECK(std::equal(values.begin(), values.end(), wanted.begin() + skipped));
      }
    }
  }
}

TEST_CASE("target_modules are the shortest names that PEFT matches with these modules and no other") {
  using Names = std::vector<std::string>;
  const std::string h = "transformer.h.";
  CHECK(target_modules({h + "0.attn.c_attn", h + "1.attn.c_attn"}, {h + "0.mlp.c_fc"}) == Names{"c_attn"});
  CHECK(target_modules({h + "0.attn.c_proj", h + "1.attn.c_proj"}, {h + "0.mlp.c_proj"}) == Names{"attn.c_proj"});
  CHECK(target_modules({h + "1.attn.c_proj"}, {h + "0.attn.c_proj", h + "11.attn.c_proj"}) == Names{"1.attn.c_proj"});
  const Adapted half(network("gpt2"), {.rank = 2, .targets = {"attn.c_proj", "h.1.mlp.*"}});
  half.exported("peft");
  CHECK(config_in(half.folder / "peft")["target_modules"] == Names{"1.mlp.c_fc", "1.mlp.c_proj", "attn.c_proj"});
  CHECK(config_in(half.folder / "peft")["fan_in_fan_out"] == true);
}

TEST_CASE("merged weights are W + s B A, in either orientation, and others are the base's bits") {
  for (const model::Config& config : {network("gpt2"), network("llama"), network("qwen3")}) {
    INFO(config.arch);
    const Adapted adapted(config, {.rank = 2, .alpha = 3.0F});
    const TensorReader stored = file_tensors(adapted.weights(), adapted.table);
    const TensorReader base = [](std::size_t index, std::int64_t first, std::int64_t count, float* to) {
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = 0.001F * static_cast<float>((first + i) % 101) + 0.1F * static_cast<float>(index);
    };
    const TensorReader merged = merged_tensors(adapted.config, adapted.table, base, stored, "w");
    const auto& tensors = adapted.table.tensors();
    const auto all = [&](const TensorReader& read, std::size_t index) {
      std::vector<float> values(static_cast<std::size_t>(tensors[index].extent()));
      read(index, 0, tensors[index].extent(), values.data());
      return values;
    };
    int adapters = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!adapted.table.is_base(static_cast<int>(i))) continue;
      const std::string module = tensors[i].name.substr(0, tensors[i].name.rfind('.'));
      const auto a = std::ranges::find(tensors, module + ".lora_A.weight", &Tensor::name);
      std::vector<float> wanted = all(base, i);
      if (a != tensors.end() && tensors[i].name.ends_with(".weight")) {
        const auto va = all(stored, static_cast<std::size_t>(a - tensors.begin()));
        const auto vb = all(stored, static_cast<std::size_t>(a - tensors.begin() + 1));
        const std::int64_t inputs = a->shape[1];
        const auto outputs = static_cast<std::int64_t>(vb.size()) / 2;
        for (std::int64_t o = 0; o < outputs; ++o) {
          for (std::int64_t in = 0; in < inputs; ++in) {
            const auto at = static_cast<std::size_t>(config.arch == "gpt2" ? in * outputs + o : o * inputs + in);
            double sum = 0.0;
            for (std::int64_t k = 0; k < 2; ++k) {
              sum += static_cast<double>(vb[static_cast<std::size_t>(o * 2 + k)]) *
                     va[static_cast<std::size_t>(k * inputs + in)];
            }
            wanted[at] = static_cast<float>(wanted[at] + 1.5 * sum);
          }
        }
        ++adapters;
      }
      INFO(tensors[i].name);
      std::vector<float> parts(wanted.size());
      for (std::int64_t first = 0; first < std::ssize(parts); first += 7) {
        merged(i, first, std::min<std::int64_t>(7, std::ssize(parts) - first), parts.data() + first);
      }
      CHECK(parts == wanted);
    }
    CHECK(adapters == static_cast<int>(config.layers) * (config.arch == "gpt2" ? 4 : 7));
  }
}

TEST_CASE("an adapter that is empty or not finite is never written") {
  Adapted adapted(network("llama"));
  const auto write = [&] { return tests::thrown_by([&] { adapted.exported("peft"); }).text; };
  adapted.write([](const Tensor& tensor, std::int64_t) { return tensor.name.ends_with("B.weight") ? 0.0F : 1.0F; });
  CHECK(write().find("every lora_B is zero; nothing is written") != std::string::npos);
  const auto refused = tests::thrown_by([&] {
    adapted.write([](const Tensor& tensor, std::int64_t i) {
      return tensor.name.ends_with("o_proj.lora_B.weight") && i == 3 ? std::numeric_limits<float>::infinity() : 1.0F;
    });
  });
  CHECK(refused.status == 6);
  CHECK(refused.text.find("o_proj.lora_B.weight: element (1, 1) is inf: an update overflowed") != std::string::npos);
  CHECK_FALSE(io::is_there(adapted.folder / "peft"));
  CHECK_FALSE(io::is_there(adapted.folder / "peft.partial"));
}

TEST_CASE("keys of adapter_config.json that would change the model are refused by name") {
  CHECK(refusal(nlohmann::json::object()).empty());
  const nlohmann::json more = {{"peft_type", "LORA"}, {"target_modules", {"q_proj", "k_proj"}}};
  const std::vector<std::string> modules = {"model.layers.0.self_attn.q_proj"};
  CHECK(parse_adapter_config("c", more.dump(), modules).note ==
        "c: target_modules has k_proj, of which the adapters have no tensors");
  CHECK(refusal({{"use_dora", nullptr}, {"rank_pattern", nlohmann::json::object()}, {"new_key", false}}).empty());
  const std::vector<nlohmann::json> changes = {{{"use_dora", true}},
                                               {{"bias", "lora_only"}},
                                               {{"modules_to_save", {"lm_head"}}},
                                               {{"rank_pattern", {{"q_proj", 4}}}},
                                               {{"alpha_pattern", {{"q_proj", 4}}}},
                                               {{"layers_to_transform", {1}}},
                                               {{"layers_pattern", "layers"}},
                                               {{"new_key", 7}},
                                               {{"init_lora_weights", "pissa"}},
                                               {{"peft_type", "IA3"}},
                                               {{"task_type", "SEQ_CLS"}},
                                               {{"r", 0}},
                                               {{"lora_alpha", -1}},
                                               {{"lora_dropout", 1.0}},
                                               {{"target_modules", {"v_proj"}}},
                                               {{"exclude_modules", {"q_proj"}}},
                                               {{"trainable_token_indices", {3}}},
                                               {{"lora_bias", true}}};
  for (const nlohmann::json& change : changes) {
    const std::string text = refusal(change);
    INFO(change.dump() << ": " << text);
    CHECK(text.starts_with("a.json: " + change.begin().key() + " = "));
    CHECK(text.find('\n') == std::string::npos);
  }
  CHECK(parse_adapter_config("a", R"({"peft_type": "LORA", "target_modules": ".*"})", {"m.q"}).lora.targets ==
        std::vector<std::string>{"m.q"});
}

TEST_CASE("an adapter of another shape, with a tensor too many or too few, is refused by name") {
  const Adapted adapted(network("llama"));
  adapted.exported("peft");
  const std::string out = adapted.folder / "peft";
  const auto read = [&](model::Config config) {
    const auto table = model::make_model<float>(config)->parameters();
    return tests::thrown_by([&] { const AdapterWeights weights(out, config, table); }).text;
  };
  CHECK(read(adapted.config).empty());
  model::Config other = adapted.config;
  other.lora.rank = 3;
  CHECK(read(other).find("beside this base it has (3, ") != std::string::npos);
  other = adapted.config;
  other.lora.targets = {"q_proj"};
  CHECK(read(other).find("this base and these targets have no such adapter") != std::string::npos);
  other = adapted.config;
  other.layers = 3;
  CHECK(read(other).find("layers.2") != std::string::npos);
}

}  // namespace kozero::huggingface
