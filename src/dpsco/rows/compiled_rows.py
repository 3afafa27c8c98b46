"""Rows of a table in one pass over its columns, compiled: turned, divided and put at their places.

numba is imported only with this file. ``table_rows.py`` states what is computed, and computes the same in NumPy.

A strip of rows is made at a time. Each feature is a line of the strip: the cells where they lie, or numbers made of
them, or zeros where a level sets one feature of several. Squares are added up line by line, rows side by side; sixteen
lines by sixteen rows are turned in registers; then each row is divided and written once.

First the operations on sixteen numbers of float32, each a few LLVM instructions on vectors of 64 bytes, which LLVM
splits where registers are shorter. Addresses and indices are not checked. They are in this file because numba compiles
again what is cached if this file changes, and looks at no other.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["CODES", "FLOAT32", "FLOAT64", "unit_rows_of"]

FLOAT32, FLOAT64, CODES = 0, 1, 2
"""Kinds of columns."""

_STRIP = 64
"""Rows of a strip: a multiple of ``_LANES``, and few enough that their lines stay in the first two caches."""
_LINE = 64
_AHEAD = 8
"""Rows whose memory is asked for before they are written: places are anywhere."""
_LANES = 16
_INT32, _FLOAT = ir.IntType(32), ir.FloatType()
_VECTOR, _WIDE = ir.VectorType(_FLOAT, _LANES), ir.VectorType(ir.DoubleType(), _LANES)


def _loader(number: Any, llvm: Any) -> Any:
    """Return a numba function (address, index) that loads a number of a type from memory."""

    @intrinsic
    def loaded(typing: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], llvm.as_pointer())
            return builder.load(builder.gep(pointer, [arguments[1]]))

        return number(types.uint64, types.intp), generate

    return loaded


_float32_at = _loader(types.float32, _FLOAT)
_float64_at = _loader(types.float64, ir.DoubleType())
_int32_at = _loader(types.int32, _INT32)


def _place(context: Any, builder: Any, array_type: Any, array: Any, index: Any, target: Any) -> Any:
    """Return the address of array[index]."""
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), target.as_pointer())


def _columns(context: Any, builder: Any, at: Any, given: Any, first: Any, start: Any) -> list[Any]:
    """Load numbers ``start`` .. of the ``_LANES`` columns whose addresses are at[first], at[first + 1], .."""
    found = []
    for k in range(_LANES):
        index = builder.add(first, ir.Constant(first.type, k))
        address = builder.load(_place(context, builder, at, given, index, ir.IntType(64)))
        pointer = builder.gep(builder.inttoptr(address, _FLOAT.as_pointer()), [start])
        found.append(builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4))
    return found


def _mixed(builder: Any, one: Any, two: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(one, two, ir.Constant(ir.VectorType(_INT32, _LANES), lanes))


@intrinsic
def _turn(typing: Any, at: Any, first: Any, start: Any, out: Any, place: Any, stride: Any) -> Any:
    """Write rows start .. start + 15 of sixteen columns to out[place + stride row : ..], sixteen numbers each.

    The columns are those at the addresses at[first] .. at[first + 15].
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given, k, begin, array, to, step = arguments
        lines = _columns(context, builder, at, given, k, begin)
        apart = _LANES // 2
        while apart:  # exchange quarters, then quarters of these
            low = [lane if not lane & apart else _LANES + lane - apart for lane in range(_LANES)]
            high = [lane + apart if not lane & apart else _LANES + lane for lane in range(_LANES)]
            for i in range(_LANES):
                if not i & apart:
                    one, two = lines[i], lines[i + apart]
                    lines[i], lines[i + apart] = (_mixed(builder, one, two, lanes) for lanes in (low, high))
            apart //= 2
        for row in range(_LANES):
            index = builder.add(to, builder.mul(step, ir.Constant(step.type, row)))
            builder.store(lines[row], _place(context, builder, out, array, index, _VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(at, first, start, out, place, stride), generate


@intrinsic
def _add_squares(typing: Any, at: Any, first: Any, start: Any, out: Any) -> Any:
    """Add the squares of numbers start .. start + 15 of sixteen columns to out[start : ..], float64, column by column.

    A product of two float32 is exact in float64, so rounding happens once per addition.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given, k, begin, array = arguments
        address = _place(context, builder, out, array, begin, _WIDE)
        total = builder.load(address, align=8)
        for line in _columns(context, builder, at, given, k, begin):
            wide = builder.fpext(line, _WIDE)
            total = builder.fadd(total, builder.fmul(wide, wide))
        builder.store(total, address, align=8)
        return context.get_dummy_value()

    return types.void(at, first, start, out), generate


def _quotients(context: Any, builder: Any, given: Any, array: Any, index: Any, divisor: Any) -> Any:
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), divisor, ir.Constant(_INT32, 0))
    spread = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT32, _LANES), [0] * _LANES))
    return builder.fdiv(builder.load(_place(context, builder, given, array, index, _VECTOR), align=4), spread)


@intrinsic
def _divide(typing: Any, a: Any, i: Any, divisor: Any, out: Any, j: Any) -> Any:
    """Write a[i : i + 16] / divisor to out[j : j + 16]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, number, target, place = arguments
        value = _quotients(context, builder, a, array, index, number)
        builder.store(value, _place(context, builder, out, target, place, _VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(a, i, types.float32, out, j), generate


@intrinsic
def _divide_some(typing: Any, a: Any, i: Any, divisor: Any, out: Any, j: Any, m: Any) -> Any:
    """Write a[i : i + m] / divisor to out[j : j + m], m at most 16; a[i : i + 16] is read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, number, target, place, count = arguments
        value = _quotients(context, builder, a, array, index, number)
        lanes = ir.Constant(ir.VectorType(count.type, _LANES), list(range(_LANES)))
        first = builder.insert_element(ir.Constant(lanes.type, ir.Undefined), count, ir.Constant(_INT32, 0))
        spread = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT32, _LANES), [0] * _LANES))
        mask = builder.icmp_signed("<", lanes, spread)
        address = _place(context, builder, out, target, place, _VECTOR)
        given = value, address, ir.Constant(_INT32, 4), mask
        kind = ir.FunctionType(ir.VoidType(), [part.type for part in given])
        name = f"llvm.masked.store.v{_LANES}f32.p0"
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)
        return context.get_dummy_value()

    return types.void(a, i, types.float32, out, j, m), generate


def _hint(builder: Any, address: Any, write: int) -> None:
    given = address, *(ir.Constant(_INT32, number) for number in (write, 3, 1))  # near, data
    kind = ir.FunctionType(ir.VoidType(), [part.type for part in given])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"), given)


@intrinsic
def _prefetch(typing: Any, a: Any, i: Any) -> Any:
    """Hint that the cache line of a[i] is written soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index = arguments
        _hint(builder, _place(context, builder, a, array, index, ir.IntType(8)), 1)
        return context.get_dummy_value()

    return types.void(a, i), generate


@intrinsic
def _prefetch_at(typing: Any, address: Any, offset: Any) -> Any:
    """Hint that the cache line at an address, ``offset`` bytes on, is read soon; it need not be memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        pointer = builder.inttoptr(arguments[0], byte.as_pointer())
        _hint(builder, builder.gep(pointer, [arguments[1]]), 0)
        return context.get_dummy_value()

    return types.void(types.uint64, types.intp), generate


def _compiled(function: Any) -> Any:
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    with contextlib.suppress(RuntimeError):  # no folder to which compiled code can be written
        return njit(cache=True, **options)(function)
    return njit(**options)(function)


@_compiled
def _shares(line: Any, double: bool, cells: Any, start: int, held: int, limits: Any) -> None:
    """Write numbers as shares of their range, or as they are if there is none."""
    low, high, way = limits[0], limits[1], limits[2]
    if way == 0.0:
        for i in range(held):
            line[i] = _float64_at(cells, start + i) if double else np.float64(_float32_at(cells, start + i))
        return
    length = high - low
    times, off = (2.0, 1.0) if way == 2.0 else (1.0, 0.0)  # exact where there is nothing to do
    for i in range(held):
        cell = _float64_at(cells, start + i) if double else np.float64(_float32_at(cells, start + i))
        share = (min(max(cell, low), high) - low) / length
        share = min(max(share, 0.0), 1.0) if abs(cell) < np.inf else 0.5
        line[i] = share * times - off


@_compiled
def _levels(flags: Any, chosen: Any, cells: Any, table: Any, start: int, held: int) -> None:
    """Look up which feature each code sets, and whether it sets one."""
    for i in range(held):
        place = _int32_at(table, _int32_at(cells, start + i))
        chosen[i] = place
        flags[i] = 1.0 if place >= 0 else 0.0


@_compiled
def _without_odd(tile: Any, own: int, width: int) -> float:
    """Set numbers that are not finite to 0; return the sum of squares of the others."""
    square = 0.0
    for j in range(own, own + width):
        if not np.isfinite(tile[j]):
            tile[j] = 0.0
        square += np.float64(tile[j]) * np.float64(tile[j])
    return square


@_compiled
def unit_rows_of(
    sources: Any,
    features: Any,
    ranges: Any,
    labels: Any,
    first: int,
    rows: int,
    norm: float,
    places: Any,
    out: Any,
    targets: Any,
) -> None:
    """Write rows ``first`` .. ``first + rows`` of a table to ``out``, their labels to ``targets``.

    Parameters
    ----------
    sources : array of uint64, shape (columns, 3)
        ``FLOAT32``, ``FLOAT64`` or ``CODES``; the address of the cells, codes in int32; and for codes that of the place
        of code 0 in a table of int32, where the place of code -1 stands before it.
    features : array of int64, shape (columns + 1,)
        First feature of each column; then the width.
    ranges : array of float64, shape (columns, 3)
        Low and high end; 0 if there is no range, 1 if it is mapped to [0, 1], 2 if it is mapped to [-1, 1].
    labels : array of float64
        A number per row of the table; empty if there are none to write.
    first, rows : int
        Which rows.
    norm : float
        Rows are divided by it, or by their own norm if that is larger.
    places : array of int64
        Row of ``out`` for each row; empty for the first rows of ``out``, in order.
    out : array of float32
        Rows of the full width, one after the other.
    targets : array of float64
        A number per row of ``out``.
    """
    columns = len(sources)
    width = features[columns]
    stride = -(-width // _LANES) * _LANES
    tile, squares = np.empty(_STRIP * stride, np.float32), np.empty(_STRIP)
    longest, nothing = np.empty(_STRIP, np.float32), np.zeros(_STRIP, np.float32)
    lines, chosen = np.empty((columns, _STRIP), np.float32), np.empty((columns, _STRIP), np.int32)
    turned, squared = np.empty(stride, np.uint64), np.empty(stride, np.uint64)  # addresses of the features' lines
    turned[:], squared[:] = nothing.ctypes.data, nothing.ctypes.data
    for start in range(0, rows, _STRIP):
        held = min(_STRIP, rows - start)
        for column in range(columns):
            kind, cells, feature = sources[column, 0], sources[column, 1], features[column]
            line, size = lines[column], 8 if kind == FLOAT64 else 4
            for offset in range((first + start + _STRIP) * size, (first + start + 2 * _STRIP) * size, _LINE):
                _prefetch_at(cells, offset)  # no processor follows so many columns by itself
            if kind == CODES:
                _levels(line, chosen[column], cells, sources[column, 2], first + start, held)
                squared[feature] = line.ctypes.data
            elif kind == FLOAT32 and ranges[column, 2] == 0.0 and held == _STRIP:  # what lies behind may be no memory
                turned[feature] = squared[feature] = cells + np.uint64(4 * (first + start))
            else:
                _shares(line, kind == FLOAT64, cells, first + start, held, ranges[column])
                turned[feature] = squared[feature] = line.ctypes.data
        squares[:] = 0.0
        for i in range(0, held, _LANES):
            for feature in range(0, stride, _LANES):
                _add_squares(squared, feature, i, squares)
                _turn(turned, feature, i, tile, i * stride + feature, stride)
        for column in range(columns):
            if sources[column, 0] == CODES:
                feature = features[column]
                for i in range(held):
                    if chosen[column, i] >= 0:
                        tile[i * stride + feature + chosen[column, i]] = 1.0
        for i in range(held):
            longest[i] = max(np.sqrt(squares[i]), norm)
        for i in range(held):
            own, place = i * stride, start + i
            if not np.isfinite(squares[i]):  # squares of float32 stay within float64: a cell is not finite
                longest[i] = max(np.sqrt(_without_odd(tile, own, width)), norm)
            if len(places):
                if place + _AHEAD < rows:
                    later = places[place + _AHEAD] * width
                    for j in range(0, width, _LANES):
                        _prefetch(out, later + j)
                    _prefetch(out, later + width - 1)
                place = places[place]
            if len(labels):
                targets[place] = labels[first + start + i]
            whole = width - width % _LANES
            for j in range(0, whole, _LANES):
                _divide(tile, own + j, longest[i], out, place * width + j)
            if whole < width:
                _divide_some(tile, own + whole, longest[i], out, place * width + whole, width - whole)
