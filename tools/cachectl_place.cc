// Places found by serve's own rules.
#include "tools/cachectl_place.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "cachesvc/daemon/config.h"
#include "storage/file_names.h"
#include "storage/seal_key.h"
#include "tools/cachectl_print.h"

namespace kv::cachectl {
namespace {

namespace fs = std::filesystem;

// The Debian package's service.
constexpr const char* kPackageSocket = "/run/cachesvc/cachesvc.sock";
constexpr const char* kPackageDirectory = "/var/cache/cachesvc/store";

bool is_socket(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && S_ISSOCK(s.st_mode);
}

bool is_store(const std::string& directory) {
  std::error_code none;
  return fs::exists(directory + "/" + kLockFile, none);
}

// The process that listens at a socket; 0: none does.
class Listener {
 public:
  explicit Listener(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (path.size() >= sizeof(at.sun_path)) return;
    path.copy(at.sun_path, path.size());
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0) return;
    if (::getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) pid_ = peer.pid;
  }
  ~Listener() { ::close(fd_); }
  Listener(const Listener&) = delete;  // owns the descriptor
  Listener& operator=(const Listener&) = delete;
  int pid() const { return pid_; }

 private:
  int fd_;
  int pid_ = 0;
};

// The directory whose lock the process holds; empty: none that this user sees.
std::string directory_held_by(int pid) {
  std::error_code failed;
  const std::string end = std::string("/") + kLockFile;
  for (const auto& open : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", failed)) {
    const std::string path = fs::read_symlink(open.path(), failed).string();
    if (!failed && path.ends_with(end) && fs::equivalent(path, open.path(), failed)) {
      return path.substr(0, path.size() - end.size());
    }
  }
  return {};
}

Result<Place> default_place() {
  KV_ASSIGN_OR_RETURN(const Config config, load_config({}));
  Place place{config.server.socket, config.ssd_dir, config.key_file, {}};
  if (place.key_file == "ephemeral") place.key_file.clear();
  int pid = Listener(place.socket).pid();
  if (pid == 0) {
    pid = Listener(kPackageSocket).pid();
    place.socket = pid == 0 ? "" : kPackageSocket;
  }
  if (pid != 0) {
    const std::string held = directory_held_by(pid);
    if (!held.empty() || !is_store(place.directory)) place.directory = held;
  } else if (!is_store(place.directory) && is_store(kPackageDirectory)) {
    place.directory = kPackageDirectory;
  }
  place.found = place.socket.empty() ? "no daemon answers at " + config.server.socket
                                     : "the daemon at " + place.socket;
  return place;
}

}  // namespace

void add_place(CLI::App& verb, Given& given, const std::string& json) {
  verb.add_option(
      "PLACE", given.place,
      "a store's directory or a daemon's socket; default: where `cachesvc serve` listens "
      "or keeps its files");
  verb.add_option("--socket", given.socket, "the daemon's socket, instead of PLACE");
  verb.add_option("--dir", given.directory, "the store's directory, instead of PLACE");
  verb.add_option("--key-file", given.key_file, "the key of sealed files");
  if (!json.empty()) verb.add_flag("--json", given.json, json);
}

void take_operand(Given& given, std::string& operand, bool always) {
  if (!operand.empty() || given.place.empty()) return;
  std::error_code none;
  if (!always && (fs::is_directory(given.place, none) || is_socket(given.place))) return;
  operand = std::move(given.place);
  given.place.clear();
}

Result<Place> find_place(const Given& given) {
  Place place{given.socket, given.directory, given.key_file, {}};
  if (!given.place.empty() && is_socket(given.place)) place.socket = given.place;
  if (!given.place.empty() && place.socket.empty()) place.directory = given.place;
  if (place.socket.empty() && place.directory.empty()) {
    KV_ASSIGN_OR_RETURN(place, default_place());
    if (!given.key_file.empty()) place.key_file = given.key_file;
  }
  return place;
}

Result<std::string> directory_of(const Place& place) {
  if (!place.directory.empty()) return place.directory;
  const std::string held = directory_held_by(Listener(place.socket).pid());
  if (!held.empty()) return held;
  return Status(
      StatusCode::not_found,
      "the daemon at " + place.socket + " has no directory that this user sees: --dir names one");
}

void say_place(const Place& place) {
  if (place.found.empty()) return;
  std::fprintf(stderr, "cachectl: %s\n", printable(place.found).c_str());
}

Result<std::unique_ptr<SocketClient>> daemon_of(const Place& place, const std::string& ns) {
  if (place.socket.empty()) {
    return Status(StatusCode::not_found,
                  place.directory + ": this asks a running daemon, and that is a directory; " +
                      (place.found.empty() ? "" : place.found + "; ") + "--socket names one");
  }
  SocketClientOptions options;
  options.program = "cachectl";
  auto client = SocketClient::connect(place.socket, ns.empty() ? "cachectl" : ns, options);
  if (!client.ok() && client.status().code() == StatusCode::denied && ns.empty()) {
    client = SocketClient::connect(place.socket, "uid-" + std::to_string(::getuid()), options);
  }
  if (client.ok()) return client;
  return Status(client.status().code(), client.status().message() + "\nno daemon answers at " +
                                            place.socket + "; --socket names another one");
}

Result<Request> directory_request(const Given& given, Request request) {
  KV_ASSIGN_OR_RETURN(const Place place, find_place(given));
  request.json = given.json;
  request.socket = place.socket;
  KV_ASSIGN_OR_RETURN(request.directory, directory_of(place));
  if (!place.key_file.empty()) {
    KV_ASSIGN_OR_RETURN(request.key, read_key_file(place.key_file));
  }
  if (!place.found.empty()) {
    std::fprintf(stderr, "cachectl: %s; the directory %s\n", printable(place.found).c_str(),
                 printable(request.directory).c_str());
  }
  return request;
}

Exit on_directory(const Given& given, Request request, Run verb) {
  auto with = directory_request(given, std::move(request));
  if (with.ok()) return verb(*with);
  report_error(with.status());
  return with.status().code() == StatusCode::not_found ? Exit::not_found : Exit::usage;
}

}  // namespace kv::cachectl
