"""One setting that runs with another value than the user asked for."""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Source(Enum):
    """Where a user can set something."""

    COMMAND_LINE = "command line"
    CONFIG_FILE = "config file"
    KEYWORD = "keyword"
    ENVIRONMENT = "environment variable"


@dataclass(frozen=True)
class Request:
    """How the user set one setting.

    Attributes:
        source: where it was set.
        name: the flag, key, keyword or variable as the user wrote it.
        file: the config file, if it was set there.
    """

    source: Source
    name: str
    file: str | None = None

    def __str__(self) -> str:
        if self.source is Source.CONFIG_FILE:
            return f"{self.name} (in {self.file})"
        if self.source is Source.KEYWORD:
            return f"{self.name} (keyword)"
        return self.name

    def with_value(self, value: Any) -> str | None:
        """What to write to ask for ``value``; None if leaving it out does that."""
        if value is None or (value is False and self.source is Source.COMMAND_LINE):
            return None
        if self.source is Source.COMMAND_LINE:
            return self.name if value is True else f"{self.name} {_quoted(value)}"
        if self.source is Source.CONFIG_FILE:
            return f"{self.name}: {_yaml_scalar(value)}"
        if self.source is Source.KEYWORD:
            return f"{self.name}={value!r}"
        return f"{self.name}={plain(value)}"


@dataclass(frozen=True)
class Remap:
    """A setting whose effective value is not the one that was asked for.

    Attributes:
        setting: the field of ``ServerArgs``, or the environment variable.
        asked: the value that the user gave.
        effective: the value that runs.
        rule: the resolution rule, or the code, that decided it.
        reason: why, as a clause without a full stop; None where nothing is known.
        advice: how to get the asked value, as an instruction; None if unknown.
        request: where and how the user asked.
        can_be_typed: whether asking for ``effective`` is a way to say so.
    """

    setting: str
    asked: Any
    effective: Any
    rule: str
    reason: str | None
    advice: str | None
    request: Request
    can_be_typed: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The same facts as data that JSON can hold."""
        return {
            "setting": self.setting,
            "asked": jsonable(self.asked),
            "effective": jsonable(self.effective),
            "rule": self.rule,
            "reason": self.reason,
            "advice": self.advice,
            "source": self.request.source.value,
            "written_as": self.request.name,
        }


def plain(value: Any) -> str:
    """A value as a user writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return " ".join(map(plain, value)) or "[]"
    return json.dumps(jsonable(value), default=str)


def jsonable(value: Any) -> Any:
    """The value in JSON's types; what has none becomes its text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return jsonable(dataclasses.asdict(value))
    return str(value)


def _quoted(value: Any) -> str:
    words = value if isinstance(value, list | tuple) else [value]
    return " ".join(shlex.quote(plain(word)) for word in words)


def _yaml_scalar(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else plain(value)
