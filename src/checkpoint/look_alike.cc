#include "checkpoint/look_alike.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace vernier {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kDownloadFailed = "the download probably failed: fetch the file again";
constexpr std::string_view kConvertPickle = "pickle is never loaded; convert to safetensors";

struct LookAlike {
  std::string_view begins_with;  // compared without regard to case
  std::string_view what;
  std::string_view hint;
};

constexpr std::array kLookAlikes = {
    LookAlike{"version https://git-lfs"sv, "a Git-LFS pointer, not the file it points to", "run `git lfs pull`"},
    LookAlike{"<!doctype html"sv, "an HTML page", kDownloadFailed},
    LookAlike{"<html"sv, "an HTML page", kDownloadFailed},
    LookAlike{"<?xml"sv, "an XML page", kDownloadFailed},
    LookAlike{"{\"error\""sv, "the error answer of a server", kDownloadFailed},
    LookAlike{"PK\x03\x04"sv, "a zip archive or PyTorch checkpoint", kConvertPickle},
    LookAlike{"\x80\x02"sv, "a Python pickle", kConvertPickle},
    LookAlike{"\x80\x03"sv, "a Python pickle", kConvertPickle},
    LookAlike{"\x80\x04"sv, "a Python pickle", kConvertPickle},
    LookAlike{"\x80\x05"sv, "a Python pickle", kConvertPickle},
    LookAlike{"\x1f\x8b"sv, "a gzip archive", "unpack it first"},
    LookAlike{"\x28\xb5\x2f\xfd"sv, "a zstd archive", "unpack it first"},
    LookAlike{"\xfd\x37zXZ"sv, "an xz archive", "unpack it first"},
    LookAlike{"tjgg"sv, "a GGJT file, the predecessor of GGUF", "convert the original checkpoint to GGUF"},
    LookAlike{"lmgg"sv, "a GGML file, the predecessor of GGUF", "convert the original checkpoint to GGUF"},
    LookAlike{"fmgg"sv, "a GGMF file, the predecessor of GGUF", "convert the original checkpoint to GGUF"},
    LookAlike{"\x89HDF\r\n"sv, "an HDF5 file", "convert to safetensors"},
    LookAlike{"\x93NUMPY"sv, "a NumPy array", "convert to safetensors"},
    LookAlike{"GGUF"sv, "a GGUF file", "name it .gguf"},
};

bool begins_with(std::string_view text, std::string_view prefix) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(), [&](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

bool has_gguf_magic(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 4));
  return head == "GGUF" || head == "FUGG";
}

std::optional<Error> look_alike_error(std::string_view expected, std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 256));
  // Web pages often begin with blank lines.
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  for (const LookAlike& known : kLookAlikes) {
    if (!begins_with(text, known.begins_with)) continue;
    return Error{ErrorCode::kUnsupported, fmt::format("not {}; looks like {}", expected, known.what),
                 std::string(known.hint)};
  }
  return std::nullopt;
}

}  // namespace vernier
