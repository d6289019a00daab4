"""`view_image`: an image file from the disk, put before the model."""

from __future__ import annotations

import os
import os.path
from pathlib import Path
from typing import Final

from app_server.core.context.images import ImageUnreadable, image_data_url
from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.threads import run_in_thread
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from protocol.base import Json
from protocol.events.commands import ViewImageToolCallEvent
from protocol.responses import FunctionCallOutputPayload, InputImage, MessageItem

PARAMETERS: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "The file; relative to the working directory."}},
    "required": ["path"],
    "additionalProperties": False,
}


class ViewImageTool:
    name = "view_image"
    parallel = True

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Attaches an image file, so that you can look at it.",
            parameters=PARAMETERS,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        path = os.path.join(turn.settings.cwd, parse_arguments(call.arguments, PARAMETERS)["path"])
        try:
            url = await run_in_thread(image_data_url, Path(path), abandon_on_cancel=True)
        except OSError as error:
            reason = f"{error.strerror} (os error {error.errno})"
            raise ToolFailure(f"unable to locate image at `{path}`: {reason}") from error
        except ImageUnreadable as error:
            raise ToolFailure(f"unable to read image at `{path}`: {error}") from error
        turn.emit(ViewImageToolCallEvent(call_id=call.call_id, path=path))
        payload = FunctionCallOutputPayload(content="attached local image path", success=True)
        image = MessageItem(role="user", content=(InputImage(image_url=url),))
        return ToolOutput(payload, (image,))
