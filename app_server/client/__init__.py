"""A typed client library for the thread API: threads, turns, approvals, over a subprocess or in the same process.

    async with AppServer.spawn() as server:
        thread = await server.start_thread(cwd="/home/me/project")
        result = await thread.run("Does greet.sh work?")
        print(result.final_message)

docs/client.md is its guide. The shapes of events, items and settings are the protocol's own (`app_server_protocol.v2`).
This is the one package that exports names of its modules: it is for programs outside of this one.
"""

from __future__ import annotations as annotations

from app_server.client.answering import ApprovalAnswer as ApprovalAnswer
from app_server.client.answering import ApprovalHandler as ApprovalHandler
from app_server.client.app_server import AppServer as AppServer
from app_server.client.approval_requests import ApprovalReply as ApprovalReply
from app_server.client.approval_requests import ApprovalRequest as ApprovalRequest
from app_server.client.approval_requests import ClientToolRequest as ClientToolRequest
from app_server.client.approval_requests import CommandApprovalRequest as CommandApprovalRequest
from app_server.client.approval_requests import McpElicitationRequest as McpElicitationRequest
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
