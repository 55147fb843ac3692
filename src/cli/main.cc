// The `vernier` program: finds the verb, parses its flags, runs it, and turns whatever happens into an exit status.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <new>

#include "cli/report.h"
#include "cli/settings.h"
#include "cli/verb.h"
#include "vernier/version.h"

namespace vernier::cli {
namespace {

/// The words of the command line, the last first as CLI11 takes them. `help` and `help VERB` are --help.
std::vector<std::string> command_words(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::reverse(words.begin(), words.end());
  return words;
}

/// Refuses a first word that is no verb, which CLI11 would report as a missing subcommand.
Status check_verb(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return {};
  std::string known = "help";
  for (const Verb& verb : verb_list()) {
    if (verb.name == argv[1]) return {};
    known += ", " + std::string(verb.name);
  }
  if (std::string_view(argv[1]) == "help") return {};
  return fail_with_hint(ErrorCode::kInvalidArgument, "see 'vernier --help'", "unknown verb '{}'; known: {}",
                        escape(argv[1]), known);
}

int parse_and_run(int argc, char** argv) {
  if (const Status status = check_verb(argc, argv); !status) return report(status.error());
  CLI::App app("Vernier runs block-scaled low-precision language models exactly as published.", "vernier");
  app.set_version_flag("--version", std::string(version()));
  app.require_subcommand(1);
  app.footer(
      "MODEL is a .gguf or .safetensors file, a model folder, a name under $VERNIER_MODELS, or 'demo'.\n"
      "Every --flag can also be set as VERNIER_FLAG in the environment or as a key in the --config file.");
  std::map<const CLI::App*, VerbBody> bodies;
  for (const Verb& verb : verb_list()) {
    CLI::App* sub = app.add_subcommand(std::string(verb.name), std::string(verb.summary));
    bodies[sub] = verb.declare(*sub);
    sub->add_option("--config", "file of 'flag = value' lines")->option_text("FILE");
    add_environment_names(*sub);
  }
  if (const Status status = apply_config_file(app, argc, argv); !status) return report(status.error());
  try {
    app.parse(command_words(argc, argv));
  } catch (const CLI::Success& help) {  // --help, --version
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    const std::string verb = chosen.empty() ? "" : chosen.front()->get_name() + " ";
    return report_usage(escape(error.what(), 300), "see 'vernier " + verb + "--help'");
  }
  const int status = bodies.at(app.get_subcommands().front())();
  if (std::fflush(stdout) != 0 && status == kExitDone) {
    return report(Error{ErrorCode::kIo, "cannot write to standard output", {}});
  }
  return status;
}

}  // namespace
}  // namespace vernier::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe shows as a failed write
  try {
    return vernier::cli::parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return vernier::cli::report(vernier::Error{vernier::ErrorCode::kOutOfMemory, "out of memory", {}});
  } catch (const std::exception& error) {
    return vernier::cli::report(
        vernier::Error{vernier::ErrorCode::kInternal, std::string("unexpected: ") + error.what(), {}});
  }
}
