"""Reads texts out of chat messages, as OpenAI's clients, trainers and data sets write them."""

from collections.abc import Collection, Mapping
from typing import Any

from app.core.errors import InvalidComparisonError

Fields = dict[str, Any]

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}


def question_of(value: Any, column: str = "question") -> str | list[Fields]:
    """A text, or the turns of a list of messages.

    Args:
        column: Name of the value, for the message of an error.

    Raises:
        InvalidComparisonError: The value is neither.
    """
    return value if isinstance(value, str) else messages_of(value, column)


def response_of(value: Any, column: str) -> str | list[str]:
    """A text, several texts, or the text of an assistant's message.

    Raises:
        InvalidComparisonError: The value is none of these.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return value
    messages = messages_of([value] if isinstance(value, Mapping) else value, column)
    if len(messages) != 1 or messages[0]["role"] != "assistant":
        raise InvalidComparisonError(
            f"{column} must be a text, or one message of the assistant; it has "
            f"{len(messages)} messages"
        )
    content: str = messages[0]["content"]
    return content


def without_thought(response: str) -> str:
    """The text after the thought with which a response of a reasoning model begins.

    The thought begins with `<think>`, unless the chat template wrote that into the prompt. One that
    does not end leaves nothing.
    """
    end = response.find("</think>")
    opened = response.lstrip().startswith("<think>")
    if end < 0:
        return "" if opened else response
    if not opened and "<think>" in response[:end]:
        return response
    return response[end + len("</think>") :].lstrip()


def messages_of(value: Any, column: str = "this") -> list[Fields]:
    """The role and text of each message, in OpenAI's form or ShareGPT's ("from", "value").

    Args:
        column: Name of the value, for the message of an error.

    Raises:
        InvalidComparisonError: The value is not a list of messages, or a message is not only text.
    """
    # Parquet has arrays of numpy where JSON has lists.
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping) or not value:
        raise InvalidComparisonError(f"{column} is neither a text nor a list of messages")
    return [_message(message) for message in value]


def _message(value: Any) -> Fields:
    if not isinstance(value, Mapping):
        raise InvalidComparisonError("a message must have a role and a content")
    spelled = value.get("role", value.get("from"))
    role = _ROLES.get(spelled.lower()) if isinstance(spelled, str) else None
    if value.get("tool_calls") or value.get("function_call") or spelled in ("tool", "function"):
        raise InvalidComparisonError(
            "a message calls a tool or is its answer, and a judge reads only text: leave such "
            "rows out, or write the calls into the text"
        )
    if role is None:
        raise InvalidComparisonError(f"a message has {_named('role', spelled)}")
    return {"role": role, "content": _content(value.get("content", value.get("value")))}


def _named(field: str, value: Any) -> str:
    return f"the unknown {field} {value[:40]!r}" if isinstance(value, str) else f"no {field}"


def _content(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Collection) and not isinstance(value, Mapping | bytes):
        texts = []
        for part in value:
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind not in ("text", "input_text", "output_text"):
                raise InvalidComparisonError(
                    f"a message has a part with {_named('type', kind)}, and a judge reads only text"
                )
            if not isinstance(part.get("text"), str):
                raise InvalidComparisonError("a message has a text part without text")
            texts.append(part["text"])
        return "\n".join(texts)
    raise InvalidComparisonError("a message has no content")
