#!/usr/bin/env python3
"""llama.cpp's own predictions on its own quantised caches, for `cachectl quality --llama`.

usage: quality_llama.py MODEL.gguf THREADS BATCH TYPE... <TOKENS >LOGITS
TOKENS: ids as int32. The text is forced through one context per cache type (K and V alike, flash
attention on), BATCH tokens at a time. LOGITS: the size of the vocabulary as int32, then per batch
and type the logits of its positions as float32, (tokens, vocabulary). Byte order is the machine's.

Uses the C functions that the extension of the package xllamacpp exports. They come without a
header: what is known of their parameters is compared with the defaults first, and another layout is
refused.
"""
import array
import ctypes
import sys

import xllamacpp

PARAMETER_BYTES = 512  # more than llama_context_params and llama_model_params have
# Offsets in llama_context_params.
N_CTX, N_BATCH, N_UBATCH, FLASH_ATTENTION, TYPE_K, TYPE_V = 0x00, 0x04, 0x08, 0x34, 0x68, 0x6C
# Defaults that this layout has: values of 4 bytes from an offset on.
DEFAULTS = {0x00: (512, 2048, 512, 1), 0x28: (-1, -1, -1, -1), 0x38: (0, 0), 0x50: (0,),
            0x58: (0, 0, 0, 0), 0x68: (1, 1), 0x70: (0, 0, 0, 0)}
LOG_ERROR = 4
MAX_TYPES = 32  # ggml numbers those looked for below this


class Parameters(ctypes.Structure):
    """Passed by value, so in memory: callee and caller agree whatever follows its own fields."""
    _fields_ = [("words", ctypes.c_uint64 * (PARAMETER_BYTES // 8))]

    def get(self, offset):
        return ctypes.c_int32.from_buffer(self, offset).value

    def set(self, offset, value):
        ctypes.c_int32.from_buffer(self, offset).value = value


class Batch(ctypes.Structure):
    """llama_batch: tokens at positions of sequence 0, each with logits."""
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)),
                ("embd", ctypes.c_void_p), ("pos", ctypes.POINTER(ctypes.c_int32)),
                ("n_seq_id", ctypes.c_void_p), ("seq_id", ctypes.c_void_p),
                ("logits", ctypes.POINTER(ctypes.c_int8))]


def fail(text):
    sys.exit(f"quality_llama.py: {text}")


def library():
    """The package's extension as a C library."""
    lib = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    pointer = ctypes.c_void_p
    for name, result, arguments in (
            ("llama_model_default_params", Parameters, []),
            ("llama_context_default_params", Parameters, []),
            ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Parameters]),
            ("llama_init_from_model", pointer, [pointer, Parameters]),
            ("llama_model_get_vocab", pointer, [pointer]),
            ("llama_vocab_n_tokens", ctypes.c_int32, [pointer]),
            ("llama_set_n_threads", None, [pointer, ctypes.c_int32, ctypes.c_int32]),
            ("llama_decode", ctypes.c_int32, [pointer, Batch]),
            ("llama_get_logits", pointer, [pointer]),
            ("ggml_type_name", ctypes.c_char_p, [ctypes.c_int32])):
        try:
            function = getattr(lib, name)
        except AttributeError:
            fail(f"this version of xllamacpp does not export {name}")
        function.restype, function.argtypes = result, arguments
    return lib


def cache_types(lib, names):
    """ggml's numbers of these types."""
    numbers = {lib.ggml_type_name(i): i for i in range(MAX_TYPES)}
    for name in names:
        if name.encode() not in numbers:
            fail(f"llama.cpp has no type {name}")
    return [numbers[name.encode()] for name in names]


def make_context(lib, model, tokens, batch, threads, cache_type):
    """A context for `tokens` positions whose K and V are stored as `cache_type`."""
    p = lib.llama_context_default_params()
    for offset, values in DEFAULTS.items():
        if tuple(p.get(offset + 4 * i) for i in range(len(values))) != values:
            fail("this version of xllamacpp lays out its parameters otherwise")
    for offset, value in ((N_CTX, tokens), (N_BATCH, batch), (N_UBATCH, batch),
                          (FLASH_ATTENTION, 1), (TYPE_K, cache_type), (TYPE_V, cache_type)):
        p.set(offset, value)
    context = lib.llama_init_from_model(model, p)
    if not context:
        fail("llama.cpp makes no context of this model")
    lib.llama_set_n_threads(context, threads, threads)
    return context


def logits_of(lib, context, ids, first, vocab):
    """Logits behind each of `ids`, the first at position `first`: a view, valid until the next."""
    n = len(ids)
    batch = Batch(n, (ctypes.c_int32 * n)(*ids), None,
                  (ctypes.c_int32 * n)(*range(first, first + n)), None, None,
                  (ctypes.c_int8 * n)(*[1] * n))
    if lib.llama_decode(context, batch) != 0:
        fail(f"llama.cpp fails at position {first}")
    return (ctypes.c_float * (n * vocab)).from_address(lib.llama_get_logits(context))


def main():
    path, threads, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ids = array.array("i", sys.stdin.buffer.read())
    lib = library()
    log_type = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

    @log_type
    def log(level, text, _):
        if level == LOG_ERROR:
            sys.stderr.write(text.decode(errors="replace"))

    lib.llama_log_set(log, None)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if not model:
        fail(f"llama.cpp does not load {path}")
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    contexts = [make_context(lib, model, len(ids), batch, threads, t)
                for t in cache_types(lib, sys.argv[4:])]
    out = sys.stdout.buffer
    out.write(array.array("i", [vocab]).tobytes())
    for first in range(0, len(ids), batch):
        for context in contexts:
            out.write(logits_of(lib, context, ids[first:first + batch], first, vocab))
    out.flush()


main()
