"""How much of the account is used up."""

from enum import StrEnum

from protocol.base import WireModel
from protocol.fields import Flag
from protocol.structs import WireStruct
from protocol.v2.account import PlanType


class RateLimitWindow(WireStruct):
    used_percent: int
    window_duration_mins: int | None = None
    resets_at: int | None = None


class CreditsSnapshot(WireStruct):
    has_credits: bool
    unlimited: bool
    balance: str | None = None


class SpendControlLimitSnapshot(WireStruct):
    limit: str
    used: str
    remaining_percent: int
    resets_at: int


class RateLimitReachedType(StrEnum):
    RATE_LIMIT_REACHED = "rate_limit_reached"
    WORKSPACE_OWNER_CREDITS_DEPLETED = "workspace_owner_credits_depleted"
    WORKSPACE_MEMBER_CREDITS_DEPLETED = "workspace_member_credits_depleted"
    WORKSPACE_OWNER_USAGE_LIMIT_REACHED = "workspace_owner_usage_limit_reached"
    WORKSPACE_MEMBER_USAGE_LIMIT_REACHED = "workspace_member_usage_limit_reached"


class RateLimitSnapshot(WireStruct):
    """How much of each window is used."""

    limit_id: str | None = None
    limit_name: str | None = None
    normal_model_slug: str | None = None
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None
    credits: CreditsSnapshot | None = None
    individual_limit: SpendControlLimitSnapshot | None = None
    spend_control_reached: bool | None = None
    plan_type: PlanType | None = None
    rate_limit_reached_type: RateLimitReachedType | None = None


class GetAccountRateLimitsParams(WireModel):
    exclude_reset_credit_details: Flag = False


class GetAccountRateLimitsResponse(WireStruct):
    """The limits that are known, those of the usual models first."""

    ordinary_usage_allowed: bool | None = None
    rate_limits: RateLimitSnapshot
    rate_limits_by_limit_id: dict[str, RateLimitSnapshot] | None = None
    account_id: str | None = None


class AccountRateLimitsUpdatedNotification(WireStruct):
    rate_limits: RateLimitSnapshot
