"""Inputs of a user (`UserInput`) and items of a turn (`TurnItem`), which the engine emits."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypeAliasType

from app_server_protocol.encoding import Json
from app_server_protocol.ids import PathText
from app_server_protocol.outgoing import EngineStruct, always_written


class Tagged:
    """Marks a union whose members are written as `{"<tag>": {...}}`, in Python as on the wire."""

    def __init__(self, members: Mapping[str, type[EngineStruct]]) -> None:
        self.members: Final = members

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.union_schema([self._wrapped(tag, handler) for tag in self.members])

    def _wrapped(self, tag: str, handler: GetCoreSchemaHandler) -> CoreSchema:
        member = core_schema.typed_dict_field(handler.generate_schema(self.members[tag]))
        return core_schema.typed_dict_schema({tag: member}, extra_behavior="forbid")


class ExternallyTagged(Tagged):
    """Marks such a union whose members are the bare structs in Python."""

    def __init__(self, members: Mapping[str, type[EngineStruct]]) -> None:
        super().__init__(members)
        self.tags: Final = {model: tag for tag, model in members.items()}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        wrapped = super().__get_pydantic_core_schema__(source, handler)
        return core_schema.union_schema(
            [
                core_schema.is_instance_schema(tuple(self.tags)),
                core_schema.no_info_after_validator_function(_only_value, wrapped),
            ],
            mode="left_to_right",
            serialization=core_schema.plain_serializer_function_ser_schema(
                self.wrap, return_schema=core_schema.dict_schema()
            ),
        )

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        assert core["type"] == "union"
        choice = core["choices"][1]
        assert not isinstance(choice, tuple)
        return handler(choice)

    def wrap(self, value: EngineStruct) -> dict[str, Json]:
        """Return a member in its form on the wire, under its tag."""
        return {self.tags[type(value)]: value.to_value()}


def _only_value(wrapped: dict[str, Any]) -> Any:
    (value,) = wrapped.values()
    return value


class TextInput(EngineStruct, omit_defaults=True):
    type: Literal["text"] = always_written("text")
    text: str
    text_elements: SkipJsonSchema[tuple[Json, ...]] = ()
    """The client's own: ranges that it shows in another way than as plain text. The model does not see them."""


class ImageInput(EngineStruct):
    """An image by URL, which may be a data URL."""

    type: Literal["image"] = "image"
    image_url: str


class LocalImageInput(EngineStruct):
    """An image file; it is read and encoded when the request to the model is built."""

    type: Literal["local_image"] = "local_image"
    path: PathText


class SkillInput(EngineStruct):
    """A skill that the model shall use, by the path of its SKILL.md."""

    type: Literal["skill"] = "skill"
    name: str
    path: PathText


class MentionInput(EngineStruct):
    """A file or another thing that the words speak of."""

    type: Literal["mention"] = "mention"
    name: str
    path: PathText


UserInput = TypeAliasType(
    "UserInput", Annotated[TextInput | ImageInput | LocalImageInput, Field(discriminator="type")]
)

SentInput = TypeAliasType(
    "SentInput",
    Annotated[
        TextInput | ImageInput | LocalImageInput | SkillInput | MentionInput, Field(discriminator="type")
    ],
)
"""Inputs of clients of an API that has further kinds."""


class UserMessageItem(EngineStruct):
    id: str
    content: tuple[UserInput, ...]


class TextContentPart(EngineStruct):
    text: str


AgentMessageContent = TypeAliasType(
    "AgentMessageContent", Annotated[dict[str, TextContentPart], Tagged({"Text": TextContentPart})]
)


class AgentMessageItem(EngineStruct):
    id: str
    content: tuple[AgentMessageContent, ...]


class ReasoningItem(EngineStruct):
    id: str
    summary_text: tuple[str, ...]
    raw_content: tuple[str, ...] = ()


class WebSearchItem(EngineStruct):
    id: str
    query: str


TurnItem = TypeAliasType(
    "TurnItem",
    Annotated[
        dict[str, UserMessageItem | AgentMessageItem | ReasoningItem | WebSearchItem],
        Tagged(
            {
                "UserMessage": UserMessageItem,
                "AgentMessage": AgentMessageItem,
                "Reasoning": ReasoningItem,
                "WebSearch": WebSearchItem,
            }
        ),
    ],
)
