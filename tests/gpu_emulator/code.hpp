// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// code.hpp: a kernel, decoded once from PTX for execution warp by warp. Each register of PTX has a place in the
// warp's register file: 32 values of its own size, one per lane; predicates are one mask. Constants and special
// registers have places there too, so an instruction reads nothing but places.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memory.hpp"

namespace kozero::gpu_emulator {

struct Warp;
struct Op;

inline constexpr int kLanes = 32;
using Mask = std::uint32_t;  ///< one bit per lane
inline constexpr Mask kAllLanes = ~Mask{0};

/// Executes an instruction for the lanes of a mask.
using Handler = void (*)(Warp&, const Op&, Mask);

/// What the scheduler (block.cpp) does with an instruction. `together`: all lanes of a member mask execute it at once.
enum class Control : std::uint8_t { none, branch, exit, call, ret, barrier, together, trap };

struct Op {
  Handler run = nullptr;
  std::uint32_t d = 0, a = 0, b = 0, c = 0;  ///< places
  std::uint32_t guard = 0;                   ///< place of the predicate
  bool guarded = false, negated = false;
  Control control = Control::none;
  std::uint8_t count = 1;      ///< registers in `each`
  std::uint32_t each[4] = {};  ///< places of {a, b, ...}
  std::int64_t immediate = 0;  ///< offset of an address, target of a branch
  std::uint32_t text = 0;      ///< in Code::texts
};

/// A call: the copies between the frames in local memory, and the place of the return address in the callee's frame.
struct Call {
  struct Copy {
    std::uint32_t from, to, bytes;
  };
  std::string callee;
  std::vector<Copy> arguments, results;
  std::uint32_t entry = 0;
  std::uint32_t return_place = 0;
};

struct Code {
  std::string name;
  std::vector<Op> ops;
  std::vector<Call> calls;
  std::vector<std::string> texts;
  std::vector<std::string> lines;  ///< by op: "file:line", if the code was compiled with -lineinfo
  struct Constant {
    std::uint32_t place, bytes;
    std::uint64_t value;
  };
  std::vector<Constant> constants;
  std::map<std::string, std::uint32_t> specials;  ///< "%tid.x" to its place
  std::uint32_t register_bytes = 0;
  std::uint32_t local_bytes = 0;   ///< of a thread
  std::uint32_t shared_bytes = 0;  ///< static
  struct Parameter {
    std::uint32_t offset, bytes;
  };
  std::vector<Parameter> parameters;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t most_threads = 1024;  ///< of a block
};

/// Shared memory given at the launch begins here, after all static shared memory.
inline constexpr std::uint32_t kDynamicShared = 1U << 20;

/// A module's PTX: its functions, decoded when they are first needed, and its variables, allocated at once.
class Module {
 public:
  explicit Module(std::string ptx);

  const Code& kernel(const std::string& name);
  [[nodiscard]] bool has_kernel(const std::string& name) const { return functions_.contains(name); }
  [[nodiscard]] Address variable(const std::string& name) const;

  struct Function {
    std::string_view header, body;
    bool entry;
  };
  struct Shared {
    std::uint32_t bytes, alignment;
    bool dynamic;
  };
  [[nodiscard]] const Function* function(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, Shared>& shared() const { return shared_; }
  [[nodiscard]] const std::map<std::string, Address>& variables() const { return variables_; }
  [[nodiscard]] std::string file(int number) const;

 private:
  void add_variable(std::string_view statement);

  std::string ptx_;
  std::map<std::string, Function> functions_;
  std::map<std::string, Shared> shared_;
  std::map<std::string, Address> variables_;
  std::map<int, std::string> files_;
  std::map<std::string, std::unique_ptr<Code>> decoded_;
};

/// Decodes a kernel and the functions it calls (decode.cpp).
std::unique_ptr<Code> decode(const Module& module, const std::string& name);

}  // namespace kozero::gpu_emulator
