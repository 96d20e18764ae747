// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// commands.hpp: the functions of the commands. Each is in the file with its name; keys.cpp also has completion.
#pragma once
#include <string>

#include <kozero/dist/environment.hpp>
#include <kozero/program/program.hpp>

namespace kozero::commands {

using program::Arguments;

/// The function of a command. Throws Error(deck) with the nearest name for an unknown one.
program::Run function_of(const std::string& name);

/// Runs the command that arguments[0] names. Throws Error(deck) with the nearest name for an unknown one.
void run_command(const dist::Environment& environment, const Arguments& arguments);

void train(const dist::Environment& environment, const Arguments& arguments);
void verify(const dist::Environment& environment, const Arguments& arguments);
void plan(const dist::Environment& environment, const Arguments& arguments);
void eval(const dist::Environment& environment, const Arguments& arguments);
void generate(const dist::Environment& environment, const Arguments& arguments);
void inspect(const dist::Environment& environment, const Arguments& arguments);
void prepare(const dist::Environment& environment, const Arguments& arguments);
void export_weights(const dist::Environment& environment, const Arguments& arguments);
void import_weights(const dist::Environment& environment, const Arguments& arguments);
void bench(const dist::Environment& environment, const Arguments& arguments);
void plot(const dist::Environment& environment, const Arguments& arguments);
void completion(const dist::Environment& environment, const Arguments& arguments);
void keys(const dist::Environment& environment, const Arguments& arguments);
void ranks(const dist::Environment& environment, const Arguments& arguments);

}  // namespace kozero::commands
