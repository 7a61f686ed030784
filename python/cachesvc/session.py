"""Session: the calls of one connection as scripts, without a socket.

A script is a generator that yields what to do next, Send or Receive, and returns its call's
result. connection.py drives scripts with a socket, aio.py with asyncio. One script runs at a time.
A Refused leaves the connection as it was; after any other error its stream is out of step, and the
driver closes it. Replies are read to the end before a Refused is raised,
also of a script that is cancelled.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, Generator, Iterable, List, Optional, Tuple, TypeVar, Union

from . import intent_messages as im
from . import messages as m
from . import own_memory
from . import why_messages as wm
from .deadline import Deadline
from .errors import CacheError, Code, Malformed, Refused
from .frames import HANDSHAKE_BYTES, LONGEST, VERSION, Hello, HelloOk, Type, encode_header
from .models import Model, Prefill, Profile
from .objects import Object, ObjectHeader
from .own_memory import OwnMemory
from .pools import FEATURE, UNASKED, FetchMappedOk, Lease, Pools, Where
from .selection import Selection
from .wire import Buffer, Record, Tokens

SHORT_BYTES = 64 << 10
LOOKUPS_AT_ONCE = 32
T = TypeVar("T")


@dataclasses.dataclass
class Frame:
    type: Type
    request_id: int
    body: memoryview


@dataclasses.dataclass
class Send:
    """One frame: its header, then each buffer of bytes whole. descriptor: beside its first byte;
    -1: none."""

    buffers: List[Buffer]
    descriptor: int = -1


@dataclasses.dataclass
class Receive:
    """The next frame, whose body has at most `most` bytes."""

    most: int


@dataclasses.dataclass
class Pause:
    seconds: float


Command = Union[Send, Receive, Pause]
Step = Generator[Command, Optional[Frame], Frame]


@dataclasses.dataclass
class Opened:
    """A model under a handle of this connection, and the profile in force when it was opened."""

    model: Model
    handle: int
    namespace: str
    profile_id: bytes
    profile: Profile
    reports: List[m.Report]


@dataclasses.dataclass
class Fetched:
    """lease: of objects that lie in the service's segments."""

    header: m.FetchHeader
    objects: List[Object]
    lease: Optional[Lease] = None


@dataclasses.dataclass
class Outgoing:
    """An object to put: its header and its payload's buffers of bytes in order."""

    header: ObjectHeader
    payload: List[Buffer]


class Session:
    # pools: what the driver maps, if it takes descriptors; without them every hit is streamed.
    # memory: rows that lie there are not sent.
    def __init__(self, namespace: str, program: str, token: bytes = b"",
                 pools: Optional[Pools] = None, memory: Optional[OwnMemory] = None) -> None:
        features = (0 if pools is None else FEATURE) | (0 if memory is None else own_memory.FEATURE)
        self._hello = Hello(VERSION, VERSION, features, namespace, program, token)
        self._offered, self._memory = pools, memory
        self.pools: Optional[Pools] = None       # once the service has granted them
        self.memory: Optional[OwnMemory] = None  # once it has taken it
        self._next_id = 0
        self.limits: Optional[HelloOk] = None  # of the service, once it has answered hello
        self.deadline = Deadline(1)            # of the script that runs
        self._first_id = 1                     # of its requests
        self.cancelled = False                 # it is no longer wanted
        self._opened: Dict[bytes, Opened] = {}

    def begin(self, deadline: Deadline) -> None:
        """A script is to run."""
        self.deadline, self.cancelled, self._first_id = deadline, False, self._next_id + 1

    def cancels(self) -> bytes:
        """Frames that take back what the script asked for; those answered already are left alone.
        Driver: behind a whole frame, and again behind each that the script sends after it."""
        first = max(self._first_id, self._next_id + 1 - self.in_flight())
        bodies = [im.Cancel(number).encode() for number in range(first, self._next_id + 1)]
        return b"".join(encode_header(Type.CANCEL, 0, len(body)) + body for body in bodies)

    def in_flight(self) -> int:
        """Requests that may be open at a time: one fewer than the service allows where that leaves
        one, since it reads a cancel only while fewer are."""
        most = 1 if self.limits is None else self.limits.max_in_flight
        return max(1, most - 1)

    # ---- one request, one reply

    def request(self, kind: Type, body: Record, payload: Iterable[Buffer] = (),
                descriptor: int = -1) -> Generator[Command, Optional[Frame], int]:
        """Sends a frame; its request's id."""
        if self.cancelled and kind != Type.ABORT:
            raise Refused(Code.CANCELLED, "cancelled by its caller")
        self._next_id += 1
        head: Buffer = m.before_payload(body) if kind == Type.PUT else body.encode()
        buffers = [head, *payload]
        length = sum(len(b) for b in buffers)
        most = self.longest(kind)
        if length > most:
            raise Refused(Code.RESOURCE_EXHAUSTED,
                          f"a {kind.name.lower()} of {length} bytes, at most {most}")
        owed = [] if self.pools is None else self.pools.owed()
        header = encode_header(kind, self._next_id, length)
        if descriptor < 0:
            yield Send([*owed, header, *buffers])
        else:  # beside its own frame's first byte
            if owed:
                yield Send([*owed])
            yield Send([header, *buffers], descriptor)
        return self._next_id

    def longest(self, kind: Type) -> int:
        if self.limits is None:
            return HANDSHAKE_BYTES
        return self.limits.max_put_bytes if kind == Type.PUT else LONGEST.get(kind, 64 << 10)

    def _next(self, most: int = LONGEST[Type.FETCH_OBJECT]) -> Step:
        while True:
            frame = yield Receive(most if self.pools is None else max(most, SHORT_BYTES))
            assert frame is not None
            if frame.type not in UNASKED:
                return frame
            if self.pools is None or frame.request_id != 0:
                raise Malformed(f"a {frame.type.name.lower()} that nobody asked for")
            self.pools.take(frame.type, frame.body)

    def reply(self, request_id: int, kind: Type, most: int = LONGEST[Type.FETCH_OBJECT]) -> Step:
        """The next frame of a request: of this type, else an error."""
        frame = yield from self._next(most)
        if frame.type == Type.ERROR:
            raise self._error(frame, request_id)
        if frame.type != kind or frame.request_id != request_id:
            raise Malformed(f"{frame.type.name.lower()} of request {frame.request_id}, where "
                            f"{kind.name.lower()} of {request_id} is due")
        return frame

    @staticmethod
    def _error(frame: Frame, request_id: int) -> CacheError:
        """Refused, if it answers our request; under id 0 it ends the connection."""
        error = m.Error.decode(frame.body)
        known = error.code in [int(code) for code in Code]
        code = Code(error.code) if known else Code.INTERNAL
        if frame.request_id == request_id:
            return Refused(code, error.message)
        if frame.request_id == 0:
            return CacheError(code, error.message)
        return Malformed(f"an error for request {frame.request_id}, which is not open")

    def farewell(self) -> Generator[Command, Optional[Frame], Any]:
        """Takes over after a failed send: reads to the error under request id 0 that says why."""
        while True:
            frame = yield from self._next()
            if frame.type == Type.ERROR and frame.request_id == 0:
                raise self._error(frame, -1)

    def call(self, kind: Type, body: Record, answer: Type) -> Step:
        request_id = yield from self.request(kind, body)
        return (yield from self.reply(request_id, answer))

    # ---- calls

    def hello(self) -> Generator[Command, Optional[Frame], HelloOk]:
        frame = yield from self.call(Type.HELLO, self._hello, Type.HELLO_OK)
        limits = HelloOk.decode(frame.body)
        if limits.version != VERSION or limits.features & ~self._hello.features:
            raise CacheError(Code.UNSUPPORTED, f"version {limits.version} and features "
                             f"{limits.features} were chosen, asked for {VERSION} and "
                             f"{self._hello.features}")
        if limits.features & FEATURE:
            self.pools = self._offered
        if not limits.features & own_memory.FEATURE:
            self._memory = None
        if limits.max_in_flight < 1:
            raise Malformed("max_in_flight is 0")
        self.limits = limits
        return limits

    def open(self, model: Model, profile: Optional[Profile] = None, replace: bool = False,
             prefill: Prefill = Prefill.EXACT) -> Generator[Command, Optional[Frame], Opened]:
        """Opens a model; what an earlier call opened is asked for again."""
        body = m.Open(self.deadline.milliseconds(), replace, prefill, model, profile)
        frame = yield from self.call(Type.OPEN, body, Type.OPEN_OK)
        reply = m.OpenOk.decode(frame.body)
        opened = Opened(model, reply.handle, reply.namespace, reply.profile_id, reply.profile,
                        reply.reports)
        if reply.fingerprint != model.fingerprint or reply.profile.id() != reply.profile_id:
            raise Malformed("open_ok of another model, or a profile that isn't its id's")
        if [len(parts) for parts in reply.profile.layers] != [len(p) for p in model.layers]:
            raise Malformed("open_ok with a profile of another geometry")
        self._opened[model.fingerprint] = opened
        return opened

    def opened(self, model: Model, profile: Optional[Profile] = None
               ) -> Generator[Command, Optional[Frame], Opened]:
        """The model under its handle, opened if it is not."""
        known = self._opened.get(model.fingerprint)
        if known is not None and known.model == model:
            return known
        prefill = profile.prefill if profile is not None else Prefill.EXACT
        return (yield from self.open(model, profile, prefill=prefill))

    def _question(self, opened: Opened, query: m.Query) -> m.Question:
        return m.Question(self.deadline.milliseconds(), opened.handle, opened.profile_id, query)

    def lookup(self, opened: Opened, query: m.Query
               ) -> Generator[Command, Optional[Frame], m.LookupOk]:
        frame = yield from self.call(Type.LOOKUP, self._question(opened, query), Type.LOOKUP_OK)
        return m.LookupOk.decode(frame.body)

    def lookup_all(self, opened: Opened, queries: Iterable[m.Query]
                   ) -> Generator[Command, Optional[Frame], List[m.LookupOk]]:
        """A lookup of each query, many on their way at a time; the first refusal is raised."""
        at_once = min(LOOKUPS_AT_ONCE, self.in_flight())
        waiting: Dict[int, int] = {}  # numbers of queries by their requests' ids
        found: Dict[int, m.LookupOk] = {}
        refused: Optional[Refused] = None
        for number, query in enumerate(queries):
            if len(waiting) >= at_once:
                refused = refused or (yield from self._lookup_reply(waiting, found))
            if refused is not None:
                break
            request_id = yield from self.request(Type.LOOKUP, self._question(opened, query))
            waiting[request_id] = number
        while waiting:
            refused = (yield from self._lookup_reply(waiting, found)) or refused
        if refused is not None:
            raise refused
        return [found[number] for number in sorted(found)]

    def _lookup_reply(self, waiting: Dict[int, int], found: Dict[int, m.LookupOk]
                      ) -> Generator[Command, Optional[Frame], Optional[Refused]]:
        """One reply to any of the lookups that are on their way."""
        frame, number = yield from self.any_reply(waiting)
        if frame.type == Type.LOOKUP_OK:
            found[number] = m.LookupOk.decode(frame.body)
            return None
        return self.refused(frame)

    def any_reply(self, waiting: Dict[int, T]
                   ) -> Generator[Command, Optional[Frame], Tuple[Frame, T]]:
        """The next reply, and what waits for it no longer."""
        frame = yield from self._next(SHORT_BYTES)
        if frame.request_id in waiting:
            return frame, waiting.pop(frame.request_id)
        raise (self._error(frame, -1) if frame.type == Type.ERROR
               else Malformed(f"a reply to request {frame.request_id}, which is not open"))

    def refused(self, frame: Frame) -> Refused:
        """An answer that is not the one asked for: the refusal that it holds."""
        if frame.type != Type.ERROR:
            raise Malformed(f"{frame.type.name.lower()} as an answer to request "
                            f"{frame.request_id}")
        error = self._error(frame, frame.request_id)
        return Refused(error.code, error.message)

    def reserve(self, opened: Opened, query: m.Query, ends: Iterable[int] = (),
                prefill_ms: int = 0, label: str = ""
                ) -> Generator[Command, Optional[Frame], m.ReserveOk]:
        body = m.Reserve(self.deadline.milliseconds(), opened.handle, opened.profile_id,
                         list(ends), prefill_ms, label, query)
        return m.ReserveOk.decode((yield from self.call(Type.RESERVE, body, Type.RESERVE_OK)).body)

    def offer_memory(self) -> Generator[Command, Optional[Frame], None]:
        """Hands the caller's memory over, once; if the service takes none, rows are sent."""
        offered = self._memory
        if offered is None or self.cancelled:
            return
        self._memory = None
        body = own_memory.Offer(self.deadline.milliseconds(), own_memory.NUMBER)
        request_id = yield from self.request(Type.MEMORY, body, descriptor=offered.fd)
        try:
            yield from self.reply(request_id, Type.MEMORY_OK)
        except Refused:
            return
        self.memory = offered

    def commit(self, reservation: int, wait_for: m.Level
               ) -> Generator[Command, Optional[Frame], m.CommitOk]:
        body = m.Commit(self.deadline.milliseconds(), reservation, wait_for)
        return m.CommitOk.decode((yield from self.call(Type.COMMIT, body, Type.COMMIT_OK)).body)

    def abort(self, reservation: int) -> Generator[Command, Optional[Frame], None]:
        body = m.Abort(self.deadline.milliseconds(), reservation)
        m.Empty.decode((yield from self.call(Type.ABORT, body, Type.ABORT_OK)).body)

    def question(self, opened: Opened, query: m.Query, output: m.Output, wait: bool,
                 round_to_block: bool, max_tokens: int, max_reply_bytes: int,
                 selection: Selection = Selection(), hold: int = 0) -> m.Fetch:
        return m.Fetch(self.deadline.milliseconds(), opened.handle, opened.profile_id, output,
                       wait, round_to_block, max_tokens, max_reply_bytes, selection, hold, query)

    def fetch(self, opened: Opened, body: m.Fetch) -> Generator[Command, Any, Fetched]:
        if self.pools is not None:
            return (yield from self._fetch_mapped(opened, body, self.pools))
        request_id = yield from self.request(Type.FETCH, body)
        frame = yield from self.reply(request_id, Type.FETCH_HEADER, SHORT_BYTES)
        header = m.FetchHeader.decode(frame.body)
        if header.object_bytes > body.max_reply_bytes:
            raise Malformed(f"{header.object_bytes} bytes of objects, over {body.max_reply_bytes}")
        objects: List[Object] = []
        left = header.object_bytes
        for _ in range(header.objects):
            frame = yield from self.reply(request_id, Type.FETCH_OBJECT, left)
            left -= len(frame.body)
            objects.append(m.fetched_object(frame.body))
            if objects[-1].header.profile != opened.profile_id:
                raise Malformed("an object under another profile than was asked for")
        frame = yield from self.reply(request_id, Type.FETCH_DONE, 64)
        if m.FetchDone.decode(frame.body).objects != header.objects or left:
            raise Malformed("a fetch_done that does not fit its fetch_header")
        return Fetched(header, objects)

    def _fetch_mapped(self, opened: Opened, body: m.Fetch, pools: Pools
                      ) -> Generator[Command, Optional[Frame], Fetched]:
        request_id = yield from self.request(Type.FETCH_MAPPED, body)
        frame = yield from self.reply(request_id, Type.FETCH_MAPPED_OK,
                                       LONGEST[Type.FETCH_MAPPED_OK])
        reply = FetchMappedOk.decode(frame.body)
        if reply.streamed_bytes > body.max_reply_bytes:
            raise Malformed(f"{reply.streamed_bytes} bytes of objects, over {body.max_reply_bytes}")
        lease = pools.lease(reply.lease)
        # All that is mapped first: the next reply may name it as known.
        found = [None if place.where == Where.STREAMED else
                 pools.find(place, lease, body.selection) for place in reply.places]
        objects: List[Object] = []
        left = reply.streamed_bytes
        for each in found:
            if each is None:
                frame = yield from self.reply(request_id, Type.FETCH_OBJECT, left)
                left -= len(frame.body)
                each = m.fetched_object(frame.body)
            objects.append(each)
            if each.header.profile != opened.profile_id:
                raise Malformed("an object under another profile than was asked for")
        if left:
            raise Malformed("objects of other lengths than their fetch_mapped_ok says")
        return Fetched(reply.header(), objects, lease)

    def erase(self, handle: int, query: m.Query) -> Generator[Command, Optional[Frame], int]:
        body = m.Erase(self.deadline.milliseconds(), handle, query)
        frame = yield from self.call(Type.ERASE, body, Type.ERASE_OK)
        return m.EraseOk.decode(frame.body).objects

    def erase_entry(self, opened: Opened, query: m.Query
                    ) -> Generator[Command, Optional[Frame], int]:
        frame = yield from self.call(Type.ERASE_ENTRY, self._question(opened, query),
                                      Type.ERASE_ENTRY_OK)
        return m.EraseOk.decode(frame.body).objects

    def why(self, number: int, limit: int, missed: bool, ns: str, tokens: Tokens
            ) -> Generator[Command, Optional[Frame], wm.WhyOk]:
        body = wm.Why(self.deadline.milliseconds(), number, limit, missed, ns, tokens)
        return wm.WhyOk.decode((yield from self.call(Type.WHY, body, Type.WHY_OK)).body)

    def stats(self) -> Generator[Command, Optional[Frame],
                                 Tuple[Dict[str, int], List[m.ModelReports]]]:
        body = m.Stats(self.deadline.milliseconds())
        reply = m.StatsOk.decode((yield from self.call(Type.STATS, body, Type.STATS_OK)).body)
        return {v.name: v.value for v in reply.values}, reply.models
