"""`view_image`: reads an image file with the rights of a command and attaches it for the model."""

from __future__ import annotations

import os.path
from functools import partial

from pydantic import Field

from app_server.core.context.images import MAX_IMAGE_BYTES
from app_server.core.model.prompt import ToolSpec
from app_server.core.pictures import ImageUnreadable, data_url
from app_server.core.threads import run_in_thread
from app_server.core.tools.arguments import ToolArguments, function_tool, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.reading import read_bytes
from protocol.engine.items import ImageView
from protocol.responses import FunctionCallOutputPayload, InputImage, MessageItem


class ViewImageArguments(ToolArguments):
    path: str = Field(description="The file; relative to the working directory.")


class ViewImageTool:
    name = "view_image"
    parallel = True

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name, ViewImageArguments, "Attaches an image file, so that you can look at it."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ViewImageArguments)
        path = os.path.join(turn.settings.cwd, arguments.path)
        # Commands use the same directory: the one that the name led to when the conversation got it.
        real = os.path.join(turn.commands.roots.real(turn.settings.cwd), arguments.path)
        data = await read_bytes("image", turn, path=real, most=MAX_IMAGE_BYTES)
        try:
            url = await run_in_thread(partial(data_url, checksums=turn.strict_pictures), data)
        except ImageUnreadable as error:
            raise ToolFailure(f"unable to read image at `{path}`: {error}") from error
        turn.items.show(ImageView(call.call_id, path))
        payload = FunctionCallOutputPayload(content="attached local image path", success=True)
        image = MessageItem(role="user", content=(InputImage(image_url=url),))
        return ToolOutput(payload, (image,))
