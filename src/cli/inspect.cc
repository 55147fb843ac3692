// `vernier inspect`: what is in a checkpoint. Reads headers only, unless --check.
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "cli/explain.h"
#include "cli/model_flags.h"
#include "cli/report.h"
#include "cli/verb.h"
#include "vernier/model.h"

namespace vernier::cli {
namespace {

struct InspectFlags {
  std::string model;
  InspectOptions options;
  std::vector<std::string> allow_root;
  bool json = false;
  bool explain = false;
};

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0); }

std::string shape_words(const std::vector<std::uint64_t>& shape) {
  std::string words;
  for (const std::uint64_t dim : shape) words += (words.empty() ? "" : " x ") + fmt::format("{}", dim);
  return words.empty() ? "scalar" : words;
}

Json tensors_json(const Inspection& found) {
  JsonArray list;
  for (const TensorSummary& tensor : found.tensors) {
    JsonObject item;
    item.set("name", tensor.name);
    item.set("type", tensor.type);
    JsonArray shape;
    for (const std::uint64_t dim : tensor.shape) shape.push_back(dim);
    item.set("shape", std::move(shape));
    item.set("bytes", tensor.bytes);
    item.set("file", tensor.file);
    item.set("offset", tensor.offset);
    list.push_back(std::move(item));
  }
  return list;
}

Json fit_json(const FitSummary& fit) {
  JsonObject object;
  object.set("device", fit.device);
  object.set("weights_bytes", fit.weights_bytes);
  object.set("kv_bytes_per_token", fit.kv_bytes_per_token);
  object.set("state_bytes_per_sequence", fit.state_bytes_per_sequence);
  object.set("context", fit.context);
  object.set("needed_bytes", fit.needed_bytes);
  object.set("available_bytes", fit.available_bytes);
  object.set("largest_context", fit.largest_context);
  object.set("fits", fit.fits);
  if (!fit.expert_store.empty()) {
    object.set("expert_bytes", fit.expert_bytes);
    object.set("host_available_bytes", fit.host_available_bytes);
    object.set("fits_without_experts", fit.fits_without_experts);
    object.set("expert_store", fit.expert_store);
  }
  return object;
}

Json counts_json(const Inspection& found) {
  JsonObject ignored;
  for (const auto& [reason, count] : found.ignored_tensors) ignored.set(reason, count);
  JsonObject counts;
  counts.set("total", found.total_tensors);
  counts.set("used", found.used_tensors);
  counts.set("ignored", std::move(ignored));
  counts.set("refused", found.refused_tensors);
  return counts;
}

Json inspection_json(const Inspection& found) {
  JsonObject object;
  object.set("name", found.name);
  object.set("architecture", found.architecture);
  object.set("container", found.container);
  object.set("dialect", found.dialect);
  object.set("runnable", found.runnable);
  object.set("parameters", found.parameters);
  object.set("layers", found.layers);
  object.set("mtp_layers", found.mtp_layers);
  object.set("context_length", found.context_length);
  object.set("vocab_size", found.vocab_size);
  if (found.experts) {
    JsonObject experts;
    experts.set("count", found.experts->first);
    experts.set("used", found.experts->second);
    object.set("experts", std::move(experts));
  } else {
    object.set("experts", Json());
  }
  object.set("tensors", counts_json(found));
  JsonArray warnings;
  for (const std::string& warning : found.warnings) warnings.push_back(warning);
  object.set("warnings", std::move(warnings));
  JsonArray problems;
  for (const Error& problem : found.problems) problems.push_back(problem.message);
  object.set("problems", std::move(problems));
  JsonObject formats;
  for (const auto& [name, use] : found.formats) {
    JsonObject entry;
    entry.set("tensors", use.tensors);
    entry.set("bytes", use.bytes);
    formats.set(name, std::move(entry));
  }
  object.set("formats", std::move(formats));
  if (found.fit) object.set("fit", fit_json(*found.fit));
  if (!found.tensors.empty()) object.set("tensor_list", tensors_json(found));
  return object;
}

void print_counts(const Inspection& found) {
  std::string line = fmt::format("tensors       {} total, {} used", found.total_tensors, found.used_tensors);
  for (const auto& [reason, count] : found.ignored_tensors) line += fmt::format(", {} ignored ({})", count, reason);
  if (found.refused_tensors > 0) line += fmt::format(", {} refused", found.refused_tensors);
  print(line + "\n");
  if (found.used_cache_scales > 0) {
    print(fmt::format("  {} of them scale the fp8 KV cache\n", found.used_cache_scales));
  } else if (const auto unused = found.ignored_tensors.find("kv-scale"); unused != found.ignored_tensors.end()) {
    print(fmt::format("  {} scales of a KV cache are read past: only --kv fp8 uses them\n", unused->second));
  }
  for (const auto& [name, use] : found.formats) {
    print(fmt::format("  {:<12} {:>8} weights  {:>12}\n", name, use.tensors, megabytes(use.bytes)));
  }
}

void print_fit(const FitSummary& fit) {
  print(fmt::format("fit           {} on {}: {} needed of {} available\n", fit.fits ? "fits" : "does not fit",
                    fit.device, megabytes(fit.needed_bytes), megabytes(fit.available_bytes)));
  print(fmt::format("  weights {}, cache {:.1f} KiB a token, context {} tokens, at most {}\n",
                    megabytes(fit.weights_bytes), static_cast<double>(fit.kv_bytes_per_token) / 1024.0, fit.context,
                    fit.largest_context));
  if (fit.expert_store.empty()) return;
  print(fmt::format(
      "  {} of experts {}, with a cache on the GPU: {}; the rest {}\n", megabytes(fit.expert_bytes),
      fit.expert_store == "file" ? "stay in the file" : "in host memory",
      fit.expert_store == "file"
          ? fmt::format("a copy doesn't fit into the {} available on the host", megabytes(fit.host_available_bytes))
          : fmt::format("{} are available on the host", megabytes(fit.host_available_bytes)),
      fit.fits_without_experts ? "fits (--experts hybrid)" : "does not fit"));
}

void print_inspection(const Inspection& found) {
  print(fmt::format("model         {}\n", found.name));
  print(fmt::format("architecture  {}{}\n", found.architecture,
                    found.runnable ? "" : " (can be inspected, not run, in this version)"));
  print(fmt::format("container     {} ({})\n", found.container, found.dialect));
  print(fmt::format("parameters    {:.3f} B, {} of weights\n", static_cast<double>(found.parameters) / 1e9,
                    megabytes(found.weight_bytes)));
  print(fmt::format("layers        {}{}\n", found.layers,
                    found.mtp_layers > 0 ? fmt::format(" and {} for multi-token prediction", found.mtp_layers) : ""));
  if (found.experts) print(fmt::format("experts       {}, {} a token\n", found.experts->first, found.experts->second));
  print(fmt::format("context       {} tokens\n", found.context_length));
  print(fmt::format("vocabulary    {} rows\n", found.vocab_size));
  print_counts(found);
  if (found.fit) print_fit(*found.fit);
  for (const TensorSummary& tensor : found.tensors) {
    print(fmt::format("{:<60} {:<8} {:<24} {:>12}  {}+{}\n", escape(tensor.name), tensor.type,
                      shape_words(tensor.shape), tensor.bytes, tensor.file, tensor.offset));
  }
}

/// All problems on stderr, the first as the error; exit status 65.
int report_problems(const Inspection& found) {
  constexpr std::size_t kShown = 10;
  Error first = with_context(found.problems.front(), found.name);
  if (found.problems.size() > 1) {
    first.message += fmt::format(" (and {} more)", found.problems.size() - 1);
  }
  for (std::size_t i = 1; i < found.problems.size() && i < kShown; ++i) warn(found.problems[i].message);
  report(first);
  return kExitBadInput;
}

int inspect_verb(InspectFlags& flags) {
  flags.options.model = flags.model;
  flags.options.allowed_roots.assign(flags.allow_root.begin(), flags.allow_root.end());
  const auto found = inspect(flags.options);
  if (!found) return report(found.error());
  if (flags.json) {
    print(to_json_text(inspection_json(*found), 1) + "\n");
  } else if (flags.explain) {
    print(explain(*found));
  } else {
    print_inspection(*found);
    for (const std::string& warning : found->warnings) warn(warning);
  }
  std::fflush(stdout);
  return found->problems.empty() ? kExitDone : report_problems(*found);
}

}  // namespace

VerbBody declare_inspect(CLI::App& app) {
  const auto flags = std::make_shared<InspectFlags>();
  InspectOptions& options = flags->options;
  add_model_argument(app, flags->model);
  app.add_flag("--tensors", options.list_tensors, "list all tensors");
  app.add_flag("--fit", options.fit, "plan the memory of a run");
  app.add_option("--device", options.device, "device of the plan")->capture_default_str();
  app.add_option("--kv", options.kv, "cache elements: bf16, f32 or fp8, which uses the cache scales of the file")
      ->capture_default_str();
  app.add_option("-c,--ctx", options.context, "context of the plan (default: the model's, at most 8192)")
      ->check(CLI::Range(0, 1 << 24));
  app.add_flag("--explain", flags->explain, "say step by step how the file becomes tokens");
  app.add_flag("--check", options.check_blocks, "read all weights and look for invalid codes and scales");
  app.add_flag("--lenient", options.lenient, "take tensors that no rule explains as warnings");
  app.add_option("--allow-root", flags->allow_root, "a folder that links in the model folder may lead into")
      ->option_text("DIR");
  app.add_flag("--json", flags->json, "print one JSON object");
  return [flags] { return inspect_verb(*flags); };
}

}  // namespace vernier::cli
