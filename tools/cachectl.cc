// cachectl: looks into a store's directory, offline or beside its daemon, and mends it offline;
// measures codings on a model. This file: the arguments.
#include "tools/cachectl.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "cachesvc/daemon/config_values.h"
#include "cachesvc/daemon/version.h"
#include "storage/seal_key.h"
#include "tools/cachectl_quality.h"
#include "tools/cachectl_status.h"
#include "tools/cachectl_why.h"

namespace kv::cachectl {
namespace {

using Run = Exit (*)(const Request&);

// The commands that remove something.
template <typename Command>
void add_removing(Request& request, Command command) {
  CLI::App* gc = command("gc",
                         "remove what serves nothing: quarantine, leftovers, unreachable "
                         "objects, unused profiles (no daemon may run)",
                         run_gc);
  gc->add_flag("--dry-run", request.dry_run, "only name it; safe beside a daemon");
  CLI::App* purge = command(
      "purge", "remove every trace of a namespace, and all of quarantine (no daemon may run)",
      run_purge);
  purge->add_option("NAMESPACE", request.ns, "whose objects, records and rows go")->required();
  purge->add_flag("--dry-run", request.dry_run, "only say how much it is; safe beside a daemon");
  CLI::App* remove = command(
      "delete",
      "remove one stored token sequence, and every block that no other one has (no daemon may run)",
      run_delete);
  remove->add_option("ID", request.id, "as `ls` names it, or its beginning")->required();
  remove->add_flag("--dry-run", request.dry_run, "only say how much it is; safe beside a daemon");
}

// The command that was most likely meant, on standard error.
void suggest(CLI::App& app, const std::string& given) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  const std::string meant = nearest(given, names);
  if (meant.empty() || meant == given) return;
  std::fprintf(stderr, "Did you mean `cachectl %s`?\n", meant.c_str());
}

int run(int argc, char** argv) {
  CLI::App app{
      "cachectl: looks into a store's directory (only verify --repair, reindex, gc, delete "
      "and purge change it), and measures codings on a model"};
  app.set_version_flag("--version", std::string("cachectl ") + kProgramVersion);
  app.require_subcommand(1);
  app.footer("exit codes: 0 ok, 1 damage or runtime error, 2 usage, 4 not found");
  Request request;
  std::function<Exit()> chosen;
  auto command = [&](const char* name, const char* what, Run function) {
    CLI::App* sub = app.add_subcommand(name, what);
    sub->add_option("DIR", request.directory, "the store's directory")->required();
    sub->add_flag("--json", request.json, "exact values for programs");
    sub->add_option("--key-file", request.key_file, "the key of sealed files");
    sub->callback([&chosen, &request, function] {
      chosen = [&request, function] { return function(request); };
    });
    return sub;
  };
  CLI::App* ls = command("ls", "the stored token sequences", run_ls);
  ls->add_flag("--blocks", request.blocks, "list files instead");
  ls->add_option("--namespace", request.ns, "only entries of this namespace");
  ls->add_option("--model", request.model, "only entries of a model of this name");
  ls->add_option("--sort", request.sort, "the most first: tokens, bytes or prefill")
      ->check(CLI::IsMember({"tokens", "bytes", "prefill"}));
  CLI::App* show = command("show", "one object: identity, path, planes, coding", run_show);
  show->add_option("ID", request.id, "its id, or a beginning that no other id has")->required();
  show->add_flag("--tokens", request.tokens, "also the token ids (they reveal the prompt)");
  CLI::App* verify =
      command("verify", "read every byte of every file; name the damaged ones", run_verify);
  verify->add_flag("--deep", request.deep, "also unpack everything and check every value");
  verify->add_flag(
      "--repair", request.repair,
      "move damaged files to quarantine and make the catalog agree (no daemon may run)");
  command("reindex", "write the catalog anew from the files' headers (no daemon may run)",
          run_reindex);
  add_removing(request, command);
  command("stats", "totals of the directory, and per model", run_stats);
  CLI::App* counters = app.add_subcommand(
      "counters", "what a running daemon counts: hits, spills, bytes written, recovery");
  counters->add_option("SOCKET", request.socket, "where it listens")->required();
  counters->add_flag("--json", request.json, "for programs");
  counters->callback([&] { chosen = [&request] { return run_counters(request); }; });
  add_status(app, chosen);
  add_doctor(app, chosen);
  add_why(app, chosen);
  add_kinds(app, chosen);
  add_quality(app, chosen);
  add_tune(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return 0;
    if (argc > 1) suggest(app, argv[1]);
    return static_cast<int>(Exit::usage);
  }
  if (!request.key_file.empty()) {
    auto key = read_key_file(request.key_file);
    if (!key.ok()) {
      std::fprintf(stderr, "cachectl: %s\n", key.status().message().c_str());
      return static_cast<int>(Exit::usage);
    }
    request.key = *key;
  }
  Exit code = chosen();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("cachectl: standard output can't be written\n", stderr);
    return static_cast<int>(Exit::failed);
  }
  return static_cast<int>(code);
}

}  // namespace
}  // namespace kv::cachectl

int main(int argc, char** argv) { return kv::cachectl::run(argc, argv); }
