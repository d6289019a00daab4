"""Methods about what a thread can be given: models, account, configuration, modes, skills."""

from typing import Final

from protocol.table import AnyClientRequest, ClientRequest, NoParams
from protocol.v2 import account, config, initialize, limits, models, policy, settings, skills

INITIALIZE: Final = ClientRequest(
    "initialize",
    initialize.InitializeParams,
    initialize.InitializeResponse,
    "Opens the connection. Must be the first request, and comes once.",
)
MODEL_LIST: Final = ClientRequest(
    "model/list",
    models.ModelListParams,
    models.ModelListResponse,
    "The models that can be chosen, by pages.",
)
MODEL_PROVIDER_LIST: Final = ClientRequest(
    "modelProvider/list",
    models.ModelProviderListParams,
    models.ModelProviderListResponse,
    "The providers that the configuration knows.",
)
MODEL_PROVIDER_CAPABILITIES_READ: Final = ClientRequest(
    "modelProvider/capabilities/read",
    models.ModelProviderCapabilitiesReadParams,
    models.ModelProviderCapabilitiesReadResponse,
    "What the configured provider can do beside text.",
)
EXPERIMENTAL_FEATURE_LIST: Final = ClientRequest(
    "experimentalFeature/list",
    models.ExperimentalFeatureListParams,
    models.ExperimentalFeatureListResponse,
    "The switches of the configuration, by pages.",
)
EXPERIMENTAL_FEATURE_ENABLEMENT_SET: Final = ClientRequest(
    "experimentalFeature/enablement/set",
    models.ExperimentalFeatureEnablementSetParams,
    models.ExperimentalFeatureEnablementSetResponse,
    "Sets switches for as long as this server runs.",
)
PERMISSION_PROFILE_LIST: Final = ClientRequest(
    "permissionProfile/list",
    policy.PermissionProfileListParams,
    policy.PermissionProfileListResponse,
    "The named sandboxes that a thread can be given, by pages.",
)
COLLABORATION_MODE_LIST: Final = ClientRequest(
    "collaborationMode/list",
    settings.CollaborationModeListParams,
    settings.CollaborationModeListResponse,
    "The modes in which a thread can work.",
    experimental=True,
)
SKILLS_LIST: Final = ClientRequest(
    "skills/list",
    skills.SkillsListParams,
    skills.SkillsListResponse,
    "The skills that there are for each working directory.",
)
SKILLS_EXTRA_ROOTS_SET: Final = ClientRequest(
    "skills/extraRoots/set",
    skills.SkillsExtraRootsSetParams,
    skills.SkillsExtraRootsSetResponse,
    "Names further folders with skills.",
)
SKILLS_CONFIG_WRITE: Final = ClientRequest(
    "skills/config/write",
    skills.SkillsConfigWriteParams,
    skills.SkillsConfigWriteResponse,
    "Switches a skill on or off in the user's configuration.",
)
ACCOUNT_READ: Final = ClientRequest(
    "account/read",
    account.GetAccountParams,
    account.GetAccountResponse,
    "Whether and how the user is logged in.",
)
ACCOUNT_LOGIN_START: Final = ClientRequest(
    "account/login/start",
    account.LoginAccountParams,
    account.LoginAccountResponse,
    "Begins a login. `account/login/completed` and `account/updated` follow.",
)
ACCOUNT_LOGIN_CANCEL: Final = ClientRequest(
    "account/login/cancel",
    account.CancelLoginAccountParams,
    account.CancelLoginAccountResponse,
    "Gives up a login that was begun.",
)
ACCOUNT_LOGOUT: Final = ClientRequest(
    "account/logout",
    NoParams,
    account.LogoutAccountResponse,
    "Forgets the stored login. `account/updated` follows.",
)
ACCOUNT_RATE_LIMITS_READ: Final = ClientRequest(
    "account/rateLimits/read",
    limits.GetAccountRateLimitsParams,
    limits.GetAccountRateLimitsResponse,
    "How much of the account is used up.",
)
CONFIG_READ: Final = ClientRequest(
    "config/read",
    config.ConfigReadParams,
    config.ConfigReadResponse,
    "The configuration in force, and where each setting comes from.",
)
CONFIG_VALUE_WRITE: Final = ClientRequest(
    "config/value/write",
    config.ConfigValueWriteParams,
    config.ConfigWriteResponse,
    "Writes one setting into the user's file.",
)
CONFIG_BATCH_WRITE: Final = ClientRequest(
    "config/batchWrite",
    config.ConfigBatchWriteParams,
    config.ConfigWriteResponse,
    "Writes several settings into the user's file, all or none.",
)
CONFIG_REQUIREMENTS_READ: Final = ClientRequest(
    "configRequirements/read",
    NoParams,
    config.ConfigRequirementsReadResponse,
    "What an administrator allows; null where there is no restriction.",
)

REQUESTS: Final[tuple[AnyClientRequest, ...]] = (
    INITIALIZE,
    MODEL_LIST,
    MODEL_PROVIDER_LIST,
    MODEL_PROVIDER_CAPABILITIES_READ,
    EXPERIMENTAL_FEATURE_LIST,
    EXPERIMENTAL_FEATURE_ENABLEMENT_SET,
    PERMISSION_PROFILE_LIST,
    COLLABORATION_MODE_LIST,
    SKILLS_LIST,
    SKILLS_EXTRA_ROOTS_SET,
    SKILLS_CONFIG_WRITE,
    ACCOUNT_READ,
    ACCOUNT_LOGIN_START,
    ACCOUNT_LOGIN_CANCEL,
    ACCOUNT_LOGOUT,
    ACCOUNT_RATE_LIMITS_READ,
    CONFIG_READ,
    CONFIG_VALUE_WRITE,
    CONFIG_BATCH_WRITE,
    CONFIG_REQUIREMENTS_READ,
)
