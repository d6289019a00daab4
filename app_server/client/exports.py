"""The public names of the client library, for other programs. `app_server.client` offers them as its own.

Only this package exports names of its modules.
"""

from __future__ import annotations as annotations

from app_server.client.answering import ApprovalAnswer as ApprovalAnswer
from app_server.client.answering import ApprovalHandler as ApprovalHandler
from app_server.client.app_server import AppServer as AppServer
from app_server.client.app_server import ConnectOptions as ConnectOptions
from app_server.client.approval_requests import ApprovalReply as ApprovalReply
from app_server.client.approval_requests import ApprovalRequest as ApprovalRequest
from app_server.client.approval_requests import ClientToolRequest as ClientToolRequest
from app_server.client.approval_requests import CommandApprovalRequest as CommandApprovalRequest
from app_server.client.approval_requests import McpElicitationRequest as McpElicitationRequest
from app_server.client.approval_requests import McpToolCallFacts as McpToolCallFacts
from app_server.client.approval_requests import PatchApprovalRequest as PatchApprovalRequest
from app_server.client.approval_requests import PermissionsApprovalRequest as PermissionsApprovalRequest
from app_server.client.approval_requests import UserQuestionsRequest as UserQuestionsRequest
from app_server.client.event_stream import EventSubscription as EventSubscription
from app_server.client.event_stream import TurnStream as TurnStream
from app_server.client.events import DeltasDropped as DeltasDropped
from app_server.client.events import RawNotification as RawNotification
from app_server.client.events import ServerEvent as ServerEvent
from app_server.client.events import ThreadEvent as ThreadEvent
from app_server.client.failures import AppServerError as AppServerError
from app_server.client.failures import HandlerFailed as HandlerFailed
from app_server.client.failures import InvalidArgument as InvalidArgument
from app_server.client.failures import OutputInvalid as OutputInvalid
from app_server.client.failures import RequestRefused as RequestRefused
from app_server.client.failures import ServerEnded as ServerEnded
from app_server.client.failures import StreamOverflow as StreamOverflow
from app_server.client.failures import ThreadClosed as ThreadClosed
from app_server.client.failures import TurnFailed as TurnFailed
from app_server.client.failures import UnexpectedAnswer as UnexpectedAnswer
from app_server.client.feeds import OnWarning as OnWarning
from app_server.client.hook_callbacks import HookCall as HookCall
from app_server.client.hook_callbacks import HookReply as HookReply
from app_server.client.hook_callbacks import Hooks as Hooks
from app_server.client.link import Connector as Connector
from app_server.client.link import ServerLink as ServerLink
from app_server.client.link import SubprocessConnector as SubprocessConnector
from app_server.client.link import shared_server as shared_server
from app_server.client.options import ForkOptions as ForkOptions
from app_server.client.options import ListOptions as ListOptions
from app_server.client.options import OpenOptions as OpenOptions
from app_server.client.options import Prompt as Prompt
from app_server.client.options import StartOptions as StartOptions
from app_server.client.options import TurnOptions as TurnOptions
from app_server.client.options import image as image
from app_server.client.thread_handle import ThreadHandle as ThreadHandle
from app_server.client.turn_handle import TurnHandle as TurnHandle
from app_server.client.turn_handle import TurnResult as TurnResult
from app_server_protocol.policy import ReasoningSummary as ReasoningSummary
from app_server_protocol.policy import SandboxMode as SandboxMode
from app_server_protocol.v2.checkpoints import CheckpointFileAction as CheckpointFileAction
from app_server_protocol.v2.checkpoints import CheckpointFileAuthor as CheckpointFileAuthor
from app_server_protocol.v2.checkpoints import ConflictResolution as ConflictResolution
from app_server_protocol.v2.checkpoints import RestoreScope as RestoreScope
from app_server_protocol.v2.checkpoints import ThreadCheckpoint as ThreadCheckpoint
from app_server_protocol.v2.checkpoints import ThreadCheckpointFile as ThreadCheckpointFile
from app_server_protocol.v2.checkpoints import ThreadCheckpointListResponse as ThreadCheckpointListResponse
from app_server_protocol.v2.checkpoints import (
    ThreadCheckpointPreviewResponse as ThreadCheckpointPreviewResponse,
)
from app_server_protocol.v2.checkpoints import (
    ThreadCheckpointRestoreResponse as ThreadCheckpointRestoreResponse,
)
from app_server_protocol.v2.checkpoints import ThreadRestore as ThreadRestore
from app_server_protocol.v2.fields import ReasoningEffort as ReasoningEffort
from app_server_protocol.v2.item_parts import AddPatchChangeKind as AddPatchChangeKind
from app_server_protocol.v2.item_parts import AudioUserInput as AudioUserInput
from app_server_protocol.v2.item_parts import ByteRange as ByteRange
from app_server_protocol.v2.item_parts import CommandAction as CommandAction
from app_server_protocol.v2.item_parts import CommandExecutionSource as CommandExecutionSource
from app_server_protocol.v2.item_parts import CommandExecutionStatus as CommandExecutionStatus
from app_server_protocol.v2.item_parts import DeletePatchChangeKind as DeletePatchChangeKind
from app_server_protocol.v2.item_parts import (
    DynamicToolCallOutputContentItem as DynamicToolCallOutputContentItem,
)
from app_server_protocol.v2.item_parts import DynamicToolCallStatus as DynamicToolCallStatus
from app_server_protocol.v2.item_parts import FileUpdateChange as FileUpdateChange
from app_server_protocol.v2.item_parts import FindInPageWebSearchAction as FindInPageWebSearchAction
from app_server_protocol.v2.item_parts import ImageDetail as ImageDetail
from app_server_protocol.v2.item_parts import ImageUserInput as ImageUserInput
from app_server_protocol.v2.item_parts import (
    InputAudioDynamicToolCallOutputContentItem as InputAudioDynamicToolCallOutputContentItem,
)
from app_server_protocol.v2.item_parts import (
    InputImageDynamicToolCallOutputContentItem as InputImageDynamicToolCallOutputContentItem,
)
from app_server_protocol.v2.item_parts import (
    InputTextDynamicToolCallOutputContentItem as InputTextDynamicToolCallOutputContentItem,
)
from app_server_protocol.v2.item_parts import ListFilesCommandAction as ListFilesCommandAction
from app_server_protocol.v2.item_parts import LocalAudioUserInput as LocalAudioUserInput
from app_server_protocol.v2.item_parts import LocalImageUserInput as LocalImageUserInput
from app_server_protocol.v2.item_parts import McpToolCallError as McpToolCallError
from app_server_protocol.v2.item_parts import McpToolCallResult as McpToolCallResult
from app_server_protocol.v2.item_parts import McpToolCallStatus as McpToolCallStatus
from app_server_protocol.v2.item_parts import MentionUserInput as MentionUserInput
from app_server_protocol.v2.item_parts import OpenPageWebSearchAction as OpenPageWebSearchAction
from app_server_protocol.v2.item_parts import OtherWebSearchAction as OtherWebSearchAction
from app_server_protocol.v2.item_parts import PatchApplyStatus as PatchApplyStatus
from app_server_protocol.v2.item_parts import PatchChangeKind as PatchChangeKind
from app_server_protocol.v2.item_parts import ReadCommandAction as ReadCommandAction
from app_server_protocol.v2.item_parts import SearchCommandAction as SearchCommandAction
from app_server_protocol.v2.item_parts import SearchWebSearchAction as SearchWebSearchAction
from app_server_protocol.v2.item_parts import SkillUserInput as SkillUserInput
from app_server_protocol.v2.item_parts import TextElement as TextElement
from app_server_protocol.v2.item_parts import TextUserInput as TextUserInput
from app_server_protocol.v2.item_parts import UnknownCommandAction as UnknownCommandAction
from app_server_protocol.v2.item_parts import UpdatePatchChangeKind as UpdatePatchChangeKind
from app_server_protocol.v2.item_parts import UserInput as UserInput
from app_server_protocol.v2.item_parts import WebSearchAction as WebSearchAction
from app_server_protocol.v2.items import AgentMessageDeltaNotification as AgentMessageDeltaNotification
from app_server_protocol.v2.items import AgentMessageThreadItem as AgentMessageThreadItem
from app_server_protocol.v2.items import (
    CommandExecutionOutputDeltaNotification as CommandExecutionOutputDeltaNotification,
)
from app_server_protocol.v2.items import CommandExecutionThreadItem as CommandExecutionThreadItem
from app_server_protocol.v2.items import ContextCompactionThreadItem as ContextCompactionThreadItem
from app_server_protocol.v2.items import DynamicToolCallThreadItem as DynamicToolCallThreadItem
from app_server_protocol.v2.items import EnteredReviewModeThreadItem as EnteredReviewModeThreadItem
from app_server_protocol.v2.items import ExitedReviewModeThreadItem as ExitedReviewModeThreadItem
from app_server_protocol.v2.items import FileChangeThreadItem as FileChangeThreadItem
from app_server_protocol.v2.items import HookPromptFragment as HookPromptFragment
from app_server_protocol.v2.items import HookPromptThreadItem as HookPromptThreadItem
from app_server_protocol.v2.items import ImageViewThreadItem as ImageViewThreadItem
from app_server_protocol.v2.items import ItemCompletedNotification as ItemCompletedNotification
from app_server_protocol.v2.items import ItemStartedNotification as ItemStartedNotification
from app_server_protocol.v2.items import McpToolCallThreadItem as McpToolCallThreadItem
from app_server_protocol.v2.items import MessagePhase as MessagePhase
from app_server_protocol.v2.items import OtherThreadItem as OtherThreadItem
from app_server_protocol.v2.items import PlanDeltaNotification as PlanDeltaNotification
from app_server_protocol.v2.items import PlanThreadItem as PlanThreadItem
from app_server_protocol.v2.items import (
    ReasoningSummaryPartAddedNotification as ReasoningSummaryPartAddedNotification,
)
from app_server_protocol.v2.items import (
    ReasoningSummaryTextDeltaNotification as ReasoningSummaryTextDeltaNotification,
)
from app_server_protocol.v2.items import ReasoningTextDeltaNotification as ReasoningTextDeltaNotification
from app_server_protocol.v2.items import ReasoningThreadItem as ReasoningThreadItem
from app_server_protocol.v2.items import (
    ServerRequestResolvedNotification as ServerRequestResolvedNotification,
)
from app_server_protocol.v2.items import TerminalInteractionNotification as TerminalInteractionNotification
from app_server_protocol.v2.items import ThreadItem as ThreadItem
from app_server_protocol.v2.items import UserMessageThreadItem as UserMessageThreadItem
from app_server_protocol.v2.items import WebSearchThreadItem as WebSearchThreadItem
from app_server_protocol.v2.models import InputModality as InputModality
from app_server_protocol.v2.models import ListedModel as ListedModel
from app_server_protocol.v2.models import ModelServiceTier as ModelServiceTier
from app_server_protocol.v2.models import ModelUpgradeInfo as ModelUpgradeInfo
from app_server_protocol.v2.models import ReasoningEffortOption as ReasoningEffortOption
from app_server_protocol.v2.question import (
    AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision as AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision,  # noqa: E501
)
from app_server_protocol.v2.question import (
    ApplyNetworkPolicyAmendmentCommandExecutionApprovalDecision as ApplyNetworkPolicyAmendmentCommandExecutionApprovalDecision,  # noqa: E501
)
from app_server_protocol.v2.question import (
    CommandExecutionApprovalDecision as CommandExecutionApprovalDecision,
)
from app_server_protocol.v2.question import CommandExecutionApprovalKind as CommandExecutionApprovalKind
from app_server_protocol.v2.question import (
    CommandExecutionRequestApprovalParams as CommandExecutionRequestApprovalParams,
)
from app_server_protocol.v2.question import DynamicToolCallParams as DynamicToolCallParams
from app_server_protocol.v2.question import ExecpolicyAmendment as ExecpolicyAmendment
from app_server_protocol.v2.question import FileChangeApprovalDecision as FileChangeApprovalDecision
from app_server_protocol.v2.question import FileChangeRequestApprovalParams as FileChangeRequestApprovalParams
from app_server_protocol.v2.question import FormElicitation as FormElicitation
from app_server_protocol.v2.question import NetworkAmendment as NetworkAmendment
from app_server_protocol.v2.question import NetworkPolicyAmendment as NetworkPolicyAmendment
from app_server_protocol.v2.question import NetworkPolicyRuleAction as NetworkPolicyRuleAction
from app_server_protocol.v2.question import (
    PermissionsRequestApprovalParams as PermissionsRequestApprovalParams,
)
from app_server_protocol.v2.question import ToolRequestUserInputOption as ToolRequestUserInputOption
from app_server_protocol.v2.question import ToolRequestUserInputParams as ToolRequestUserInputParams
from app_server_protocol.v2.question import ToolRequestUserInputQuestion as ToolRequestUserInputQuestion
from app_server_protocol.v2.question import UrlElicitation as UrlElicitation
from app_server_protocol.v2.server import (
    AccountRateLimitsUpdatedNotification as AccountRateLimitsUpdatedNotification,
)
from app_server_protocol.v2.server import ActiveTurnNotSteerable as ActiveTurnNotSteerable
from app_server_protocol.v2.server import (
    ActiveTurnNotSteerableCodexErrorInfo as ActiveTurnNotSteerableCodexErrorInfo,
)
from app_server_protocol.v2.server import ClientInfo as ClientInfo
from app_server_protocol.v2.server import CodexErrorInfo as CodexErrorInfo
from app_server_protocol.v2.server import CodexErrorKind as CodexErrorKind
from app_server_protocol.v2.server import ConfigWarningNotification as ConfigWarningNotification
from app_server_protocol.v2.server import DeprecationNoticeNotification as DeprecationNoticeNotification
from app_server_protocol.v2.server import ErrorNotification as ErrorNotification
from app_server_protocol.v2.server import (
    HttpConnectionFailedCodexErrorInfo as HttpConnectionFailedCodexErrorInfo,
)
from app_server_protocol.v2.server import HttpErrorStatus as HttpErrorStatus
from app_server_protocol.v2.server import InitializeResponse as InitializeResponse
from app_server_protocol.v2.server import NonSteerableTurnKind as NonSteerableTurnKind
from app_server_protocol.v2.server import PlanType as PlanType
from app_server_protocol.v2.server import RateLimitSnapshot as RateLimitSnapshot
from app_server_protocol.v2.server import RateLimitWindow as RateLimitWindow
from app_server_protocol.v2.server import (
    ResponseStreamConnectionFailedCodexErrorInfo as ResponseStreamConnectionFailedCodexErrorInfo,
)
from app_server_protocol.v2.server import (
    ResponseStreamDisconnectedCodexErrorInfo as ResponseStreamDisconnectedCodexErrorInfo,
)
from app_server_protocol.v2.server import (
    ResponseTooManyFailedAttemptsCodexErrorInfo as ResponseTooManyFailedAttemptsCodexErrorInfo,
)
from app_server_protocol.v2.server import TextPosition as TextPosition
from app_server_protocol.v2.server import TextRange as TextRange
from app_server_protocol.v2.server import TurnError as TurnError
from app_server_protocol.v2.server import WarningNotification as WarningNotification
from app_server_protocol.v2.settings import ActivePermissionProfile as ActivePermissionProfile
from app_server_protocol.v2.settings import ApprovalMode as ApprovalMode
from app_server_protocol.v2.settings import ApprovalsReviewer as ApprovalsReviewer
from app_server_protocol.v2.settings import AskForApproval as AskForApproval
from app_server_protocol.v2.settings import CollaborationMode as CollaborationMode
from app_server_protocol.v2.settings import CollaborationSettings as CollaborationSettings
from app_server_protocol.v2.settings import DangerFullAccessSandboxPolicy as DangerFullAccessSandboxPolicy
from app_server_protocol.v2.settings import ExternalSandboxSandboxPolicy as ExternalSandboxSandboxPolicy
from app_server_protocol.v2.settings import GranularApproval as GranularApproval
from app_server_protocol.v2.settings import GranularAskForApproval as GranularAskForApproval
from app_server_protocol.v2.settings import ModeKind as ModeKind
from app_server_protocol.v2.settings import NetworkAccess as NetworkAccess
from app_server_protocol.v2.settings import Personality as Personality
from app_server_protocol.v2.settings import ReadOnlySandboxPolicy as ReadOnlySandboxPolicy
from app_server_protocol.v2.settings import SandboxPolicy as SandboxPolicy
from app_server_protocol.v2.settings import ThreadSettings as ThreadSettings
from app_server_protocol.v2.settings import (
    ThreadSettingsUpdatedNotification as ThreadSettingsUpdatedNotification,
)
from app_server_protocol.v2.settings import WorkspaceWriteSandboxPolicy as WorkspaceWriteSandboxPolicy
from app_server_protocol.v2.thread import ActiveThreadStatus as ActiveThreadStatus
from app_server_protocol.v2.thread import CustomSessionSource as CustomSessionSource
from app_server_protocol.v2.thread import GitInfo as GitInfo
from app_server_protocol.v2.thread import IdleThreadStatus as IdleThreadStatus
from app_server_protocol.v2.thread import McpServerStartupFailureReason as McpServerStartupFailureReason
from app_server_protocol.v2.thread import McpServerStartupState as McpServerStartupState
from app_server_protocol.v2.thread import (
    McpServerStatusUpdatedNotification as McpServerStatusUpdatedNotification,
)
from app_server_protocol.v2.thread import NotLoadedThreadStatus as NotLoadedThreadStatus
from app_server_protocol.v2.thread import OtherSubAgentSource as OtherSubAgentSource
from app_server_protocol.v2.thread import SessionOriginWord as SessionOriginWord
from app_server_protocol.v2.thread import SessionSource as SessionSource
from app_server_protocol.v2.thread import SubAgentSessionSource as SubAgentSessionSource
from app_server_protocol.v2.thread import SubAgentSource as SubAgentSource
from app_server_protocol.v2.thread import SubAgentWord as SubAgentWord
from app_server_protocol.v2.thread import SystemErrorThreadStatus as SystemErrorThreadStatus
from app_server_protocol.v2.thread import Thread as Thread
from app_server_protocol.v2.thread import ThreadActiveFlag as ThreadActiveFlag
from app_server_protocol.v2.thread import ThreadArchivedNotification as ThreadArchivedNotification
from app_server_protocol.v2.thread import ThreadClosedNotification as ThreadClosedNotification
from app_server_protocol.v2.thread import ThreadDeletedNotification as ThreadDeletedNotification
from app_server_protocol.v2.thread import ThreadEnvironment as ThreadEnvironment
from app_server_protocol.v2.thread import ThreadGoal as ThreadGoal
from app_server_protocol.v2.thread import ThreadGoalClearedNotification as ThreadGoalClearedNotification
from app_server_protocol.v2.thread import ThreadGoalStatus as ThreadGoalStatus
from app_server_protocol.v2.thread import ThreadGoalUpdatedNotification as ThreadGoalUpdatedNotification
from app_server_protocol.v2.thread import ThreadHistoryMode as ThreadHistoryMode
from app_server_protocol.v2.thread import ThreadNameUpdatedNotification as ThreadNameUpdatedNotification
from app_server_protocol.v2.thread import ThreadRevertedNotification as ThreadRevertedNotification
from app_server_protocol.v2.thread import ThreadSpawn as ThreadSpawn
from app_server_protocol.v2.thread import ThreadSpawnSubAgentSource as ThreadSpawnSubAgentSource
from app_server_protocol.v2.thread import ThreadStartedNotification as ThreadStartedNotification
from app_server_protocol.v2.thread import ThreadStatus as ThreadStatus
from app_server_protocol.v2.thread import ThreadStatusChangedNotification as ThreadStatusChangedNotification
from app_server_protocol.v2.thread import ThreadTokenUsage as ThreadTokenUsage
from app_server_protocol.v2.thread import (
    ThreadTokenUsageUpdatedNotification as ThreadTokenUsageUpdatedNotification,
)
from app_server_protocol.v2.thread import ThreadUnarchivedNotification as ThreadUnarchivedNotification
from app_server_protocol.v2.thread import TokenUsageBreakdown as TokenUsageBreakdown
from app_server_protocol.v2.thread_open import DynamicToolNamespaceTool as DynamicToolNamespaceTool
from app_server_protocol.v2.thread_open import DynamicToolSpec as DynamicToolSpec
from app_server_protocol.v2.thread_open import (
    FunctionDynamicToolNamespaceTool as FunctionDynamicToolNamespaceTool,
)
from app_server_protocol.v2.thread_open import FunctionDynamicToolSpec as FunctionDynamicToolSpec
from app_server_protocol.v2.thread_open import NamespaceDynamicToolSpec as NamespaceDynamicToolSpec
from app_server_protocol.v2.turn import BaseBranchReviewTarget as BaseBranchReviewTarget
from app_server_protocol.v2.turn import CommitReviewTarget as CommitReviewTarget
from app_server_protocol.v2.turn import CustomReviewTarget as CustomReviewTarget
from app_server_protocol.v2.turn import ReviewTarget as ReviewTarget
from app_server_protocol.v2.turn import Turn as Turn
from app_server_protocol.v2.turn import TurnCompletedNotification as TurnCompletedNotification
from app_server_protocol.v2.turn import TurnDiffUpdatedNotification as TurnDiffUpdatedNotification
from app_server_protocol.v2.turn import TurnItemsView as TurnItemsView
from app_server_protocol.v2.turn import TurnPlanStep as TurnPlanStep
from app_server_protocol.v2.turn import TurnPlanStepStatus as TurnPlanStepStatus
from app_server_protocol.v2.turn import TurnPlanUpdatedNotification as TurnPlanUpdatedNotification
from app_server_protocol.v2.turn import TurnStartedNotification as TurnStartedNotification
from app_server_protocol.v2.turn import TurnStatus as TurnStatus
from app_server_protocol.v2.turn import UncommittedChangesReviewTarget as UncommittedChangesReviewTarget
