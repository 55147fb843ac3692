// `vernier completion`: scripts that complete verbs and flags, written from the verbs' own declarations.
#include <memory>

#include "base/result.h"
#include "cli/report.h"
#include "cli/verb.h"

namespace vernier::cli {
namespace {

struct VerbWords {
  std::string name;
  std::string summary;
  std::vector<std::string> flags;
};

std::vector<VerbWords> all_words() {
  std::vector<VerbWords> words;
  for (const Verb& verb : verb_list()) {
    CLI::App app;
    verb.declare(app);
    VerbWords entry{std::string(verb.name), std::string(verb.summary), {"--help", "--config"}};
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        if (name != "help") entry.flags.push_back("--" + name);
      }
    }
    words.push_back(std::move(entry));
  }
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::string bash_script(const std::vector<VerbWords>& verbs) {
  std::vector<std::string> names;
  std::string cases;
  for (const VerbWords& verb : verbs) {
    names.push_back(verb.name);
    cases += fmt::format("    {}) flags=\"{}\" ;;\n", verb.name, joined(verb.flags));
  }
  return fmt::format(
      "_vernier() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" flags=\"\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}  esac\n"
      "  case \"$word\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _vernier vernier\n",
      joined(names), cases);
}

std::string zsh_script(const std::vector<VerbWords>& verbs) {
  std::string names;
  std::string cases;
  for (const VerbWords& verb : verbs) {
    names += fmt::format("    '{}:{}'\n", verb.name, verb.summary);
    cases += fmt::format("    {}) compadd -- {} ;;\n", verb.name, joined(verb.flags));
  }
  return fmt::format(
      "#compdef vernier\n"
      "local -a verbs\n"
      "verbs=(\n{})\n"
      "if (( CURRENT == 2 )); then\n"
      "  _describe 'verb' verbs\n"
      "elif [[ \"$words[CURRENT]\" == -* ]]; then\n"
      "  case \"$words[2]\" in\n{}  esac\n"
      "else\n"
      "  _files\n"
      "fi\n",
      names, cases);
}

std::string fish_script(const std::vector<VerbWords>& verbs) {
  std::string script;
  for (const VerbWords& verb : verbs) {
    script += fmt::format("complete -c vernier -n __fish_use_subcommand -a {} -d '{}'\n", verb.name, verb.summary);
    for (const std::string& flag : verb.flags) {
      script +=
          fmt::format("complete -c vernier -n '__fish_seen_subcommand_from {}' -l {}\n", verb.name, flag.substr(2));
    }
  }
  return script;
}

int completion(const std::string& shell) {
  const std::vector<VerbWords> verbs = all_words();
  print(shell == "bash" ? bash_script(verbs) : shell == "zsh" ? zsh_script(verbs) : fish_script(verbs));
  return kExitDone;
}

}  // namespace

VerbBody declare_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [shell] { return completion(*shell); };
}

}  // namespace vernier::cli
