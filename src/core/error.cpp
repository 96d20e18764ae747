// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// error.cpp: escapes of control characters (U+0000 to U+001F, U+007F, U+0080 to U+009F), the nearest accepted name, and
// the failure report: stderr first, then the reporter on a thread. At most one call waits for a reporter that hangs. If
// nobody reads standard output or stderr, a report waits at most 2 s for each.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <future>
#include <mutex>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/output.hpp>

namespace kozero {

namespace {

std::string escape_of(unsigned code, const char* prefix, int digits) {
  std::string text = prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[(code >> shift) & 0xFU];
  return text;
}

/// Whether the text begins like a line of details (distributed::details): "[rank 1]   ". The line break before it
/// stays.
bool begins_details(std::string_view text) {
  constexpr std::string_view kBegin = "[rank ";
  if (!text.starts_with(kBegin)) return false;
  const std::size_t end = text.find_first_not_of("0123456789", kBegin.size());
  return end != std::string_view::npos && end > kBegin.size() && text.substr(end).starts_with("]   ");
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

using namespace std::chrono_literals;

constexpr auto kRecordPatience = 3s;
constexpr auto kReaderPatience = 2s;  // for a reader of either output that does not read
constexpr auto kLauncherPatience = 1s;
constexpr auto kLauncherPause = 100ms;  // for the launcher to forward the bytes it read

struct Reports {
  std::mutex mutex;
  FailureReporter reporter;
  std::atomic<int> status{0};  ///< of the first report; 0: none has begun
  std::atomic<bool> ended{false};
};

/// Never destroyed: a thread may report while the process ends.
Reports& reports() {
  static auto* const kReports = new Reports;
  return *kReports;
}

/// After the lines of standard output, which may be the same pipe.
void write_to_stderr(const std::string& line) {
  drain_standard_output(kReaderPatience);
  QueuedOutput output(STDERR_FILENO);
  output.write(line + '\n');
  output.drain(kReaderPatience);
}

void record(int status, const std::string& line) {
  FailureReporter reporter;
  {
    const std::lock_guard lock(reports().mutex);
    reporter = reports().reporter;
  }
  if (!reporter) return;
  std::packaged_task<void()> task([reporter, status, line] { reporter(status, line); });
  std::future<void> recorded = task.get_future();
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error&) {
    return reporter(status, line);  // no thread can be started
  }
  recorded.wait_for(kRecordPatience);
}

/// Once a rank aborts the job, a launcher may end before it forwards the bytes that are still in its pipe.
void wait_for_launcher() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0 || !(S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode))) return;
  const auto start = std::chrono::steady_clock::now();
  int unread = 0;
  while (::ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0 &&
         std::chrono::steady_clock::now() - start < kLauncherPatience) {
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(kLauncherPause);
}

int terminating_rank = 0;
void (*terminating_end)(int status) = nullptr;

std::string uncaught_text() {
  const std::exception_ptr uncaught = std::current_exception();
  if (!uncaught) return "std::terminate was called; please report this with the command and the deck";
  try {
    std::rethrow_exception(uncaught);
  } catch (const std::bad_alloc&) {
    return kMemoryExhausted;
  } catch (const std::exception& error) {
    return std::string("an exception met no handler: ") + error.what();
  } catch (...) {
    return "an exception of unknown type met no handler";
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      result += escape_of(next, "\\u", 4);
      ++i;
    } else if (byte == '\n') {
      result += begins_details(text.substr(i + 1)) ? "\n" : "\\n";
    } else if (byte == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      result += escape_of(byte, "\\x", 2);
    } else {
      result += text[i];
    }
  }
  return result;
}

/// A name is near if at most a third of the given letters, rounded up, would change.
std::string nearest_name(const std::string& given, const std::string* first, const std::string* last) {
  std::size_t best = (given.size() + 2) / 3 + 1;
  std::string nearest;
  for (; first != last; ++first) {
    const std::size_t distance = edit_distance(given, *first);
    if (distance < best) {
      best = distance;
      nearest = *first;
    }
  }
  return nearest;
}

void tell_exit_status(int status) {
  const char* path = std::getenv("KOZERO_STATUS_FILE");
  const int file = path == nullptr ? -1 : ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  const std::string text = std::to_string(status) + "\n";
  struct stat now {};
  if (::fstat(file, &now) == 0 && now.st_size == 0) static_cast<void>(!::write(file, text.data(), text.size()));
  ::close(file);
}

void set_failure_reporter(FailureReporter reporter) {
  const std::lock_guard lock(reports().mutex);
  reports().reporter = std::move(reporter);
}

int report_failure(int status, const std::string& line) {
  int none = 0;
  if (!reports().status.compare_exchange_strong(none, status)) {
    const auto start = std::chrono::steady_clock::now();
    while (!reports().ended && std::chrono::steady_clock::now() - start < kRecordPatience + kLauncherPatience) {
      std::this_thread::sleep_for(1ms);
    }
    return reports().status;
  }
  tell_exit_status(status);
  write_to_stderr(line);
  record(status, line);
  wait_for_launcher();
  reports().ended = true;
  return status;
}

std::string failure_line(int rank, int status, const std::string& what) {
  const bool error = status != kPreempted;
  return "[rank " + std::to_string(rank) + "] " + (error ? "error: " : "") + escaped(what);
}

void report_terminate(int rank, void (*end)(int status)) {
  terminating_rank = rank;
  terminating_end = end;
  std::set_terminate([] {
    constexpr int kStatus = static_cast<int>(Failure::internal);
    report_failure(kStatus, failure_line(terminating_rank, kStatus, uncaught_text()));
    if (terminating_end != nullptr) terminating_end(kStatus);
    std::abort();
  });
}

}  // namespace kozero
