"""Tools that a client brings to a conversation, and that it is asked to run."""

from protocol.base import EngineModel, Json, omit_none


class ClientTool(EngineModel):
    """As the model is offered it, and as a conversation stores it."""

    name: str
    namespace: str | None = omit_none()
    """Groups tools. The model knows the tool by both names."""
    description: str
    input_schema: Json

    @property
    def offered_name(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}__{self.name}"
