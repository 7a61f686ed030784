"""Options that the programs of all adapters have: which daemon, which namespace, how careful."""
from __future__ import annotations

import argparse
from typing import Optional, Tuple

from .errors import CacheError, invalid

MIN_TOKENS, BUDGET_MS, SHADOW = 64, 100, 1000


def add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--socket", required=True, help="of the cachesvc daemon")
    p.add_argument("--namespace", required=True)
    p.add_argument("--token-file", help="of the namespace's token, where it has one")
    p.add_argument("--bits", metavar="K:V", help="code rows, such as 8:4; default: lossless")
    p.add_argument("--plan", metavar="FILE", default="",
                   help="code rows as a file of `cachectl tune` says, in place of --bits")
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
    if options.plan and options.bits:
        p.error("--plan has the bits of its rows: no --bits beside it")
    try:
        bits_of(options)
    except CacheError as error:
        p.error(error.message)


def bits_of(options: argparse.Namespace) -> Optional[Tuple[int, int]]:
    return parse_bits("--bits", options.bits)


def parse_bits(name: str, given: Optional[str]) -> Optional[Tuple[int, int]]:
    """Of keys and of values; None: lossless. CacheError, with the option's name: neither."""
    if not given:
        return None
    keys, _, values = given.partition(":")
    if not all(each in ("8", "4", "3", "2") for each in (keys, values)):
        raise invalid(name, repr(given), "two of 8, 4, 3 and 2, such as 8:4")
    return int(keys), int(values)


def read_secret(path: Optional[str]) -> bytes:
    if not path:
        return b""
    with open(path, "rb") as file:
        return file.read(4096).strip()
