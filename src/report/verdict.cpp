// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// verdict.cpp: the findings in words and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"
#include "src/report/verdict.hpp"

namespace kozero::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostSentences = 3;  // about maps, and about links

std::string percent(double part) { return fmt::format("{:.{}f} %", 100.0 * part, part < 0.1 ? 1 : 0); }

std::size_t count_of(const Study& study, const std::string& state) {
  return static_cast<std::size_t>(
      std::count_if(study.cases.begin(), study.cases.end(), [&](const Case& one) { return one.state == state; }));
}

std::string with_capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

/// How a column of a map ends a sentence: "up to 4 ranks", "at 0.5 Gbit/s and no limit", "everywhere".
std::string columns_in_words(const Map& map, const std::vector<std::size_t>& columns) {
  if (map.column_key.empty()) return "";
  std::vector<std::string> labels;
  for (const std::size_t column : columns) labels.push_back(label_of(map.column_key, map.columns[column]));
  if (labels.size() > 2 && columns.back() + 1 == labels.size())
    return columns.size() == map.columns.size() ? fmt::format(" from {} to {}", labels.front(), labels.back())
                                                : " up to " + labels.back();
  const bool ends_without = map.is_of_links() && labels.back() == label_of(map.column_key, "0");
  if (ends_without) labels.pop_back();
  const std::string rest = ends_without ? std::string(labels.empty() ? "" : ", and") + " without a limit" : "";
  return (labels.empty() ? "" : fmt::format(" at {}", fmt::join(labels, ", "))) + rest;
}

/// "With 2 ranks, stage 0 is fastest at 1 Gbit/s (by 8 %)." "" if no column has two measured cells.
std::string fastest_in_words(const Map& map) {
  std::map<int, std::vector<std::size_t>> columns;  // by row; -1: no clear lead
  for (std::size_t i = 0; i < map.winners.size(); ++i) {
    const auto& winner = map.winners[i];
    if (winner.row >= 0 && !winner.is_predicted) columns[winner.is_clear ? winner.row : -1].push_back(i);
  }
  std::string text;
  for (const auto& [row, list] : columns) {
    if (row < 0) continue;
    double least = map.winners[list[0]].lead;
    for (const std::size_t i : list) least = std::min(least, map.winners[i].lead);
    text += fmt::format("{}{} is fastest{} (by {}{})", text.empty() ? "" : "; ",
                        label_of(map.rows->key, map.rows->values[static_cast<std::size_t>(row)]),
                        columns_in_words(map, list), list.size() > 1 ? "at least " : "", percent(least));
  }
  if (columns.count(-1) != 0)
    text += fmt::format("{}no choice is clearly fastest{}", text.empty() ? "" : "; ",
                        columns_in_words(map, columns.at(-1)));
  if (text.empty()) return "";
  const std::string where = label_of(map.where);
  return with_capital(where.empty() ? text : "with " + where + ", " + text) + ".";
}

/// The column in which the row leads most clearly; nullopt if it does so in none.
std::optional<std::size_t> best_column(const Map& map, int row) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < map.winners.size(); ++i) {
    const auto& winner = map.winners[i];
    const bool counts = winner.row == row && winner.is_clear && !winner.is_predicted;
    if (counts && (!best || winner.lead > map.winners[*best].lead)) best = i;
  }
  return best;
}

/// "At 2.5 Gbit/s stage 3 waits 12.1 ms per step for 9.33 MiB, stage 1 23.0 ms for 7.64 MiB: it sends more, but hides
/// more of it behind computation." "" unless communication explains at least half of the lead.
std::string reason_in_words(const Map& map, int row) {
  const auto column = best_column(map, row);
  if (!column) return "";
  const Measured& mine = map.cells[static_cast<std::size_t>(row)][*column];
  const Measured* other = nullptr;
  std::size_t other_row = 0;
  for (std::size_t i = 0; i < map.cells.size(); ++i) {
    const Measured& cell = map.cells[i][*column];
    if (static_cast<int>(i) == row || !(cell.rate > 0.0) || (other != nullptr && cell.rate < other->rate)) continue;
    other = &cell;
    other_row = i;
  }
  const double saved = other == nullptr ? 0.0 : other->communication - mine.communication;
  if (!(saved > 0.0) || saved < 0.5 * (other->step_s - mine.step_s) || !(mine.sent > 0.0)) return "";
  const auto label = [&](std::size_t i) { return label_of(map.rows->key, map.rows->values[i]); };
  const auto bytes = [](double sent) { return io::readable_bytes(static_cast<std::int64_t>(sent)); };
  const std::string where = columns_in_words(map, {*column});
  const double more = mine.sent / other->sent - 1.0;
  const char* const why = more > 0.01    ? "it sends more, but hides more of it behind computation"
                          : more > -0.01 ? "it sends as much, but hides more of it behind computation"
                                         : "it sends less";
  return with_capital(fmt::format("{}{} waits {:.1f} ms per step for {} that it sends, {} {:.1f} ms for {}: {}.",
                                  where.empty() ? "" : where.substr(1) + ", ", label(static_cast<std::size_t>(row)),
                                  1e3 * mine.communication, bytes(mine.sent), label(other_row),
                                  1e3 * other->communication, bytes(other->sent), why));
}

/// "below 4 Gbit/s (63 % of its rate is lost at 1 Gbit/s)"
std::string limit_in_words(const SlowLinks& links) {
  const std::string slowest = fmt::format("{:.3g} Gbit/s", links.slowest_gbit);
  const std::string loss = fmt::format("({} of its rate lost at {})", percent(links.loss_there), slowest);
  if (!std::isnan(links.measured_gbit)) return fmt::format("below {:.2g} Gbit/s {}", links.measured_gbit, loss);
  if (links.loss_there > 1.0 - 1.0 / kSlowedDown) return "at " + slowest + " " + loss;
  return "at no measured rate, down to " + slowest;
}

/// "A step is 10 % longer than without a limit: stage 2 below 8 Gbit/s (...), stage 3 below 4 Gbit/s (...)." One
/// sentence per combination of the other axes.
std::vector<std::string> limits_in_words(const std::vector<SlowLinks>& all) {
  std::map<std::map<std::string, std::string>, std::vector<std::string>> groups;
  for (const SlowLinks& links : all) {
    if (links.against.empty()) groups[links.where].push_back(links.label + " " + limit_in_words(links));
  }
  std::vector<std::string> sentences;
  for (const auto& [where, list] : groups) {
    const std::string label = label_of(where);
    sentences.push_back(with_capital(fmt::format("{}a step is 10 % longer than without a limit: {}.",
                                                 label.empty() ? "" : "with " + label + ", ", fmt::join(list, ", "))));
  }
  return sentences;
}

/// Where a choice falls behind the one before it.
std::string crossing_in_words(const SlowLinks& links) {
  const std::string where = label_of(links.where);
  return with_capital(
      fmt::format("{}{} takes at least 10 % longer than {} below {:.2g} Gbit/s; its rate is {} lower at {:.3g} Gbit/s.",
                  where.empty() ? "" : "with " + where + ", ", links.label, links.against, links.measured_gbit,
                  percent(links.loss_there), links.slowest_gbit));
}

/// "By model states alone, 4 ranks with 3.9 GiB each need stage 3 above 340 M parameters." "" if it is not known.
std::string room_in_words(const Room& room) {
  double most_before = 0.0;
  std::string text;
  for (const auto& [stage, parameters] : room.parameters) {  // "0" to "3"
    if (most_before > 0.0 && parameters > 1.01 * most_before) {
      text += fmt::format("{}stage {} above {}", text.empty() ? "" : ", ", stage, io::readable_count(most_before));
    }
    most_before = std::max(most_before, parameters);
  }
  if (text.empty()) return "";
  return fmt::format("By model states alone, {} with {} each need {} parameters.",
                     label_of("ranks", fmt::format("{}", room.ranks)),
                     io::readable_bytes(static_cast<std::int64_t>(room.bytes)), text);
}

/// The case with the lowest validation loss, if two differ in it; else nullptr.
const Case* best_of(const Study& study) {
  const Case* best = nullptr;
  bool differ = false;
  for (const Case& one : study.cases) {
    if (one.state != "done" || !std::isfinite(one.run.last_val)) continue;
    differ = differ || (best != nullptr && one.run.last_val != best->run.last_val);
    if (best == nullptr || one.run.last_val < best->run.last_val) best = &one;
  }
  return differ ? best : nullptr;
}

/// One sentence, however many groups of runs with equal decks there are.
std::string losses_in_words(const std::vector<EqualLosses>& groups) {
  if (groups.empty()) return "";
  EqualLosses all = groups.front();
  std::size_t equal = 0;
  all.compared = 0;
  for (const EqualLosses& group : groups) {
    all.compared += group.compared;
    equal += group.equal.size();
    if (all.first_step == 0 && group.first_step > 0) {
      all.first_step = group.first_step;
      all.first_name = group.first_name;
    }
  }
  all.equal.resize(equal);
  return "Losses: " + words_of(all) +
         (groups.size() == 1 ? "."
                             : fmt::format(", each compared within one of {} groups of equal decks.", groups.size()));
}

std::string run_in_words(const Case& one) {
  const RunData& run = one.run;
  if (run.rows == 0) return fmt::format("The run has no step yet{}.", one.why.empty() ? "" : ": " + one.why);
  const std::string steps = run.value("run.steps");
  const std::string of = steps.empty() ? "" : " of " + steps;
  std::string text = run.status.state.empty() ? "The run's metrics end"
                     : one.state == "done"    ? "The run finished"
                     : one.state == "running" ? "The run is going on"
                     : one.state == "failed"  ? "The run failed"
                                              : "The run is " + one.state;
  text += fmt::format(" at step {}{}{}.", run.last_step, of, one.why.empty() ? "" : " (" + one.why + ")");
  if (!std::isnan(run.first_loss)) {
    text += fmt::format(" The loss went from {} to {}", io::loss_text(run.first_loss), io::loss_text(run.last_loss));
    text += std::isnan(run.last_val) ? "." : fmt::format("; on validation data it is {}.", io::loss_text(run.last_val));
  }
  if (run.tokens_per_s > 0.0) {
    text += fmt::format(" A step took {:.3g} s and the rate was {} tokens/s (medians) on {}; {} in all.", run.step_s,
                        io::readable_count(run.tokens_per_s), label_of("ranks", fmt::format("{}", run.ranks)),
                        io::readable_seconds(run.seconds));
  }
  if (run.bad_losses > 0) {
    text += fmt::format(" In {} {} the loss was not finite, first at step {}.", run.bad_losses,
                        run.bad_losses == 1 ? "step" : "steps", run.first_bad_step);
  }
  return text;
}

std::string counts_in_words(const Study& study) {
  std::string text;
  for (const char* state : {"failed", "preempted", "not run", "running"}) {
    const std::size_t count = count_of(study, state);
    if (count == 0) continue;
    const std::string words = std::string(state) == "not run" ? "have not run" : state;
    text += fmt::format("{}{} of {} cases {}", text.empty() ? "" : ", ", count, study.cases.size(), words);
  }
  return text.empty() ? "" : text + ".";
}

/// The smallest and the largest number of measured cases with the same values.
std::pair<int, int> repetitions(const Study& study) {
  std::map<std::map<std::string, std::string>, int> counts;
  for (const Case& one : study.cases) {
    if (one.is_measured()) ++counts[one.values];
  }
  if (counts.empty()) return {0, 0};
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end(),
                                                 [](const auto& a, const auto& b) { return a.second < b.second; });
  return {least->second, most->second};
}

}  // namespace

std::string words_of(const EqualLosses& losses) {
  if (losses.first_step == 0) return fmt::format("0 bits differ over {} runs", losses.compared);
  return fmt::format("{} of {} runs differ, first at step {} ({})", losses.compared - losses.equal.size(),
                     losses.compared, losses.first_step, losses.first_name);
}

std::vector<std::string> sentences_of(const Study& study, const Findings& findings) {
  if (study.is_one_run()) return {run_in_words(study.cases.front())};
  std::vector<std::string> sentences, reasons;
  for (const Map& map : findings.maps) {
    if (std::string text = fastest_in_words(map); !text.empty()) sentences.push_back(std::move(text));
    for (int row = 0; row < static_cast<int>(map.cells.size()); ++row) {
      if (std::string text = reason_in_words(map, row); !text.empty()) reasons.push_back(std::move(text));
    }
  }
  if (sentences.size() > kMostSentences) {
    sentences.resize(kMostSentences);
    sentences.emplace_back("The maps below have the other combinations.");
  }
  const auto add = [&](const std::vector<std::string>& more, std::size_t most) {
    sentences.insert(sentences.end(), more.begin(), more.begin() + std::min(std::ssize(more), std::ptrdiff_t(most)));
  };
  add(reasons, kMostSentences);
  add(limits_in_words(findings.slow_links), kMostSentences);
  std::vector<SlowLinks> links = findings.slow_links;  // the costliest first
  std::erase_if(links, [](const SlowLinks& one) { return one.against.empty(); });
  std::ranges::stable_sort(links, std::greater(), &SlowLinks::loss_there);
  if (!links.empty()) sentences.push_back(crossing_in_words(links.front()));
  if (std::string text = room_in_words(findings.room); !text.empty()) sentences.push_back(std::move(text));
  if (sentences.empty()) {
    const auto measured = std::ranges::count_if(study.cases, [](const Case& one) { return one.is_measured(); });
    sentences.push_back(
        fmt::format("{} of {} cases have a rate; none can be compared with another.", measured, study.cases.size()));
  }
  if (std::string text = losses_in_words(findings.losses); !text.empty()) sentences.push_back(std::move(text));
  if (const Case* best = best_of(study)) {
    sentences.push_back(
        fmt::format("The lowest validation loss is {} ({}).", io::loss_text(best->run.last_val), best->name));
  }
  const auto [least, most] = repetitions(study);
  if (most == 1) sentences.emplace_back("Each case ran once: differences below 5 % are not claimed.");
  if (most > 1 && least == most) sentences.push_back(fmt::format("Each case ran {} times.", most));
  if (most > least) sentences.push_back(fmt::format("Each case ran {} to {} times.", least, most));
  if (std::string text = counts_in_words(study); !text.empty()) sentences.push_back(std::move(text));
  return sentences;
}

Json facts_of(const Study& study, const Findings& findings) {
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  Json facts = {{"cases", study.cases.size()},
                {"done", count_of(study, "done")},
                {"failed", count_of(study, "failed")},
                {"not_run", count_of(study, "not run")},
                {"repetitions", repetitions(study).second},
                {"verdict", fmt::format("{}", fmt::join(findings.sentences, " "))}};
  if (study.is_one_run()) {
    const RunData& run = study.cases[0].run;
    facts.update({{"state", study.cases[0].state},
                  {"step", run.last_step},
                  {"loss", number(run.last_loss)},
                  {"val_loss", number(run.last_val)},
                  {"step_s", number(run.step_s)},
                  {"tokens_per_s", number(run.tokens_per_s)},
                  {"losses_not_finite", run.bad_losses}});
  }
  facts["fastest"] = Json::array();
  for (const Map& map : findings.maps) {
    for (std::size_t i = 0; i < map.winners.size(); ++i) {
      const auto& winner = map.winners[i];
      if (winner.row < 0) continue;
      Json where = map.where;
      if (!map.column_key.empty()) where[map.column_key] = map.columns[i];
      facts["fastest"].push_back({{"where", where},
                                  {"key", map.rows->key},
                                  {"value", map.rows->values[static_cast<std::size_t>(winner.row)]},
                                  {"lead", winner.lead},
                                  {"clear", winner.is_clear},
                                  {"predicted", winner.is_predicted}});
    }
  }
  facts["slow_links"] = Json::array();
  for (const SlowLinks& links : findings.slow_links) {
    facts["slow_links"].push_back({{"where", links.where},
                                   {"choice", links.label},
                                   {"against", links.against.empty() ? Json() : Json(links.against)},
                                   {"measured_gbit", number(links.measured_gbit)},
                                   {"predicted_gbit", number(links.predicted_gbit)},
                                   {"slowest_gbit", links.slowest_gbit},
                                   {"loss_there", links.loss_there}});
  }
  facts["parameters_with_room"] = findings.room.parameters;
  facts["losses"] = Json::array();
  for (const EqualLosses& losses : findings.losses) {
    facts["losses"].push_back({{"runs", losses.compared},
                               {"differ", losses.compared - losses.equal.size()},
                               {"first_step", losses.first_step == 0 ? Json() : Json(losses.first_step)}});
  }
  return facts;
}

}  // namespace kozero::report
