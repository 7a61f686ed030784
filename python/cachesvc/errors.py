"""CacheError: a failure of the cache, told in words and in the codes of PROTOCOL.md.

Every failure is a miss. A Cache that fails open hands the error over beside its miss; a strict one,
and a Connection, raise it.
"""
from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """PROTOCOL.md, "Status codes"."""

    NOT_FOUND = 1
    INVALID_ARGUMENT = 2
    CORRUPTION = 3
    UNSUPPORTED = 4
    RESOURCE_EXHAUSTED = 5
    IO_ERROR = 6
    INTERNAL = 7
    BUSY = 8
    DEADLINE_EXCEEDED = 9
    PROFILE_CHANGED = 10
    UNAVAILABLE = 11
    DENIED = 12
    CANCELLED = 13


class CacheError(Exception):
    """`code` says what kind, `message` names field and limit, `call` what was being done."""

    def __init__(self, code: Code, message: str, call: str = "") -> None:
        super().__init__(code, message, call)
        self.code = code
        self.message = message
        self.call = call

    def within(self, name: str) -> None:
        """Puts the name of the field that it is about before the message."""
        self.message = f"{name}: {self.message}"

    def forget(self) -> None:
        """Lets go of the frames that it came through, and of the caller's memory in them."""
        for each in (self, self.__cause__, self.__context__):
            if each is not None:
                each.__traceback__ = None

    def __str__(self) -> str:
        during = f"{self.call}: " if self.call else ""
        return f"{during}{self.message} ({self.code.name.lower()})"


class Refused(CacheError):
    """One call failed, mostly by an error frame; nothing is wrong with the service."""


class Malformed(CacheError):
    """Bytes that are not what the documents say."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.CORRUPTION, message)


def invalid(field: str, given: object, limit: object) -> CacheError:
    return CacheError(Code.INVALID_ARGUMENT, f"{field} is {given}, must be {limit}")
