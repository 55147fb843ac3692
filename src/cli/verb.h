// The list of verbs and what each must provide. A new verb is one file and one line in verb_list.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string_view>

namespace vernier::cli {

/// Does the verb's job after its flags were parsed and returns the exit status.
using VerbBody = std::function<int()>;

struct Verb {
  std::string_view name;
  std::string_view summary;  ///< one line for --help
  /// Declares the verb's flags on `app`; the body keeps their values alive.
  VerbBody (*declare)(CLI::App& app);
};

[[nodiscard]] std::span<const Verb> verb_list();

VerbBody declare_run(CLI::App& app);
VerbBody declare_chat(CLI::App& app);
VerbBody declare_inspect(CLI::App& app);
VerbBody declare_verify(CLI::App& app);
VerbBody declare_perplexity(CLI::App& app);
VerbBody declare_bench(CLI::App& app);
VerbBody declare_tokenize(CLI::App& app);
VerbBody declare_detokenize(CLI::App& app);
VerbBody declare_template(CLI::App& app);
VerbBody declare_devices(CLI::App& app);
VerbBody declare_completion(CLI::App& app);
VerbBody declare_pull(CLI::App& app);

}  // namespace vernier::cli
