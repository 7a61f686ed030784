// Rows: the columns of an object in the order of the schema, plain or sealed.
#include "storage/catalog_row.h"

#include <cstring>

#include "proto/identity.h"
#include "storage/catalog_columns.h"
#include "storage/file_names.h"

namespace kv {
namespace {

const std::string kNothing;

void read_tokens(std::span<const uint8_t> blob, Columns& columns, std::vector<Token>& out) {
  if (blob.size() % sizeof(Token) != 0 || blob.size() > kMaxBlockTokens * sizeof(Token)) {
    columns.fail();
    return;
  }
  out.resize(blob.size() / sizeof(Token));
  if (!out.empty()) std::memcpy(out.data(), blob.data(), blob.size());
}

// The same encoding as in an object header: count, then position and bytes of each.
std::vector<uint8_t> encode_extras(const std::vector<Extra>& extras) {
  ByteWriter out;
  out.u32(static_cast<uint32_t>(extras.size()));
  for (const auto& e : extras) {
    out.u32(e.position);
    out.blob(e.bytes);
  }
  return out.take();
}

void read_extras(std::span<const uint8_t> blob, Columns& columns, std::vector<Extra>& out) {
  ByteReader in(blob);
  uint32_t count = in.u32();
  if (count > kMaxExtras) in.fail();
  for (uint32_t i = 0; i < count && !in.failed(); ++i) {
    uint32_t position = in.u32();
    auto bytes = in.blob(kMaxExtraBytes);
    out.push_back({position, {bytes.begin(), bytes.end()}});
  }
  if (!in.done()) columns.fail();
}

// Parent to extras. A sealed row has its value in place of the tokens, and nothing in place of the
// extras, of which a plain row has a count at least. Returns: false if it can't be opened.
bool read_fields(Columns& columns, Object& o, SealedRows* sealed, const std::string& file) {
  Columns plain = columns;
  columns.skip(5);
  auto tokens = columns.blob(), extras = columns.blob();
  if (extras.empty()) {
    return sealed != nullptr && sealed->open(file, tokens, o).ok();
  }
  o.parent = plain.id();
  o.profile = plain.id();
  plain.text(o.ns);
  o.fingerprint = plain.id();
  o.first_token = plain.number<uint32_t>();
  read_tokens(tokens, plain, o.tokens);
  read_extras(extras, plain, o.extras);
  if (!plain.ok()) columns.fail();
  return true;
}

// Bits of a note's first byte.
constexpr uint8_t kNamedEnd = 1, kWords = 2, kSealedWords = 4, kExpires = 8;
constexpr std::string_view kNoteWords = " words";  // no file's name goes on so

// A note is advice: of one that can't be read, what can be is taken.
ObjectNote read_note(std::span<const uint8_t> blob, SealedRows* sealed, const std::string& file) {
  ObjectNote note;
  if (blob.empty()) return note;
  note.named_end = (blob[0] & kNamedEnd) != 0;
  ByteReader front(blob.subspan(1));
  if ((blob[0] & kExpires) != 0) note.expires = front.u64();
  if (front.failed()) return note;
  std::span<const uint8_t> words = front.raw(front.left());
  std::vector<uint8_t> opened;
  if ((blob[0] & kSealedWords) != 0) {
    auto plain = sealed ? sealed->open(file, kNoteWords, words)
                        : Result<std::vector<uint8_t>>(corruption("sealed"));
    if (!plain.ok()) return note;
    opened = std::move(*plain);
    words = opened;
  }
  if ((blob[0] & (kWords | kSealedWords)) == 0) return note;
  ByteReader in(words);
  EntryWords said;
  said.prefill_ms = in.u32();
  said.label = in.string(kMaxLabelBytes);
  if (in.done() && check_label(said.label).ok()) note.words = std::move(said);
  return note;
}

}  // namespace

Result<std::vector<uint8_t>> encode_note(SealedRows* sealed, const std::string& file,
                                         const ObjectNote& note) {
  if (note.empty()) return std::vector<uint8_t>();
  ByteWriter out;
  const bool words = !note.words.empty();
  uint8_t bits = note.named_end ? kNamedEnd : 0;
  if (words) bits |= sealed ? kSealedWords : kWords;
  if (note.expires > 0) bits |= kExpires;
  out.u8(bits);
  if (note.expires > 0) out.u64(note.expires);
  if (!words) return out.take();
  ByteWriter said;
  said.u32(note.words.prefill_ms);
  said.string(note.words.label);
  if (!sealed) {
    out.raw(said.span());
  } else {
    KV_ASSIGN_OR_RETURN(auto bytes, sealed->seal(file, kNoteWords, said.span()));
    out.raw(bytes);
  }
  return out.take();
}

RowState read_row(sqlite3_stmt* stmt, SealedRows* sealed, std::string& file, KnownObject& out) {
  Columns columns(stmt);
  Object& o = out.header;
  columns.text(file);
  auto kind = columns.number<uint8_t>();
  if (kind < 1 || kind > 4) return RowState::bad;
  o.name.kind = static_cast<ObjectKind>(kind);
  o.name.id = columns.id();
  o.name.group = columns.number<uint16_t>();
  o.name.first_row = columns.number<uint32_t>();
  o.name.end_row = columns.number<uint32_t>();
  bool opened = read_fields(columns, o, sealed, file);
  out.unpacked_bytes = columns.integer();
  out.file_bytes = columns.integer();
  out.allocated_bytes = columns.integer();
  out.recency = columns.integer();
  out.note = read_note(columns.blob(), sealed, file);
  bool fits = columns.ok() && o.ns.size() <= kMaxNamespaceBytes && o.first_token <= kMaxTokens &&
              out.unpacked_bytes <= kMaxObjectBytes && file_name(o.name) == file;
  if (!fits || (opened && !id_matches(o))) return RowState::bad;
  return opened ? RowState::good : RowState::sealed;
}

std::optional<NotedName> read_noted(sqlite3_stmt* stmt, SealedRows* sealed) {
  Columns columns(stmt);
  std::string file;
  columns.text(file);
  const auto parsed = parse_file_name(file);
  if (!parsed || is_record(parsed->kind)) return std::nullopt;
  NotedName noted{parsed->object, read_note(columns.blob(), sealed, file)};
  if (noted.second.empty()) return std::nullopt;
  return noted;
}

Status bind_row(sqlite3_stmt* stmt, SealedRows* sealed, const std::string& file,
                const KnownObject& row) {
  const Object& o = row.header;
  Binder binder(stmt);
  binder.text(file)
      .integer(static_cast<uint64_t>(o.name.kind))
      .blob(o.name.id.bytes)
      .integer(o.name.group)
      .integer(o.name.first_row)
      .integer(o.name.end_row);
  if (sealed != nullptr) {
    KV_ASSIGN_OR_RETURN(auto fields, sealed->seal(file, o));
    binder.blob({}).blob({}).text(kNothing).blob({}).integer(0).blob(fields).blob({});
  } else {
    binder.blob(o.parent.bytes)
        .blob(o.profile.bytes)
        .text(o.ns)
        .blob(o.fingerprint.bytes)
        .integer(o.first_token)
        .blob({reinterpret_cast<const uint8_t*>(o.tokens.data()), o.tokens.size() * sizeof(Token)})
        .blob(encode_extras(o.extras));
  }
  KV_ASSIGN_OR_RETURN(auto note, encode_note(sealed, file, row.note));
  binder.integer(row.unpacked_bytes)
      .integer(row.file_bytes)
      .integer(row.allocated_bytes)
      .integer(row.recency)
      .blob(note);
  return {};
}

}  // namespace kv
