// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// evaluation.hpp: the mean loss over a set of samples, computed by all ranks together, and the validation of a run.
//   loss = sum over samples and targets that count / number of them      perplexity = e^loss
//   bits per byte = loss / ln 2 / (bytes per token)
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <kozero/data/data_set.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/model/model.hpp>
#include <kozero/train/settings.hpp>

namespace kozero::train {

/// The loss on one of several sources.
struct SourceEvaluation {
  std::string name;
  double loss = 0.0;
  std::int64_t tokens = 0;
  std::optional<double> bytes_per_token;
};

struct Evaluation {
  double loss = 0.0;                           ///< nats per target
  std::int64_t targets = 0;                    ///< that count; 1 if none does: their loss is 0
  std::vector<SourceEvaluation> sources = {};  ///< those that have data; only from evaluate_sources()
};

/// The loss without dropout over `max_samples` samples, spread evenly over the source. The choice depends only on the
/// source's size, not on the number of ranks. If `max_samples` is 0 or at least the source's size, uses all samples and
/// the source's tail, so that every target counts once. Losses are added in double, in the order of granules
/// (data_set.hpp): the same bits on any number of ranks.
Evaluation evaluate(Evaluator& evaluator, const data::SampleSource& source, std::int64_t max_samples);

/// The same, but calls `stops` before each batch and returns nullopt once it is true. It must agree on all ranks.
std::optional<Evaluation> evaluate(Evaluator& evaluator, const data::SampleSource& source, std::int64_t max_samples,
                                   const std::function<bool()>& stops);

/// "WHAT is nan" if the loss is not finite, else "".
std::string text_of_non_finite(const Evaluation& evaluation, const std::string& what);

enum class Side { training, validation };

/// The loss on each of the data's sources. Of a mixture, `loss` is the sources' mean by their slots, and each has its
/// share of `max_samples`. Without weights `loss` is the mean over tokens. Sources without data are left out; nullopt
/// if `stops` returned true, as above.
std::optional<Evaluation> evaluate_sources(Evaluator& evaluator, const data::DataSet& data, Side side,
                                           std::int64_t max_samples, const std::function<bool()>& stops = {});

/// The `i`-th of `count` samples spread evenly over `total`: floor((2 i + 1) total / (2 count)). Increases with i;
/// equals i if count = total.
std::int64_t spread_sample(std::int64_t i, std::int64_t count, std::int64_t total);

/// Throws Error(deck) if checkpoint.keep_best needs validation data and the deck's data have none.
void require_validation_data(const io::Deck& deck, const data::DataSet& data);

/// The loss on a run's validation data, measured after each train.eval_every-th step, at the end and, with
/// checkpoint.keep_best, before each save of a run that goes on. The samples are train.eval_batches global batches,
/// spread evenly over the set: the same samples every time. Of a mixture, the losses of the sources are measured too.
class Validation {
 public:
  /// All arguments outlive the object.
  Validation(const io::Deck& deck, const Settings& settings, Evaluator& evaluator, const data::DataSet& data);

  /// Whether there are validation data.
  [[nodiscard]] bool possible() const { return data_.validation != nullptr; }
  /// Whether the loss is measured after this step; `is_saved`: the step's state will be saved.
  [[nodiscard]] bool due(std::int64_t step, bool is_saved) const;
  /// Collective. nullopt if `stops` returned true before a batch.
  [[nodiscard]] std::optional<Evaluation> measure(const std::function<bool()>& stops) const;
  /// "on 40,960 of 71,720 tokens"
  [[nodiscard]] std::string coverage(const Evaluation& evaluation) const;

 private:
  const io::Deck& deck_;
  const Settings& settings_;
  Evaluator& evaluator_;
  const data::DataSet& data_;
};

}  // namespace kozero::train
