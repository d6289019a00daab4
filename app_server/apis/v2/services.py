"""What the handlers of the thread API share in one connection. Light: whatever serves threads is loaded with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from app_server.apis.services import ServerServices
    from app_server.apis.v2.loaded_threads import ItemIdSeeds, ReadingContext
    from app_server.apis.v2.news import SentOnce
    from app_server.apis.v2.notify import ThreadNotifier
    from app_server.conversations.adapter import AdapterFactory
    from app_server.conversations.manager import ConversationManager
    from app_server.conversations.unloading import IdleUnloader
    from app_server.core.config.settings import UserSettings
    from app_server.core.host import Host
    from app_server.core.lazy import Lazy
    from app_server.core.skills.skill_catalog import SkillCatalog


class ThreadContext(Struct, frozen=True, kw_only=True):
    """What is needed to do something with threads."""

    config: UserSettings
    conversations: ConversationManager
    notifier: ThreadNotifier
    make_adapter: AdapterFactory
    reading: ReadingContext
    seeds: ItemIdSeeds
    unloader: IdleUnloader
    skills: Lazy[SkillCatalog]
    host: Host


class ThreadServices(Struct, frozen=True):
    """What is there for every family of methods."""

    server: ServerServices
    notifier: ThreadNotifier
    once: Lazy[SentOnce]
    threads: Lazy[ThreadContext]
