// `vernier perplexity`: how well a model predicts a text, and how far its predictions are from those of another.
// What is computed, and the file between two runs, are described in docs/perplexity.md.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string_view>

#include "base/utf8.h"
#include "cli/interrupt.h"
#include "cli/logit_file.h"
#include "cli/logit_stats.h"
#include "cli/model_flags.h"
#include "cli/perplexity_result.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/verb.h"

namespace vernier::cli {
namespace {

constexpr std::int32_t kDefaultWindow = 512;
constexpr std::int32_t kSmallestWindow = 4;
constexpr std::int32_t kScoreRows = 64;

struct PerplexityFlags {
  ModelFlags model;
  std::string file;
  std::optional<std::string> ids;
  std::int32_t chunks = 0;
  std::string save;
  std::string against;
  bool json = false;
};

// --- the text --------------------------------------------------------------------------------------------------------

Status check_text(std::string_view text, const std::string& name) {
  if (text.empty()) return fail(ErrorCode::kCorrupt, "{}: the text is empty", name);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = decode_utf8(text, at);
    if (!next.valid || next.code_point == 0) {
      return fail_with_hint(ErrorCode::kCorrupt, "perplexity is that of a text: give a UTF-8 file",
                            "{}: not a text: byte {:#04x} at offset {}", name, static_cast<unsigned char>(text[at]),
                            at);
    }
    at += next.size;
  }
  return {};
}

/// The token that the tokenizer puts in front of a text, if it does.
std::optional<std::int32_t> leading_token(const Engine& engine) {
  const auto with = engine.tokenize("a", /*add_special=*/true, /*parse_special=*/false);
  const auto without = engine.tokenize("a", /*add_special=*/false, /*parse_special=*/false);
  if (!with || !without || with->size() <= without->size() || with->front() == without->front()) return std::nullopt;
  return with->front();
}

struct TextIds {
  std::vector<std::int32_t> ids;
  std::optional<std::int32_t> bos;
};

Result<TextIds> text_ids(const PerplexityFlags& flags, const Engine& engine) {
  if (flags.ids) {
    VN_ASSIGN(std::vector<std::int32_t> ids, parse_ids(*flags.ids));
    return TextIds{std::move(ids), std::nullopt};
  }
  VN_ASSIGN(const std::string text, read_text(flags.file));
  VN_TRY(check_text(text, flags.file == "-" ? "standard input" : escape(flags.file)));
  auto ids = engine.tokenize(text, /*add_special=*/true, /*parse_special=*/false);
  if (!ids) return tl::unexpected(ids.error());
  return TextIds{std::move(*ids), leading_token(engine)};
}

Result<std::vector<std::vector<std::int32_t>>> cut_windows(const TextIds& text, std::size_t window) {
  if (text.ids.size() < window) {
    return fail_with_hint(ErrorCode::kInvalidArgument, "give a longer text or a smaller window with --ctx",
                          "the text has {} tokens, a window {}", text.ids.size(), window);
  }
  std::vector<std::vector<std::int32_t>> windows;
  for (auto at = text.ids.begin(); text.ids.end() - at >= static_cast<std::ptrdiff_t>(window);
       at += static_cast<std::ptrdiff_t>(window)) {
    windows.emplace_back(at, at + static_cast<std::ptrdiff_t>(window));
    if (text.bos) windows.back().front() = *text.bos;
  }
  return windows;
}

/// FNV-1a over the texts of all tokens, so that two files of logits can tell whether they speak of the same tokens.
std::uint64_t vocabulary_hash(const Engine& engine) {
  if (!engine.tokenize("a", false, false)) return 0;
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (std::int32_t id = 0; id < engine.info().vocab_size; ++id) {
    for (const char byte : engine.detokenize(std::span(&id, 1), /*skip_special=*/false)) {
      add(static_cast<unsigned char>(byte));
    }
    add(0xff);  // in no UTF-8 text
  }
  return hash == 0 ? 1 : hash;
}

// --- the base --------------------------------------------------------------------------------------------------------

Status check_base(const LogitFile& base, const Engine& engine) {
  const LogitHeader& header = base.header();
  if (header.vocab_size != static_cast<std::uint64_t>(engine.info().vocab_size)) {
    return fail(ErrorCode::kCorrupt, "{}: the base ({}) has {} logits a row, the model {}", base.name(),
                escape(header.model), header.vocab_size, engine.info().vocab_size);
  }
  const std::uint64_t vocabulary = vocabulary_hash(engine);
  if (header.vocabulary != 0 && vocabulary != 0 && header.vocabulary != vocabulary) {
    return fail(ErrorCode::kCorrupt, "{}: the base ({}) has another vocabulary than the model", base.name(),
                escape(header.model));
  }
  return {};
}

/// With a text beside the base: both must have the same tokens.
Status check_same_tokens(const LogitFile& base, const std::vector<std::vector<std::int32_t>>& windows) {
  const std::size_t common = std::min<std::size_t>(windows.size(), base.header().num_windows);
  for (std::size_t i = 0; i < common; ++i) {
    if (base.ids(static_cast<std::uint32_t>(i)) != windows[i]) {
      return fail_with_hint(ErrorCode::kCorrupt, "the tokens are in the base's file: leave out -f",
                            "{}: window {} of the text has other tokens than the base's", base.name(), i);
    }
  }
  return {};
}

Result<std::vector<std::vector<std::int32_t>>> choose_windows(const PerplexityFlags& flags, const Engine& engine,
                                                              const LogitFile* base, std::size_t window) {
  std::vector<std::vector<std::int32_t>> windows;
  if (!flags.file.empty() || flags.ids) {
    VN_ASSIGN(const TextIds text, text_ids(flags, engine));
    VN_ASSIGN(windows, cut_windows(text, window));
    if (base != nullptr) VN_TRY(check_same_tokens(*base, windows));
    if (base != nullptr) windows.resize(std::min<std::size_t>(windows.size(), base->header().num_windows));
  } else {
    for (std::uint32_t i = 0; i < base->header().num_windows; ++i) windows.push_back(base->ids(i));
  }
  if (flags.chunks > 0) windows.resize(std::min(windows.size(), static_cast<std::size_t>(flags.chunks)));
  return windows;
}

// --- scoring ---------------------------------------------------------------------------------------------------------

/// What a row of logits is held against and kept in.
struct RowSinks {
  const LogitFile* base = nullptr;
  LogitWriter* writer = nullptr;
};

Status score_row(std::size_t row, std::span<const float> logits, const RowSinks& sinks, Scores& scores) {
  const auto next = scores.windows[scores.done][row + 1];
  const std::vector<double> log_probs = log_softmax(logits);
  const double nll = -log_probs[static_cast<std::size_t>(next)];
  if (!std::isfinite(nll) || !std::isfinite(log_probs[0])) {
    return fail(ErrorCode::kCorrupt, "window {}: the logits behind token {} are not finite", scores.done, row);
  }
  scores.nll.push_back(nll);
  if (sinks.writer != nullptr) VN_TRY(sinks.writer->add_row(log_probs, next));
  if (sinks.base != nullptr) {
    VN_ASSIGN(const LogitFile::Row expected,
              sinks.base->row(static_cast<std::uint32_t>(scores.done), static_cast<std::uint32_t>(row - scores.first)));
    scores.base_nll.push_back(-expected.next);
    scores.kl.push_back(divergence(expected.log_probs, log_probs));
    scores.same_top += likeliest(expected.log_probs) == likeliest(log_probs) ? 1 : 0;
  }
  return {};
}

Status score_window(Engine& engine, const RowSinks& sinks, Scores& scores) {
  const std::vector<std::int32_t>& ids = scores.windows[scores.done];
  if (sinks.writer != nullptr) VN_TRY(sinks.writer->begin_window(ids));
  Status status;
  const auto error = engine.score(
      ids,
      [&](std::size_t row, std::span<const float> logits) {
        // The last row predicts what the window doesn't hold.
        if (status && row + 1 < ids.size()) status = score_row(row, logits, sinks, scores);
      },
      scores.first);
  if (error) return tl::unexpected(*error);
  VN_TRY(std::move(status));
  ++scores.done;
  return {};
}

/// The running estimate, on stderr: one line that changes on a terminal, else a line now and then.
class Progress {
 public:
  explicit Progress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {}
  void show(const Scores& scores) {
    const auto now = std::chrono::steady_clock::now();
    const bool last = scores.done == scores.windows.size();
    if (quiet_ || (!last && now - shown_ < std::chrono::seconds(terminal_ ? 0 : 2))) return;
    shown_ = now;
    std::fprintf(stderr, "%swindow %zu of %zu: PPL %s%s", terminal_ ? "\r" : "", scores.done, scores.windows.size(),
                 perplexity_text(mean_of(scores.nll)).c_str(), terminal_ && !last ? "" : "\n");
  }

 private:
  bool quiet_;
  bool terminal_;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

/// Scores all windows, or those until Ctrl-C.
Status score_all(Engine& engine, const RowSinks& sinks, bool quiet, Scores& scores) {
  const InterruptScope interrupt;
  Progress progress(quiet);
  while (scores.done < scores.windows.size() && !InterruptScope::raised()) {
    VN_TRY(score_window(engine, sinks, scores));
    progress.show(scores);
  }
  if (scores.done == 0) return fail(ErrorCode::kCancelled, "interrupted before the first window was done");
  return {};
}

// --- the verb --------------------------------------------------------------------------------------------------------

Status check_flags(const PerplexityFlags& flags) {
  const bool text = !flags.file.empty();
  if (text && flags.ids) return fail(ErrorCode::kInvalidArgument, "give one of -f and --ids");
  if (!text && !flags.ids && flags.against.empty()) {
    return fail(ErrorCode::kInvalidArgument, "give a text with -f, token ids with --ids, or a base with --kl-against");
  }
  if (flags.chunks < 0)
    return fail(ErrorCode::kInvalidArgument, "--chunks must not be negative, found {}", flags.chunks);
  const std::int32_t window = flags.model.engine.context;
  if (window != 0 && window < kSmallestWindow) {
    return fail(ErrorCode::kInvalidArgument, "--ctx must be at least {}, found {}", kSmallestWindow, window);
  }
  return {};
}

/// The window: as asked, the base's, or the default where the model can do it.
Result<std::size_t> choose_window(const PerplexityFlags& flags, const Engine& engine, const LogitFile* base) {
  const std::int32_t asked = flags.model.engine.context;
  if (base != nullptr) {
    const LogitHeader& header = base->header();
    if (asked != 0 && static_cast<std::uint32_t>(asked) != header.window) {
      return fail(ErrorCode::kInvalidArgument, "{} has windows of {} tokens, --ctx asks for {}", base->name(),
                  header.window, asked);
    }
    return header.window;
  }
  if (asked != 0) return static_cast<std::size_t>(asked);
  return static_cast<std::size_t>(std::min<std::int64_t>(kDefaultWindow, engine.info().context_length));
}

/// Returns whether all windows were scored.
Result<bool> perplexity(const PerplexityFlags& flags) {
  VN_TRY(check_flags(flags));
  std::optional<LogitFile> base;
  if (!flags.against.empty()) {
    VN_ASSIGN(auto file, MappedFile::open(flags.against));
    VN_ASSIGN(base, LogitFile::open(std::move(file)));
  }
  const LogitFile* against = base ? &*base : nullptr;
  ModelFlags model = flags.model;
  model.engine.score_rows = kScoreRows;
  if (model.engine.context == 0) {
    // Larger windows than the engine takes are refused there.
    const std::uint32_t window = base ? base->header().window : kDefaultWindow;
    model.engine.context = static_cast<std::int32_t>(window);
  }
  auto opened = model.open();
  if (!opened) return tl::unexpected(opened.error());
  Engine& engine = **opened;
  if (base) VN_TRY(check_base(*base, engine));
  VN_ASSIGN(const std::size_t window, choose_window(flags, engine, against));
  Scores scores;
  scores.first = base ? base->header().first : window / 2;
  VN_ASSIGN(scores.windows, choose_windows(flags, engine, against, window));

  std::optional<LogitWriter> writer;
  if (!flags.save.empty()) {
    const ModelInfo& info = engine.info();
    LogitHeader header;
    header.vocab_size = static_cast<std::uint32_t>(info.vocab_size);
    header.window = static_cast<std::uint32_t>(window);
    header.first = static_cast<std::uint32_t>(scores.first);
    header.vocabulary = vocabulary_hash(engine);
    header.model = fmt::format("{}, {}, {}", info.name, info.architecture, info.precision);
    VN_ASSIGN(writer, LogitWriter::create(flags.save, std::move(header)));
  }
  VN_TRY(score_all(engine, {against, writer ? &*writer : nullptr}, flags.model.quiet, scores));
  if (writer) VN_TRY(writer->finish(static_cast<std::uint32_t>(scores.done)));
  const std::string* base_model = base ? &base->header().model : nullptr;
  if (flags.json) {
    print(to_json_text(result_json(scores, engine.info(), base_model), 1) + "\n");
  } else {
    print_result(scores, base_model);
  }
  return scores.done == scores.windows.size();
}

}  // namespace

VerbBody declare_perplexity(CLI::App& app) {
  const auto flags = std::make_shared<PerplexityFlags>();
  add_model_flags(app, flags->model);
  app.get_option("--ctx")->description("tokens of a window (default 512)");
  app.add_option("-f,--file", flags->file, "the text, UTF-8 ('-': standard input)")->option_text("FILE");
  app.add_option("--ids", flags->ids, "token ids instead of a text, taken as they are")->option_text("1,2,3");
  app.add_option("--chunks", flags->chunks, "only so many windows, from the text's beginning")->option_text("N");
  app.add_option("--save-logits", flags->save, "write all log-probabilities to FILE, for --kl-against")
      ->option_text("FILE");
  app.add_option("--kl-against", flags->against,
                 "compare with the log-probabilities of FILE, on the tokens in it: KL divergence, same top, delta PPL")
      ->option_text("FILE");
  app.add_flag("--json", flags->json, "print one JSON object");
  app.footer(
      "The text is tokenized as a whole (special tokens in it are text) and cut into windows of --ctx tokens; what is\n"
      "left over is not used. Each window runs by itself. Where the tokenizer puts BOS in front of texts, the first "
      "token\n"
      "of each window is replaced by it. The second half of a window is scored, tokens ctx/2 + 1 to ctx - 1 counted "
      "from\n"
      "0, each given all in front of it in the window. PPL is exp of their mean negative log-probability, as "
      "llama.cpp\n"
      "computes it; +/- is PPL times the standard error of that mean. KL divergences are in nats, from the base to "
      "the\n"
      "model. Ctrl-C ends with the estimate so far and status 130.");
  return [flags] {
    const auto all = perplexity(*flags);
    if (!all) return report(all.error());
    return *all ? kExitDone : kExitInterrupted;
  };
}

}  // namespace vernier::cli
