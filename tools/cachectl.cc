// cachectl: looks into a store's directory, offline or beside its daemon, and mends it offline;
// measures codings on a model. This file: the arguments.
#include "tools/cachectl.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "cachesvc/daemon/config_values.h"
#include "cachesvc/daemon/version.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_quality.h"
#include "tools/cachectl_status.h"
#include "tools/cachectl_why.h"

namespace kv::cachectl {
namespace {

constexpr const char* kFooter =
    "PLACE is a store's directory or a daemon's socket. Without one it is the daemon that answers "
    "where `cachesvc serve` would listen here, by the same settings, else the directory that it "
    "would use; standard error names it.\n"
    "exit codes: 0 ok, 1 damage or runtime error, 2 usage, 4 not found";

// Verbs on a directory, and their arguments.
class Verbs {
 public:
  Verbs(CLI::App& app, std::function<Exit()>& chosen) : app_(app), chosen_(chosen) {}

  void add_looking() {
    CLI::App* ls = verb("ls", "the stored token sequences", run_ls);
    ls->add_flag("--blocks", request_.blocks, "list files instead");
    ls->add_option("--namespace", request_.ns, "only entries of this namespace");
    ls->add_option("--model", request_.model, "only entries of a model of this name");
    ls->add_option("--sort", request_.sort,
                   "the most first: tokens, bytes or prefill; or written, the newest first")
        ->check(CLI::IsMember({"tokens", "bytes", "prefill", "written"}));
    CLI::App* show = verb("show", "one object: identity, path, planes, coding", run_show,
                          request_.id, "ID", "its id, or a beginning that no other id has");
    show->add_flag("--tokens", request_.tokens, "also the token ids (they reveal the prompt)");
    CLI::App* verify =
        verb("verify", "read every byte of every file; name the damaged ones", run_verify);
    verify->add_flag("--deep", request_.deep, "also unpack everything and check every value");
    verify->add_flag(
        "--repair", request_.repair,
        "move damaged files to quarantine and make the catalog agree (no daemon may run)");
    verb("stats", "totals of the directory, and per model", run_stats);
  }

  void add_changing() {
    verb("reindex", "write the catalog anew from the files' headers (no daemon may run)",
         run_reindex);
    dry(verb("gc",
             "remove what serves nothing: quarantine, leftovers, unreachable objects, unused "
             "profiles (no daemon may run)",
             run_gc),
        "only name it; safe beside a daemon");
    dry(verb(
            "purge",
            "remove every trace of a namespace, and all of quarantine; of a running daemon all but "
            "quarantine",
            run_purge, request_.ns, "NAMESPACE", "whose objects, records and rows go"),
        "only say how much it is; safe beside a daemon");
    dry(verb("delete", "remove one stored token sequence, and every block that no other one has",
             run_delete, request_.id, "ID", "as `ls` names it, or its beginning"),
        "only say how much it is; safe beside a daemon");
  }

 private:
  CLI::App* verb(const char* name, const char* about, Run function) {
    CLI::App* sub = app_.add_subcommand(name, about);
    add_place(*sub, given_, "exact values for programs");
    sub->callback([this, function] {
      chosen_ = [this, function] { return on_directory(given_, request_, function); };
    });
    return sub;
  }
  CLI::App* verb(const char* name, const char* about, Run function, std::string& operand,
                 const char* operand_name, const char* text) {
    CLI::App* sub = verb(name, about, function);
    sub->add_option(operand_name, operand, text);
    sub->callback([this, function, &operand, operand_name] {
      take_operand(given_, operand, true);
      if (operand.empty()) throw CLI::RequiredError(operand_name);
      chosen_ = [this, function] { return on_directory(given_, request_, function); };
    });
    return sub;
  }
  void dry(CLI::App* sub, const char* text) { sub->add_flag("--dry-run", request_.dry_run, text); }

  CLI::App& app_;
  std::function<Exit()>& chosen_;
  Given given_;
  Request request_;
};

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
      "cachectl: looks into a store's directory and at its daemon (only verify --repair, reindex, "
      "gc, delete and purge change the directory), and measures codings on a model"};
  app.set_version_flag("--version", std::string("cachectl ") + kProgramVersion);
  app.require_subcommand(1);
  app.footer(kFooter);
  std::function<Exit()> chosen;
  Verbs verbs(app, chosen);
  add_status(app, chosen);
  add_top(app, chosen);
  add_why(app, chosen);
  add_doctor(app, chosen);
  add_try(app, chosen);
  verbs.add_looking();
  add_tree(app, chosen);
  add_counters(app, chosen);
  verbs.add_changing();
  add_export(app, chosen);
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
