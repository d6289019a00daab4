"""A provider on loopback that stands for a local model server: lists models, answers Chat Completions with a
text."""

import json

from anyio.abc import SocketStream

from app_server.demo.scripted_model import (
    EVENT_STREAM,
    LAST_CHUNK,
    LoopbackServer,
    ReceivedRequest,
    chunk,
    response_head,
    whole_response,
)
from protocol.base import Json

ANSWER = "There is one file."


class LocalProvider(LoopbackServer):
    def __init__(self, *models: str) -> None:
        self.models = models
        self.requests: list[tuple[str, Json]] = []

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        self.requests.append((request.path, json.loads(request.body or b"null")))
        if request.path.endswith("/models"):
            listed = {"data": [{"id": model} for model in self.models]}
            await stream.send(whole_response(200, json.dumps(listed).encode()))
            return True
        answer = json.dumps(ANSWER) if b'"response_format"' in request.body else ANSWER
        said = {"choices": [{"delta": {"role": "assistant", "content": answer}, "finish_reason": "stop"}]}
        await stream.send(response_head(200, EVENT_STREAM))
        for data in (json.dumps(said), "[DONE]"):
            await stream.send(chunk(f"data: {data}\n\n".encode()))
        await stream.send(LAST_CHUNK)
        return True
