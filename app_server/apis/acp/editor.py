"""The client's editor as patches see it: the text of a file with what is not saved, and a way to write it."""

from __future__ import annotations

from app_server.rpc.outgoing import Outgoing
from protocol.acp.methods import READ_TEXT_FILE, WRITE_TEXT_FILE
from protocol.acp.tool_calls import ReadTextFileRequest, WriteTextFileRequest
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class ClientEditor:
    session_id: str
    outgoing: Outgoing

    async def read(self, path: str) -> str | None:
        """None for an error and for an answer that is none."""
        request = ReadTextFileRequest(session_id=self.session_id, path=path)
        reply = await self.outgoing.request(READ_TEXT_FILE.method, request.to_json())
        match reply.error, reply.result:
            case None, {"content": str(text)}:
                return text
            case _:
                return None

    async def write(self, path: str, text: str) -> bool:
        request = WriteTextFileRequest(session_id=self.session_id, path=path, content=text)
        reply = await self.outgoing.request(WRITE_TEXT_FILE.method, request.to_json())
        return reply.error is None
