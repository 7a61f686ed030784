"""The table of tools/bench: one row per target."""
from dataclasses import dataclass, field

CONTEXTS = (128, 4096, 8000)  # prompt tokens of the engine's rows; SmolLM2 ends at 8,192


@dataclass
class Row:
    """One target. `ours` and `yardstick` name benchmarks of `program`, or keys of a source; where
    `yardstick` is a tuple the fastest counts, where it is empty there is none.

    value: "ms", "us" (times) or the name of a counter such as "GB/s" or "D". goals: conditions on
    "ratio" (ours / yardstick) or "ours", all of which must hold.
    """
    work: str
    program: str
    ours: str
    yardstick: "str | tuple"
    value: str
    goals: list = field(default_factory=list)

    def yardsticks(self):
        if isinstance(self.yardstick, tuple):
            return self.yardstick
        return (self.yardstick,) if self.yardstick else ()


def batched(rows, tokens, shared, together):
    """A benchmark of batch_bench: rows over a prefix of so many tokens, all over one or each over
    its own, in one step or one after the other."""
    return (f"BM_Decode/rows:{rows}/tokens:{tokens}/shared:{shared}/together:{together}"
            "/iterations:24/real_time")


# Of each model: its name in the table, the sources of its rows, the variable that names its file
# and what installs it.
MODELS = (("SmolLM2", "demo", "engine", "batches", "KV_SMOLLM2_GGUF",
           "the model (run tools/install)"),
          ("Gemma-3", "gemma3_demo", "gemma3", "gemma3_batches", "KV_GEMMA3_GGUF",
           "Gemma-3 (run tools/install --with-gemma)"))
# Of tools/demo, 4,097 tokens: work, ours, yardstick, unit, goal of the ratio.
DEMO_ROWS = [
    ("TTFT cold over RAM hit, 4,097 tokens", "cold", "ram", "ms", (">=", 300)),
    ("TTFT cold over SSD hit, 4,097 tokens", "cold", "ssd", "ms", (">=", 150)),
    ("TTFT RAM hit over llama.cpp slot restore", "ram", "llama", "ms", ("<=", 0.12)),
    ("TTFT SSD hit over llama.cpp slot restore", "ssd", "llama", "ms", ("<=", 0.25)),
    ("stored bytes over llama.cpp's slot file", "stored", "llama_stored", "MiB", ("<=", 0.27)),
    ("stored bytes of the whole entry over fp16", "stored", "fp16", "MiB", ("<=", 0.33)),
    ("files of all complete blocks over fp16", "blocks", "blocks_fp16", "MiB", ("<=", 0.27)),
]
# Of the engine beside llama.cpp: work, tokens of context, llama.cpp's KV, least ratio of SmolLM2
# and of Gemma-3.
ENGINE_ROWS = [
    ("prefill", 4096, "f16", (2, 1.5)), ("decode", 128, "f16", (2, 2)),
    ("decode", 4096, "f16", (3, 3)), ("decode", 4096, "q4_0", (3, 3)),
    ("decode", 8000, "f16", (4, 4)), ("decode", 8000, "q4_0", (5, 5)),
]


def model_rows():
    """The same rows of every model, side by side."""
    for work, ours_key, yardstick, unit, (sign, limit) in DEMO_ROWS:
        for model, demo, *_ in MODELS:
            yield Row(f"{model} {work}", demo, ours_key, yardstick, unit, [("ratio", sign, limit)])
    for work, context, kind, least in ENGINE_ROWS:
        for (model, _, engine, *_), goal in zip(MODELS, least):
            key = f"{work}/{context}"
            yield Row(f"{model} {work}, {context:,} tokens, over llama.cpp {kind}", engine, key,
                      f"{kind}/{key}", "tokens/s", [("ratio", ">=", goal)])
    for work, key in (("on one 4K prefix", "shared"), ("of 512 tokens of their own", "own")):
        for model, _, _, batches, *_ in MODELS:
            yield Row(f"{model} decode, 8 prompts {work}, over llama.cpp f16", batches, key,
                      f"f16/{key}", "tokens/s")


# Of loop_bench: what the loop is busy with.
LOOP_WORK = [("stored", "Store"), ("fetched", "Fetch"), ("spilled", "Spill"),
             ("promoted", "Promote"), ("evicted for", "Evict"), ("erased", "Erase")]


def loop_rows():
    """Steps over 1 ms of the processor that no pause of the machine explains (bystander.h)."""
    for what, name in LOOP_WORK:
        for blocks in (12, 64, 512):
            yield Row(f"steps of the loop over 1 ms while {blocks} blocks are {what}", "loop_bench",
                      f"BM_Loop{name}/blocks:{blocks}/iterations:6/real_time", "", "apart",
                      [("ours", "<=", 0)])


def promote_rows():
    """Promotes over bare reads, and over the least that verified ones do on as many threads."""
    for what, name, most in (
            ("RAM tier full", "Full/iterations:12", 1.2),
            ("after a start, memory ready", "Cold/packed:0/ready:1/iterations:5", 1.2),
            ("into memory never touched", "Cold/packed:0/ready:0/iterations:5", 1.3)):
        for over, bare, goals in (
                ("O_DIRECT reads", "BM_ReadDirect/files:64", [("ratio", "<=", most)]),
                ("reads, copies and sums", "BM_ReadCopySum", [])):
            yield Row(f"promote of 96 MiB in 64 blocks, {what}, over {over}", "tier_bench",
                      f"BM_Promote{name}/real_time", f"{bare}/iterations:5/real_time", "ms", goals)


def remote_rows():
    """The shared tier beside the engine's own tool, and what it costs those who don't need it."""
    for what, ours, theirs in (("GET", "Get", "Get"), ("SET", "Put", "Set")):
        yield Row(f"shared tier: {what} of 8 values of three parts, over redis-benchmark",
                  "remote_bench", f"BM_Remote{ours}/min_time:2.000/real_time",
                  f"BM_Redis{theirs}/iterations:5/manual_time", "GB/s", [("ratio", ">=", 0.9)])
    yield Row("shared tier: the question of 32K tokens, over a round trip on loopback",
              "remote_bench", "BM_RemoteQuestion/real_time", "BM_RoundTrip/real_time", "us",
              [("ratio", "<=", 1.5)])
    for tier, how in ((1, "on"), (2, "hanging")):
        for value, most in (("p50_us", 1.05), ("p99_us", 1.25)):
            yield Row(f"RAM hit with the shared tier {how}, over without: {value[:3]}",
                      "remote_bench", f"BM_LocalHit/tier:{tier}/iterations:5000/real_time",
                      "BM_LocalHit/tier:0/iterations:5000/real_time", value,
                      [("ratio", "<=", most)])


# Names must exist in `PROGRAM --benchmark_list_tests`; tests/tools_bench_check.py sees to it.
ROWS = [
    Row("RAM-hit fetch of 100 MiB until every plane can be read, over 64 B ping-pong",
        "service_bench", "BM_FetchMapped/real_time", "BM_PingPong/real_time", "us",
        [("ratio", "<=", 3)]),
    *(Row(f"RAM-hit fetch of {mib} MiB by a hold's number, likewise", "service_bench",
          f"BM_FetchHeld/{mib}/real_time", "BM_PingPong/real_time", "us", [("ratio", "<=", 3)])
      for mib in (1, 100, 1000)),
    Row("RAM hit of 100 MiB, every byte read in place, over a plain read", "service_bench",
        "BM_ReadInPlace/real_time", "BM_ReadPlain/real_time", "ms", [("ratio", "<=", 1.15)]),
    Row("fetch of 100 MiB by streaming, over a Unix socket", "service_bench",
        "BM_FetchSocket/real_time", "BM_UnixSocket/real_time", "ms", [("ratio", "<=", 1.1)]),
    Row("RAM hit of 96 MiB written into the client's own memory, over memcpy", "wire_bench",
        "BM_FetchInto/iterations:30/real_time", "BM_CopyAlone/iterations:30/real_time", "ms", []),
    *(Row(f"p99 of a fetch beside {who}, over {over}", "service_bench",
          f"BM_HealthyFetch/beside:{number}/iterations:5000/real_time",
          f"BM_HealthyFetch/beside:{base}/iterations:5000/real_time", "p99_us", goals)
      for base, over, goals in ((0, "alone", [("ratio", "<=", 2)]), (4, "two busy threads", []))
      for number, who in (
          (1, "1,000 idle, 100 stopped, 50 dribbling clients"),
          (2, "a tenant that asks as much as it can"), (3, "connections that come and go"),
          (5, "such a tenant that leaves the processors to others"))),
    *(Row(f"store of 96 MiB from a client's memory until accepted, {what}", "store_bench",
          f"BM_StoreFromMemory/{bits}/real_time", f"{alone}/real_time", "ms",
          [("ratio", "<=", 1.2)])
      for what, bits, alone in (("raw, over memcpy", 0, "BM_Copy"),
                                ("coded, over encode alone", 4, "BM_EncodeAlone"))),
    Row("store of 96 MiB from a client's memory, raw, over its bytes read, checked and summed once",
        "store_bench", "BM_StoreFromMemory/0/real_time",
        "BM_ReadAlone/2/real_time", "ms", []),
    Row("RAM hit of 100 MiB of codes as f16, mapped, over the codec alone", "wire_bench",
        "BM_FetchDecoded/iterations:15/real_time", "BM_DecodeAlone/iterations:15/real_time", "ms",
        [("ratio", "<=", 1.2)]),
    *(Row(what, program, f"{name}/real_time", "", value, goals)
      for what, program, name, value, goals in (
        ("live bytes of the RAM tier's segments under mixed churn", "store_bench",
         "BM_SegmentsUnderChurn/iterations:1", "live", [("ours", ">=", 0.85)]),
        ("a fresh client's first hit of 100 MiB that another has mapped", "wire_bench",
         "BM_FirstHit/iterations:30", "ms", [("ours", "<=", 2)]),
        ("each further block of a mapped hit", "wire_bench", "BM_FurtherBlocks/iterations:1000",
         "us_a_block", [("ours", "<=", 2)]),
        ("leases of a killed client gone, the longest of 10", "wire_bench",
         "BM_DeadClient/iterations:10", "longest_ms", [("ours", "<=", 100)]),
        ("small fetches in batches over 16 connections", "wire_bench",
         "BM_SmallFetches/iterations:3", "fetches/s", []))),
    *promote_rows(),
    *remote_rows(),
    Row("promote after a start, over O_DIRECT reads of one file", "tier_bench",
        "BM_PromoteCold/packed:0/ready:1/iterations:5/real_time",
        "BM_ReadDirect/files:1/iterations:5/real_time", "ms"),
    Row("spill of 96 MiB in 64 blocks, durable, over the same bare calls", "tier_bench",
        "BM_SpillDurable/packed:0/iterations:4/real_time",
        "BM_WriteSyncRename/files:64/iterations:4/real_time", "ms", [("ratio", "<=", 1.1)]),
    Row("the longest that a call waits for the loop during such spills", "tier_bench",
        "BM_SpillDurable/packed:0/iterations:4/real_time", "", "wait_ms"),
    Row("the longest that a call waits for the loop during such promotes", "tier_bench",
        "BM_PromoteCold/packed:0/ready:1/iterations:5/real_time", "", "wait_ms"),
    *loop_rows(),
    Row("drain of 1 GiB, over write and fdatasync of as many files", "tier_bench",
        "BM_Drain/iterations:1/real_time", "BM_WriteSyncRename/files:704/iterations:1/real_time",
        "ms", [("ours", "<=", 5000)]),
    Row("promote by the tier alone, cold, verified, over O_DIRECT reads", "storage_bench",
        "read_verified/cold:1/real_time", "yard_pread/cold:1/real_time", "ms"),
    Row("spill by the tier alone, durable, over the same bare calls", "storage_bench",
        "put/durable:1/real_time", "yard_write_sync_rename/durable:1/real_time", "ms"),
    Row("lookup of 32K tokens, 1,000 stored, over XXH3-128", "index_bench", "lookup_32k/1000",
        "xxh3_128_32k/1000", "us", [("ratio", "<=", 2)]),
    Row("the same, over a comparison with the stored tokens, which it can't do without",
        "index_bench", "lookup_32k/1000", "yard_compare_32k/1000", "us"),
    Row("lookup of 1,024 tokens, 10^6 over 10^3 blocks", "index_bench",
        "lookup_1k/1000000/manual_time", "lookup_1k/1000/manual_time", "us",
        [("ratio", "<=", 2)]),
    Row("store + erase in the tree, 10^6 over 10^3 blocks", "index_bench",
        "tree_insert_erase/1000000", "tree_insert_erase/1000", "us", [("ratio", "<=", 2)]),
    Row("evict, 10^6 over 10^3 entries", "index_bench", "evict_insert/1000000",
        "evict_insert/1000", "us", [("ratio", "<=", 2)]),
    Row("the memory that such an evict touches at least, likewise", "index_bench",
        "yard_touch/1000000", "yard_touch/1000", "us"),
    Row("part groups of 1,024 layers x 8 parts, over 16 layers x 8", "index_bench",
        "part_groups_of/1024", "part_groups_of/16", "us", [("ratio", "<=", 200)]),
    Row("load 100k blocks from the catalog, tokens too, over SELECT", "storage_bench",
        "catalog_load/real_time", "yard_select/real_time", "ms", [("ratio", "<=", 2)]),
    Row("ready after a crash, 100k blocks on the SSD, over SELECT of their rows", "service_bench",
        "BM_Ready/real_time", "BM_SelectRows/real_time", "ms", [("ours", "<=", 500)]),
    Row("the same without its catalog, headers read in the background", "service_bench",
        "BM_ReadyWithoutCatalog/iterations:1/real_time", "", "ms", [("ours", "<=", 1000)]),
    Row("encode fp16 to 4 bit, d 128, over memcpy", "codec_bench",
        "BM_encode/fp16_to_4bit_d128h8r256/avx2", "BM_copy/d128h8r256/memcpy", "GB/s",
        [("ratio", ">=", 0.10)]),
    Row("decode 4 bit to fp16, d 128, over memcpy", "codec_bench",
        "BM_decode/4bit_to_fp16_d128h8r256/avx2", "BM_copy/d128h8r256/memcpy", "GB/s",
        [("ratio", ">=", 0.16)]),
    Row("attention on K4/V4, 32K, d 128, 1 thread, over fp16", "codec_bench",
        "BM_attend/d128h8g4_32K_k4v4/best", ("BM_attend/d128h8g4_32K_fp16/best",
                                              "BM_attend/d128h8g4_32K_fp16_head_major/best"), "ms",
        [("ratio", "<=", 0.28)]),
    Row("attention on K4/V4, 32K, d 128, 2 threads, over fp16", "codec_bench",
        "BM_attend/d128h8g4_32K_k4v4/best_2_threads/real_time",
        "BM_attend/d128h8g4_32K_fp16/best_2_threads/real_time", "ms",
        [("ratio", "<=", 0.28)]),
    *(Row(f"attention on {what}, 32K, d 128, {threads}, {kernels}, over fp16", "codec_bench",
          f"BM_attend/d128h8g4_32K_{name}/{kernels}{tail}",
          f"BM_attend/d128h8g4_32K_fp16/{kernels}{tail}", "ms",
          [("ratio", "<=", 0.45)] if (what, kernels) == ("K4/V4", "avx2") else [])
      for what, name in (("K4/V4", "k4v4"), ("K8/V4", "k8v4"), ("K3/V3", "k3v3"))
      for kernels in ("best", "avx2")
      for threads, tail in (("1 thread", ""), ("2 threads", "_2_threads/real_time"))
      if (what, kernels) != ("K4/V4", "best")),
    *(Row(f"error of Gaussian values at {bits} bit, d 128, over Lloyd-Max", "codec_bench",
          f"BM_distortion/{bits}bit_d128", f"BM_distortion/lloyd_max_{bits}bit", "D",
          [("ratio", "<=", 1.02)]) for bits in (2, 3, 4)),
    Row("store 3,000 tokens until accepted, coded, over memcpy", "cachesvc_bench",
        "BM_Store/1/iterations:5/real_time", "BM_CopyEntry/real_time", "ms"),
    Row("store 3,000 tokens until spilled, over memcpy", "cachesvc_bench",
        "BM_Store/2/iterations:5/real_time", "BM_CopyEntry/real_time", "ms"),
    Row("promote 3,000 tokens from SSD, over memcpy", "cachesvc_bench",
        "BM_Promote/iterations:5/real_time", "BM_CopyEntry/real_time", "ms"),
    *model_rows(),
    Row("batched decode, 8 rows sharing 4K, over 8 single", "batch_bench",
        batched(8, 4096, 1, 1), batched(8, 4096, 1, 0), "tokens/s", [("ratio", ">=", 3)]),
    Row("batched decode, 4 rows of their own, over single", "batch_bench",
        batched(4, 512, 0, 1), batched(4, 512, 0, 0), "tokens/s", [("ratio", ">=", 1)]),
    Row("batched decode, 8 rows of their own, over single", "batch_bench",
        batched(8, 512, 0, 1), batched(8, 512, 0, 0), "tokens/s", [("ratio", ">=", 1)]),
]
