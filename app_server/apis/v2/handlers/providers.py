"""The providers that threads can be given, and what the configured one can do."""

from __future__ import annotations

from app_server.apis.services import ConfigSource
from app_server.core.config.built_in_providers import OPENAI
from app_server.core.config.types import ProviderConfig, WireApi
from app_server.masking import masked_text
from protocol.v2.models import (
    CustomGatewayProviderSettings,
    EnvironmentVariableGatewayAuth,
    ExternallyConfiguredGatewayAuth,
    GatewayAuth,
    ModelProviderCapabilitiesReadParams,
    ModelProviderCapabilitiesReadResponse,
    ModelProviderListParams,
    ModelProviderListResponse,
    ModelProviderSummary,
    NoGatewayAuth,
    OpenaiProviderSettings,
)


async def model_provider_list(
    source: ConfigSource, params: ModelProviderListParams
) -> ModelProviderListResponse:
    """Providers are changed with the other settings, so none can be edited by a method of its own."""
    config = source.load()
    return ModelProviderListResponse(
        data=tuple(_summary(config.providers[id]) for id in sorted(config.providers)),
        default_provider_id=config.provider.id,
        can_change_default=False,
    )


async def model_provider_capabilities_read(
    source: ConfigSource, params: ModelProviderCapabilitiesReadParams
) -> ModelProviderCapabilitiesReadResponse:
    """Searches of the provider's own are a tool of one of the two APIs; pictures are never made."""
    responses = source.load().provider.wire_api is WireApi.RESPONSES
    return ModelProviderCapabilitiesReadResponse(image_generation=False, web_search=responses)


def _summary(provider: ProviderConfig) -> ModelProviderSummary:
    """An address with a credential in it is not shown."""
    url = provider.base_url
    return ModelProviderSummary(
        id=provider.id,
        name=provider.name,
        can_edit=False,
        base_url=None if url is None or masked_text(url) != url else url,
        settings=OpenaiProviderSettings()
        if provider.id == OPENAI
        else CustomGatewayProviderSettings(auth=_auth(provider)),
    )


def _auth(provider: ProviderConfig) -> GatewayAuth:
    """How requests to the provider are authenticated, without any secret."""
    if provider.env_key is not None:
        return EnvironmentVariableGatewayAuth(env_key=provider.env_key)
    elsewhere = (
        provider.requires_openai_auth
        or provider.experimental_bearer_token is not None
        or provider.http_headers
        or provider.env_http_headers
    )
    return ExternallyConfiguredGatewayAuth() if elsewhere else NoGatewayAuth()
