#include "cli/verb.h"

namespace vernier::cli {

std::span<const Verb> verb_list() {
  static constexpr Verb kVerbs[] = {
      {"run", "generate text from a prompt", declare_run},
      {"chat", "talk with a model in the terminal", declare_chat},
      {"inspect", "say what is in a checkpoint and whether it can be run", declare_inspect},
      {"verify", "compare a model with reference ids and logits", declare_verify},
      {"perplexity", "how well a model predicts a text, and how far it is from another", declare_perplexity},
      {"bench", "measure speed, next to what the machine could do at best", declare_bench},
      {"tokenize", "turn text into token ids", declare_tokenize},
      {"detokenize", "turn token ids into text", declare_detokenize},
      {"template", "render a chat template", declare_template},
      {"devices", "list what this machine and build can run on", declare_devices},
      {"completion", "write a completion script for a shell", declare_completion},
      {"pull", "fetch a small public model", declare_pull},
  };
  return kVerbs;
}

}  // namespace vernier::cli
