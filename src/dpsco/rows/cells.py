"""One cell: as a number, as a text, as an id. Each rule looks at that cell alone.

A text is a number if it is written as ``-12``, ``+12``, ``3.5``, ``.5`` or ``1e-6``, with any number of digits, blanks
around it ignored. ``true`` and ``false``, in any case, are 1 and 0. Any other text (``nan``, ``1,000``, nothing) is
missing. The rule is one regular expression that every reader shares, so a cell means the same in every container.

These are the forms that pandas, polars and NumPy make into numbers and booleans. They do so for a whole column, and
leave the whole column as text where one cell is none. The rule gives each cell one value either way.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BOOLEANS",
    "NUMBER",
    "Coded",
    "canonical_text",
    "coded",
    "id_message",
    "id_text",
    "label_text",
    "number",
]

NUMBER = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_IS_NUMBER = re.compile(NUMBER)
_NOT_FINITE = re.compile(r"^[-+]?(nan|inf|infinity)$", re.IGNORECASE)
BOOLEANS = {"true": 1, "false": 0}
"""Texts of booleans in lower case, and their numbers."""
_NO_ID = re.compile(r"^([-+]?(nan|inf|infinity)|null|none|<na>|nat)?$", re.IGNORECASE)
_SIGNED = re.compile(r"^(\+(0|[1-9][0-9]*)|-0)$")
_WHOLE = re.compile(r"^[-+]?(0|[1-9][0-9]{0,15})\.0+$")
_EXACT = 2.0**53
_LONGEST = 4000
"""Digits of the longest whole number that has an exact text."""
_FEW = 256
_MISSING = float("nan")


@dataclass(frozen=True)
class Coded:
    """A column of text: row i holds ``values[codes[i]]``, or nothing where the code is -1."""

    values: tuple[str, ...]
    codes: NDArray[Any]
    """Signed whole numbers."""

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Coded:
        return Coded(self.values, self.codes[rows])


def number(cell: Any) -> float:
    """Return the number that ``cell`` holds, NaN if it holds none.

    Whole numbers, numbers with a point and booleans are themselves; text counts if it is written as a number; a
    complex number counts if its imaginary part is 0. Everything else is missing: None, ``pandas.NA``, ``NaT``, dates,
    lists, text, a whole number that float64 cannot reach.

    >>> number(3), number(" 2.5 "), number(True), number("x"), number(10**400), number(1 + 0j)
    (3.0, 2.5, 1.0, nan, nan, 1.0)
    """
    if type(cell) is float:
        return cell
    cell = _scalar(cell)
    try:
        if isinstance(cell, (int, Decimal, numbers.Real)):
            return _float(cell)
        if isinstance(cell, complex):
            return cell.real if cell.imag == 0 else _MISSING
        if isinstance(cell, bytes):
            cell = cell.decode()
        if isinstance(cell, str):
            text = cell.strip()
            value = float(text) if _IS_NUMBER.match(text) else float(BOOLEANS.get(text.lower(), _MISSING))
            return value if math.isfinite(value) else _MISSING
    except Exception:  # beyond float64, no text, or whatever an object raises about itself: it holds no number
        return _MISSING
    return _MISSING


_CONTENT: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (complex, complex.__complex__),
    (Decimal, Decimal),
)
_PLAIN = frozenset((bool, *(kind for kind, _ in _CONTENT)))


def _plain(cell: Any) -> Any:
    """Return a number or a text of a class of its own (an ``IntEnum``, ``np.float64``) as Python's; others as they are.

    NumPy and pandas keep the number and drop the class, unless one cell of another row makes the column one of objects.
    So what the class says about itself must not count: its text, its conversions, the class that it claims to be.
    """
    kind = type(cell)
    if kind in _PLAIN:
        return cell
    return next((content(cell) for plain, content in _CONTENT if issubclass(kind, plain)), cell)


def _float(cell: Any) -> float:
    """Return a real number as float64; without the warning of ``float`` about a ``__float__`` that returns NumPy's."""
    return float.__float__(type(cell).__float__(cell))


def _scalar(cell: Any) -> Any:
    """Return a scalar of NumPy, or an array of one number and no axis of any package, as a Python object.

    None stands for a masked cell, a date and an array that cannot be read.
    """
    if cell is None or cell is np.ma.masked:
        return None
    try:
        cell = _plain(cell)
        if type(cell) in _PLAIN:
            return cell
        if not isinstance(cell, np.generic) and hasattr(cell, "__array__"):
            array = np.ma.filled(cell.astype(object), None) if np.ma.isMaskedArray(cell) else np.asarray(cell)
            if array.ndim == 0:
                cell = array[()]
        if isinstance(cell, (np.datetime64, np.timedelta64)):
            return None
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            if isinstance(cell, np.longdouble):
                return float(cell)
            if isinstance(cell, np.clongdouble):
                return complex(cell)
        return _plain(cell.item() if isinstance(cell, np.generic) else cell)
    except Exception:  # whatever an object raises about itself, it holds nothing
        return None


def canonical_text(value: Any) -> str:
    """Return the text of a cell: blanks off, numbers in one form, so that 3, 3.0, "+3" and "3" are one text.

    Whole numbers are exact up to 4000 digits.

    >>> canonical_text(" 3.0 "), canonical_text(3), canonical_text(True), canonical_text("Paris ")
    ('3', '3', '1', 'Paris')
    """
    value = _plain(value)
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, Decimal):
        value = str(value)
    text = value.strip() if isinstance(value, str) else repr(value.item() if isinstance(value, np.generic) else value)
    if not _IS_NUMBER.match(text):
        return text
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent of twenty digits
        return repr(float(text)) if float(text) == 0.0 else ""
    if exact.adjusted() > _LONGEST:
        return ""
    return str(int(exact)) if exact == exact.to_integral_value() else repr(float(text))


def label_text(cell: Any) -> str:
    """Return the text that a label or a level is compared by, "" if the cell holds none (None, NaN, a date, a list).

    A number is the float64 nearest to it. Beyond 2^53 several whole numbers share one text, in every container: one
    missing cell makes int64 into float64, and must not change the text of another cell.

    >>> label_text(np.int64(1)), label_text(b"yes"), label_text("TRUE"), label_text(float("nan")), label_text(2**53 + 1)
    ('1', 'yes', '1', '', '9007199254740992')
    """
    try:
        text = _text(cell)
        if not _IS_NUMBER.match(text):
            return "" if _NOT_FINITE.match(text) else text
        value = float(text)
        if not math.isfinite(value):
            return ""
        return str(int(value)) if value.is_integer() else repr(value)
    except Exception:  # a whole number too long to be written, or whatever an object raises about itself
        return ""


def _text(cell: Any) -> str:
    """Return the exact text of a cell, "" if it holds neither a number nor text."""
    cell = _scalar(cell)
    if isinstance(cell, bytes):
        cell = cell.decode()
    if isinstance(cell, Decimal):
        cell = str(cell) if cell.is_finite() else ""
    if isinstance(cell, complex) and cell.imag == 0:
        cell = cell.real
    if isinstance(cell, numbers.Rational) and not isinstance(cell, int):
        cell = _float(cell)
    if not isinstance(cell, (str, bool, int, float)) or cell != cell:
        return ""
    return canonical_text(BOOLEANS.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell)


def id_text(cell: Any) -> str:
    """Return the text of an id, "" if the cell holds none; 7, 7.0, "7", "+7", "7.0" and ``np.float32(7)`` are one id.

    text        as it is, blanks around it off. The plus of a whole number without leading zeros is off, too: readers
                make numbers of such texts. So is the point of a whole number below 2^53: writers put 7.0 for every 7
                where one id is missing. "7", "007", "7e0" are three ids, as are "1" and "true" two.
    numbers     whole numbers exactly. With a point only if whole and below 2^53: beyond that several ids share one
                float. Decimals exactly, without trailing zeros.
    no id       None, NaN, booleans, times, lists, empty text, and what writers put for them: nan, inf, null, none,
                <NA>, NaT.

    >>> id_text(7), id_text(np.float32(7)), id_text("7.0"), id_text(2**60 + 1), id_text("007"), id_text("12.10")
    ('7', '7', '7', '1152921504606846977', '007', '12.10')
    >>> id_text(0.5), id_text(None), id_text("NaN")
    ('', '', '')
    """
    try:
        cell = _scalar(cell)
        if isinstance(cell, bytes):
            cell = cell.decode()
        if isinstance(cell, str):
            text = cell.strip()
            if _WHOLE.match(text) and abs(whole := int(text.partition(".")[0])) < _EXACT:
                return str(whole)
            return "" if _NO_ID.match(text) else text[1:] if _SIGNED.match(text) else text
        if isinstance(cell, complex) and cell.imag == 0:  # one complex cell makes a whole column complex
            cell = cell.real
        if isinstance(cell, float):
            return str(int(cell)) if cell.is_integer() and abs(cell) < _EXACT else ""
        if isinstance(cell, Decimal):
            text = f"{cell:f}" if cell.is_finite() and abs(cell.adjusted()) < _LONGEST else ""
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return "0" if text == "-0" else text
        return repr(cell) if isinstance(cell, int) and not isinstance(cell, bool) else ""
    except Exception:  # as in label_text
        return ""


def id_message(what: str, kind: str) -> str:
    """Return the text of the error about ids in floating point, or of booleans.

    NumPy makes numbers of booleans beside a number and text beside text: one row would rename the ids of others. The
    type of the ids is declared by whoever passes them. If such a column were read, whole numbers below 2^53 as ids
    and others as none, one missing id would take away the ids of all rows that pandas had above 2^53.
    """
    if "bool" in kind.lower():
        return f"{what} has the type {kind}, and two values name no people. Pass whole numbers or text."
    return (
        f"{what} has the type {kind}: beyond 2^53 several ids share one such number, so rows of different people could "
        "not be told apart. pandas makes int64 into float64 where one id is missing: declare the type when you read "
        'the ids (dtype="Int64"), so that no row decides on it. A cast afterwards (convert_dtypes, astype) comes late: '
        "ids beyond 2^53 are merged by then, and as text they have other names. Text, Arrow integers and a list of ids "
        "do as well."
    )


def coded(values: Iterable[Any], codes: NDArray[Any], rule: Callable[[Any], str] = canonical_text) -> Coded:
    """Return codes into ``values`` as codes into their texts by ``rule``; empty text is missing.

    The rule of ids is ``id_text``. Labels and levels are compared by ``label_text`` of canonical texts.
    """
    given = tuple(values)
    few = len(given) <= _FEW and all(type(value) is str for value in given)  # 1, 1.0 and True would be one key
    distinct, table = (_coding if few else _coding.__wrapped__)(given, rule)
    if len(distinct) == len(given) and codes.dtype == np.int32 and _within(codes, len(given)):
        return Coded(distinct, codes)  # each text has its own code already
    return Coded(distinct, table[np.asarray(codes, dtype=np.int64)])


@lru_cache(maxsize=64)  # chunks of a file have the same few texts
def _coding(values: tuple[Any, ...], rule: Callable[[Any], str]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the distinct texts of values, and which of them each value is; -1 for none, and for code -1."""
    texts = [rule(value) for value in values]
    distinct = tuple(dict.fromkeys(text for text in texts if text))
    position = {text: code for code, text in enumerate(distinct)}
    return distinct, np.array([position.get(text, -1) for text in texts] + [-1], dtype=np.int64)


def _within(codes: NDArray[Any], count: int) -> bool:
    """Return whether all codes are -1 or below ``count``; what is not fails where it is looked up."""
    return not len(codes) or (int(codes.min()) >= -1 and int(codes.max()) < count)
