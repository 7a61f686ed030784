#!/usr/bin/env python3
"""Makes tests/golden/engine/packed_rows.txt: rows of GGUF's packed types and their values.

usage: make_packed_golden.py > tests/golden/engine/packed_rows.txt
Needs gguf and numpy. Per type two lines: "<ggml number> <packed bytes in hex>" and the 512 values
of gguf's own dequantisation, as the hex bits of their fp32. The bytes come from SplitMix64; only
the fp16 scales are made finite. Run once by hand; the test run needs only the result.
"""
import gguf
import numpy as np

VALUES = 512
# Offsets of fp16 scales within a group of each type.
SCALES = {"Q4_1": (0, 2), "Q5_0": (0,), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}


def split_mix(seed):
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = seed
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        yield (z ^ (z >> 31)) & 0xFF


def main():
    print("# gguf's dequantize of random packed bytes; tests/scripts/make_packed_golden.py")
    for name, places in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        group, size = gguf.GGML_QUANT_SIZES[kind]
        source = split_mix(int(kind))
        row = np.array([next(source) for _ in range(VALUES // group * size)], dtype=np.uint8)
        for first in range(0, len(row), size):
            for at in places:
                row[first + at + 1] &= 0xBF  # a smaller exponent: finite, below 2
        values = gguf.quants.dequantize(row, kind).astype(np.float32)
        print(int(kind), row.tobytes().hex())
        print(" ".join(f"{v:08x}" for v in values.view(np.uint32)))


if __name__ == "__main__":
    main()
