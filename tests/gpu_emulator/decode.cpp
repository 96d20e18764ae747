// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// decode.cpp: PTX to Code. A kernel's code is followed by the code of the functions that it calls. Each function has
// one set of registers and one frame in local memory, so functions cannot call themselves.
#include <algorithm>
#include <cstdio>
#include <deque>

#include "code.hpp"
#include "forms.hpp"
#include "operands.hpp"
#include "report.hpp"
#include "text.hpp"
#include "warp.hpp"

namespace kozero::gpu_emulator {
namespace {

class Decoder : Operands {
 public:
  Decoder(const Module& module, const std::string& name) : Operands(module, name) {}

  std::unique_ptr<Code> decode() {
    add_function(code_->name);
    while (!called_.empty()) {
      const std::string callee = called_.front();
      called_.pop_front();
      if (!functions_.contains(callee)) add_function(callee);
    }
    for (Call& call : code_->calls) {
      const Frame& frame = functions_.at(call.callee);
      call.entry = frame.entry;
      call.return_place = frame.return_place;
      match(call.arguments, frame.arguments, true);
      match(call.results, frame.results, false);
    }
    return std::move(code_);
  }

 private:
  /// A function as its callers see it; places in local memory.
  struct Frame {
    std::uint32_t entry = 0, return_place = 0;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> arguments, results;
  };

  static void match(std::vector<Call::Copy>& of_caller,
                    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& of_callee, bool in) {
    for (std::size_t i = 0; i < std::min(of_caller.size(), of_callee.size()); ++i) {
      Call::Copy& copy = of_caller[i];
      const std::uint32_t outside = copy.from;
      copy = in ? Call::Copy{outside, of_callee[i].first, of_callee[i].second}
                : Call::Copy{of_callee[i].first, outside, of_callee[i].second};
    }
  }

  // ---- functions -------------------------------------------------------------------------------------------------

  void add_function(const std::string& name) {
    const Module::Function* function = module_.function(name);
    if (function == nullptr) stop("PTX has no function " + name);
    registers_.clear();
    files_.clear();
    locals_.clear();
    labels_.clear();
    targets_.clear();
    in_kernel_ = function->entry;
    Frame& frame = functions_[name];
    frame.entry = static_cast<std::uint32_t>(code_->ops.size());
    frame.return_place = return_place_ = new_place(4);
    if (function->entry)
      add_parameters(function->header);
    else
      add_frame(function->header, frame);
    for_each_statement(function->body, [&](std::string_view statement, char end) { add(statement, end); });
    if (code_->ops.empty() || code_->ops.back().control != Control::exit) add_end();
    for (const auto& [op, label] : targets_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) stop("no label " + label + " in " + name);
      code_->ops[op].immediate = found->second;
    }
  }

  void add_end() {
    text_ = "the end";
    Op op;
    op.control = in_kernel_ ? Control::exit : Control::ret;
    push(op);
  }

  /// "(.param .align 8 .b8 name_param_0[120], ...) .maxntid 256, 1, 1"
  void add_parameters(std::string_view header) {
    const auto open = header.find('('), close = header.find(')');
    if (open != std::string_view::npos) {
      for (const auto text : parts(header.substr(open + 1, close - open - 1), ',')) {
        const Declaration declared = declaration(text);
        std::uint32_t& size = code_->parameter_bytes;
        size = (size + declared.alignment - 1) / declared.alignment * declared.alignment;
        code_->parameters.push_back({size, declared.bytes});
        parameters_[declared.name] = size;
        size += declared.bytes;
      }
    }
    if (const auto at = header.find(".maxntid"); at != std::string_view::npos) {
      std::uint32_t most = 1;
      const auto line = header.substr(at + 8, header.find('\n', at) - at - 8);
      for (const auto extent : parts(line.substr(0, line.find('.')), ','))
        most *= static_cast<std::uint32_t>(literal(extent));
      code_->most_threads = most;
    }
  }

  /// "(.param .b64 result) name (.param .b64 argument, ...)"
  void add_frame(std::string_view header, Frame& frame) {
    const auto name = header.find(".func") + 5;
    auto lists = trimmed(header.substr(name));
    const auto take = [&](std::vector<std::pair<std::uint32_t, std::uint32_t>>& to) {
      const auto close = lists.find(')');
      for (const auto text : parts(lists.substr(lists.find('(') + 1, close - lists.find('(') - 1), ',')) {
        const Declaration declared = declaration(text);
        to.emplace_back(locals_[declared.name] = new_local(declared.bytes, declared.alignment), declared.bytes);
      }
      lists = trimmed(lists.substr(close + 1));
    };
    if (lists.starts_with('(')) take(frame.results);
    if (lists.find('(') != std::string_view::npos) take(frame.arguments);
  }

  // ---- statements ------------------------------------------------------------------------------------------------

  void add(std::string_view statement, char end) {
    if (end == ':') {
      labels_[std::string(statement)] = static_cast<std::int64_t>(code_->ops.size());
    } else if (end == '\n' && statement.starts_with(".loc")) {
      const auto words = parts(statement, ' ');
      std::vector<std::string_view> numbers;
      for (const auto word : words) {
        for (const auto tabbed : parts(word, '\t')) numbers.push_back(tabbed);
      }
      if (numbers.size() >= 3) line_ = module_.file(std::stoi(std::string(numbers[1]))) + ":" + std::string(numbers[2]);
    } else if (statement.starts_with(".reg")) {
      add_registers(statement);
    } else if (statement.starts_with(".param") || statement.starts_with(".local")) {
      const Declaration declared = declaration(statement);
      locals_[declared.name] = new_local(declared.bytes, declared.alignment);
    } else if (statement.starts_with(".shared")) {
      const Declaration declared = declaration(statement);
      place_shared(declared.name, {declared.bytes, declared.alignment, false});
    } else if (!statement.empty() && !statement.starts_with('.')) {
      add_instruction(statement);
    }
  }

  // ---- instructions ----------------------------------------------------------------------------------------------

  /// Plants a fault into KoZeRO's own kernels, by options().drop and shift, and reports it at its first execution.
  void mutate(Op& op) {
    static std::int64_t barriers = 0, accesses = 0;
    if (code_->name.find("kozero") == std::string::npos) return;
    const bool in_memory = text_.find(".global.") != std::string::npos || text_.find(".shared.") != std::string::npos;
    const bool plain = text_.find("ld.") != std::string::npos || text_.find("st.") != std::string::npos;
    if (op.control == Control::barrier && op.immediate == 0 && ++barriers == options().drop) {
      op.control = Control::none;
      op.run = [](Warp&, const Op&, Mask) {};
    } else if (in_memory && plain && ++accesses == options().shift) {
      const std::string_view opcode = std::string_view(text_).substr(0, text_.find(' ', text_.find('.')));
      op.immediate += op.count * bytes_of_type(opcode);
    } else {
      return;
    }
    static Handler mutated = nullptr;
    static std::string name;
    mutated = op.run;
    name = text_ + " of " + code_->name;
    op.run = [](Warp& warp, const Op& mutant, Mask mask) {
      if (!name.empty()) std::fprintf(stderr, "gpu_emulator: mutant: %s\n", name.c_str());
      name.clear();
      mutated(warp, mutant, mask);
    };
  }

  void push(Op& op) {
    if (options().drop + options().shift > 0) mutate(op);
    op.text = static_cast<std::uint32_t>(code_->texts.size());
    code_->texts.push_back(text_);
    code_->lines.push_back(line_);
    code_->ops.push_back(op);
  }

  void add_instruction(std::string_view statement) {
    text_ = std::string(statement);
    std::replace(text_.begin(), text_.end(), '\n', ' ');
    std::replace(text_.begin(), text_.end(), '\t', ' ');
    Op op;
    if (statement.starts_with('@')) {
      op.guarded = true;
      op.negated = statement[1] == '!';
      const auto space = statement.find_first_of(" \t");
      op.guard = place(statement.substr(op.negated ? 2 : 1, space - (op.negated ? 2 : 1)), 0);
      statement = trimmed(statement.substr(space));
    }
    const auto space = std::min(statement.find_first_of(" \t\n"), statement.size());
    const Words words{statement.substr(0, space), parts(statement.substr(0, space), '.')};
    const auto operands = parts(statement.substr(space), ',');
    if (!add_control(words, operands, statement.substr(space), op) && !add_memory(words, operands, op) &&
        !add_move(words, operands, op)) {
      add_plain(words, operands, op);
    }
    if (op.run == nullptr && op.control == Control::none) fail("an instruction that the emulator does not have");
    push(op);
  }

  bool add_control(const Words& words, const std::vector<std::string_view>& operands, std::string_view rest, Op& op) {
    const std::string_view base = words.base();
    if (base == "bra") {
      op.control = Control::branch;
      targets_.emplace_back(code_->ops.size(), std::string(operands.at(0)));
    } else if (base == "exit" || (base == "ret" && in_kernel_)) {
      op.control = Control::exit;
    } else if (base == "ret") {
      op.control = Control::ret;
      op.d = return_place_;
    } else if (base == "call") {
      add_call(rest, op);
    } else if ((base == "bar" || base == "barrier") && !words.has("warp")) {
      op.control = Control::barrier;
      add_barrier(words, operands, op);
    } else if (base == "membar" || base == "fence") {
      op.run = words.has("cta") ? [](Warp&, const Op&, Mask) {} : fence_function();
    } else if (base == "trap") {
      op.control = Control::trap;
    } else {
      return base == "pragma";
    }
    return true;
  }

  /// bar.sync a{, threads}; bar.red.or.pred d, a{, threads}, c. `a`: the barrier, `b`: its threads, `c`: the predicate,
  /// `immediate`: 0 sync, 1 popc, 2 and, 3 or, 4 arrive.
  void add_barrier(const Words& words, std::vector<std::string_view> operands, Op& op) {
    if (words.has("arrive")) fail("an instruction that the emulator does not have");
    if (words.has("red")) {
      op.immediate = words.has("popc") ? 1 : words.has("and") ? 2 : 3;
      op.d = place(operands.at(0), op.immediate == 1 ? 4 : 0);
      op.c = place(operands.back(), 0);
      operands = {operands.begin() + 1, operands.end() - 1};
    }
    op.a = place(operands.at(0), 4);
    if (operands.size() > 1) op.b = place(operands[1], 4);
  }

  /// "(retval0), name, (param0, param1)", each list optional.
  void add_call(std::string_view rest, Op& op) {
    Call call;
    auto pieces = parts(rest, ',');
    const auto copies = [&](std::string_view list, std::vector<Call::Copy>& to) {
      for (const auto name : parts(list.substr(1, list.find(')') - 1), ',')) {
        to.push_back({static_cast<std::uint32_t>(*symbol(name)), 0, 0});
      }
    };
    if (pieces.front().starts_with('(')) {
      copies(pieces.front(), call.results);
      pieces.erase(pieces.begin());
    }
    call.callee = pieces.front();
    if (pieces.size() > 1) copies(pieces[1], call.arguments);
    if (call.callee.starts_with('%')) fail("a call by address");
    if (module_.function(call.callee) == nullptr) {  // an assertion or printf, whose message is not formatted
      op.control = Control::trap;
      return;
    }
    called_.push_back(call.callee);
    op.control = Control::call;
    op.immediate = static_cast<std::int64_t>(code_->calls.size());
    code_->calls.push_back(std::move(call));
  }

  bool add_memory(const Words& words, const std::vector<std::string_view>& operands, Op& op) {
    const std::string_view base = words.base();
    const std::uint32_t bytes = bytes_of_type(words.type());
    if (base == "ld" || base == "st") {
      const bool loads = base == "ld";
      const std::string name = address(operands.at(loads ? 1 : 0), op);
      const std::uint32_t wide = each(operands.at(loads ? 0 : 1), op, bytes);
      Words in = words;
      if (in.has("param") && (name.empty() ? !in_kernel_ : !parameters_.contains(name)))
        in.words[1] = "local";  // of a call
      op.run = loads ? load_function(in, wide) : store_function(in, wide);
      return true;
    }
    if (base != "atom" && base != "red") return base == "prefetch" || base == "prefetchu";
    const std::size_t first = base == "atom" ? 1 : 0;
    if (first == 1 && operands[0] != "_") op.d = place(operands[0], bytes);
    address(operands.at(first), op);
    op.count = static_cast<std::uint8_t>(operands.size() - first - 1);
    for (std::size_t i = 0; i < op.count; ++i) op.each[i] = place(operands[first + 1 + i], bytes);
    op.run = atomic_function(words);
    return true;
  }

  /// mov with lists of registers or addresses, and cvta. Addresses of different spaces differ by the window's begin.
  bool add_move(const Words& words, const std::vector<std::string_view>& operands, Op& op) {
    const std::uint32_t bytes = bytes_of_type(words.type());
    if (words.base() == "cvta") {
      const bool to = words.has("to");
      const std::uint64_t window = words.has("shared")  ? kSharedWindow
                                   : words.has("local") ? kLocalWindow
                                   : words.has("param") ? kParamWindow
                                                        : 0;
      const std::string_view type = "u64";
      op.run = integer_form({"", {to ? "sub" : "add", type}}).run;
      op.d = place(operands.at(0), 8);
      op.a = place(operands.at(1), 8);
      op.b = constant(window, 8);
      return true;
    }
    if (words.base() != "mov") return false;
    if (operands.at(0).starts_with('{')) {
      each(operands[0], op, bytes / 2);
      op.a = place(operands[1], bytes);
      op.run = unpack_function(bytes);
      return true;
    }
    if (operands.at(1).starts_with('{')) {
      each(operands[1], op, bytes / 2);
      op.d = place(operands[0], bytes);
      op.run = pack_function(bytes);
      return true;
    }
    return false;
  }

  void add_plain(const Words& words, std::vector<std::string_view> operands, Op& op) {
    Form found;
    for (const auto lookup : {predicate_form, integer_form, float_form, conversion_form, warp_form}) {
      if (found = lookup(words); found.run != nullptr) break;
    }
    if (found.run == nullptr) return;
    op.run = found.run;
    op.control = found.control;
    if (words.base() == "setp") split_setp(words, operands, op);
    if (words.text == "bar.warp.sync") {
      op.each[0] = place(operands.at(0), 4);
      return;
    }
    std::uint32_t* const to[] = {&op.d, &op.a, &op.b, &op.c, &op.each[0]};
    if (words.base() == "shfl") {
      if (const auto bar = operands.at(0).find('|'); bar != std::string_view::npos) {
        op.count = 2;
        op.each[1] = place(trimmed(operands[0].substr(bar + 1)), 0);
        operands[0] = trimmed(operands[0].substr(0, bar));
      }
    }
    for (std::size_t i = 0; i < operands.size() && i < 5; ++i) {
      if (words.base() == "setp" && i == 3 && op.immediate == 0) break;
      *to[i] = place(operands[i], found.bytes[i]);
    }
  }

  /// setp.lt.and.f32 p|q, a, b, c: `each[0]` is q, `immediate` the way to combine with c.
  void split_setp(const Words& words, std::vector<std::string_view>& operands, Op& op) {
    op.immediate = words.has("and") ? 1 : words.has("or") ? 2 : words.has("xor") ? 3 : 0;
    if (const auto bar = operands.at(0).find('|'); bar != std::string_view::npos) {
      op.count = 2;
      op.each[0] = place(trimmed(operands[0].substr(bar + 1)), 0);
      operands[0] = trimmed(operands[0].substr(0, bar));
    }
  }

  std::deque<std::string> called_;
  std::map<std::string, Frame> functions_;

  // Of the function under way.
  bool in_kernel_ = true;
  std::uint32_t return_place_ = 0;
  std::map<std::string, std::int64_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> targets_;
  std::string line_;
};

}  // namespace

std::unique_ptr<Code> decode(const Module& module, const std::string& name) { return Decoder(module, name).decode(); }

}  // namespace kozero::gpu_emulator
