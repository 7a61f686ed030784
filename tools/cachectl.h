// cachectl: what its commands share. Each command has a file of its own, cachectl_<command>.cc.
//
// cachectl reads a store's directory through storage/inspect.h and never creates, locks or changes
// anything in it, so it works beside a running daemon. Five commands change it: `verify --repair`,
// `reindex`, and `delete`, `purge` and `gc` without --dry-run. They take the directory's lock and
// are refused beside a daemon. One thread.
#pragma once

#include <memory>
#include <string>

namespace kv {
class SealKey;
}

namespace kv::cachectl {

/// The process's exit codes, part of the interface.
enum class Exit : int {
  ok = 0,
  failed = 1,     ///< damage was found, or a runtime error
  usage = 2,      ///< wrong arguments, an ambiguous id among them
  not_found = 4,  ///< no such store, or no such id in it
};

/// The place that a verb is to look at, and how.
struct Given {
  std::string place, socket, directory;  ///< as named; all empty: to be found (cachectl_place.h)
  std::string key_file;                  ///< opens sealed files; empty: they are left alone
  bool json = false;                     ///< exact values for programs
};

/// A verb on a directory.
struct Request {
  std::string directory;
  std::string socket;  ///< a daemon's that has it; empty: none is known
  std::string id;      ///< show, delete: an id or the beginning of one
  std::string ns;      ///< purge: the namespace; ls: only its entries
  std::string model;   ///< ls: only entries of a model of this name
  std::string sort;    ///< ls: by tokens, bytes or prefill; empty: by namespace, model and id
  std::shared_ptr<const SealKey>
      key;               ///< opens sealed files; null: they are counted and left alone
  bool json = false;     ///< exact bytes for programs instead of a table for people
  bool blocks = false;   ///< ls: files instead of entries
  bool tokens = false;   ///< show: also the token ids, which reveal the prompt
  bool deep = false;     ///< verify: unpack and check values too
  bool repair = false;   ///< verify: move damaged files to quarantine
  bool dry_run = false;  ///< gc, purge, delete: only say what would go
};

/// Results go to standard output, errors and remarks to standard error.
Exit run_ls(const Request& request);
Exit run_show(const Request& request);
Exit run_verify(const Request& request);
Exit run_reindex(const Request& request);
Exit run_gc(const Request& request);
Exit run_purge(const Request& request);
Exit run_delete(const Request& request);
Exit run_stats(const Request& request);

}  // namespace kv::cachectl
