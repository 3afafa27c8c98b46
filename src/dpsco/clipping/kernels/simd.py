"""Vectors of 64 bytes inside numba functions; each operation is one LLVM instruction.

Guarantee: every addition happens in the written order, on any processor (LLVM splits the vectors if registers are
shorter), so error bounds can be counted and equal inputs give equal bits. A sum over the lanes of four vectors adds
log2(lanes) times; the loop vectoriser would choose its own order and sum each short row four times slower.
Arrays are one-dimensional, C-order, of float32 (16 lanes) or float64 (8 lanes); indices are not checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

__all__ = [
    "BYTES",
    "add_to_wide",
    "add_totals",
    "broadcast",
    "claim",
    "fma",
    "fma_one",
    "lanes",
    "load",
    "load_some",
    "load_wide",
    "odd",
    "power_of_two",
    "prefetch",
    "prefetch_second",
    "spread",
    "store",
]

BYTES = 64
_INT32 = ir.IntType(32)


class Vector(types.Type):
    """The numba type of a vector of float32 or float64."""

    def __init__(self, scalar: Any) -> None:
        self.scalar, self.lanes = scalar, 8 * BYTES // scalar.bitwidth
        super().__init__(name=f"Vector({scalar})")

    @property
    def llvm(self) -> Any:
        """LLVM type."""
        return ir.VectorType(ir.FloatType() if self.scalar.bitwidth == 32 else ir.DoubleType(), self.lanes)

    @property
    def suffix(self) -> str:
        """Suffix of LLVM intrinsics."""
        return f"v{self.lanes}f{self.scalar.bitwidth}"


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, target: Any) -> Any:
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), target.as_pointer())


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _lanes(numbers: Any) -> Any:
    return ir.Constant(ir.VectorType(_INT32, len(numbers)), list(numbers))


def _spread(builder: Any, scalar: Any, lanes: int) -> Any:
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, undefined, _lanes([0] * lanes))


@intrinsic
def lanes(typing: Any, a: Any) -> Any:
    """Return the number of elements of a in 64 bytes, a constant of the compiled code."""
    count = Vector(a.dtype).lanes
    return types.intp(a), lambda context, builder, signature, arguments: context.get_constant(types.intp, count)


@intrinsic
def load(typing: Any, a: Any, i: Any) -> Any:
    """Return a[i : i + lanes]."""
    vector = Vector(a.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index = arguments
        address = _address(context, builder, a, array, index, vector.llvm)
        return builder.load(address, align=a.dtype.bitwidth // 8)

    return vector(a, i), generate


@intrinsic
def load_some(typing: Any, a: Any, i: Any, m: Any) -> Any:
    """Return a[i : i + m], then zeros; memory beyond is not read."""
    vector = Vector(a.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, count = arguments
        lane = ir.Constant(ir.VectorType(count.type, vector.lanes), list(range(vector.lanes)))
        mask = builder.icmp_signed("<", lane, _spread(builder, count, vector.lanes))
        address = _address(context, builder, a, array, index, vector.llvm)
        align = ir.Constant(_INT32, a.dtype.bitwidth // 8)
        zeros = ir.Constant(vector.llvm, [0.0] * vector.lanes)
        return _call(builder, f"llvm.masked.load.{vector.suffix}.p0", vector.llvm, address, align, mask, zeros)

    return vector(a, i, m), generate


@intrinsic
def store(typing: Any, a: Any, i: Any, v: Any) -> Any:
    """Write v to a[i : i + lanes]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, value = arguments
        address = _address(context, builder, a, array, index, v.llvm)
        builder.store(value, address, align=a.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(a, i, v), generate


@intrinsic
def spread(typing: Any, s: Any) -> Any:
    """Return s in every lane."""
    vector = Vector(s)
    return vector(s), lambda context, builder, signature, arguments: _spread(builder, arguments[0], vector.lanes)


@intrinsic
def fma(typing: Any, x: Any, y: Any, z: Any) -> Any:
    """Compute x y + z, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call(builder, f"llvm.fma.{x.suffix}", x.llvm, *arguments)

    return x(x, y, z), generate


@intrinsic
def add_totals(typing: Any, out: Any, i: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    """Add the lane sums of v, w, x, y to out[i : i + 4], in float64."""
    n = v.lanes
    quarters = range(0, n, n // 4)  # of a register: shuffles inside a quarter are cheapest

    def added(builder: Any, first: Any, second: Any, one: Any, two: Any) -> Any:
        return builder.fadd(
            builder.shuffle_vector(first, second, _lanes(one)), builder.shuffle_vector(first, second, _lanes(two))
        )

    def inside(builder: Any, first: Any, second: Any, one: Any, two: Any) -> Any:
        """Add lanes ``one`` and lanes ``two`` in every quarter; lanes n, n + 1, ... are those of the second."""
        chosen = [[base + lane for base in quarters for lane in lanes] for lanes in (one, two)]
        return added(builder, first, second, *chosen)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, v, w, x, y = arguments
        if n == 16:
            v, x = (inside(builder, a, b, (0, 16, 1, 17), (2, 18, 3, 19)) for a, b in ((v, w), (x, y)))
            sums = inside(builder, v, x, (0, 1, 16, 17), (2, 3, 18, 19))  # v w x y in every quarter
            for size in (8, 4):
                sums = added(builder, sums, sums, range(size), range(size, 2 * size))
        else:
            v, x = (inside(builder, a, b, (0, 8), (1, 9)) for a, b in ((v, w), (x, y)))
            sums = added(builder, v, x, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
            sums = added(builder, sums, sums, (0, 1, 4, 5), (2, 3, 6, 7))
        four = ir.VectorType(ir.DoubleType(), 4)
        if n == 16:
            sums = builder.fpext(sums, four)
        address = _address(context, builder, out, array, index, four)
        builder.store(builder.fadd(builder.load(address, align=8), sums), address, align=8)
        return context.get_dummy_value()

    return types.void(out, i, v, w, x, y), generate


def _prefetch(context: Any, builder: Any, array_type: Any, arguments: Any, locality: int) -> Any:
    array, index = arguments
    address = _address(context, builder, array_type, array, index, ir.IntType(8))
    read, kept, data = (ir.Constant(_INT32, number) for number in (0, locality, 1))
    _call(builder, "llvm.prefetch.p0", ir.VoidType(), address, read, kept, data)
    return context.get_dummy_value()


@intrinsic
def prefetch(typing: Any, a: Any, i: Any) -> Any:
    """Hint that the cache line of a[i] is needed soon, and then no more: it passes by the caches behind the first one.

    What runs between two rounds is still there when they end.
    """
    return types.void(a, i), lambda context, builder, _, arguments: _prefetch(context, builder, a, arguments, 0)


@intrinsic
def prefetch_second(typing: Any, a: Any, i: Any) -> Any:
    """Hint that the cache line of a[i] is needed later, in the second cache."""
    return types.void(a, i), lambda context, builder, _, arguments: _prefetch(context, builder, a, arguments, 2)


@intrinsic
def power_of_two(typing: Any, k: Any) -> Any:
    """Return 2^k for an integral float k, -1022 <= k <= 1023."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(64)
        exponent = builder.add(builder.fptosi(arguments[0], integer), ir.Constant(integer, 1023))
        return builder.bitcast(builder.shl(exponent, ir.Constant(integer, 52)), ir.DoubleType())

    return types.float64(types.float64), generate


@intrinsic
def fma_one(typing: Any, c: Any, a: Any, s: Any) -> Any:
    """Compute c a + s of three float64, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call(builder, "llvm.fma.f64", ir.DoubleType(), *arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@intrinsic
def odd(typing: Any, c: Any) -> Any:
    """Return float64 c if the last bit of its fraction is set, else the next number towards 0, whose bit is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(64)
        bits = builder.bitcast(arguments[0], integer)
        even = builder.xor(builder.and_(bits, ir.Constant(integer, 1)), ir.Constant(integer, 1))
        return builder.bitcast(builder.sub(bits, even), ir.DoubleType())  # sign and magnitude: less is nearer to 0

    return types.float64(types.float64), generate


@intrinsic
def claim(typing: Any, a: Any) -> Any:
    """Return a[0] and increment it atomically."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(64)
        address = _address(context, builder, a, arguments[0], ir.Constant(integer, 0), integer)
        return builder.atomic_rmw("add", address, ir.Constant(integer, 1), "monotonic")

    return types.int64(a), generate


@intrinsic
def broadcast(typing: Any, a: Any, i: Any) -> Any:
    """Return a[i] in every lane."""
    vector = Vector(a.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index = arguments
        scalar = vector.llvm.element
        address = _address(context, builder, a, array, index, scalar)
        return _spread(builder, builder.load(address, align=a.dtype.bitwidth // 8), vector.lanes)

    return vector(a, i), generate


@intrinsic
def load_wide(typing: Any, a: Any, i: Any) -> Any:
    """Return a[i : i + 8] as float64."""
    vector = Vector(types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index = arguments
        held = ir.VectorType(Vector(a.dtype).llvm.element, vector.lanes)
        value = builder.load(_address(context, builder, a, array, index, held), align=a.dtype.bitwidth // 8)
        return value if held == vector.llvm else builder.fpext(value, vector.llvm)

    return vector(a, i), generate


@intrinsic
def add_to_wide(typing: Any, out: Any, i: Any, v: Any) -> Any:
    """Add v to out[i : i + lanes], an array of float64."""
    half = Vector(types.float64).lanes

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, value = arguments
        wide = ir.VectorType(ir.DoubleType(), half)
        for part in range(0, v.lanes, half):
            piece = value
            if v.lanes != half:
                piece = builder.shuffle_vector(value, value, _lanes(range(part, part + half)))
                piece = builder.fpext(piece, wide)
            at = builder.add(index, ir.Constant(index.type, part))
            address = _address(context, builder, out, array, at, wide)
            builder.store(builder.fadd(builder.load(address, align=8), piece), address, align=8)
        return context.get_dummy_value()

    return types.void(out, i, v), generate
