"""docs/json.md as a schema: a document is valid where its fields and their types are those that the tables list."""

import pathlib
import re
from collections.abc import Iterable
from typing import Any

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "json.md"

_LEAVES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class Tables:
    """The tables of the page, {heading: {field: type}}, and what the text before a table adds to it."""

    def __init__(self, text: str) -> None:
        self.tables: dict[str, dict[str, str]] = {}
        for part in re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]:
            heading, _, body = part.partition("\n")
            rows = re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", body, flags=re.MULTILINE)
            self.tables[heading.strip()] = dict(rows)
        # "Everything of STUDY, and" and "As `study_started`": said in words there.
        self.tables["study"] = self.tables["STUDY"] | self.tables["study"]
        self.tables["status"] = self.tables["STUDY"] | self.tables["status"]
        self.tables["trial"] = self.tables["ENTRY"] | self.tables["trial"]
        started = {name: kind for name, kind in self.tables["event study_started"].items() if name != "study"}
        self.tables["event study_resumed"] = started | self.tables["event study_resumed"]

    @property
    def kinds(self) -> set[str]:
        """Kinds of documents that have a table."""
        return {name for name in self.tables if re.fullmatch(r"[a-z_]+", name)}

    def mistakes(self, document: dict[str, Any]) -> list[str]:
        """What is wrong with a document; nothing where it is as the page says."""
        kind = document.get("kind")
        if document.get("schema") != "golfray/1" or kind not in self.kinds:
            return [f"schema {document.get('schema')!r}, kind {kind!r}: not on the page"]
        fields = self.tables[kind]
        if kind == "event":
            name = f"event {document.get('event')}"
            if name not in self.tables:
                return [f"{name}: not on the page"]
            fields = fields | self.tables[name]
        content = {key: value for key, value in document.items() if key not in ("schema", "kind")}
        return list(self._object(kind, content, fields))

    def _object(self, place: str, value: dict[str, Any], fields: dict[str, str]) -> Iterable[str]:
        for name in value.keys() - fields.keys():
            yield f"{place}.{name}: not on the page"
        for name, kind in fields.items():
            if name not in value:
                yield f"{place}.{name}: is missing"
            else:
                yield from self._value(f"{place}.{name}", value[name], kind)

    def _value(self, place: str, value: Any, kind: str) -> Iterable[str]:
        optional = kind.startswith("null or ")
        kind = kind.removeprefix("null or ")
        if kind.startswith("list of "):
            inner, container = kind.removeprefix("list of "), list
        elif kind.startswith("map of "):
            inner, container = kind.removeprefix("map of "), dict
        else:
            inner, container = "", None
            optional = optional or kind.endswith("?")
            kind = kind.removesuffix("?")
        if (value is None and optional) or kind == "any":
            return
        if container is not None:
            if not isinstance(value, container):
                yield f"{place}: {value!r} is no {kind}"
                return
            items = enumerate(value) if isinstance(value, list) else value.items()
            for key, item in items:
                yield from self._value(f"{place}[{key}]", item, inner)
        elif kind in _LEAVES:
            if not isinstance(value, _LEAVES[kind]) or (isinstance(value, bool) and kind != "boolean"):
                yield f"{place}: {value!r} is no {kind}"
        elif not isinstance(value, dict):
            yield f"{place}: {value!r} is no {kind}"
        else:
            yield from self._object(place, value, self.tables[kind])


def read_tables() -> Tables:
    """The tables of docs/json.md."""
    return Tables(PAGE.read_text(encoding="utf-8"))
