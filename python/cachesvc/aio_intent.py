"""The calls of AsyncCache that say what a program wants, as Cache's of the same names."""
from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar, Union

from . import entry, intent
from . import intent_messages as im
from .cache import missed, not_demoted, not_expired, not_retained
from .connection import Script
from .entry import Extras, as_query
from .errors import CacheError
from .intent import Held, Retained
from .models import Model, Profile
from .session import Session

T = TypeVar("T")


class IntentCalls:
    async def _failing_open(self, call: str, make: Callable[[Session], Script[T]], timeout: float,
                            miss: Callable[[CacheError], T]) -> T:
        """AsyncCache's."""
        raise NotImplementedError

    async def demote(self, model: Model, tokens: Any = (), *, extras: Extras = (), hold: int = 0,
                     timeout: float = 1.0,
                     profile: Optional[Profile] = None) -> im.DemoteOk:
        return await self._failing_open(
            "demote", lambda s: entry.demote(s, model, as_query(tokens, extras), hold, profile),
            timeout, not_demoted)

    async def hold(self, model: Model, tokens: Any, seconds: float, *, extras: Extras = (),
                   timeout: float = 1.0, profile: Optional[Profile] = None) -> Held:
        return await self._failing_open(
            "hold",
            lambda s: entry.hold(s, model, as_query(tokens, extras), seconds, profile), timeout,
            lambda error: Held(found=missed(error)))

    async def renew(self, held: Union[Held, Retained], seconds: float, *,
                    timeout: float = 1.0) -> float:
        if not held:
            return 0.0
        return await self._failing_open(
            "renew", lambda s: intent.renew(s, held.number, seconds), timeout, lambda _: 0.0)

    async def release(self, held: Union[Held, Retained], *, timeout: float = 1.0) -> bool:
        if not held:
            return False
        return await self._failing_open(
            "release", lambda s: intent.release(s, held.number), timeout, lambda _: False)

    async def retain(self, model: Model, tokens: Any, seconds: float, *, extras: Extras = (),
                     timeout: float = 1.0, profile: Optional[Profile] = None) -> Retained:
        return await self._failing_open(
            "retain",
            lambda s: entry.retain(s, model, as_query(tokens, extras), seconds, profile), timeout,
            not_retained)

    async def expire(self, model: Model, tokens: Any, seconds: Optional[float], *,
                     extras: Extras = (), whole: bool = False, timeout: float = 1.0,
                     profile: Optional[Profile] = None) -> im.ExpireOk:
        return await self._failing_open(
            "expire",
            lambda s: entry.expire(s, model, as_query(tokens, extras), whole, seconds, profile),
            timeout, not_expired)
