"""The switches of the configuration: which there are, and setting them for as long as this server runs."""

from __future__ import annotations

from app_server.apis.services import ConfigSource
from app_server.apis.v2.positions import page_by_position
from app_server.apis.v2.thread_ids import parse_thread_id, thread_not_found
from app_server.conversations.manager import ConversationManager
from app_server.core.config.features import FEATURES, Feature, Features, FeatureStage, canonical_feature
from protocol.records import dataclass
from protocol.v2.models import (
    ExperimentalFeature,
    ExperimentalFeatureEnablementSetParams,
    ExperimentalFeatureEnablementSetResponse,
    ExperimentalFeatureListParams,
    ExperimentalFeatureListResponse,
    ExperimentalFeatureStage,
)

STAGES = {
    FeatureStage.STABLE: ExperimentalFeatureStage.STABLE,
    FeatureStage.BETA: ExperimentalFeatureStage.BETA,
    FeatureStage.EXPERIMENTAL: ExperimentalFeatureStage.UNDER_DEVELOPMENT,
}


@dataclass(frozen=True, slots=True)
class FeatureContext:
    config: ConfigSource
    conversations: ConversationManager

    def of_thread(self, thread_id: str) -> Features:
        """Those with which a loaded thread began. Raises RpcError."""
        id = parse_thread_id(thread_id)
        live = self.conversations.find(id)
        if live is None:
            raise thread_not_found(id)
        return live.session.facts.config.features


async def experimental_feature_list(
    context: FeatureContext, params: ExperimentalFeatureListParams
) -> ExperimentalFeatureListResponse:
    """Of a thread, or those with which one would begin now."""
    on = context.config.load().features if params.thread_id is None else context.of_thread(params.thread_id)
    features = [_shown(feature, on) for feature in FEATURES.values()]
    page, next_cursor = page_by_position(features, params.cursor, params.limit)
    return ExperimentalFeatureListResponse(data=page, next_cursor=next_cursor)


async def experimental_feature_enablement_set(
    context: FeatureContext, params: ExperimentalFeatureEnablementSetParams
) -> ExperimentalFeatureEnablementSetResponse:
    """For threads that begin from now on, where the settings say nothing of a feature. Unknown ones are passed over."""
    known = {canonical_feature(name): on for name, on in params.enablement.items()}
    accepted = {name: on for name, on in known.items() if name is not None}
    context.config.switches.update(accepted)
    return ExperimentalFeatureEnablementSetResponse(enablement=accepted)


def _shown(feature: Feature, on: Features) -> ExperimentalFeature:
    return ExperimentalFeature(
        name=feature.name,
        stage=STAGES[feature.stage],
        enabled=on.enabled(feature.name),
        default_enabled=feature.default,
    )
