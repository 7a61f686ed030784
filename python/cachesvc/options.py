"""Options that the programs of all adapters have: which daemon, which namespace, how careful."""
from __future__ import annotations

import argparse
from typing import Optional, Tuple

MIN_TOKENS, BUDGET_MS, SHADOW = 64, 100, 1000


def add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--socket", required=True, help="of the cachesvc daemon")
    p.add_argument("--namespace", required=True)
    p.add_argument("--token-file", help="of the namespace's token, where it has one")
    p.add_argument("--bits", metavar="K:V", help="code rows, such as 8:4; default: lossless")
    p.add_argument("--min-tokens", type=int, default=MIN_TOKENS, help="of a prompt worth a look-up")
    p.add_argument("--budget-ms", type=int, default=BUDGET_MS,
                   help="how much later than without the cache an answer may come")
    p.add_argument("--shadow", type=int, default=SHADOW, metavar="N", help="the engine computes "
                   "one hit in N anew, and the two are compared; 0: none (default: %(default)s)")
    p.add_argument("--tag", default="", help="what else makes this engine's rows its own")


def check_options(p: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the program where one has a value that it can't have."""
    if options.shadow < 0:
        p.error("--shadow wants a number from 0")
    if options.bits and not all(bits in ("8", "4", "3", "2")
                                for bits in options.bits.partition(":")[::2]):
        p.error("--bits wants two of 8, 4, 3 and 2, such as 8:4")


def bits_of(options: argparse.Namespace) -> Optional[Tuple[int, int]]:
    """Of keys and of values; None: lossless."""
    if not options.bits:
        return None
    keys, _, values = options.bits.partition(":")
    return int(keys), int(values)


def read_secret(path: Optional[str]) -> bytes:
    if not path:
        return b""
    with open(path, "rb") as file:
        return file.read(4096).strip()
