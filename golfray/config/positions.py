"""YAML 1.2 as plain data that remembers where every value stood.

Only mappings with text keys, sequences, text, numbers, booleans and null are read. Tags that build other objects,
aliases and merge keys are refused: each value is written where it is used, so each has exactly one position.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, DocumentStartEvent, Event
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.parser import Parser

from golfray.config.errors import ConfigError, shown

_TAG = "tag:yaml.org,2002:"
# YAML 1.2 has neither dates nor the "=" type; ruamel still resolves them, and here they are the text that was written.
_TEXT_TAGS = {f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value"}
_SPECIAL_FLOATS = {".nan": "nan", ".inf": "inf", "+.inf": "inf", "-.inf": "-inf"}


# Far above what any configuration needs, far below where the composer's recursion ends and where memory does.
_DEEPEST = 50
_LARGEST_BYTES = 2**20
_LONGEST_INTEGER = 66


class Position(NamedTuple):
    """Where a value's key (in a sequence: the item) begins; line and column count from 1."""

    line: int
    column: int
    source: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"


@dataclass(frozen=True)
class Document:
    """Plain data, and where each part of it was written.

    ``source`` is the file as the reader knows it. ``positions`` has an entry for every dotted path, sequence items by
    their index; in a document made of several files each entry names its own.
    """

    source: str
    values: dict[str, Any]
    positions: Mapping[str, Position]

    def position(self, path: str) -> Position | None:
        """Position of ``path``, or of its nearest ancestor that the file has, or None."""
        while path:
            if path in self.positions:
                return self.positions[path]
            path = path.rpartition(".")[0]
        return None

    def error(self, path: str, message: str) -> ConfigError:
        """The error to raise about ``path`` of this file."""
        position = self.position(path)
        if position is None:
            return ConfigError(message, path=path, file=self.source)
        return ConfigError(message, path=path, file=position.source, line=position.line, column=position.column)

    def locate(self, error: ConfigError) -> ConfigError:
        """``error`` with this file's position of its path, where it names no file yet and the path stands here."""
        if error.file is not None or error.path is None or self.position(error.path) is None:
            return error
        return self.error(error.path, error.message)


def load_yaml(path: pathlib.Path) -> Document:
    """Read a file; raises :class:`ConfigError` where it cannot be read or is not a YAML 1.2 mapping in UTF-8."""
    try:
        # Whoever opens a pipe waits for its other end, which nobody may ever hold.
        if path.is_fifo():
            raise ConfigError("is no regular file", file=str(path))
        with open(path, "rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise ConfigError(f"is larger than {_LARGEST_BYTES:,} bytes, as no such file is", file=str(path))
        text = content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(path)) from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> Document:
    """Read YAML text whose root is a mapping; ``source`` is its name in messages."""
    root = _compose(text, source)
    if root is None:
        raise ConfigError("is empty; expected a mapping of names to values", file=source)
    reader = _Reader(source)
    if not isinstance(root, MappingNode):
        raise reader.error(root, "", f"expected a mapping of names to values, got {_kind(root)}")
    return Document(source, reader.read_mapping(root, ""), reader.positions)


def parse_value(text: str, source: str, path: str) -> Any:
    """Read one YAML value from a command line; ``source`` and ``path`` are its names in messages.

    Raises :class:`ConfigError` without line and column, which would mean nothing on a command line.
    """
    try:
        root = _compose(text, source)
        if root is None:
            raise ConfigError("the value is empty; write null, or '' for an empty text")
        return _Reader(source).read(root, path)
    except ConfigError as error:
        raise ConfigError(error.message, path=path, file=source) from error


def _compose(text: str, source: str) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.Parser = _StrictParser
    try:
        node: Node | None = yaml.compose(text)
    except _RefusedEvent as refused:
        row, start = _line_and_column(refused.event)
        raise ConfigError(refused.message, file=source, line=row, column=start) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reasons = (error.context, error.problem)
        message = ", ".join(" ".join(str(reason).split()) for reason in reasons if reason)
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (None, None)
        raise ConfigError(f"not valid YAML: {message}", file=source, line=line, column=column) from error
    except YAMLError as error:
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}", file=source) from error
    return node


class _RefusedEvent(Exception):
    def __init__(self, event: Event, message: str) -> None:
        super().__init__(message)
        self.event = event
        self.message = message


class _StrictParser(Parser):
    """Refuses what must be seen before it is composed: aliases, a header that asks for other rules, endless nesting."""

    _depth = 0

    def get_event(self) -> Event:
        event = super().get_event()
        self._depth += isinstance(event, CollectionStartEvent)
        self._depth -= isinstance(event, CollectionEndEvent)
        if isinstance(event, AliasEvent):
            raise _RefusedEvent(event, "an alias (*name) is not read; write the value out where it is needed")
        if isinstance(event, DocumentStartEvent) and event.version not in (None, (1, 2)):
            version = ".".join(map(str, event.version))
            raise _RefusedEvent(event, f"the header asks for YAML {version}; this is read as YAML 1.2: remove it")
        if self._depth > _DEEPEST:
            raise _RefusedEvent(event, f"is nested more than {_DEEPEST} levels deep")
        return event


def _kind(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    return "a sequence" if isinstance(node, SequenceNode) else f"the single value {shown(node.value)}"


class _Reader:
    """Turns composed nodes into plain data and collects positions on the way."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.positions: dict[str, Position] = {}

    def error(self, node: Node, path: str, message: str) -> ConfigError:
        line, column = _line_and_column(node)
        return ConfigError(message, path=path or None, file=self.source, line=line, column=column)

    def read(self, node: Node, path: str) -> Any:
        if isinstance(node, MappingNode):
            return self.read_mapping(node, path)
        if isinstance(node, SequenceNode):
            return self._read_sequence(node, path)
        return self._read_scalar(node, path)

    def read_mapping(self, node: MappingNode, path: str) -> dict[str, Any]:
        self._expect_tag(node, path, "map")
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if isinstance(key_node, ScalarNode) and key_node.tag == f"{_TAG}merge":
                raise self.error(key_node, path, "merge keys (<<) are not YAML 1.2; write the values out")
            if not isinstance(key_node, ScalarNode) or key_node.tag not in _TEXT_TAGS:
                kind = _kind(key_node)
                raise self.error(key_node, path, f"a key must be text, got {kind}; put it in quotes if it is a name")
            key = key_node.value
            if not key:
                raise self.error(key_node, path, "a key must not be empty")
            self._refuse_surrogates(key_node, path)
            child = f"{path}.{key}" if path else key
            # One joined name covers both spellings, a.b: and a: {b: }, of the same setting.
            if key in values or (child in self.positions and not _both_mappings(value_node, self.positions, child)):
                first = self.positions[child]
                raise self.error(key_node, child, f"is given twice; first on line {first.line}")
            self.positions.setdefault(child, self._position(key_node))
            values[key] = self.read(value_node, child)
        return values

    def _read_sequence(self, node: SequenceNode, path: str) -> list[Any]:
        self._expect_tag(node, path, "seq")
        values = []
        for index, item in enumerate(node.value):
            child = f"{path}.{index}" if path else str(index)
            self.positions[child] = self._position(item)
            values.append(self.read(item, child))
        return values

    def _read_scalar(self, node: Node, path: str) -> Any:
        text = node.value
        if node.tag in _TEXT_TAGS:
            self._refuse_surrogates(node, path)
            return text
        if node.tag == f"{_TAG}null":
            return None
        if node.tag == f"{_TAG}bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            if node.tag == f"{_TAG}int":
                return _integer(text)
            if node.tag == f"{_TAG}float":
                return float(_SPECIAL_FLOATS.get(text.lower(), text.replace("_", "")))
        except OverflowError as error:
            raise self.error(node, path, f"is beyond 64-bit integers: {shown(text)}") from error
        except ValueError as error:
            raise self.error(node, path, f"is not a number that YAML 1.2 knows: {shown(text)}") from error
        raise self.error(node, path, f"is {shown(text)} of type {node.tag}, which is not read; write plain YAML 1.2")

    def _refuse_surrogates(self, node: Node, path: str) -> None:
        """Half a character of UTF-16, which an escape can name and no file or terminal can hold."""
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            raise self.error(node, path, "has an escape from \\uD800 to \\uDFFF, which is no character")

    def _position(self, node: Node) -> Position:
        return Position(*_line_and_column(node), self.source)

    def _expect_tag(self, node: Node, path: str, name: str) -> None:
        if node.tag != f"{_TAG}{name}":
            raise self.error(node, path, f"has the type {node.tag}, which is not read; write plain YAML 1.2")


def _line_and_column(item: Node | Event) -> tuple[int, int]:
    return item.start_mark.line + 1, item.start_mark.column + 1


def _both_mappings(node: Node, positions: Mapping[str, Position], path: str) -> bool:
    return isinstance(node, MappingNode) and any(known.startswith(f"{path}.") for known in positions)


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    unsigned = digits.lstrip("+-")
    # Python itself refuses thousands of digits, and computing with what it takes overflows where a float is met.
    number = None
    if len(unsigned) <= _LONGEST_INTEGER:
        number = int(digits, 0 if unsigned.startswith(("0x", "0o")) else 10)
    if number is None or not -(2**63) <= number < 2**63:
        raise OverflowError(digits)
    return number
