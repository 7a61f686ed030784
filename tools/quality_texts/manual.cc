// This project's file format and protocol, as they stood when the text was chosen.
// Changing one byte changes what `cachectl quality` measures.
#include "tools/quality_texts/texts.h"

namespace kv::cachectl {

const std::string_view kManualText = R"TEXT(
# The store on disk

Everything a reader needs to use a store's directory without this program. The format's version is
1.

All numbers are little-endian and unaligned. `u8`…`u64` are unsigned, `i32` signed, `f32` IEEE
754. A *string* or *blob* is a `u32` length and that many bytes. An *array* is a `u32` count and
that many values. An *id* is 32 bytes. *XXH3-128* is written as its low `u64`, then its high one.
A reader checks every length against the limits at the end before it allocates.

## Directory

```
LOCK            empty; the owner holds an exclusive flock(2) on it
catalog.db      a SQLite mirror of the files, with its log catalog.db-wal; disposable ("Catalog")
tmp/            files being written, N.tmp; those of a dead owner are garbage
quarantine/     damaged files, their name followed by .N; the highest N is the newest; bounded
0/ 1/ … f/      everything else, in the folder named by the first hex digit of its id
```
Folders have mode 0700 and files 0600 from their creation. A directory that holds no `LOCK` is no
store. Names that no rule below produces belong to strangers: they stay, and count against the
limit.

## Names

| file | name | holds |
|---|---|---|
| block, tail, snapshot | `ID.block`, `ID.tail`, `ID.snapshot` | one object |
| supplement | `ID.GROUP.FIRST-END.supplement` | planes that belong to block or tail ID: of part
group GROUP, rows FIRST to END − 1 (absolute); a carry has FIRST = END |
| profile | `ID.profile` | how planes are coded |
| model record | `ID.SERIAL.model` | the profile in force for a (namespace, model); the highest
valid SERIAL counts |

ID is an id as 64 lower-case hex digits, other numbers are decimal without leading zeros. A file
never changes. The name follows from the content: a file that holds something else than its name
says is damaged.

Files of one block may overlap in rows: the one with the lower first row wins, then the longer one.

## Ids

An id is the SHA-256 of a list of fields, each written as a tag (one ASCII character), the length
of its bytes as `u64`, and its bytes:

| tag | field | bytes |
|---|---|---|
| `v` | version of this list | `u8` 1 |
| `n` | namespace | as given, without length |
| `m` | model fingerprint | 32 |
| `p` | profile id | 32 |
| `b` | id of the parent block; at the root zeros | 32 |
| `x` | extras | for each in order: position `u32`, then a blob; no count |
| `k` | kind | `block`, `tail` or `snapshot` in ASCII |
| `t` | tokens | `i32` each |

in this order. A supplement has the id of its block or tail. A snapshot's parent is the last
complete block before its position, its tokens are those after that block (perhaps none). The id
of a (namespace, model), which names its model records, hashes only `v`, `n`, `m`, and `k` =
`model`. A profile's id is the SHA-256 of its encoding ("Profile"). A model's fingerprint is its
owner's: 32 bytes that differ whenever weights, dtype, rope or adapter do.

An id names a computation and not its result: two files of one name hold the same tokens under the
same profile, but a block's bytes may have been computed after an exact prefix or after a coded
one.

## Prefix

Every file is a prefix of 56 bytes, a header section, and a payload, and ends there.

| at | type | field |
|---|---|---|
| 0 | 8 bytes | `cachesvc` in ASCII |
| 8 | `u16` | version: 1. Of any other nothing below may be assumed: such a file is a miss, and
stays |
| 10 | `u8` | kind: 1 block, 2 tail, 3 supplement, 4 snapshot, 16 profile, 17 model record |
| 11 | `u8` | 0 |
| 12 | `u32` | header_bytes |
| 16 | `u64` | payload_bytes |
| 24 | XXH3-128 | header_hash, of bytes [0, 24) followed by the header section |
| 40 | XXH3-128 | file_hash, of bytes [0, 40) followed by header section and payload |

The hashes have seed 0. header_hash serves listings that don't read the payload; whoever uses the
payload checks file_hash.

## Object file

Kinds 1 to 4. The header section is an *object header*, followed at once by the *piece table*:

| type | field |
|---|---|
| `u32` | number of pieces: one for each plane, then one for each state, in the header's order |
| per piece: `u8` | packing |
| `u64` | unpacked_bytes: what the plane or state has in memory |
| `u64` | stored_bytes: what it takes in the payload |

The payload is all pieces' stored bytes in order, without gaps.

### Packing

0 raw: the bytes themselves, stored_bytes = unpacked_bytes. 1 zstd: one zstd frame (RFC 8878) that
unpacks to exactly unpacked_bytes; stored_bytes ≤ unpacked_bytes.

### Object header

| type | field |
|---|---|
| `u8` | kind, as in the prefix |
| id | id |
| `u16`, `u32`, `u32` | part group, first row, end row of a supplement; else zeros |
| id | parent |
| id | profile |
| string | namespace |
| id | model fingerprint |
| `u32` | first_token: the absolute position of the first token |
| array of `i32` | tokens |
| `u32` | number of extras; each: position `u32` (absolute), blob |
| `u32` | number of planes |
| per plane: `u16`, `u16` | layer, part |
| `u8`, `u8` | side (0 K, 1 V, 2 other), dtype of exact rows (1 f32, 2 f16, 3 bf16) |
| `u8`, `u8` | bits of coded rows (2, 3, 4, 8; 0 if there are none), 0 |
| `u32`, `u32`, `u32` | heads, dim, first_row (absolute; of a pooled part: position / rate) |
| `u32` | number of runs; each: form `u8` (0 exact, 1 codes), rows `u32` (> 0) |
| `u32` | number of states; each: layer `u16`, part `u16`, bytes `u64` |

The id must follow from the fields ("Ids").

### Plane payload

A plane's bytes are its runs in order; together they cover rows [first_row, first_row + sum of
rows). With R rows, H heads and D values per head:

* exact: (R, H, D) values of the plane's dtype, row by row: R·H·D·size bytes.
* codes: first codes, (H, R, D·bits/8 bytes), head by head; then one f16 scale for each, (H, R):
H·R·(D·bits/8 + 2) bytes. How the codes of one row are packed, and what they mean under the
profile, says codec/TURBOQUANT.md.

The bytes of a `state` part are values of its dtype, those of an `opaque` part and of a carry the
engine's own.

## Record files

**Profile** (kind 16): the header section is the profile's id, the payload its encoding. **Model
record** (kind 17): the header section is the id of the (namespace, model), the namespace
(string), the fingerprint (32 bytes), the id of the profile in force, and the serial (`u64`); the
payload is the encoded model.

### Model

name (string), fingerprint (32 bytes), number of layers (`u32`); per layer the number of parts
(`u32`); per part:

| type | field |
|---|---|
| `u8` | kind: 1 full, 2 window, 3 chunk, 4 latent, 5 pooled, 6 state, 7 opaque |
| `u8` | dtype: 1 f32, 2 f16, 3 bf16 |
| `u8` | overlap: 0 or 1 |
| `u8` | snapshot: 0 at checkpoints, 1 at block ends |
| 7 × `u32` | heads, k_dim, v_dim (0: K and V are one storage, side "other"), window, keep,
chunk, rate |
| string | label: the engine's own name, never interpreted |

Part groups are numbered by first appearance, layer by layer, of parts equal in every field.

### Profile

| type | field |
|---|---|
| `u16` | codec version: 1 |
| `u32` | block_tokens |
| `u8` | prefill: 0 exact, 1 coded |
| `u8` | raw dtype: of exact rows of full, window and chunk parts |
| `u64` | rotation seed |
| `u16` | codebook: 1 |
| `u32` | exact_tokens: rows [0, exact_tokens) are never coded |
| `u8`, `u8` | requested bits of K, of V |
| `u32` | number of layers; each: number of parts `u32` |
| per part: `u8`, `u8` | bits of K and of V in force (0 raw, 2, 3, 4, 8) |
| array of `f32` | key mean, (heads, k_dim); empty: zeros |
| array of `f32` | key gain, (heads, k_dim); empty: ones |

## Publish and delete

Publish: reserve room below the limit → write `tmp/N.tmp` → fdatasync → rename to its name
(*spilled*: survives the death of the process) → fsync the folder (*durable*: survives power
loss) → catalog row. A parent is renamed before its children. Profile and model record are
durable before the first block that names them; a new model record is durable before older serials
are unlinked.

An fdatasync that fails is never repeated: the file is given up. A folder's fsync may be: its
names are in the file system's own log, which ends the file system when it fails.

Delete: catalog row → unlink → fsync the folder → acknowledged.

The limit counts allocated bytes (512 × st_blocks) of everything in the directory: files,
folders, tmp, catalog and its log, quarantine, strangers.

## Recovery

A kill may come between any two steps, so any of these is legal and none is damage:

| found | done |
|---|---|
| `tmp/*.tmp` | removed |
| a file without a row | adopted: header_hash and id checked |
| a row without a file, or one whose file has another length | dropped |
| an object whose parent is missing | kept; it counts again when the parent returns |
| a file that fails a check | moved to quarantine; its row dropped |
| another version, a foreign name | left alone |

Where a row contradicts its file the header wins; of the row only recency is taken over. A catalog
that another process has open is left alone: that run does without it.

The payload is verified whenever it is read: file_hash, id, name. A file that fails is read once
more, then moved to quarantine.

## Catalog

SQLite, `application_id` 0x6b766373 ("kvcs"), `user_version` 1, WAL, one connection in exclusive
locking mode. Another id or version, a failed `quick_check` or missing columns: moved to
quarantine and built anew from the files. One STRICT table `objects`, one row per object file:
`file` (name without folder), the header's fields (`kind`, `id`, `part_group`, `first_row`,
`end_row`, `parent`, `profile`, `namespace`, `fingerprint`, `first_token`, `tokens` as `i32` each,
`extras` as in the object header), `unpacked_bytes`, `file_bytes`, `allocated_bytes`, and
`recency` (a counter, higher is later), the only thing that the files don't tell. A row is
believed only if its id follows from its fields. A reader beside a running owner must not open it.

## Promises

Each with the tests that fail when it is broken (tests/storage_*_test.cc,
tests/cachesvc_kill_test.cc).

| promise | tests |
|---|---|
| what is read is what was stored, whatever happened to the file |
`Damage.EveryBitOfABlockFileFlippedIsNoticed`, `Damage.EveryLengthOfABlockFileButItsOwnIsNoticed`,
`RandomDamage.NeverChangesAnAnswer` |
| a header that is believed is the one that was written |
`Damage.EveryBitThatAHeaderIsReadFromFlippedIsNoticed` |
| what failed twice goes to quarantine, which is bounded |
`SsdTier.ACorruptFileIsAMissQuarantinedWithinItsBound` |
| an I/O error is a miss and keeps the file |
`SsdTier.OneBadReadIsReadAgainAndAnIoErrorKeepsTheFile` |
| *spilled* survives the death of the process, at any moment | `Kills.AtEveryCallOfTheScript`,
`KillTest.EverySpilledBlockIsServedAfterEveryKill` |
| … of a recovery too | `Kills.AtEveryCallOfTheRecovery` |
| *durable* survives power loss; what was erased does not return |
`PowerCut.DurableIsThereErasedIsGoneNothingIsWrong`,
`SsdTier.BytesAreSyncedBeforeTheNameAndTheNameBeforeTheAck` |
| a failed sync is never repeated | `SsdTier.AFailedSyncIsNeverRepeatedAndItsFileNeverNamed` |
| a failed call is a miss; it works again when the fault is over |
`Faults.EveryCallFailsOnceAndForEverWithEachError` |
| the directory never exceeds its limit | `SsdTier.TheLimitHoldsThroughChurn`,
`KillTest.NoSampleIsOverTheLimitWhenStoresPressAgainstIt` |
| the catalog is disposable and never believed |
`CatalogDamage.DeletedEmptiedTruncatedOrForeignIsRebuilt`,
`CatalogDamage.FlippedBytesNeverChangeWhatIsFound`,
`CatalogDamage.RowsThatLieAreReplacedFromTheFiles` |
| nothing valid, foreign or of another version is deleted at a start |
`CatalogDamage.NothingValidOrForeignIsDeleted`, `CatalogDamage.ALowerLimitDeletesNothing` |
| the highest valid serial counts | `SsdTier.RecordsAreKeptTheHighestSerialCounts` |
| one owner | `SsdTier.OneOwner`, `SsdTier.TheCatalogIsClosedBeforeTheLockIsGivenUp` |
| 0700 and 0600 from their creation | `SsdTier.ModesArePrivateUnderAnyUmask` |
| erased tokens are gone from every byte after a checkpoint |
`SsdTier.ErasedTokensAreGoneFromEveryByteAfterACheckpoint` |

## Limits

| | |
|---|---|
| namespace, model name, label | 64, 256, 128 bytes |
| layers, parts per layer | 1024, 8 |
| heads, dim | 1024, 65536 |
| tokens of one object, of one sequence | 4096, 4,194,304 |
| extras of one object, bytes of one | 4096, 1024 |
| planes or states of one object, runs of one plane | 16384, 64 |
| header section | 16 MiB |
| unpacked bytes of one object | 1 GiB |
| payload of a record | 256 MiB |

## Example

A tail of one token (7) at the root of namespace "a", fingerprint 32 × 0x11, profile 32 × 0x22,
one plane of one f16 row. The file
`d/dc975a41f7ae257b897a838e8502508d49ca52a304bbfe7a97ad3d7bf56908ca.tail`:

```
0000: 63 61 63 68 65 73 76 63                          magic "cachesvc"
0008: 01 00                                            version 1
000a: 02                                               kind 2: tail
000b: 00                                               zero
000c: da 00 00 00                                      header_bytes 218
0010: 04 00 00 00 00 00 00 00                          payload_bytes 4
0018: f0 81 23 35 c3 f7 98 09 6c db f9 dd 6d b3 c2 dd  header_hash: low, high
0028: ed 1e 9e d0 3e a3 77 63 d4 96 3e 2b b8 b6 2d 20  file_hash: low, high
0038: 02                                               object: kind 2
0039: dc 97 5a 41 f7 ae 25 7b 89 7a 83 8e 85 02 50 8d  id
0049: 49 ca 52 a3 04 bb fe 7a 97 ad 3d 7b f5 69 08 ca
0059: 00 00                                            group
005b: 00 00 00 00                                      first_row
005f: 00 00 00 00                                      end_row
0063: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  parent: the root
0073: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
0083: 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22  profile
0093: 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
00a3: 01 00 00 00 61                                   namespace "a"
00a8: 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11  fingerprint
00b8: 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11
00c8: 00 00 00 00                                      first_token
00cc: 01 00 00 00 07 00 00 00                          1 token: 7
00d4: 00 00 00 00                                      no extras
00d8: 01 00 00 00                                      1 plane
00dc: 00 00 00 00 00 02 00 00                          layer 0, part 0, K, f16, bits 0, zero
00e4: 01 00 00 00                                      heads 1
00e8: 02 00 00 00                                      dim 2
00ec: 00 00 00 00                                      first_row 0
00f0: 01 00 00 00                                      1 run
00f4: 00 01 00 00 00                                   exact, 1 row
00f9: 00 00 00 00                                      no states
00fd: 01 00 00 00                                      1 piece
0101: 00                                               raw
0102: 04 00 00 00 00 00 00 00                          unpacked 4
010a: 04 00 00 00 00 00 00 00                          stored 4
0112: 00 3c 00 c0                                      payload: 1.0, -2.0 in f16
```
# The socket's protocol

Everything another client needs. The code is `proto/frame.h`, `proto/message.h` (bodies) and
`proto/socket_client.h` (a client). Version 1.

A client connects to a Unix stream socket, says hello, and then exchanges frames: requests of its
own choice, each answered under its request's id. All numbers are little-endian and unaligned;
`u8`…`u64`, `i32`, *string*, *blob*, *array* and *id* are those of storage/FORMAT.md, and so are
the encodings of an *object header*, a *model*, a *profile* and the rule for *ids*. A *bool* is a
`u8` 0 or 1. Anything else in a field with a range, a byte too few or too many in a body: the
message is refused.

## Frames

| at | type | field | why |
|---|---|---|---|
| 0 | `u32` | magic `4b 56 43 31` ("KVC1") | a stranger or a stream out of step is seen at once |
| 4 | `u16` | version: 1 | a header of another version may look different after this field |
| 6 | `u16` | type | which message the body is; bit 15 marks replies |
| 8 | `u64` | request id | chosen by the client, any value; a connection may have several requests
open and their replies may overtake each other |
| 16 | `u64` | length of the body | checked against the type's limit before anything is allocated |
| 24 | `u32` | flags: 0 | room for what later versions negotiate; others are refused |
| 28 | `u32` | CRC-32C (Castagnoli) of bytes [0, 28) | a damaged length can't become an
allocation, nor a damaged id an answer to another's question |

Then `length` bytes of body. Bodies carry no checksum: a local socket doesn't damage bytes, and
stored objects have their own on disk.

A header that fails (magic, CRC, version, flags, length over its limit) ends the connection: the
service sends an error frame with request id 0 and closes. A body that fails is answered with an
error under its id and the connection goes on.

| frames | longest body |
|---|---|
| any, before hello_ok | 8 KiB |
| lookup, prefetch, erase, reserve, fetch; reserve_ok, commit_ok, stats_ok | 24 MiB |
| open, open_ok | 260 MiB |
| put | max_put_bytes of hello_ok |
| fetch_object | 1 GiB + 17 MiB |
| all others, and types that this version doesn't know | 64 KiB |

## Connections

The socket is 0600. The service looks at the peer's user (`SO_PEERCRED`): its own, root, or one on
its list; others get an error under request id 0 and are closed, as are connections over the
service's limit (`busy`).

* The first frame is hello, within the service's handshake timeout (5 s by default).
* At most max_in_flight requests are open at a time: a request is open until the last byte of its
reply is sent. More are not refused: the service just doesn't read on.
* A frame that begins must go on: 30 s (by default) without a byte, or slower than 1 MiB/s over
that time, closes the connection. The same holds for a client that does not read what it asked
for. An idle connection is closed after an hour.
* When a connection ends, for whatever reason, its reservations and model handles are gone. What
was committed stays.

There is no cancel: a client that no longer wants an answer reads it or closes.

## Versions

hello names the lowest and highest version that the client speaks; the service takes the highest
that both have or answers `unsupported`. A version never changes; a new field makes a new version
or hangs on a feature bit (none exist yet) that both sides named in hello. Unknown request types
are answered `unsupported`, so a client may probe.

Types 0x0040–0x005f and 0x8040–0x805f are reserved for shared memory pools (announcing
segments, planes as segment, offset and length, release and revocation).

## Status codes

An error frame answers any request. The message is for people; it names field and limit, never
prompt content.

| code | name | meaning for the client |
|---|---|---|
| 1 | not_found | that reservation, model or source is not there |
| 2 | invalid_argument | the request is wrong; repeating it won't help |
| 3 | corruption | the body can't be read, or stored bytes don't verify |
| 4 | unsupported | known, and refused by name |
| 5 | resource_exhausted | can never fit as it stands; the message names what would |
)TEXT";

}  // namespace kv::cachectl
