#include "cli/explain.h"

#include "base/result.h"

namespace vernier::cli {
namespace {

std::string format_words(const Inspection& found) {
  std::string words;
  for (const auto& [name, use] : found.formats) {
    words += fmt::format("{}{} weights in {}", words.empty() ? "" : ", ", use.tensors, name);
  }
  return words;
}

std::string ignored_words(const Inspection& found) {
  std::string words;
  for (const auto& [reason, count] : found.ignored_tensors) words += fmt::format(", {} ignored as {}", count, reason);
  return words;
}

}  // namespace

std::string explain(const Inspection& found) {
  const std::string file_words = found.files.size() == 1
                                     ? found.files.front()
                                     : fmt::format("{} files, the first {}", found.files.size(),
                                                   found.files.empty() ? std::string("none") : found.files.front());
  const std::string expert_words = found.experts ? fmt::format(" Each token passes {} of {} experts a sparse layer.",
                                                               found.experts->second, found.experts->first)
                                                 : std::string();
  std::string text;
  int step = 0;
  const auto add = [&](const std::string& paragraph) { text += fmt::format("{:>2}. {}\n", ++step, paragraph); };
  add(fmt::format("Map: {} ({}), read-only.", file_words, found.container));
  add(fmt::format("Headers: {} tensor records, their sizes checked against the files.", found.total_tensors));
  add(fmt::format("Config: architecture '{}', {} layers, {} vocabulary rows, {} tokens of context.", found.architecture,
                  found.layers, found.vocab_size, found.context_length));
  add(fmt::format("Dialect: '{}'. {}. {} tensors used{}, {} refused.", found.dialect, format_words(found),
                  found.used_tensors, ignored_words(found), found.refused_tensors));
  add(found.fit ? fmt::format("Plan: {} of {} bytes on {}: {}.", found.fit->needed_bytes, found.fit->available_bytes,
                              found.fit->device, found.fit->fits ? "fits" : "does not fit")
                : fmt::format("Plan: {} bytes of weights stay resident (--fit adds the caches).", found.weight_bytes));
  add("Place: weights stay as they are stored; a backend may reorder bytes, never values.");
  add("Prompt: the chat template renders the messages, the tokenizer turns the text into ids.");
  add("Schedule: long prompts go in chunks, generated tokens of all sequences come first.");
  add(
      fmt::format("Forward: embedding, {} layers, final norm, head.{} Sums are fp32; scales of a second level are "
                  "applied to the finished sum.",
                  found.layers, expert_words));
  add("Sample: penalties, filters and a draw by (seed, position); text is streamed as whole characters.");
  return text;
}

}  // namespace vernier::cli
