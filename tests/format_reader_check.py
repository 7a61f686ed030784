#!/usr/bin/env python3
"""A reader of stores, written from the documents alone: it proves that they are enough.

usage: format_reader_check.py ROOT    (exit 0: good; 1: not)
       format_reader_check.py ROOT --print    also prints what it computed, as the documents' tables

Follows storage/FORMAT.md, codec/TURBOQUANT.md, codec/TRANSFORM.md and the fingerprint of
engine/MODELS.md, and shares no code with the programs. From ROOT it takes the documents (their
examples and golden tables), tests/golden/format and tests/golden/streams: a profile, a model record
and object files each. libxxhash and libzstd do what the
documents take for known.
"""
import ctypes
import hashlib
import math
import pathlib
import re
import struct
import sys
import zlib

from format_reader_streams import Reader, Wrong, decode_stream, f32, read_set, require


class XXH128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


XXHASH = ctypes.CDLL("libxxhash.so.0")
XXHASH.XXH3_128bits.restype = XXH128
XXHASH.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
ZSTD = ctypes.CDLL("libzstd.so.1")
ZSTD.ZSTD_decompress.restype = ctypes.c_size_t
ZSTD.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


# ---- FORMAT.md: files

def xxh3(data):
    h = XXHASH.XXH3_128bits(data, len(data))
    return struct.pack("<QQ", h.low, h.high)


def field_list(*fields):
    return b"".join(tag.encode() + struct.pack("<Q", len(data)) + data for tag, data in fields)


def read_file(data):
    """(kind, header section, payload) of a plain file."""
    prefix = Reader(data)
    require(prefix.raw(8) == b"cachesvc", "magic")
    version, kind, zero, header_bytes, payload_bytes = prefix.numbers("HBBIQ")
    require(version in (1, 4, 7) and zero == 0, "version")
    require(len(data) == 56 + header_bytes + payload_bytes, "length")
    header, payload = data[56:56 + header_bytes], data[56 + header_bytes:]
    require(data[24:40] == xxh3(data[:24] + header), "header_hash")
    require(data[40:56] == xxh3(data[:40] + header + payload), "file_hash")
    return kind, header, payload


KINDS = {1: "block", 2: "tail", 3: "supplement", 4: "snapshot"}
DTYPES = {1: ("f", 4), 2: ("e", 2), 3: ("bf16", 2)}


def code_bytes(dim, bits):
    return (dim * bits + 7) // 8


def read_plane(r):
    p = dict(zip(("layer", "part", "side", "dtype", "bits", "zero", "heads", "dim", "first_row"),
                 r.numbers("HHBBBBIII")))
    p["runs"], p["streams"] = [], []
    for _ in range(r.number("I")):
        p["runs"].append(r.numbers("BI"))
        p["streams"].append(r.numbers("III") if p["runs"][-1][0] == 2 else [0, 0, 0])
    vector = p["heads"] * p["dim"] * DTYPES[p["dtype"]][1]
    coded = p["heads"] * (code_bytes(p["dim"], p["bits"]) + 2)
    p["bytes"] = sum(stream[0] or rows * (coded if form else vector)
                     for (form, rows), stream in zip(p["runs"], p["streams"]))
    return p


def read_object(kind, header, payload):
    r = Reader(header)
    o = {"kind": KINDS[kind]}
    require(r.number("B") == kind, "kind")
    o["id"] = r.raw(32)
    o["group"], o["first_row"], o["end_row"] = r.numbers("HII")
    o["parent"], o["profile"], o["namespace"] = r.raw(32), r.raw(32), r.blob()
    o["fingerprint"], o["first_token"] = r.raw(32), r.number("I")
    o["tokens"] = r.array("i")
    o["extras"] = [(r.number("I"), r.blob()) for _ in range(r.number("I"))]
    o["planes"] = [read_plane(r) for _ in range(r.number("I"))]
    o["states"] = [dict(zip(("layer", "part", "bytes"), r.numbers("HHQ")))
                   for _ in range(r.number("I"))]
    everything = o["planes"] + o["states"]
    pieces = [r.numbers("BQQ") for _ in range(r.number("I"))]
    r.end()
    require(len(pieces) == len(everything), "piece table")
    stored = Reader(payload)
    for (packing, unpacked, length), item in zip(pieces, everything):
        require(unpacked == item["bytes"], "unpacked_bytes")
        item["data"] = unpack(packing, unpacked, stored.raw(length))
    stored.end()
    require(o["id"] in ids_of(o), "id")
    return o


def ids_of(o):
    kinds = ["block", "tail"] if o["kind"] == "supplement" else [o["kind"]]
    extras = b"".join(struct.pack("<II", at, len(data)) + data for at, data in o["extras"])
    tokens = struct.pack(f"<{len(o['tokens'])}i", *o["tokens"])
    return [hashlib.sha256(field_list(
        ("v", b"\1"), ("n", o["namespace"]), ("m", o["fingerprint"]), ("p", o["profile"]),
        ("b", o["parent"]), ("x", extras), ("k", kind.encode()), ("t", tokens))).digest()
        for kind in kinds]


def zstd(data, size):
    out = ctypes.create_string_buffer(size + 1)
    require(ZSTD.ZSTD_decompress(out, size, data, len(data)) == size, "zstd frame")
    return out.raw[:size]


def unpack(packing, size, data):
    if packing == 0:
        require(len(data) == size, "raw piece")
        return data
    if packing == 1:
        return zstd(data, size)
    require(packing == 2, "packing")
    r, out = Reader(data), b""
    width = r.number("B")
    for first in range(0, size // width, 65536):
        count = min(65536, size // width - first)
        lengths = [r.number("I") for _ in range(width)]
        stretches = [r.raw(n) for n in lengths]
        stretches = [s if len(s) == count else zstd(s, count) for s in stretches]
        out += bytes(b for value in zip(*stretches) for b in value)
    r.end()
    return out


def read_model(payload):
    r = Reader(payload)
    model = {"name": r.blob(), "fingerprint": r.raw(32), "layers": []}
    names = ("kind", "dtype", "overlap", "snapshot", "heads", "k_dim", "v_dim", "window", "keep",
             "chunk", "rate", "label")
    for _ in range(r.number("I")):
        model["layers"].append([dict(zip(names, r.numbers("BBBBIIIIIII") + [r.blob()]))
                                for _ in range(r.number("I"))])
    r.end()
    return model


def read_profile(payload):
    r = Reader(payload)
    names = ("codec", "block_tokens", "prefill", "raw", "seed", "codebook", "exact_tokens")
    profile = dict(zip(names, r.numbers("HIBBQHI")))
    profile["requested"] = r.numbers("BB")
    version = profile["codec"]
    require(version in (1, 2), "codec version")
    profile["layers"] = [[dict(bits=r.numbers("BB"), mean=r.array("f"), gain=r.array("f"),
                               transforms=r.numbers("HH") if version == 2 else [0, 0])
                          for _ in range(r.number("I"))] for _ in range(r.number("I"))]
    if version == 2:
        profile["set"] = read_set(r)
    r.end()
    return profile


# ---- FORMAT.md: what lies where

FULL, WINDOW, CHUNK, LATENT, POOLED, STATE, OPAQUE = range(1, 8)


def rows_in(part, group, o):
    """Rows of this part that the object's file must have: [first, end)."""
    first, end = o["first_token"], o["first_token"] + len(o["tokens"])
    if o["kind"] in ("block", "tail"):
        if part["kind"] == POOLED:
            return first // part["rate"], end // part["rate"]
        return (first, end) if part["kind"] in (FULL, LATENT) else (0, 0)
    own = o["kind"] == "supplement" and o["group"] == group and part["kind"] in (WINDOW, CHUNK)
    return (o["first_row"], o["end_row"]) if own else (0, 0)


def has_state(part, group, o):
    at_checkpoint = part["kind"] in (STATE, OPAQUE) and part["snapshot"] == 0
    if o["kind"] == "snapshot":
        return at_checkpoint
    return o["kind"] == "supplement" and o["group"] == group and o["first_row"] == o["end_row"]


def check_contents(o, model, profile):
    """The planes and states of `o` are those of the table, in its dtypes and forms."""
    groups, planes, states = [], {}, []
    for l, layer in enumerate(model["layers"]):
        for p, part in enumerate(layer):
            if part not in groups:
                groups.append(part)
            group = groups.index(part)
            codable = part["kind"] in (FULL, WINDOW, CHUNK) and part["v_dim"] > 0
            sides = [] if part["kind"] in (STATE, OPAQUE) else [0, 1] if part["v_dim"] else [2]
            first, end = rows_in(part, group, o)
            for side in sides if first < end else []:
                bits = profile["layers"][l][p]["bits"][side] if codable else 0
                first_coded = max(first, profile["exact_tokens"]) if bits else end
                exact = min(end, first_coded) - first
                whole = len(o["tokens"]) == profile["block_tokens"]
                planes[l, p, side] = (first, end, profile["raw"] if codable else part["dtype"],
                                      [n for n in ([0, exact], [2 if bits == 16 else 1,
                                                                end - first - exact]) if n[1]]
                                      if whole else None)
            if has_state(part, group, o):
                states.append((l, p))
    for plane in o["planes"]:
        key = plane["layer"], plane["part"], plane["side"]
        first, end, dtype, runs = planes.pop(key, (0, 0, 0, None))
        given = plane["first_row"], plane["first_row"] + sum(n for _, n in plane["runs"])
        require(given == (first, end) and plane["dtype"] == dtype, f"plane {key}: rows or dtype")
        require(runs is None or plane["runs"] == runs, f"plane {key}: runs {plane['runs']}")
    require(not planes, f"planes missing: {list(planes)}")
    require(sorted((s["layer"], s["part"]) for s in o["states"]) == states, "states")


# ---- TURBOQUANT.md. Doubles hold a product, quotient, root or sum of two fp32 numbers well enough
# that rounding them to fp32 is the one rounding wanted.

def half_bits(x):
    return struct.unpack("<H", struct.pack("<e", x))[0]


VALUES = {1: (409,), 2: (232, 773), 3: (125, 387, 688, 1102),
          4: (66, 199, 336, 482, 643, 828, 1059, 1399)}
SQUARES = {1: (8192,), 2: (1679, 18689), 3: (492, 4682, 14796, 37936),
           4: (135, 1234, 3533, 7275, 12928, 21447, 35069, 61170)}
THRESHOLDS = {1: (), 2: (8041,), 3: (4100, 8601, 14319),
              4: (2115, 4279, 6549, 9005, 11773, 15102, 19667)}


def split_mix(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        yield z ^ z >> 31


def signs(seed, d):
    words = split_mix(seed ^ d << 32)
    out = []
    while len(out) < d:
        word = next(words)
        out += [-1 if word >> bit & 1 else 1 for bit in range(64)]
    return out[:d]


def shape(d):
    power = d & -d
    return d // power, min(8, power)


def transform(x):
    x, d = list(x), len(x)
    m, w = shape(d)
    stride = 1
    while stride < d:
        for j in range(d):
            if j // stride % 2 == 0:
                x[j], x[j + stride] = x[j] + x[j + stride], x[j] - x[j + stride]
        stride *= 2 * m if stride == w // 2 else 2
    stride, rest, p = w, m, 3
    while rest > 1:
        while rest % p == 0:
            for j in range(d):
                if j // stride % p == 0:
                    total = sum(x[j + i * stride] for i in range(p))
                    for i in range(p):
                        x[j + i * stride] = x[j + i * stride] * p - 2 * total
            rest, stride = rest // p, stride * p
        p += 2
    return x


def index_of(codes, d, bits, j):
    if bits == 4:
        return codes[j] & 15 if j < d // 2 else codes[j - d // 2] >> 4
    e = (d + 7) // 8
    if bits == 1:
        return codes[j % e] >> j // e & 1
    low = codes[j % (d // 4)] >> 2 * (j // (d // 4)) & 3
    return low if bits == 2 else low | (codes[d // 4 + j % e] >> j // e & 1) << 2


def code_values(codes, d, bits):
    if bits == 8:
        return list(struct.unpack(f"{d}b", codes))
    half = 2 ** (bits - 1)
    out = []
    for j in range(d):
        index = index_of(codes, d, bits, j)
        out.append(VALUES[bits][index - half] if index >= half else -VALUES[bits][half - 1 - index])
    return out


def decode_vector(codes, scale_bits, d, bits, seed, mean=None, gain=None):
    require(scale_bits < 0x7C00, "scale")
    scale = struct.unpack("<e", struct.pack("<H", scale_bits))[0]
    root = f32(math.sqrt(d * shape(d)[0]))
    step = f32((1 if bits == 8 else 1 / 512) / root)
    factor = f32(scale * step)
    out = [f32(z * (s * factor))
           for z, s in zip(transform(code_values(codes, d, bits)), signs(seed, d))]
    if mean or gain:
        mean, gain = mean or [0.0] * d, gain or [1.0] * d
        out = [f32(f32(x * f32(1 / g)) + mu) for x, g, mu in zip(out, gain, mean)]
    return out


def pack_indices(index, d, bits):
    if bits == 4:
        return bytes(index[j] | index[j + d // 2] << 4 for j in range(d // 2))
    q, e = d // 4, (d + 7) // 8
    if bits == 1:
        return bytes(sum(index[j + k * e] << k for k in range(8) if j + k * e < d)
                     for j in range(e))
    out = bytes(sum((index[j + s * q] & 3) << 2 * s for s in range(4)) for j in range(q))
    if bits == 3:
        out += bytes(sum((index[j + k * e] >> 2) << k for k in range(8) if j + k * e < d)
                     for j in range(e))
    return out


def encode_vector(x, bits, seed):
    """(codes, scale as fp16 bits) of integer values: their sums below 2^24 need no rounding."""
    d = len(x)
    m = shape(d)[0]
    lanes = [sum(v * v for v in x[i::32]) for i in range(32)]
    lanes = [f32(f32(lanes[i] + lanes[i + 8]) + f32(lanes[i + 16] + lanes[i + 24]))
             for i in range(8)]
    a, b, c, e = (f32(lanes[i] + lanes[i + 4]) for i in (0, 2, 1, 3))
    norm = f32(math.sqrt(f32(f32(a + b) + f32(c + e))))
    z = transform([v * s for v, s in zip(x, signs(seed, d))])
    root = f32(math.sqrt(d * m))
    if bits == 8:
        scale = half_bits(f32(max(map(abs, z)) / f32(127 * root)))
        wide = struct.unpack("<e", struct.pack("<H", scale))[0]
        to_code = f32(1 / f32(wide * root))
        codes = (max(-127, min(127, round(f32(v * to_code)))) for v in z)
        return struct.pack(f"{d}b", *codes), scale
    grid = f32(8192 / f32(norm * f32(math.sqrt(m))))
    index, squares, half = [], 0, 2 ** (bits - 1)
    for v in z:
        u = max(-32767, min(32767, round(f32(v * grid))))
        cell = sum(t < abs(u) for t in THRESHOLDS[bits])
        squares += SQUARES[bits][cell]
        index.append(half + cell if u >= 0 else half - 1 - cell)
    scale = half_bits(f32(norm / f32(math.sqrt(f32(f32(squares) / 8192)))))
    return pack_indices(index, d, bits), scale


def exact_values(data, dtype):
    if dtype == 3:
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        dtype = 1
    form, size = DTYPES[dtype]
    return list(struct.unpack(f"<{len(data) // size}{form}", data))


def decode_plane(p, profile):
    """(rows, heads, dim) values, one after the other."""
    coding = profile["layers"][p["layer"]][p["part"]]
    heads, d, bits = p["heads"], p["dim"], p["bits"]
    r, out, at = Reader(p["data"]), [], p["first_row"]
    for (form, rows), (length, skip, of) in zip(p["runs"], p["streams"]):
        at += rows
        if form == 2:
            require(coding["bits"][p["side"]] == 16 and skip + rows <= of <= 4096, "stream")
            out += decode_stream(profile["set"], coding["transforms"][p["side"]], heads, d,
                                 r.raw(length), of, at - rows - skip)[skip * heads * d:][
                                     :rows * heads * d]
            continue
        if form == 0:
            out += exact_values(r.raw(rows * heads * d * DTYPES[p["dtype"]][1]), p["dtype"])
            continue
        require(bits == coding["bits"][p["side"]], "bits")
        codes = [[r.raw(code_bytes(d, bits)) for _ in range(rows)] for _ in range(heads)]
        scales = [[r.number("H") for _ in range(rows)] for _ in range(heads)]
        for row in range(rows):
            for h in range(heads):
                own = slice(h * d, (h + 1) * d) if p["side"] == 0 else slice(0)
                out += decode_vector(codes[h][row], scales[h][row], d, bits, profile["seed"],
                                     coding["mean"][own], coding["gain"][own])
    r.end()
    return out


def crc_of(values):
    return f"{zlib.crc32(struct.pack(f'<{len(values)}f', *values)):08x}"


# ---- MODELS.md: fingerprint of a GGUF file

GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def skip_gguf_value(r, kind):
    if kind == 8:
        r.raw(r.number("Q"))
    elif kind == 9:
        item, count = r.numbers("IQ")
        for _ in range(count):
            skip_gguf_value(r, item)
    else:
        r.raw(GGUF_SIZES[kind])


def gguf_fingerprint(data):
    r = Reader(data)
    require(r.raw(4) == b"GGUF" and r.number("I") == 3, "GGUF 3")
    tensors, values = r.numbers("QQ")
    entries, infos = {}, {}
    for _ in range(values):
        start = r.at
        key = r.raw(r.number("Q"))
        skip_gguf_value(r, r.number("I"))
        entries[key] = data[start:r.at]
    for _ in range(tensors):
        start = r.at
        name = r.raw(r.number("Q"))
        dims = [r.number("Q") for _ in range(r.number("I"))]
        r.number("I")
        infos[name] = (data[start:r.at], r.number("Q"), dims)
    architecture = entries[b"general.architecture"][8 + 20 + 4 + 8:]
    base = -(-r.at // 32) * 32
    ends = sorted([at for _, at, _ in infos.values()] + [len(data) - base])
    fields = [("v", b"\1"), ("f", b"gguf")]
    for key in sorted(entries):
        if key == b"general.architecture" or key.startswith(architecture + b"."):
            fields.append(("k", entries[key]))
    for name in sorted(infos):
        info, at, dims = infos[name]
        size = 4 * math.prod(dims)  # the example's are F32
        require(base + at + size <= base + ends[-1], "tensor outside the file")
        fields += [("t", info), ("d", hashlib.sha256(data[base + at:base + at + size]).digest())]
    return hashlib.sha256(field_list(*fields)).hexdigest()


# ---- the documents' examples and tables

def marked(text, name):
    return text.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]


def table(text):
    rows = [[c.strip() for c in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("|")]
    return rows[2:]


def hex_lines(text):
    out = b""
    for line in text.splitlines():
        digits = re.match(r"([0-9a-f]{4}):((?: [0-9a-f]{2})+)(?: |$)", line)
        if digits:
            require(int(digits[1], 16) == len(out), f"offset of: {line}")
            out += bytes.fromhex(digits[2])
    return out


def golden_input(d):
    words = split_mix(1000)
    return [sum(struct.pack("<Q", next(words))) - 1020 for _ in range(d)]


def check_vectors(text, show):
    plain, keys, wrong = [], [], 0
    bytes_table = text.split("## Golden vectors")[1].split("CRC-32 of the decoded")[0]
    given = {row[0]: row[1:] for name in ("decoded", "decoded K")
             for row in [[name + r[0], *r[1:]] for r in table(marked(text, name))]}
    for row in table(bytes_table):
        d = int(row[0])
        mean = [float(37 * j % 101 - 50) for j in range(d)]
        gain = [1 + j % 7 / 8 for j in range(d)]
        both = ([], [])
        for bits, cell in zip((1, 2, 3, 4, 8), row[1:]):
            codes, scale = encode_vector(golden_input(d), bits, 42)
            require(f"{zlib.crc32(codes):08x} {scale:04x}" == cell, f"codes of d {d}, {bits} bit")
            both[0].append(crc_of(decode_vector(codes, scale, d, bits, 42)))
            both[1].append(crc_of(decode_vector(codes, scale, d, bits, 42, mean, gain)))
        for name, crcs in zip(("decoded", "decoded K"), both):
            wrong += given.get(f"{name}{d}") != crcs
        plain.append(f"| {d} | {' | '.join(both[0])} |")
        keys.append(f"| {d} | {' | '.join(both[1])} |")
    if show:
        print("decoded", *plain, "decoded K", *keys, sep="\n")
    require(show or (wrong == 0 and len(plain) > 10), f"{wrong} rows of decoded vectors differ")


def check_worked_example(text):
    example = text.split("## Worked example")[1].split("## Golden")[0]
    rows = re.findall(r"^\| (\d) \| ([0-9a-f]+) \| ([0-9a-f]{4}) ", example, re.M)
    require(len(rows) == 5, "worked example: no rows")
    for bits, codes, scale in rows:
        given = encode_vector(golden_input(32), int(bits), 42)
        require(given == (bytes.fromhex(codes), int(scale, 16)), f"worked example, {bits} bit")


def check_golden_files(text, folder, show):
    files = {p.stem: read_file(p.read_bytes()) for p in sorted(folder.glob("*.bin"))}
    profile = read_profile(files["profile"][2])
    profile_id = hashlib.sha256(files["profile"][2]).digest()
    require(files["profile"][1] == profile_id, "profile's id")
    model = read_model(files["model"][2])
    head = Reader(files["model"][1])
    model_id, namespace = head.raw(32), head.blob()
    fingerprint, in_force = head.raw(32), head.raw(32)
    require(in_force == profile_id and fingerprint == model["fingerprint"], "model record")
    require(model_id == hashlib.sha256(field_list(
        ("v", b"\1"), ("n", namespace), ("m", fingerprint), ("k", b"model"))).digest(), "model id")
    rows = []
    for name, (kind, header, payload) in files.items():
        if kind > 4:
            continue
        o = read_object(kind, header, payload)
        require(o["profile"] == profile_id and o["namespace"] == namespace, "realm")
        check_contents(o, model, profile)
        for p in o["planes"]:
            part = model["layers"][p["layer"]][p["part"]]
            dim = part["v_dim"] if p["side"] == 1 else part["k_dim"]
            require((p["heads"], p["dim"]) == (part["heads"], dim), "shape")
            end = p["first_row"] + sum(n for _, n in p["runs"])
            rows.append([f"{name}.bin", str(p["layer"]), "KV "[p["side"]].strip() or "other",
                         f"{p['first_row']} to {end - 1}", crc_of(decode_plane(p, profile))])
    if show:
        print(*("| " + " | ".join(r) + " |" for r in rows), sep="\n")
    require(show or rows == table(marked(text, "golden planes")), f"golden planes: {rows}")


def main():
    root, show = pathlib.Path(sys.argv[1]), "--print" in sys.argv
    form, codec, transform, models = (
        (root / name).read_text(encoding="utf-8") for name in
        ("storage/FORMAT.md", "codec/TURBOQUANT.md", "codec/TRANSFORM.md", "engine/MODELS.md"))
    try:
        kind, header, payload = read_file(hex_lines(form))
        tail = read_object(kind, header, payload)
        require(f"{tail['id'].hex()}.tail" in form, "the example's name")
        require(exact_values(tail["planes"][0]["data"], 2) == [1.0, -2.0], "the example's row")
        check_worked_example(codec)
        check_vectors(codec, show)
        check_golden_files(form, root / "tests/golden/format", show)
        check_golden_files(transform, root / "tests/golden/streams", show)
        fingerprint = gguf_fingerprint(hex_lines(models))
        require(show or fingerprint in models, f"fingerprint {fingerprint}")
        if show:
            print(fingerprint)
    except Wrong as e:
        sys.exit(f"format reader check: {e}")
    print("format reader check: ok")


if __name__ == "__main__":
    main()
