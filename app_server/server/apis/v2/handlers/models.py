"""Models and providers that threads can use, and the feature switches, which are set for as long as this server runs.
The response of `model/list` includes all fields that the conversation API has for this method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from app_server.engine.config.config_values import OPENAI, ProviderConfig, WireApi
from app_server.engine.config.features import FEATURES, Feature, Features, FeatureStage, canonical_feature
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.support.redaction import masked_text
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.open_threads import find_open
from app_server.server.apis.v2.v2_errors import page_by_position
from app_server_protocol.jsonrpc import INVALID_REQUEST
from app_server_protocol.method_table import NoFields
from app_server_protocol.rpc_errors import RpcError, invalid_field
from app_server_protocol.v2 import models as wire
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.model.model_facts import ModelFacts

STAGES: Final[Mapping[FeatureStage, wire.ExperimentalFeatureStage]] = {
    FeatureStage.STABLE: "stable",
    FeatureStage.BETA: "beta",
    FeatureStage.EXPERIMENTAL: "underDevelopment",
}


async def experimental_feature_list(
    context: ConnectionContext, params: wire.ExperimentalFeatureListParams
) -> wire.ExperimentalFeatureListResponse:
    """List the features of a thread, or of a thread that would begin now."""
    if params.thread_id is None:
        on = context.config.load().features
    else:
        on = find_open(context, params.thread_id).session.facts.config.features
    features = [_shown(feature, on) for feature in FEATURES.values()]
    page, next_cursor = page_by_position(features, params.cursor, params.limit)
    return wire.ExperimentalFeatureListResponse(data=page, next_cursor=next_cursor)


async def experimental_feature_enablement_set(
    context: ConnectionContext, params: wire.ExperimentalFeatureEnablementSetParams
) -> wire.ExperimentalFeatureEnablementSetResponse:
    """Switch features for threads that begin from now on, unless the settings switch the feature. Unknown features are
    ignored.
    """
    known = {canonical_feature(name): on for name, on in params.enablement.items()}
    accepted = {name: on for name, on in known.items() if name is not None}
    context.config.switches.update(accepted)
    return wire.ExperimentalFeatureEnablementSetResponse(enablement=accepted)


def _shown(feature: Feature, on: Features) -> wire.ExperimentalFeature:
    return wire.ExperimentalFeature(
        name=feature.name,
        stage=STAGES[feature.stage],
        enabled=on.enabled(feature.name),
        default_enabled=feature.default,
    )


async def model_provider_list(context: ConnectionContext, params: NoFields) -> wire.ModelProviderListResponse:
    """List the providers. None can be edited by a method of its own: they are changed like other settings. Which one is
    the default can be set, unless the user alone changes settings.
    """
    config = context.config.load()
    return wire.ModelProviderListResponse(
        data=tuple(_summary(config.providers[id]) for id in sorted(config.providers)),
        default_provider_id=config.provider.id,
        can_change_default=config.permissions.client_rights,
    )


async def model_provider_capabilities_read(
    context: ConnectionContext, params: NoFields
) -> wire.ModelProviderCapabilitiesReadResponse:
    """Return the capabilities of the provider: searches of its own are a tool of one of the two APIs; it never makes
    images.
    """
    responses = context.config.load().provider.wire_api is WireApi.RESPONSES
    return wire.ModelProviderCapabilitiesReadResponse(image_generation=False, web_search=responses)


def _summary(provider: ProviderConfig) -> wire.ModelProviderSummary:
    """Return a summary of a provider, without its address if that contains a credential."""
    url = provider.base_url
    return wire.ModelProviderSummary(
        id=provider.id,
        name=provider.name,
        can_edit=False,
        base_url=None if url is None or masked_text(url) != url else url,
        settings=wire.OpenaiProviderSettings()
        if provider.id == OPENAI
        else wire.CustomGatewayProviderSettings(auth=_auth(provider)),
    )


def _auth(provider: ProviderConfig) -> wire.GatewayAuth:
    """Return the way in which requests to the provider are authenticated, without any secret."""
    if provider.env_key is not None:
        return wire.EnvironmentVariableGatewayAuth(env_key=provider.env_key)
    elsewhere = (
        provider.requires_openai_auth
        or provider.experimental_bearer_token is not None
        or provider.http_headers
        or provider.env_http_headers
    )
    return wire.ExternallyConfiguredGatewayAuth() if elsewhere else wire.NoGatewayAuth()


async def _offered(context: ConnectionContext, provider: str | None) -> ModelFacts:
    """Return the facts about the models of a provider, or else of the configured one. A configured model belongs to the
    configured provider only. Raises RpcError if there is no such provider, and ConfigError.
    """
    config = context.config.load()
    if provider is not None and provider != config.provider.id:
        if provider not in config.providers:
            text = f"model provider `{provider[:100]}` is not configured"
            raise RpcError(
                INVALID_REQUEST, text, {"type": "modelProviderNotConfigured", "modelProvider": provider[:100]}
            )
        config = replace(config, provider=config.providers[provider], thread=replace(config.thread, model=""))
    return await context.engine.models(config, context.client.caller)


async def model_list(context: ConnectionContext, params: wire.ModelListParams) -> wire.ModelListResponse:
    """List the models that can be chosen; hidden ones only if the client asks for them."""
    facts, cursor = await _offered(context, params.model_provider), params.cursor
    models = [row for row in facts.listed() if params.include_hidden or not row.hidden]
    default = facts.default()
    if cursor and cursor.isascii() and cursor.isdigit() and (len(cursor) > 9 or int(cursor) > len(models)):
        raise invalid_field(f"cursor {cursor[:100]} exceeds total models {len(models)}", "cursor")
    page, next_cursor = page_by_position(models, cursor, params.limit)
    shown = tuple(_model(model, default=model.slug == default) for model in page)
    return wire.ModelListResponse(data=shown, next_cursor=next_cursor)


def _model(model: ModelRow, *, default: bool) -> wire.ListedModel:
    return wire.ListedModel(
        id=model.slug,
        model=model.slug,
        upgrade=None if model.upgrade is None else model.upgrade.model,
        upgrade_info=None if model.upgrade is None else wire.ModelUpgradeInfo(model=model.upgrade.model),
        display_name=model.name,
        description=model.description or "",
        hidden=model.hidden,
        supported_reasoning_efforts=tuple(_effort(model, effort) for effort in model.efforts),
        default_reasoning_effort=model.usual_effort,
        input_modalities=_modalities(model),
        service_tiers=tuple(
            wire.ModelServiceTier(id=each.id, name=each.name or each.id, description=each.description)
            for each in model.service_tiers or ()
        ),
        additional_speed_tiers=model.additional_speed_tiers or (),
        default_service_tier=model.default_service_tier,
        is_default=default,
        context_window=model.context_window,
    )


def _modalities(model: ModelRow) -> tuple[wire.InputModality, ...]:
    known: tuple[wire.InputModality, ...] = ("text", "image")
    return known if model.sees_images else ("text",)


def _effort(model: ModelRow, effort: str) -> wire.ReasoningEffortOption:
    return wire.ReasoningEffortOption(reasoning_effort=effort, description=model.effort_description(effort))


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    """Return the routes. The one of `model/list` serves clients of the conversation API too."""
    return (
        route(wire.MODEL_LIST, model_list, context),
        route(wire.MODEL_PROVIDER_LIST, model_provider_list, context),
        route(wire.MODEL_PROVIDER_CAPABILITIES_READ, model_provider_capabilities_read, context),
        route(wire.EXPERIMENTAL_FEATURE_LIST, experimental_feature_list, context),
        route(wire.EXPERIMENTAL_FEATURE_ENABLEMENT_SET, experimental_feature_enablement_set, context),
    )
