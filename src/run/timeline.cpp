// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// timeline.cpp: a row per thread and stream: the main thread's steps, phases and calls, the saver's, kernels, and the
// collectives under way.
#include "src/run/timeline.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/posix/file.hpp"

namespace kozero::run {
namespace {

using Clock = Event::Clock;

// At most 16 MB of memory and 30 MB of text.
constexpr std::size_t kMostEvents = 100'000;
constexpr std::size_t kMostKernels = 100'000;

// Rows of a rank: thread numbers of the format. A row of work on a device is a stream.
constexpr int kMainThread = 1;
constexpr int kSaver = 2;
constexpr int kKernels = 7;       // of PyTorch's default stream
constexpr int kCollectives = 20;  // and the next ones, if several are under way

/// Kernels of collectives are parts of the main thread's calls, not work beside them.
bool is_of_collective(std::string_view kernel) { return kernel.starts_with("kozero::distributed"); }

/// A collective from its start to the end of the wait for its result.
struct UnderWay {
  const Event* start;
  Clock::time_point end;
};

/// Collectives of the main thread, in the order of their starts.
std::vector<UnderWay> collectives_of(const std::vector<Event>& events) {
  std::vector<UnderWay> found;
  std::map<std::pair<std::string_view, std::uint64_t>, std::size_t> open;  // by communicator and number
  for (const Event& event : events) {
    if (event.kind != Event::Kind::call || event.of_saver || event.end < event.begin) continue;
    const auto key = std::pair(std::string_view(event.owner), event.sequence);
    if (event.bytes > 0) {
      open[key] = found.size();
      found.push_back({&event, event.end});
    } else if (const auto at = open.find(key); at != open.end()) {
      found[at->second].end = event.end;
      open.erase(at);  // the wait until peers have read the arrays comes after the result
    }
  }
  return found;
}

/// Writes the events of one rank.
class Writer {
 public:
  Writer(int rank, Clock::time_point zero) : rank_(rank), zero_(zero) {}

  void name_row(int row, const std::string& name) {
    add({{"ph", "M"}, {"name", "thread_name"}, {"pid", rank_}, {"tid", row}, {"args", {{"name", name}}}});
    add({{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", rank_}, {"tid", row}, {"args", {{"sort_index", row}}}});
  }
  void name_rank(const std::string& name) {
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", rank_}, {"tid", 0}, {"args", {{"name", name}}}});
    add({{"ph", "M"}, {"name", "process_sort_index"}, {"pid", rank_}, {"tid", 0}, {"args", {{"sort_index", rank_}}}});
  }
  void slice(int row, const char* category, const std::string& name, Clock::time_point begin, Clock::time_point end,
             nlohmann::ordered_json arguments) {
    const std::int64_t from = microseconds(begin);
    add({{"ph", "X"},
         {"cat", category},
         {"name", name},
         {"pid", rank_},
         {"tid", row},
         {"ts", from},
         {"dur", microseconds(end) - from},
         {"args", std::move(arguments)}});
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  /// Whole ones: Holistic Trace Analysis shortens slices with fractions.
  [[nodiscard]] std::int64_t microseconds(Clock::time_point time) const {
    return std::llround(1e6 * std::chrono::duration<double>(time - zero_).count());
  }
  void add(const nlohmann::ordered_json& event) { text_ += (text_.empty() ? "\n" : ",\n") + event.dump(); }

  int rank_;
  Clock::time_point zero_;
  std::string text_;
};

/// Puts each collective into the first row that is free.
void write_collectives(Writer& to, const std::vector<Event>& events, const std::string& back_end) {
  std::vector<Clock::time_point> free;
  for (const UnderWay& each : collectives_of(events)) {
    const auto row = std::ranges::find_if(free, [&](Clock::time_point since) { return since <= each.start->begin; });
    const int number = kCollectives + static_cast<int>(row - free.begin());
    if (row == free.end()) {
      to.name_row(number, number == kCollectives ? "collectives" : "collectives under way too");
      free.push_back(each.end);
    } else {
      *row = each.end;
    }
    const std::string name = fmt::format("{} {} ({})", distributed::kTracePrefix, each.start->name, back_end);
    to.slice(number, "kernel", name, each.start->begin, each.end,
             {{"stream", number},
              {"Collective name", each.start->name},
              {"Process Group Name", each.start->owner},
              {"number", each.start->sequence},
              {"bytes", each.start->bytes},
              {"unit", each.start->unit},
              {"step", each.start->step}});
  }
}

/// A rank alone has no collectives; its calls for them are copies.
void write_events(Writer& to, const std::vector<Event>& events, int num_ranks) {
  for (const Event& event : events) {
    const bool is_call = event.kind == Event::Kind::call;
    if (event.kind == Event::Kind::start || event.end < event.begin || (is_call && num_ranks == 1)) continue;
    const std::string name =
        !is_call ? event.name : (event.bytes > 0 ? "start " : "wait for ") + std::string(event.name);
    nlohmann::ordered_json where = {{"step", event.step}, {"unit", event.unit}};
    if (is_call) where["number"] = event.sequence;
    to.slice(event.of_saver ? kSaver : kMainThread, is_call ? "cpu_op" : "user_annotation", name, event.begin,
             event.end, std::move(where));
  }
}

void write_kernels(Writer& to, const KernelProfile::Record& kernels) {
  const auto at = [&](double seconds) {
    return kernels.begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  for (const auto& kernel : kernels.intervals) {
    const std::string& name = kernels.names[kernel.name];
    if (is_of_collective(name)) {
      to.slice(kMainThread, "cpu_op", name, at(kernel.begin_s), at(kernel.end_s), nlohmann::ordered_json::object());
    } else {
      to.slice(kKernels, "kernel", name, at(kernel.begin_s), at(kernel.end_s), {{"stream", kKernels}});
    }
  }
}

}  // namespace

Timeline::Timeline(const io::LogKeys& keys, const distributed::Communicator& data, distributed::Communicator& control,
                   std::shared_ptr<const io::HeldFolder> run, KernelProfile* profile)
    : keys_(keys),
      data_(data),
      control_(control),
      run_(std::move(run)),
      profile_(profile),
      is_over_(keys.timeline == "none") {}

void Timeline::begin(std::int64_t step, std::int64_t number) {
  constexpr std::int64_t kSlowSteps = 2;  // the first of a process
  if (is_over_ || step < keys_.timeline_from) return;
  if (!began_) {
    if (step > keys_.timeline_from && number <= kSlowSteps) return;  // a resumed run
    began_ = true;
    first_ = step;
    if (control_.rank() == 0) {
      attempt([&] {
        std::filesystem::remove_all(folder());  // of the same step, before a resume on fewer ranks
        std::filesystem::create_directories(folder());
      });
    }
    control_.barrier();
    zero_ = Clock::now();
    if (profile_ != nullptr) {
      events().keep(kMostEvents);
      profile_->start(kMostKernels);
    }
  }
  steps_.push_back({step, Clock::now(), {}});
}

void Timeline::end(std::int64_t step) {
  if (is_over_ || !began_) return;
  steps_.back().end = Clock::now();
  if (step - first_ + 1 >= keys_.timeline_steps) finish();
}

void Timeline::finish() {
  if (is_over_ || !began_) return;
  is_over_ = true;
  if (profile_ == nullptr) return;
  const KernelProfile::Record kernels = profile_->stop();
  const EventRing::Kept kept = events().kept();
  attempt([&] { io::write_whole_file(fmt::format("{}/rank_{}.json", folder(), data_.rank()), text(kept, kernels)); });
}

std::string Timeline::folder() const { return io::checkpoint_folder(run_->path() + "/timeline", first_); }

template <class Action>
void Timeline::attempt(const Action& action) const {
  const auto tell = [&](const std::string& problem) {
    distributed::print_notice(fmt::format("[rank {}] warning: log.timeline: {}", data_.rank(), problem));
  };
  try {
    run_->require();
    action();
  } catch (const Error& problem) {
    tell(run_->in_words(problem).what());
  } catch (const std::filesystem::filesystem_error& problem) {
    tell(run_->folder() + "/timeline: " + problem.code().message());
  }
}

std::string Timeline::text(const EventRing::Kept& kept, const KernelProfile::Record& kernels) const {
  Writer writer(data_.rank(), zero_);
  writer.name_rank(fmt::format("rank {}", data_.rank()));
  writer.name_row(kMainThread, "steps and calls");
  writer.name_row(kSaver, "saving");
  writer.name_row(kKernels, "kernels");
  for (const Step& step : steps_) {
    const Clock::time_point end = step.end < step.begin ? Clock::now() : step.end;  // interrupted
    writer.slice(kMainThread, "user_annotation", fmt::format("ProfilerStep#{}", step.step), step.begin, end,
                 {{"step", step.step}});
  }
  write_events(writer, kept.events, data_.size());
  write_kernels(writer, kernels);
  if (data_.size() > 1) write_collectives(writer, kept.events, data_.name());
  const nlohmann::ordered_json header = {
      {"schemaVersion", 1},
      {"displayTimeUnit", "ms"},
      {"distributedInfo", {{"backend", data_.name()}, {"rank", data_.rank()}, {"world_size", data_.size()}}},
      {"host", host_name()},
      {"steps", {steps_.front().step, steps_.back().step}},
      {"lost", kept.lost + kernels.lost}};
  std::string text = header.dump(1);  // Holistic Trace Analysis looks for "rank": in a line
  text.resize(text.find_last_of('\n'));
  return text + ",\n\"traceEvents\": [" + writer.text() + "\n]}\n";
}

}  // namespace kozero::run
