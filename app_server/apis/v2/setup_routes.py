"""Routes of what a thread can be given: models, account, configuration, and what is chosen by name."""

from __future__ import annotations

from app_server.apis.offered_models import ModelContext
from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2.account_limits import AccountLimits
from app_server.apis.v2.handlers import (
    account,
    account_login,
    config_writing,
    configuration,
    extensions,
    features,
    models,
    providers,
)
from app_server.apis.v2.notify import ThreadNotifier
from app_server.apis.v2.refusals import refusals
from protocol.v2 import extension_methods, setup_methods


def setup_routes(
    services: ServerServices, notifier: ThreadNotifier, limits: AccountLimits
) -> tuple[Route, ...]:
    return (
        *_model_routes(services),
        *_account_routes(services, notifier, limits),
        *_config_routes(services),
        *_extension_routes(services),
        *refusals(services.accounts.auth),
    )


def _model_routes(services: ServerServices) -> tuple[Route, ...]:
    """`model/list` is a method of the conversation API too: this route serves both, answering all that both have."""
    config, rows = services.config, setup_methods
    switches = features.FeatureContext(config, services.conversations)
    return (
        route(rows.MODEL_LIST, models.model_list, ModelContext(config, services.engine)),
        route(rows.MODEL_PROVIDER_LIST, providers.model_provider_list, config),
        route(rows.MODEL_PROVIDER_CAPABILITIES_READ, providers.model_provider_capabilities_read, config),
        route(rows.EXPERIMENTAL_FEATURE_LIST, features.experimental_feature_list, switches),
        route(
            rows.EXPERIMENTAL_FEATURE_ENABLEMENT_SET, features.experimental_feature_enablement_set, switches
        ),
        route(rows.COLLABORATION_MODE_LIST, configuration.collaboration_mode_list, config),
    )


def _account_routes(
    services: ServerServices, notifier: ThreadNotifier, limits: AccountLimits
) -> tuple[Route, ...]:
    rows = setup_methods
    known = account.AccountContext(services.config, services.accounts.auth, limits)
    login = account_login.LoginContext(
        services.config, services.accounts.auth, services.accounts.logins, notifier
    )
    return (
        route(rows.ACCOUNT_READ, account.account_read, known),
        route(rows.ACCOUNT_RATE_LIMITS_READ, account.account_rate_limits_read, known),
        route(rows.ACCOUNT_LOGIN_START, account_login.account_login_start, login),
        route(rows.ACCOUNT_LOGIN_CANCEL, account_login.account_login_cancel, login),
        route(rows.ACCOUNT_LOGOUT, account_login.account_logout, login),
    )


def _config_routes(services: ServerServices) -> tuple[Route, ...]:
    config, rows = services.config, setup_methods
    writing = config_writing.WriteContext(config)
    return (
        route(rows.CONFIG_READ, configuration.config_read, config),
        route(rows.CONFIG_VALUE_WRITE, config_writing.config_value_write, writing),
        route(rows.CONFIG_BATCH_WRITE, config_writing.config_batch_write, writing),
        route(rows.CONFIG_REQUIREMENTS_READ, configuration.config_requirements_read, config),
        route(rows.PERMISSION_PROFILE_LIST, configuration.permission_profile_list, config),
    )


def _extension_routes(services: ServerServices) -> tuple[Route, ...]:
    config, rows = services.config, extension_methods
    return (
        route(rows.HOOKS_LIST, extensions.hooks_list, config),
        route(rows.APP_LIST, extensions.app_list, config),
        route(rows.APP_INSTALLED, extensions.app_installed, config),
        route(rows.PLUGIN_LIST, extensions.plugin_list, config),
        route(rows.PLUGIN_INSTALLED, extensions.plugin_installed, config),
        route(rows.WINDOWS_SANDBOX_READINESS, extensions.windows_sandbox_readiness, config),
    )
