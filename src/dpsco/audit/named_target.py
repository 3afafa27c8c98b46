"""What a command line names: ``FILE.py:NAME``, ``MODULE:NAME``, or a plan in a file. The named file is executed."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

from dpsco.errors import InvalidArgument
from dpsco.planning.plan import Plan

__all__ = ["load_target", "read_plan"]


def load_target(name: str) -> Any:
    """Return the object; a class or a function without arguments is called."""
    place, colon, attribute = name.rpartition(":")
    if not colon:
        return read_plan(Path(name))
    module = _module(place)
    try:
        found = getattr(module, attribute)
    except AttributeError:
        raise InvalidArgument(
            f"There is no {attribute!r} in {place!r}. Name a function, an object or a class."
        ) from None
    return found() if _makes(found) else found


def read_plan(path: Path) -> Plan:
    """Read a plan: ``Plan.to_json()``, or the object that ``dpsco plan --json`` prints."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidArgument(f"Cannot read {path.name!r}: expected a plan (JSON), or FILE.py:NAME.") from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"Not a plan: {path.name!r} is not JSON.") from None
    return Plan.from_dict(data["plan"] if isinstance(data, dict) and "methods" in data else data)


def _module(place: str) -> Any:
    path = Path(place)
    if path.suffix != ".py":
        try:
            return importlib.import_module(place)
        except ImportError:
            raise InvalidArgument(
                f"Cannot import {place!r}. Name a file (my.py:oracle) or a module on the path."
            ) from None
    if not path.is_file():
        raise InvalidArgument(f"There is no file {path.name!r}. Check the path.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"Cannot load {path.name!r} as Python.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _makes(found: Any) -> bool:
    """Whether it is to be called for the object itself: a class, or a function that needs nothing."""
    if inspect.isclass(found):
        return True
    if hasattr(found, "answer") or hasattr(found, "fit") or not callable(found):
        return False
    needed = [p for p in inspect.signature(found).parameters.values() if p.default is p.empty]
    return not needed
