"""Routes of what a thread can be given: models, account, configuration, and what is chosen by name."""

from __future__ import annotations

from app_server.apis.offered_models import ModelContext
from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2.handlers import account, configuration, models
from protocol.v2 import setup_methods as methods


def setup_routes(services: ServerServices) -> tuple[Route, ...]:
    """`model/list` is a method of the conversation API too: this route serves both, answering all that both have."""
    config = services.config
    accounts = account.AccountContext(config, services.auth)
    return (
        route(methods.MODEL_LIST, models.model_list, ModelContext(config, services.models)),
        route(methods.ACCOUNT_READ, account.account_read, accounts),
        route(methods.CONFIG_READ, configuration.config_read, config),
        route(methods.CONFIG_REQUIREMENTS_READ, configuration.config_requirements_read, config),
        route(methods.PERMISSION_PROFILE_LIST, configuration.permission_profile_list, config),
        route(methods.EXPERIMENTAL_FEATURE_LIST, configuration.experimental_feature_list, config),
        route(methods.COLLABORATION_MODE_LIST, configuration.collaboration_mode_list, config),
        route(methods.SKILLS_LIST, configuration.skills_list, config),
    )
