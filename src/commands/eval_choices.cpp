// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// eval_choices.cpp: reads items, has all ranks score their endings, and counts right choices.
#include "src/commands/eval_choices.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/data/choices.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/train/likelihood.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "src/commands/trained_tokenizer.hpp"

namespace kozero::commands {
namespace {

using data::Choice;
using data::ChoiceItem;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

/// An ending of an item.
struct Ending {
  const ChoiceItem* item;
  std::size_t number;
};

std::vector<Ending> endings_of(const std::vector<ChoiceItem>& items) {
  std::vector<Ending> endings;
  for (const auto& item : items) {
    for (std::size_t i = 0; i < item.endings.size(); ++i) endings.push_back({&item, i});
  }
  return endings;
}

/// The tokens of this rank's endings. Throws Error(input) naming the row.
std::vector<data::ScoredTokens> tokens_of_rank(const std::vector<Ending>& endings, const io::Tokenizer& tokenizer,
                                               std::int64_t seq, const std::string& path,
                                               const distributed::Communicator& comm) {
  std::vector<data::ScoredTokens> tokens;
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (auto i = static_cast<std::size_t>(comm.rank()); i < endings.size(); i += ranks) {
    const ChoiceItem& item = *endings[i].item;
    try {
      tokens.push_back(data::choice_tokens(item.context, item.endings[endings[i].number], tokenizer, seq));
    } catch (const Error& problem) {
      throw Error(Failure::input,
                  fmt::format("{}:{}: endings[{}]: {}", path, item.line, endings[i].number, problem.what()));
    }
  }
  return tokens;
}

/// A share of right choices and its standard error, sqrt(p (1 - p) / (n - 1)).
struct Accuracy {
  double value = 0.0;
  double error = 0.0;
};

Accuracy accuracy_of(std::int64_t right, std::size_t items) {
  const auto count = static_cast<double>(items);
  const double share = static_cast<double>(right) / count;
  return {share, items > 1 ? std::sqrt(share * (1.0 - share) / (count - 1.0)) : 0.0};
}

/// The log-likelihoods of all endings, item by item.
struct Scored {
  const std::vector<ChoiceItem>& items;
  std::vector<double> log_likelihoods;
  std::vector<Choice> choices = {};

  Scored(const std::vector<ChoiceItem>& all, std::vector<double> scores)
      : items(all), log_likelihoods(std::move(scores)) {
    std::size_t first = 0;
    for (const auto& item : items) {
      choices.push_back(data::choice_of(item, std::span(log_likelihoods).subspan(first, item.endings.size())));
      first += item.endings.size();
    }
  }
  [[nodiscard]] bool has_labels() const { return items.front().label.has_value(); }
  [[nodiscard]] Accuracy accuracy(std::size_t Choice::*chosen) const {
    std::int64_t right = 0;
    for (std::size_t i = 0; i < items.size(); ++i) right += choices[i].*chosen == items[i].label ? 1 : 0;
    return accuracy_of(right, items.size());
  }
};

nlohmann::ordered_json json_of(const Scored& scored) {
  nlohmann::ordered_json json = {{"num_items", scored.items.size()}};
  const auto add = [&](const std::string& name, std::size_t Choice::*chosen) {
    const Accuracy accuracy = scored.has_labels() ? scored.accuracy(chosen) : Accuracy{};
    json[name] = scored.has_labels() ? nlohmann::ordered_json(accuracy.value) : nlohmann::ordered_json();
    json[name + "_stderr"] = scored.has_labels() ? nlohmann::ordered_json(accuracy.error) : nlohmann::ordered_json();
  };
  add("acc", &Choice::by_sum);
  add("acc_norm", &Choice::by_character);
  auto first = scored.log_likelihoods.begin();
  for (std::size_t i = 0; i < scored.items.size(); ++i) {
    const ChoiceItem& item = scored.items[i];
    const auto end = first + std::ssize(item.endings);
    json["items"].push_back({{"line", item.line},
                             {"label", nullptr},
                             {"choice", scored.choices[i].by_sum},
                             {"choice_norm", scored.choices[i].by_character},
                             {"log_likelihoods", std::vector<double>(first, end)}});
    if (item.label) json["items"].back()["label"] = *item.label;
    first = end;
  }
  return json;
}

std::string line_of(const Scored& scored) {
  const std::string count = io::grouped_digits(std::ssize(scored.items)) + " items";
  if (!scored.has_labels()) return fmt::format("{:<12} {} without labels: --json prints the choices", "choices", count);
  const Accuracy sum = scored.accuracy(&Choice::by_sum);
  const Accuracy norm = scored.accuracy(&Choice::by_character);
  return fmt::format("{:<12} acc {:.4f} +- {:.4f}, acc_norm {:.4f} +- {:.4f}, {}", "choices", sum.value, sum.error,
                     norm.value, norm.error, count);
}

}  // namespace

void eval_choices(run::TrainedModel& trained, const program::DeckArguments& named, const std::string& path,
                  const program::JsonOutput& json) {
  distributed::Communicator& control = trained.session().control();
  const auto tokenizer = open_tokenizer(trained, named);
  const std::string bytes =
      distributed::from_first_rank(control, [&] { return io::read_whole_file(path, kMostBytes); });
  const auto items = distributed::agreed(control, [&] { return data::parse_choices(bytes, path); });
  const auto endings = endings_of(items);
  train::Evaluator& evaluator = trained.evaluator();
  const auto tokens = distributed::agreed(
      control, [&] { return tokens_of_rank(endings, *tokenizer, evaluator.seq(), path, evaluator.comm()); });
  const std::int64_t cut_here = std::ranges::count(tokens, true, &data::ScoredTokens::is_cut);
  std::int64_t cut = 0;
  for (const std::int64_t of_rank : distributed::from_all_ranks(control, cut_here)) cut += of_rank;
  const Scored scored(items, train::log_likelihoods(evaluator, tokens, endings.size()));
  if (!trained.session().is_first_rank()) return;
  std::cout << line_of(scored) << std::endl;
  if (cut > 0) {
    std::cout << fmt::format(
                     "note         of {} of {} endings the model of {} positions does not see the beginning of "
                     "the context",
                     cut, endings.size(), evaluator.seq())
              << std::endl;
  }
  nlohmann::ordered_json result = json_of(scored);
  result["cut_endings"] = cut;
  json.print(result);
}

}  // namespace kozero::commands
