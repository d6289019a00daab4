"""The models and providers that can be chosen, and the features that can be switched."""

from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import Foreign, WireModel, unserved
from app_server_protocol.method_table import ClientRequest, NoFields, ServerNotification
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import ByPages, ReasoningEffort
from app_server_protocol.wire_fields import Count, Flag

InputModality = TypeAliasType("InputModality", Literal["text", "image", "audio"])


class ReasoningEffortOption(WireStruct):
    reasoning_effort: ReasoningEffort
    description: str


class ModelServiceTier(WireStruct):
    """A speed or price class that a model is served at."""

    id: str
    name: str
    description: str


class ModelUpgradeInfo(WireStruct):
    """The model that takes the place of an older one."""

    model: str
    migration_markdown: str | None = None
    model_link: str | None = None
    retirement_at: int | None = None
    upgrade_copy: str | None = None


class ListedModel(WireStruct):
    """One model. `model` is what a thread is given, `id` distinguishes entries of this list."""

    id: str
    model: str
    upgrade: str | None = None
    upgrade_info: ModelUpgradeInfo | None = None
    availability_nux: Annotated[Foreign, unserved("ModelAvailabilityNux")] | None = None
    available_access_programs: Annotated[Foreign, unserved("ModelAccessPrograms")] | None = None
    display_name: str
    description: str
    hidden: bool
    supported_reasoning_efforts: tuple[ReasoningEffortOption, ...]
    default_reasoning_effort: ReasoningEffort
    input_modalities: tuple[InputModality, ...] = ("text", "image")
    supports_personality: bool = False
    service_tiers: tuple[ModelServiceTier, ...] = ()
    additional_speed_tiers: tuple[str, ...] = ()
    default_service_tier: str | None = None
    model_specialty: str | None = None
    multi_agent_version: Literal["disabled", "v1", "v2"] | None = None
    is_default: bool
    context_window: int | None = None
    """Tokens, as the provider or the catalogue says; None if nobody does."""


class ModelListParams(WireModel):
    model_provider: str | None = None
    cursor: str | None = None
    limit: Count | None = None
    include_hidden: Flag | None = None


class ModelListResponse(WireStruct):
    data: tuple[ListedModel, ...]
    next_cursor: str | None = None


class NoGatewayAuth(WireStruct):
    mode: Literal["none"] = "none"


class EnvironmentVariableGatewayAuth(WireStruct):
    mode: Literal["environmentVariable"] = "environmentVariable"
    env_key: str


class ExternallyConfiguredGatewayAuth(WireStruct):
    mode: Literal["externallyConfigured"] = "externallyConfigured"
    env_key: str | None = None


GatewayAuth = TypeAliasType(
    "GatewayAuth",
    Annotated[
        NoGatewayAuth | EnvironmentVariableGatewayAuth | ExternallyConfiguredGatewayAuth,
        Field(discriminator="mode"),
    ],
)


class OpenaiProviderSettings(WireStruct):
    type: Literal["openai"] = "openai"


class CustomGatewayProviderSettings(WireStruct):
    type: Literal["customGateway"] = "customGateway"
    auth: GatewayAuth


ProviderSettings = TypeAliasType(
    "ProviderSettings",
    Annotated[OpenaiProviderSettings | CustomGatewayProviderSettings, Field(discriminator="type")],
)


class ModelProviderSummary(WireStruct):
    """A provider by its name in the configuration."""

    id: str
    name: str
    can_edit: bool
    base_url: str | None = None
    settings: ProviderSettings


class ModelProviderListResponse(WireStruct):
    data: tuple[ModelProviderSummary, ...]
    default_provider_id: str
    can_change_default: bool


class ModelProviderCapabilitiesReadResponse(WireStruct):
    image_generation: bool
    web_search: bool


ExperimentalFeatureStage = TypeAliasType(
    "ExperimentalFeatureStage", Literal["beta", "underDevelopment", "stable", "deprecated", "removed"]
)


class ExperimentalFeature(WireStruct):
    """A switch of the configuration."""

    name: str
    stage: ExperimentalFeatureStage
    display_name: str | None = None
    description: str | None = None
    announcement: str | None = None
    enabled: bool
    default_enabled: bool


class ExperimentalFeatureListParams(ByPages):
    thread_id: str | None = None


class ExperimentalFeatureListResponse(WireStruct):
    data: tuple[ExperimentalFeature, ...]
    next_cursor: str | None = None


class ExperimentalFeatureEnablementSetParams(WireModel):
    enablement: dict[str, Flag]


class ExperimentalFeatureEnablementSetResponse(WireStruct):
    enablement: dict[str, bool]


ModelRerouteReason = TypeAliasType("ModelRerouteReason", Literal["highRiskCyberActivity"])


class ModelReroutedNotification(WireStruct):
    """The provider answers with another model than the turn asked for."""

    thread_id: str
    turn_id: str
    from_model: str
    to_model: str
    reason: ModelRerouteReason


MODEL_LIST: Final = ClientRequest(
    "model/list",
    ModelListParams,
    ModelListResponse,
    "The models that can be chosen, by pages.",
)
MODEL_REROUTED: Final = ServerNotification(
    "model/rerouted", ModelReroutedNotification, "The provider answers with another model; once a turn."
)
MODEL_PROVIDER_LIST: Final = ClientRequest(
    "modelProvider/list",
    NoFields,
    ModelProviderListResponse,
    "The providers that the configuration knows.",
)
MODEL_PROVIDER_CAPABILITIES_READ: Final = ClientRequest(
    "modelProvider/capabilities/read",
    NoFields,
    ModelProviderCapabilitiesReadResponse,
    "What the configured provider can do beside text.",
)
EXPERIMENTAL_FEATURE_LIST: Final = ClientRequest(
    "experimentalFeature/list",
    ExperimentalFeatureListParams,
    ExperimentalFeatureListResponse,
    "The switches of the configuration, by pages.",
)
EXPERIMENTAL_FEATURE_ENABLEMENT_SET: Final = ClientRequest(
    "experimentalFeature/enablement/set",
    ExperimentalFeatureEnablementSetParams,
    ExperimentalFeatureEnablementSetResponse,
    "Sets switches for as long as this server runs.",
)
