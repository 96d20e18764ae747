// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// commands.hpp: the functions of the commands. Each is in the file of the same name; keys.cpp also has completion.
#pragma once
#include <string>

#include <kozero/distributed/environment.hpp>
#include <kozero/program/program.hpp>

namespace kozero::commands {

using program::Arguments;

/// The function of a command. Throws Error(deck) with the nearest name for an unknown one.
program::Run function_of(const std::string& name);

/// Runs the command that arguments[0] names. Throws Error(deck) with the nearest name for an unknown one.
void run_command(const distributed::Environment& environment, const Arguments& arguments);

void train(const distributed::Environment& environment, const Arguments& arguments);
void verify(const distributed::Environment& environment, const Arguments& arguments);
void plan(const distributed::Environment& environment, const Arguments& arguments);
void sweep(const distributed::Environment& environment, const Arguments& arguments);
void eval(const distributed::Environment& environment, const Arguments& arguments);
void generate(const distributed::Environment& environment, const Arguments& arguments);
void inspect(const distributed::Environment& environment, const Arguments& arguments);
void prepare(const distributed::Environment& environment, const Arguments& arguments);
void export_weights(const distributed::Environment& environment, const Arguments& arguments);
void import_weights(const distributed::Environment& environment, const Arguments& arguments);
void bench(const distributed::Environment& environment, const Arguments& arguments);
void metrics(const distributed::Environment& environment, const Arguments& arguments);
void watch(const distributed::Environment& environment, const Arguments& arguments);
void timeline(const distributed::Environment& environment, const Arguments& arguments);
void plot(const distributed::Environment& environment, const Arguments& arguments);
void report(const distributed::Environment& environment, const Arguments& arguments);
void completion(const distributed::Environment& environment, const Arguments& arguments);
void keys(const distributed::Environment& environment, const Arguments& arguments);
void ranks(const distributed::Environment& environment, const Arguments& arguments);
void relay(const distributed::Environment& environment, const Arguments& arguments);

}  // namespace kozero::commands
