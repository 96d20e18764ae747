// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_run_output.cpp: metrics, log, progress, status, lock and folder of a run, also on a full disk.
#include <catch2/catch_test_macros.hpp>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <sstream>
#include <vector>

#include <kozero/core/host.hpp>
#include <nlohmann/json.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/posix/file.hpp"
#include "io/posix/piped_program.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_output.hpp"
#include "io/run/run_status.hpp"

namespace kozero::io {

using namespace tests;

namespace {

StepMetrics some_metrics() {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.tokens = 6144;
  metrics.loss = 0.1 + 0.2;
  metrics.grad_norm = 1.0 / 3.0;
  metrics.lr = 1e-4;
  metrics.step_s = 0.125;
  metrics.tokens_per_s = 16384.0;
  metrics.seconds = {{"forward", 0.0625}, {"update", 1e-9}};
  metrics.bytes_sent = {{"all_gather", 123456789012}}, metrics.calls = {{"all_gather", 2}};
  metrics.memory = {{"parameters", 4096}};
  metrics.time = 1767225600.125;
  metrics.epoch = 0.75;
  return metrics;
}

}  // namespace

TEST_CASE("a metrics line has the stable schema and round-trip digits") {
  CHECK(to_json_line(some_metrics()) ==
        R"({"step":3,"tokens":6144,"loss":0.30000000000000004,"val_loss":null,"grad_norm":0.3333333333333333,)"
        R"("lr":0.0001,"step_s":0.125,"tokens_per_s":16384.0,"mfu":null,"seconds":{"forward":0.0625,"update":1e-09},)"
        R"("bytes_sent":{"all_gather":123456789012},"memory":{"parameters":4096},"loss_scale":null,"skipped":false,)"
        R"("skips_in_a_row":0,"time":1767225600.125,"epoch":0.75,"bytes_across_groups":0,"calls":{"all_gather":2}})");
  auto metrics = some_metrics();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.val_loss = 0.7;
  metrics.loss_scale = 65536.0;
  metrics.skipped = true;
  const auto json = nlohmann::json::parse(to_json_line(metrics));
  CHECK(json["loss"].is_null());
  CHECK(json["grad_norm"].is_null());
  CHECK(json["val_loss"].get<double>() == 0.7);
  CHECK(json["loss_scale"].get<double>() == 65536.0);
  CHECK(json["skipped"].get<bool>());
}

TEST_CASE("every key of a metrics line has its row in docs/metrics.md, in the same order") {
  const std::string page = bytes_of(KOZERO_DOCS "/metrics.md");
  std::size_t before = 0;
  const auto line = nlohmann::ordered_json::parse(to_json_line(some_metrics()));
  for (const auto& [key, value] : line.items()) {
    const std::size_t row = page.find("\n| `" + key + "` | ");
    INFO(key);
    REQUIRE(row != std::string::npos);
    CHECK(row > before);
    before = row;
  }
}

TEST_CASE("metrics are there as soon as they are written, and never overwritten") {
  const ScratchFolder folder("metrics");
  MetricsFile file(folder / "metrics.jsonl");
  file.write(some_metrics());
  file.write(some_metrics());
  const std::string line = to_json_line(some_metrics()) + "\n";
  CHECK(bytes_of(folder / "metrics.jsonl") == line + line);
  CHECK(thrown_by([&] { MetricsFile(folder / "metrics.jsonl"); }).status == 4);
  CHECK(thrown_by([&] { MetricsFile(folder / "no/metrics.jsonl"); }).status == 4);
}

TEST_CASE("the metrics of a continued run go on after its step; later and half-written lines are dropped") {
  const ScratchFolder folder("metrics_continued");
  const std::string path =
      folder.put("metrics.jsonl", "{\"step\":1}\n{\"step\":2,\"loss\":null}\n{\"step\":3}\nnoise\n{\"step\":");
  MetricsFile(path, 2).write(some_metrics());
  CHECK(bytes_of(path) == "{\"step\":1}\n{\"step\":2,\"loss\":null}\n" + to_json_line(some_metrics()) + "\n");
  MetricsFile(folder / "none_yet.jsonl", 0).write(some_metrics());
  CHECK(bytes_of(folder / "none_yet.jsonl") == to_json_line(some_metrics()) + "\n");
}

TEST_CASE("a log on a full disk goes on on the terminal, which says so once") {
  const ScratchFolder folder("full");
  std::ostringstream terminal;
  Log log(terminal, false);
  log.record_in(folder / "log.txt");
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const struct rlimit none { 0, before.rlim_max };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
  log.say("one");
  log.say("two");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(terminal.str() == "one\nwarning      " + (folder / "log.txt") +
                              ": cannot write: File too large; lines are missing there until it can be "
                              "written again\ntwo\n");
}

TEST_CASE("a log whose terminal is lost says so in its file, once, and goes on there") {
  const ScratchFolder folder("lost_terminal");
  std::ostringstream terminal;
  Log log(terminal, false);
  log.record_in(folder / "log.txt");
  log.say("one");
  terminal.setstate(std::ios::badbit);
  log.say("two");
  log.say("three");
  CHECK(bytes_of(folder / "log.txt") ==
        "one\nwarning      standard output cannot be written any more; training goes on, and its lines are here "
        "alone\ntwo\nthree\n");
}

TEST_CASE("a piped program does not inherit blocked or ignored signals") {
  const ScratchFolder folder("piped");
  sigset_t stops;
  sigset_t before;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stops, &before);
  const auto handler = std::signal(SIGPIPE, SIG_IGN);
  const FileDescriptor output(folder / "status", FileDescriptor::Use::create);
  PipedProgram("cat", {"/proc/self/status"}, output.number()).finish();
  std::signal(SIGPIPE, handler);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const std::string status = bytes_of(folder / "status");
  const auto mask = [&](const std::string& name) {
    return std::stoull(status.substr(status.find(name) + name.size()), nullptr, 16);
  };
  CHECK(mask("SigBlk:") == 0);
  CHECK((mask("SigIgn:") >> (SIGPIPE - 1) & 1U) == 0);
}

TEST_CASE("metrics that do not fit name step and reason, and leave whole lines") {
  const ScratchFolder folder("short");
  const std::string path = folder / "metrics.jsonl";
  const std::string line = to_json_line(some_metrics()) + "\n";
  MetricsFile file(path);
  file.write(some_metrics());
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const struct rlimit small { line.size() + 20, before.rlim_max };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto error = thrown_by([&] { file.write(some_metrics()); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(error.status == 4);
  CHECK(error.text == path + ": cannot write: File too large (step 3)");
  CHECK(bytes_of(path) == line);
  file.write(some_metrics());
  CHECK(bytes_of(path) == line + line);
}

TEST_CASE("one lock a folder: named holder, taken by force, gone with its folder") {
  const ScratchFolder folder("lock");
  const std::string run = folder / "deep/run";
  {
    const RunLock first(run, RunLock::Steal::no);
    CHECK(first.note().empty());
    CHECK(first.lost().empty());
    const auto error = thrown_by([&] { RunLock(run, RunLock::Steal::no); });
    CHECK(error.status == 2);
    CHECK(error.text.find("process " + std::to_string(getpid()) + " on host " + host_name()) != std::string::npos);
    const RunLock thief(run, RunLock::Steal::yes);
    CHECK(thief.note().find("was taken from process") != std::string::npos);
    CHECK(first.lost().find("its lock was taken by process") != std::string::npos);
    CHECK(thief.lost().empty());
  }
  {
    // Without the file, the folder's own lock refuses others; the holder continues.
    const RunLock first(run, RunLock::Steal::no);
    std::filesystem::remove(std::filesystem::path(run) / "lock");
    const auto error = thrown_by([&] { RunLock(run, RunLock::Steal::no); });
    CHECK(error.text.find("a process whose file \"lock\" was deleted") != std::string::npos);
    CHECK(first.lost().empty());
  }
  folder.put("deep/run/file", "what came into it stays");
  {
    const RunLock again(run, RunLock::Steal::no);
    std::filesystem::rename(run, folder / "moved");
    CHECK(again.lost().find("deleted or moved") != std::string::npos);
    std::filesystem::create_symlink(run, run);
    CHECK(again.lost().empty());  // ELOOP: like an I/O error, it does not show that the folder is gone
    std::filesystem::remove(run);
    std::filesystem::create_directories(run);
    CHECK(again.lost().find("another came") != std::string::npos);
  }
  CHECK(std::filesystem::is_empty(run));
}

TEST_CASE("numbers of a metrics line are read in one pass, with the bits that were written") {
  constexpr std::array<std::string_view, 3> keys = {"loss", "val_loss", "lr"};
  std::array<double, 3> values{};
  StepMetrics metrics;
  metrics.step = 12;
  metrics.loss = 1.0 / 3.0;
  metrics.lr = 5e-324;
  metrics.seconds = {{"loss", 7.0}}, metrics.val_sources = {{"we\"b}", {7.0, {}}}};  // nested: not the step's
  const std::string line = to_json_line(metrics);
  CHECK(read_metrics_row(line, keys, values) == 12);
  CHECK(values[0] == 1.0 / 3.0);
  CHECK(std::isnan(values[1]));
  CHECK(values[2] == 5e-324);
  for (std::size_t size = 0; size < line.size(); ++size) {
    CHECK_FALSE(read_metrics_row(std::string_view(line).substr(0, size), keys, values));
  }
  CHECK(read_metrics_row(R"({"lr": -1e3 , "a": [1, {"b": "},\"{"}], "step" : 3, "loss": null})"
                         "\r",
                         keys, values) == 3);
  CHECK(values[2] == -1000.0);
  CHECK(std::isnan(values[0]));
  for (const char* none :
       {"", "{}", "[1]", R"({"loss":1})", R"({"step":1.5})", R"({"step":"1"})", R"({"step":1}})", "step 1"}) {
    CHECK_FALSE(read_metrics_row(none, keys, values));
  }
}

TEST_CASE("a status goes into no other folder that gets the run's name") {
  const ScratchFolder folder("swapped");
  const std::string in = folder / "name";
  for (const char* name : {"a", "b"}) std::filesystem::create_directory(folder / name);
  std::filesystem::create_directory_symlink(folder / "a", in);
  const RunRecord record(in, {{"h", 12}});  // before begin(), as in a start that fails
  std::filesystem::remove(in);
  std::filesystem::create_directory_symlink(folder / "b", in);
  CHECK(!record.end({"failed", "why", 7, 1}));
  record.update(8);
  record.log("a line");
  CHECK(std::filesystem::is_empty(folder / "b"));
}

TEST_CASE("a status is rewritten by its own run alone, and says what became of it") {
  const ScratchFolder folder("status");
  const std::string run = folder.put("run/metrics.jsonl", "{\"step\":6}\n{\"step\":7}\n");
  const std::string in = std::filesystem::path(run).parent_path().string();
  CHECK(notes_on_run_before(in).empty());
  const RunRecord record(in, {{"a", 12}, {"b", 34}});
  record.begin(5);
  CHECK(notes_on_run_before(in) ==
        std::vector<std::string>{"the run before ended at step 7: ranks 0-1 on hosts a, b were killed (signal 9, out "
                                 "of memory or a lost node); "
                                 "which ended first is not known, see the launcher's output"});
  CHECK(record.write_failure_note(1, 6, "its disk is full"));
  CHECK(!record.write_failure_note(1, 9, "a later word"));
  CHECK(notes_on_run_before(in) ==
        std::vector<std::string>{"the run before ended at step 6: rank 1 on host b: its disk is full"});
  RunRecord(in, {{"a", 13}}).begin(7);
  CHECK(!record.end({"failed", "of a run whose folder was taken", 7, 1}));
  CHECK(!record.write_failure_note(0, 7, "of a run whose folder was taken"));
  clear_failure_notes(in);
  CHECK(RunRecord(in, {{"a", 13}}).end({"failed", "its peer is lost\nand details", 9, 5}));
  CHECK(nlohmann::json::parse(bytes_of(std::filesystem::path(in) / "status.json"))["why"] == "its peer is lost");
  CHECK(notes_on_run_before(in) == std::vector<std::string>{"the run before ended at step 7: its peer is lost"});
  const RunRecord next(in, {{"a", 14}});
  next.begin(7);
  CHECK(next.write_failure_note(0, 7, "waited\nfor long"));
  CHECK(notes_on_run_before(in) ==
        std::vector<std::string>{"the run before ended at step 7: rank 0 on host a: waited"});
  std::filesystem::remove(run);
  REQUIRE(::mkfifo(run.c_str(), 0600) == 0);  // without a writer, opening it to read may wait forever
  CHECK(notes_on_run_before(in) ==
        std::vector<std::string>{"the run before ended at step 7: rank 0 on host a: waited"});
  clear_failure_notes(in);
  CHECK(next.end({"finished", "", 9, 0}));
  CHECK(notes_on_run_before(in).empty());
}

TEST_CASE("the log says on the terminal and in the file; other ranks write nothing") {
  const ScratchFolder folder("log");
  std::ostringstream terminal;
  {
    Log log(terminal, true);
    log.say("before the folder");
    log.record_in(folder / "log.txt");
    log.say("one");
    log.status("50 %");
    log.note("file only");
    log.say("two");
    log.status("60 %");
  }
  CHECK(bytes_of(folder / "log.txt") == "one\nfile only\ntwo\n");
  CHECK(terminal.str() == "before the folder\none\n\r\x1b[K50 %\r\x1b[Ktwo\n\r\x1b[K60 %\r\x1b[K");
  terminal.str("");
  Log(terminal, false).say("no \xFF, no \x1B[2J, no \n, a \t");
  CHECK(terminal.str() == "no \xEF\xBF\xBD, no \\x1b[2J, no \\n, a \t\n");
  Log other;
  other.record_in(folder / "other.txt");
  other.say("nothing");
  other.status("nothing");
  CHECK(!std::filesystem::exists(folder / "other.txt"));
  CHECK(thrown_by([&] { Log(terminal, false).record_in(folder / "no/log.txt"); }).status == 4);
}

TEST_CASE("progress in a pipe is a plain line every few steps") {
  std::ostringstream terminal;
  Log log(terminal, false);
  Progress progress(log, 10, 4);
  for (std::int64_t step = 1; step <= 10; ++step) progress.update({step, 2.5, 12345.0, 10.0, std::int64_t{3} << 20});
  CHECK(terminal.str() ==
        "step 1/10  loss 2.5000  12.3 k tokens/s  1 min 30 s left  3.0 MiB resident\n"
        "step 4/10  loss 2.5000  12.3 k tokens/s  1 min 00 s left  3.0 MiB resident\n"
        "step 8/10  loss 2.5000  12.3 k tokens/s  20 s left  3.0 MiB resident\n"
        "step 10/10  loss 2.5000  12.3 k tokens/s  0 s left  3.0 MiB resident\n");
  terminal.str("");
  progress.update({4, 2.5, 12345.0, 10.0, 1024, 32768.0});
  CHECK(terminal.str() == "step 4/10  loss 2.5000  scale 32768  12.3 k tokens/s  1 min 00 s left  1.0 KiB resident\n");
}

TEST_CASE("a progress line has the means over the steps since the line before") {
  std::ostringstream terminal;
  Log log(terminal, false);
  Progress progress(log, 100, 3);
  progress.update({1, 9.0, 100.0, 1.0, 1024});
  progress.update({2, 4.0, 400.0, 1.0, 1024});  // 400 tokens in 1 s
  progress.update({3, 2.0, 100.0, 4.0, 1024});  // 400 tokens in 4 s
  terminal.str("");
  progress.update({4, 1.0, 200.0, 1.0, 1024});
  progress.update({5, std::numeric_limits<double>::quiet_NaN(), 200.0, 1.0, 1024});  // a skipped step
  progress.update({6, 2.0, 500.0, 1.0, 1024});
  CHECK(terminal.str().starts_with("step 6/100  loss 1.5000  300 tokens/s  "));
  std::ostringstream before;
  Log other(before, false);
  Progress second(other, 100, 3);
  for (const auto& step : {ProgressStep{2, 4.0, 400.0, 1.0, 1024}, ProgressStep{3, 2.0, 100.0, 4.0, 1024}})
    second.update(step);
  CHECK(before.str().starts_with("step 3/100  loss 3.0000  160 tokens/s  "));
}

TEST_CASE("progress on a terminal is a bar, and plain lines in the file") {
  const ScratchFolder folder("bar");
  std::ostringstream terminal;
  Log log(terminal, true);
  log.record_in(folder / "log.txt");
  Progress progress(log, 8, 0);
  for (std::int64_t step = 1; step <= 8; ++step) progress.update({step, 1.0, 10.0, 1.0, 1024});
  CHECK(terminal.str().starts_with(
      "\r\x1b[K[==>             ]  1/8  loss 1.0000  10 tokens/s  7 s left  1.0 KiB resident"));
  CHECK(terminal.str().ends_with("\r\x1b[K"));
  CHECK(bytes_of(folder / "log.txt") ==
        "step 1/8  loss 1.0000  10 tokens/s  7 s left  1.0 KiB resident\n"
        "step 8/8  loss 1.0000  10 tokens/s  0 s left  1.0 KiB resident\n");
}

TEST_CASE("numbers as people read them") {
  CHECK((readable_bytes(0) == "0 B" && readable_bytes(1023) == "1023 B"));
  CHECK((loss_text(3.45123) == "3.4512" && loss_text(0.0) == "0.0000" && loss_text(3.5791e-7) == "3.579e-07"));
  CHECK(readable_bytes(1024) == "1.0 KiB");
  CHECK(readable_bytes(std::int64_t{5} << 40) == "5.0 TiB");
  CHECK(readable_count(0.0) == "0");
  CHECK(readable_count(258.4) == "258");
  CHECK(readable_count(999.7) == "1.00 k");
  CHECK(readable_count(12345.0) == "12.3 k");
  CHECK(readable_count(124439808.0) == "124 M");
  CHECK(grouped_digits(0) == "0");
  CHECK(grouped_digits(999) == "999");
  CHECK(grouped_digits(40960) == "40,960");
  CHECK(grouped_digits(-1234567) == "-1,234,567");
  CHECK(readable_seconds(59.6) == "1 min 00 s");
  CHECK(bytes_of_text("48GB") == 48e9);
  CHECK(bytes_of_text("1.5 GiB") == 1.5 * 0x1p30);
  CHECK(bytes_of_text("512MiB") == 0x1p29);
  for (const char* text : {"", "48", "48G", "48gb", "GB", "-1GB", "1e999GB", "nan GB", "48  GB", "48GB "}) {
    CHECK_FALSE(bytes_of_text(text));
  }
  CHECK(seconds_of_text("90s") == 90.0);
  CHECK(seconds_of_text("10min") == 600.0);
  CHECK(seconds_of_text("1.5 h") == 5400.0);
  for (const char* text : {"10", "10m", "10 minutes", "s"}) CHECK_FALSE(seconds_of_text(text));
  CHECK(readable_seconds(7500.0) == "2 h 05 min");
  CHECK(readable_seconds(std::numeric_limits<double>::quiet_NaN()) == "?");
}

TEST_CASE("a run's folder is never one that holds anything") {
  const ScratchFolder folder("runs");
  CHECK(create_run_folder(folder / "deep/run") == folder / "deep/run");
  CHECK(create_run_folder(folder / "deep/run/") == folder / "deep/run-2");
  folder.put("deep/run-3", "a file");
  CHECK(create_run_folder(folder / "deep/run") == folder / "deep/run-4");
  std::filesystem::create_directories(folder / "made");
  CHECK(create_run_folder(folder / "made") == folder / "made");
  CHECK(create_run_folder(folder / "made") == folder / "made-2");
  folder.put("mine/notes.md", "someone's");
  CHECK(create_run_folder(folder / "mine") == folder / "mine-2");
  const auto error = thrown_by([&] { create_run_folder(folder / "deep/run-3/x"); });
  CHECK(error.status == 4);
  CHECK(thrown_by([] { create_run_folder(""); }).status == 2);
}

TEST_CASE("what is set aside gets a name that nothing has") {
  const ScratchFolder folder("aside");
  for (const char* wanted : {"log.txt.old", "log.txt.old-2", "log.txt.old-3"}) {
    const std::string path = folder.put("log.txt", wanted);
    CHECK(set_aside(path) == folder / wanted);
    CHECK(bytes_of(folder / wanted) == wanted);
    CHECK(!std::filesystem::exists(path));
  }
  CHECK(thrown_by([&] { set_aside(folder / "nothing"); }).status == 4);
}

TEST_CASE("the process's memory is what it holds") {
  const auto before = resident_memory();
  std::vector<char> block(64 << 20, 'x');
  const auto with = resident_memory();
  CHECK(before.current > 0);
  CHECK(with.current >= before.current + (60 << 20));
  CHECK(with.peak >= with.current);
  CHECK(block[12345] == 'x');
}

TEST_CASE("a whole file is complete or absent") {
  const ScratchFolder folder("whole");
  write_whole_file(folder / "a", "first");
  folder.put("a.partial", "left by a crash");
  write_whole_file(folder / "a", "second");
  CHECK(read_whole_file(folder / "a", 6) == "second");
  CHECK(!std::filesystem::exists(folder / "a.partial"));
  CHECK(thrown_by([&] { read_whole_file(folder / "a", 5); }).status == 3);
  CHECK(thrown_by([&] { read_whole_file(folder / "b", 5); }).status == 3);
  CHECK(thrown_by([&] { write_whole_file(folder / "no/a", ""); }).status == 4);
}

}  // namespace kozero::io
