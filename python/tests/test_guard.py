"""Guard: rests double up to their limit, and only a failing service makes one."""
from __future__ import annotations

import pytest

from cachesvc import CacheError, Code, Refused
from cachesvc.guard import Guard


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def rests(guard: Guard) -> bool:
    try:
        guard.check()
    except CacheError:
        return True
    return False


def test_rests_double_up_to_a_limit_and_one_good_call_ends_them() -> None:
    clock = Clock()
    guard = Guard(1.0, 5.0, clock)
    for pause in (1, 2, 4, 5, 5):
        guard.failed(CacheError(Code.UNAVAILABLE, "gone"), False)
        clock.now += pause - 0.1
        assert rests(guard)
        clock.now += 0.2
        assert not rests(guard)
    guard.good()
    guard.failed(CacheError(Code.UNAVAILABLE, "gone"), False)
    clock.now += 1.1
    assert not rests(guard)


@pytest.mark.parametrize("error", [Refused(Code.BUSY, "no room"),
                                   CacheError(Code.INVALID_ARGUMENT, "tokens")])
def test_a_refused_request_makes_no_rest(error: CacheError) -> None:
    guard = Guard()
    guard.failed(error, False)
    assert not rests(guard)
    assert guard.last_error is error and sum(guard.failures.values()) == 1


def test_a_call_during_a_rest_is_counted_and_makes_it_no_longer() -> None:
    clock = Clock()
    guard = Guard(1.0, 5.0, clock)
    cause = CacheError(Code.IO_ERROR, "the socket")
    guard.failed(cause, False)
    for _ in range(5):
        guard.failed(CacheError(Code.UNAVAILABLE, "resting"), True)
    clock.now += 1.1
    assert not rests(guard) and guard.last_error is cause
    assert guard.failures == {"io_error": 1, "unavailable": 5}


def test_calls_that_fail_together_make_one_rest() -> None:
    clock = Clock()
    guard = Guard(1.0, 60.0, clock)
    for _ in range(4):  # each on a connection of its own
        guard.failed(CacheError(Code.UNAVAILABLE, "gone"), False)
    clock.now += 1.1
    assert not rests(guard) and guard.failures == {"unavailable": 4}
