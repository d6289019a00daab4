"""`apply_patch` as a tool: a JSON function for most models, free text for models trained on the patch format."""

from __future__ import annotations

from pydantic import Field

from app_server.core.model.prompt import FreeformTool, ToolSpec
from app_server.core.tools.arguments import ToolArguments, function_tool, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolOutput, ToolTurn
from app_server.core.tools.orchestrator import command_tool_output
from app_server.core.tools.patching import PatchFlow


class PatchArguments(ToolArguments):
    input: str = Field(description="The whole patch, from *** Begin Patch to *** End Patch.")


DESCRIPTION = "Adds, changes, moves and deletes files. All of the patch is applied, or nothing of it."

GRAMMAR = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""


class ApplyPatchTool:
    """One of the two forms."""

    name = "apply_patch"
    parallel = False

    def __init__(self, *, freeform: bool) -> None:
        self._freeform = freeform

    def spec(self) -> ToolSpec:
        if self._freeform:
            grammar = {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}
            return FreeformTool(
                name=self.name,
                description=f"{DESCRIPTION} The input is the patch itself, not JSON.",
                format=grammar,
            )
        return function_tool(self.name, PatchArguments, DESCRIPTION)

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        text = call.arguments if call.custom else parse_arguments(call.arguments, PatchArguments).input
        result = await PatchFlow(call.call_id, text, turn.settings.cwd, turn).apply()
        return command_tool_output(result)
