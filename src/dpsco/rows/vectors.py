"""Sixteen numbers of float32 at a time inside numba functions: what turns columns into rows (compiled_rows.py).

Each operation is a few LLVM instructions on vectors of 64 bytes, which LLVM splits where registers are shorter.
Addresses and indices are not checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "LANES",
    "add_squares",
    "divide",
    "divide_some",
    "float32_at",
    "float64_at",
    "int32_at",
    "prefetch",
    "prefetch_at",
    "turn",
]

LANES = 16
_INT32, _FLOAT = ir.IntType(32), ir.FloatType()
_VECTOR, _WIDE = ir.VectorType(_FLOAT, LANES), ir.VectorType(ir.DoubleType(), LANES)


def _loader(number: Any, llvm: Any) -> Any:
    """Return a numba function (address, index) that loads a number of a type from memory."""

    @intrinsic
    def loaded(typing: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], llvm.as_pointer())
            return builder.load(builder.gep(pointer, [arguments[1]]))

        return number(types.uint64, types.intp), generate

    return loaded


float32_at = _loader(types.float32, _FLOAT)
float64_at = _loader(types.float64, ir.DoubleType())
int32_at = _loader(types.int32, _INT32)


def _place(context: Any, builder: Any, array_type: Any, array: Any, index: Any, target: Any) -> Any:
    """Return the address of array[index]."""
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), target.as_pointer())


def _columns(context: Any, builder: Any, at: Any, given: Any, first: Any, start: Any) -> list[Any]:
    """Load numbers ``start`` .. of the ``LANES`` columns whose addresses are at[first], at[first + 1], .."""
    found = []
    for k in range(LANES):
        index = builder.add(first, ir.Constant(first.type, k))
        address = builder.load(_place(context, builder, at, given, index, ir.IntType(64)))
        pointer = builder.gep(builder.inttoptr(address, _FLOAT.as_pointer()), [start])
        found.append(builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4))
    return found


def _mixed(builder: Any, one: Any, two: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(one, two, ir.Constant(ir.VectorType(_INT32, LANES), lanes))


@intrinsic
def turn(typing: Any, at: Any, first: Any, start: Any, out: Any, place: Any, stride: Any) -> Any:
    """Write rows start .. start + 15 of sixteen columns to out[place + stride row : ..], sixteen numbers each.

    The columns are those at the addresses at[first] .. at[first + 15].
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given, k, begin, array, to, step = arguments
        lines = _columns(context, builder, at, given, k, begin)
        apart = LANES // 2
        while apart:  # exchange quarters, then quarters of these
            low = [lane if not lane & apart else LANES + lane - apart for lane in range(LANES)]
            high = [lane + apart if not lane & apart else LANES + lane for lane in range(LANES)]
            for i in range(LANES):
                if not i & apart:
                    one, two = lines[i], lines[i + apart]
                    lines[i], lines[i + apart] = (_mixed(builder, one, two, lanes) for lanes in (low, high))
            apart //= 2
        for row in range(LANES):
            index = builder.add(to, builder.mul(step, ir.Constant(step.type, row)))
            builder.store(lines[row], _place(context, builder, out, array, index, _VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(at, first, start, out, place, stride), generate


@intrinsic
def add_squares(typing: Any, at: Any, first: Any, start: Any, out: Any) -> Any:
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
    spread = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))
    return builder.fdiv(builder.load(_place(context, builder, given, array, index, _VECTOR), align=4), spread)


@intrinsic
def divide(typing: Any, a: Any, i: Any, divisor: Any, out: Any, j: Any) -> Any:
    """Write a[i : i + 16] / divisor to out[j : j + 16]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, number, target, place = arguments
        value = _quotients(context, builder, a, array, index, number)
        builder.store(value, _place(context, builder, out, target, place, _VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(a, i, types.float32, out, j), generate


@intrinsic
def divide_some(typing: Any, a: Any, i: Any, divisor: Any, out: Any, j: Any, m: Any) -> Any:
    """Write a[i : i + m] / divisor to out[j : j + m], m at most 16; a[i : i + 16] is read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, number, target, place, count = arguments
        value = _quotients(context, builder, a, array, index, number)
        lanes = ir.Constant(ir.VectorType(count.type, LANES), list(range(LANES)))
        first = builder.insert_element(ir.Constant(lanes.type, ir.Undefined), count, ir.Constant(_INT32, 0))
        spread = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))
        mask = builder.icmp_signed("<", lanes, spread)
        address = _place(context, builder, out, target, place, _VECTOR)
        given = value, address, ir.Constant(_INT32, 4), mask
        kind = ir.FunctionType(ir.VoidType(), [part.type for part in given])
        name = f"llvm.masked.store.v{LANES}f32.p0"
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)
        return context.get_dummy_value()

    return types.void(a, i, types.float32, out, j, m), generate


def _prefetch(builder: Any, address: Any, write: int) -> None:
    given = address, *(ir.Constant(_INT32, number) for number in (write, 3, 1))  # near, data
    kind = ir.FunctionType(ir.VoidType(), [part.type for part in given])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"), given)


@intrinsic
def prefetch(typing: Any, a: Any, i: Any) -> Any:
    """Hint that the cache line of a[i] is written soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index = arguments
        _prefetch(builder, _place(context, builder, a, array, index, ir.IntType(8)), 1)
        return context.get_dummy_value()

    return types.void(a, i), generate


@intrinsic
def prefetch_at(typing: Any, address: Any, offset: Any) -> Any:
    """Hint that the cache line at an address, ``offset`` bytes on, is read soon; it need not be memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        pointer = builder.inttoptr(arguments[0], byte.as_pointer())
        _prefetch(builder, builder.gep(pointer, [arguments[1]]), 0)
        return context.get_dummy_value()

    return types.void(types.uint64, types.intp), generate
