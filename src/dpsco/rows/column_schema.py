"""Schemas of public columns as files that people review: JSON or TOML, one entry per column.

{"columns": [{"name": "age", "kind": "number", "range": [0, 120]},
             {"name": "city", "kind": "category", "levels": ["Lyon", "Paris"], "drop": "Lyon", "other": true}]}
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsco.errors import InvalidArgument
from dpsco.json_files import write_atomic
from dpsco.rows.category_columns import Category, Hashed
from dpsco.rows.column_kinds import Boolean, Column, Date, Number

__all__ = ["entries_of", "from_entries", "read_schema", "write_schema"]

KINDS: dict[str, type[Column]] = {
    "number": Number,
    "date": Date,
    "boolean": Boolean,
    "category": Category,
    "hashed": Hashed,
}
_FIELDS = {
    "number": {"range", "log", "centered", "missing"},
    "date": {"range", "centered", "missing"},
    "boolean": {"centered", "missing"},
    "category": {"levels", "other", "missing", "drop"},
    "hashed": {"buckets", "missing"},
}
_FLAGS = ("log", "centered", "other", "missing")
_NOT = "Not a column schema: "


def entries_of(features: Sequence[Column]) -> list[dict[str, Any]]:
    """Return one entry per column, without what is the default."""
    names = {kind: name for name, kind in KINDS.items()}
    out = []
    for column in features:
        entry: dict[str, Any] = {"name": column.name, "kind": names[type(column)]}
        if getattr(column, "low", None) is not None:
            entry["range"] = [_short(column.low), _short(column.high)]  # type: ignore[attr-defined]
        if isinstance(column, Category):
            entry |= {"levels": list(column.levels), **({"drop": column.drop} if column.drop else {})}
        if isinstance(column, Hashed):
            entry["buckets"] = column.buckets
        out.append(entry | {flag: True for flag in _FLAGS if getattr(column, flag, False)})
    return out


def from_entries(data: Any) -> dict[str, Any]:
    """Return the arguments of ``PublicColumns`` that a schema states; ``InvalidArgument`` if it is not one."""
    if not isinstance(data, Mapping) or set(data) != {"columns"} or not isinstance(data["columns"], list):
        raise InvalidArgument(f"{_NOT}expected one field, columns, with a list of entries.")
    given: dict[str, Any] = {"ranges": {}, "dates": {}, "categories": {}, "hashed": {}}
    given |= {"numbers": [], "booleans": [], "drop": {}, **{flag: [] for flag in _FLAGS}}
    for place, entry in enumerate(data["columns"], start=1):
        _check(place, entry)
        name, kind = entry["name"], entry["kind"]
        for flag in _FLAGS:
            given[flag] += [name] if entry.get(flag) else []
        if kind == "number" and "range" not in entry:
            given["numbers"].append(name)
        elif kind == "boolean":
            given["booleans"].append(name)
        else:
            group, field = {
                "number": ("ranges", "range"),
                "date": ("dates", "range"),
                "category": ("categories", "levels"),
                "hashed": ("hashed", "buckets"),
            }[kind]
            if name in given[group]:
                raise InvalidArgument(f"{_NOT}the column {name!r} is declared twice.")
            given[group][name] = tuple(entry[field]) if isinstance(entry[field], list) else entry[field]
            given["drop"] |= {name: entry["drop"]} if "drop" in entry else {}
    return given | {"drop": given["drop"] or None}


def _check(place: int, entry: Any) -> None:
    if not isinstance(entry, Mapping) or type(entry.get("name")) is not str or entry.get("kind") not in KINDS:
        raise InvalidArgument(f"{_NOT}entry {place} needs a name and a kind, one of {', '.join(KINDS)}.")
    name, kind = entry["name"], entry["kind"]
    if unknown := sorted(set(entry) - _FIELDS[kind] - {"name", "kind"}):
        raise InvalidArgument(f"{_NOT}{name!r} has {', '.join(unknown)}, which a {kind} does not have.")
    needed = {"date": "range", "category": "levels", "hashed": "buckets"}.get(kind)
    if needed is not None and needed not in entry:
        raise InvalidArgument(f"{_NOT}{name!r} needs {needed}.")
    if any(type(entry.get(flag, False)) is not bool for flag in _FLAGS):
        raise InvalidArgument(f"{_NOT}log, centered, other and missing of {name!r} are true or false.")
    ends = entry.get("range", [0, 1] if kind == "number" else ["", ""])
    kinds: Any = (int, float) if kind == "number" else str
    if not isinstance(ends, list) or len(ends) != 2 or not all(_is(end, kinds) for end in ends):
        raise InvalidArgument(
            f"{_NOT}the range of {name!r} has two ends, {'numbers' if kind == 'number' else 'dates'}."
        )
    levels = entry.get("levels", [])
    if not isinstance(levels, list) or not all(_is(level, (str, int, float)) for level in levels):
        raise InvalidArgument(f"{_NOT}the levels of {name!r} are a list of texts.")
    if "drop" in entry and not _is(entry["drop"], (str, int, float)):
        raise InvalidArgument(f"{_NOT}drop of {name!r} is one of its levels.")


def _short(end: Any) -> Any:
    return int(end) if isinstance(end, float) and end.is_integer() and abs(end) < 1e15 else end


def _is(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def read_schema(path: Path) -> Any:
    """Return what a JSON or TOML file holds."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidArgument(f"Cannot read the schema {str(path)!r}. Check the path and that it is UTF-8.") from None
    try:
        data: Any = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(error)[-60:]
        raise InvalidArgument(f"The schema {path.name!r} is not {path.suffix[1:] or 'JSON'}: see {where}.") from None
    return data


def write_schema(path: Path, schema: Mapping[str, Any]) -> Path:
    """Write a schema, whole or not at all: one line per column in JSON, one table per column in TOML."""
    entries = schema["columns"]
    if path.suffix.lower() == ".toml":
        blocks = ("\n".join(f"{k} = {json.dumps(v)}" for k, v in entry.items()) for entry in entries)
        text = "\n\n".join(f"[[columns]]\n{block}" for block in blocks) + "\n"
    else:
        lines = ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in entries)
        text = f'{{"columns": [\n{lines}\n]}}\n'
    write_atomic(path, text.encode())
    return path
