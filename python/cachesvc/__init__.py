"""cachesvc: a client of the KV-cache sidecar. README.md shows it in use.

Written from proto/PROTOCOL.md and storage/FORMAT.md. Layers, each importing only earlier ones:
errors, deadline, wire, frames, models, ids, objects, selection, messages, intent_messages,
own_memory, session (calls as scripts), intent, puts, hit and store (rows of an entry), entry,
bodies, cancel, connection, pool and guard, cache, aio_intent, aio; beside them geometry (models
from configs) and keyed (values by key). Above them what adapters share: adapter, checks, options;
of engines in this process in_process, sampled, calibrate, and plugin, weights. Then the adapters:
modules named after their engines.
"""
from .aio import AsyncCache, AsyncConnection
from .cache import Cache
from .cancel import Cancel
from .connection import Connection
from .entry import FetchOptions, Stored
from .errors import CacheError, Code, Refused
from .hit import Hit
from .intent import Held, Retained
from .intent_messages import DemoteOk, ExpireOk, Outcome
from .messages import Level, LookupOk, NamedEnd, Newest, Output, Query, Tier
from .models import Dtype, Kind, Model, Part, Profile, Side, Snapshot, raw_profile
from .own_memory import OwnMemory
from .selection import Selection
from .store import ArrayRows, RowSource
from .why_messages import Missing, RequestRecord

__all__ = [
    "ArrayRows", "AsyncCache", "AsyncConnection", "Cache", "CacheError", "Cancel", "Code",
    "Connection", "DemoteOk", "Dtype", "ExpireOk", "FetchOptions", "Held", "Hit", "Kind",
    "Level", "LookupOk", "Missing", "Model", "NamedEnd", "Newest", "Outcome", "Output",
    "OwnMemory", "Part", "Profile", "Query", "Refused", "RequestRecord", "Retained", "RowSource",
    "Selection", "Side", "Snapshot", "Stored", "Tier", "raw_profile",
]
