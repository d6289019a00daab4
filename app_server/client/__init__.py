"""A typed client library for the thread API: threads, turns, approvals, over a subprocess or in the same process.

    async with AppServer.spawn() as server:
        thread = await server.start_thread(cwd="/home/me/project")
        result = await thread.run("Does greet.sh work?")
        print(result.final_message)

docs/client.md is its guide. The shapes of events, items and settings are the protocol's own (`protocol.v2`). This is
the one package that exports names of its modules: it is for programs outside of this one.
"""

from __future__ import annotations

from app_server.client.answering import ApprovalAnswer, ApprovalHandler
from app_server.client.app_server import AppServer
from app_server.client.approval_requests import (
    ApprovalReply,
    ApprovalRequest,
    ClientToolRequest,
    CommandApprovalRequest,
    McpElicitationRequest,
    PatchApprovalRequest,
    PermissionsApprovalRequest,
    UserQuestionsRequest,
)
from app_server.client.event_stream import EventSubscription, TurnStream
from app_server.client.events import DeltasDropped, RawNotification, ServerEvent, ThreadEvent
from app_server.client.failures import (
    AppServerError,
    HandlerFailed,
    InvalidArgument,
    OutputInvalid,
    RequestRefused,
    ServerEnded,
    StreamOverflow,
    ThreadClosed,
    TurnFailed,
    UnexpectedAnswer,
)
from app_server.client.feeds import OnWarning
from app_server.client.link import Connector, ServerLink, SubprocessConnector
from app_server.client.options import (
    ForkOptions,
    ListOptions,
    OpenOptions,
    Prompt,
    StartOptions,
    TurnOptions,
    image,
)
from app_server.client.thread_handle import ThreadHandle
from app_server.client.turn_handle import TurnHandle, TurnResult

__all__ = [
    "AppServer",
    "AppServerError",
    "ApprovalAnswer",
    "ApprovalHandler",
    "ApprovalReply",
    "ApprovalRequest",
    "ClientToolRequest",
    "CommandApprovalRequest",
    "Connector",
    "DeltasDropped",
    "EventSubscription",
    "ForkOptions",
    "HandlerFailed",
    "InvalidArgument",
    "ListOptions",
    "McpElicitationRequest",
    "OnWarning",
    "OpenOptions",
    "OutputInvalid",
    "PatchApprovalRequest",
    "PermissionsApprovalRequest",
    "Prompt",
    "RawNotification",
    "RequestRefused",
    "ServerEnded",
    "ServerEvent",
    "ServerLink",
    "StartOptions",
    "StreamOverflow",
    "SubprocessConnector",
    "ThreadClosed",
    "ThreadEvent",
    "ThreadHandle",
    "TurnFailed",
    "TurnHandle",
    "TurnOptions",
    "TurnResult",
    "TurnStream",
    "UnexpectedAnswer",
    "UserQuestionsRequest",
    "image",
]
