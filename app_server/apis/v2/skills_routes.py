"""Routes of skills."""

from __future__ import annotations

from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2.handlers import skills
from app_server.apis.v2.notify import ThreadNotifier
from protocol.v2 import setup_methods as methods


def skills_routes(services: ServerServices, notifier: ThreadNotifier) -> tuple[Route, ...]:
    catalog = services.skills.get()
    context = skills.SkillsContext(services.config, catalog, notifier)
    catalog.on_change = context.announce_change
    return (
        route(methods.SKILLS_LIST, skills.skills_list, context),
        route(methods.SKILLS_EXTRA_ROOTS_SET, skills.skills_extra_roots_set, context),
        route(methods.SKILLS_CONFIG_WRITE, skills.skills_config_write, context),
    )
