"""Fields of files, and the streams of codec/TRANSFORM.md, from the documents alone: for
format_reader_check.py."""
import fractions
import math
import struct


class Wrong(Exception):
    """The bytes are not what the documents say."""


def require(good, what):
    if not good:
        raise Wrong(what)


class Reader:
    """Little-endian fields, one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def raw(self, count):
        require(self.at + count <= len(self.data), "truncated")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.raw(struct.calcsize("<" + form)))[0]

    def numbers(self, forms):
        return [self.number(f) for f in forms]

    def blob(self):
        return self.raw(self.number("I"))

    def array(self, form):
        return [self.number(form) for _ in range(self.number("I"))]

    def end(self):
        require(self.at == len(self.data), "bytes behind the last field")


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


# ---- TRANSFORM.md. What is rounded once is computed in fractions.

def read_set(r):
    tables = [(r.number("b"), r.array("H")) for _ in range(r.number("I"))]
    rotations = [(r.number("B"), r.array("f")) for _ in range(r.number("I"))]
    names = ("rotation", "width", "mean", "scale", "basis", "table", "low_bits")
    transforms = [dict(zip(names, (r.number("H"), r.number("I"), r.array("f"), r.array("f"),
                                   r.array("b"), r.array("B"), r.array("B"))))
                  for _ in range(r.number("I"))]
    return tables, rotations, transforms


def nearest(x):
    """A fraction as fp32: a double in between rounds it twice, which is seen and undone."""
    near = f32(float(x))
    bits = struct.unpack("<I", struct.pack("<f", near))[0]
    others = [struct.unpack("<f", struct.pack("<I", bits + d))[0] for d in (-1, 1) if bits + d > 0]
    return min([near, *others], key=lambda y: (abs(fractions.Fraction(y) - x), y != near))


def fma(a, b, c):
    """In double."""
    f = fractions.Fraction
    return float(f(a) * f(b) + f(c))  # Python rounds a quotient of integers right


def cosine_sine(step, q):
    z = step * q
    k = round(z * (2 / math.pi))
    r = fma(-k, float.fromhex("0x1.1a62633145c07p-54"), fma(-k, float.fromhex(
        "0x1.921fb54442d18p+0"), z))
    x, sine, cosine = r * r, -1 / math.factorial(15), 1 / math.factorial(16)
    for n in range(13, 0, -2):
        sine = fma(sine, x, (1 if n % 4 == 1 else -1) / math.factorial(n))
    for n in range(14, -1, -2):
        cosine = fma(cosine, x, (1 if n % 4 == 0 else -1) / math.factorial(n))
    s = sine * r
    c, s = [(cosine, s), (-s, cosine), (-cosine, -s), (s, -cosine)][k % 4]
    return f32(c), f32(s)


def turned(row, rotation, position, heads, d):
    halves, steps = rotation
    out = list(row)
    for i, step in enumerate(steps):
        a = position % 256
        (ca, sa), (cb, sb) = cosine_sine(step, a), cosine_sine(step, position - a)
        c = f32(f32(cb * ca) - f32(sb * sa))
        s = f32(f32(sb * ca) + f32(cb * sa))
        for h in range(heads):
            m, n = (i, i + len(steps)) if halves else (2 * i, 2 * i + 1)
            x, y = row[h * d + m], row[h * d + n]
            out[h * d + m] = f32(f32(x * c) - f32(y * s))
            out[h * d + n] = f32(f32(x * s) + f32(y * c))
    return out


def decode_integers(tables, transform, data, rows):
    """[component][row]"""
    r = Reader(data)
    count = r.number("I")
    states = [r.number("I") for _ in range(min(rows, 32))]
    words = Reader(r.raw(2 * count))

    def symbol(row, first, counts):
        lane = row % 32
        slot, start = states[lane] % 4096, 0
        for i, f in enumerate([*counts, 4096 - sum(counts)]):
            if slot < start + f:
                break
            start += f
        x = f * (states[lane] // 4096) + slot - start
        states[lane] = x if x >= 65536 else 65536 * x + words.number("H")
        return first + i if i < len(counts) else None

    def escaped():
        value = shift = 0
        while True:
            byte = r.number("B")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value // 2 if value % 2 == 0 else -(value // 2) - 1

    out = []
    for table, bits in zip(transform["table"], transform["low_bits"]):
        high = [symbol(row, *tables[table]) for row in range(rows)]
        even = 0, [4096 >> bits] * ((1 << bits) - 1)  # the last value's part is the rest
        low = [symbol(row, *even) if bits else 0 for row in range(rows)]
        low = [(1 << bits) - 1 if v is None else v for v in low]
        out.append([escaped() if v is None else v * (1 << bits) + w for v, w in zip(high, low)])
    words.end()
    r.end()
    require(all(x == 65536 for x in states), "states at the end")
    return out


def decode_stream(of_set, number, heads, d, data, rows, position):
    tables, rotations, transforms = of_set
    t = transforms[number]
    integers, width, out = decode_integers(tables, t, data, rows), t["width"], []
    for row in range(rows):
        values = list(t["mean"])
        for c in range(heads * d):
            for j in range(width):
                entry = f32(t["scale"][c] * t["basis"][c * width + j])
                at = c // width * width + j
                values[at] = nearest(integers[c][row] * fractions.Fraction(entry)
                                     + fractions.Fraction(values[at]))
        values = [v + 0.0 for v in values]
        if t["rotation"] != 65535:
            values = turned(values, rotations[t["rotation"]], position + row, heads, d)
        out += values
    return out
