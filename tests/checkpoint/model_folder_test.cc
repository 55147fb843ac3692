// Which files of a folder may be opened: plain names, regular files, links within allowed roots.
#include "checkpoint/model_folder.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "support/bytes.h"
#include "support/expect_error.h"

namespace vernier {
namespace {

namespace fs = std::filesystem;
using test::fails_with;
using test::save;
using test::TempFolder;

Result<std::shared_ptr<const MappedFile>> map_in(const fs::path& folder, std::string_view name,
                                                 const OpenOptions& options = {}) {
  auto opened = ModelFolder::open(folder, options);
  if (!opened) return tl::unexpected(opened.error());
  return opened->map(name);
}

TEST(ModelFolder, MapsPlainFiles) {
  const TempFolder folder;
  save(folder / "a.json", "{}");
  const auto file = map_in(folder.path(), "a.json");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text_of(*file), "{}");
  EXPECT_EQ((*file)->name(), "a.json");
  const auto missing = map_in(folder.path(), "b.json");
  EXPECT_TRUE(fails_with(missing, {"b.json", "no such file"}));
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(ModelFolder, C41NamesThatAreNotPlain) {
  const TempFolder folder;
  save(folder / "a", "x");
  for (const std::string& name :
       {std::string("../a"), std::string("/etc/passwd"), std::string("b\\a"), std::string("C:a"), std::string("c:\\a"),
        std::string("a\0b", 3), std::string(), std::string("."), std::string(".."), std::string("sub/a"),
        std::string("a\n"), std::string("./a"), std::string("a\xff")}) {
    EXPECT_TRUE(fails_with(map_in(folder.path(), name), {"must be a plain file name in the model folder"})) << name;
  }
}

TEST(ModelFolder, C41ThingsThatAreNotRegularFiles) {
  const TempFolder folder;
  fs::create_directory(folder / "dir");
  EXPECT_TRUE(fails_with(map_in(folder.path(), "dir"), {"dir: not a regular file"}));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_TRUE(fails_with(map_in(folder.path(), "fifo"), {"fifo: not a regular file"}));
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = (folder / "socket").string();
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::copy(path.begin(), path.end(), address.sun_path);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_FALSE(map_in(folder.path(), "socket"));
  close(fd);
  fs::create_symlink("/dev/zero", folder / "device");
  EXPECT_FALSE(map_in(folder.path(), "device", {.allowed_roots = {"/dev"}}));
}

TEST(ModelFolder, C42LinksOutOfTheFolder) {
  const TempFolder outside;
  const TempFolder folder;
  save(outside / "secret", "x");
  save(folder / "inside", "y");
  fs::create_symlink(outside / "secret", folder / "out");
  fs::create_symlink("inside", folder / "in");
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_TRUE(fails_with(map_in(folder.path(), "out"), {"symbolic link out of the model folder", "--allow-root"}));
  EXPECT_TRUE(map_in(folder.path(), "in"));
  EXPECT_TRUE(map_in(folder.path(), "out", {.allowed_roots = {outside.path()}}));
  EXPECT_TRUE(fails_with(map_in(folder.path(), "dangling"), {"doesn't exist"}));
  EXPECT_FALSE(map_in(folder.path(), "loop"));
  // A folder whose name merely begins like the allowed one.
  const fs::path longer = outside.path().string() + "-more";
  fs::create_directory(longer);
  save(longer / "secret", "z");
  fs::create_symlink(longer / "secret", folder / "prefix");
  EXPECT_FALSE(map_in(folder.path(), "prefix", {.allowed_roots = {outside.path()}}));
  fs::remove_all(longer);
  EXPECT_TRUE(fails_with(map_in(folder.path(), "in", {.allowed_roots = {"/no/such/root"}}), {"allowed root"}));
}

TEST(ModelFolder, C42HubCaches) {
  const TempFolder hub;
  const fs::path snapshot = hub / "models--org--name/snapshots/0123abc";
  const fs::path blobs = hub / "models--org--name/blobs";
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  save(blobs / "d1ge57", "{}");
  fs::create_symlink("../../blobs/d1ge57", snapshot / "config.json");
  const auto file = map_in(snapshot, "config.json");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->name(), "config.json");  // not the blob's
  // Through a link to the snapshot, too.
  fs::create_directory_symlink(snapshot, hub / "link");
  EXPECT_TRUE(map_in(hub / "link", "config.json"));
  // Elsewhere in the cache isn't allowed.
  save(hub / "models--org--name/other", "x");
  fs::create_symlink("../../other", snapshot / "other");
  EXPECT_FALSE(map_in(snapshot, "other"));
}

TEST(ModelFolder, C42BlobsFolderThatIsALinkProvesNothing) {
  const TempFolder outside;
  const TempFolder hub;
  save(outside / "secret", "x");
  fs::create_directories(hub / "snapshots/1");
  fs::create_directory_symlink(outside.path(), hub / "blobs");
  fs::create_symlink("../../blobs/secret", hub / "snapshots/1/config.json");
  EXPECT_FALSE(map_in(hub / "snapshots/1", "config.json"));
}

TEST(ModelFolder, SideFilesHaveLimits) {
  const TempFolder folder;
  OpenOptions options;
  options.limits.config_bytes = 10;
  const auto opened = ModelFolder::open(folder.path(), options);
  ASSERT_TRUE(opened);
  EXPECT_EQ(*opened->side_file(SideFile::kConfig), nullptr);
  save(folder / "config.json", "{}");
  EXPECT_EQ(text_of(*opened->side_file(SideFile::kConfig)), "{}");
  save(folder / "config.json", "{          }");
  EXPECT_TRUE(fails_with(opened->side_file(SideFile::kConfig), {"config.json", "12 bytes exceed the limit of 10"}));
}

TEST(ModelFolder, ListsTheTopFolderAlone) {
  const TempFolder folder;
  fs::create_directories(folder / "original");
  fs::create_directories(folder / "dir.safetensors");
  save(folder / "original/x.safetensors", "");
  save(folder / "b.safetensors", "");
  save(folder / "a.safetensors", "");
  save(folder / "a.txt", "");
  const auto opened = ModelFolder::open(folder.path(), {});
  ASSERT_TRUE(opened);
  EXPECT_EQ(*opened->list(".safetensors"), (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
  EXPECT_TRUE(fails_with(ModelFolder::open(folder / "a.txt", {}), {"not a folder"}));
  EXPECT_TRUE(fails_with(ModelFolder::open(folder / "nothing", {}), {"no such folder"}));
}

}  // namespace
}  // namespace vernier
