"""Train any loss written in JAX, in one pass. Requires ``dpsco[jax]``.

params, result = dpsco.jax.fit(apply, params, loss, (X, y), epsilon=1.0, delta=1e-5)

or, from its parts, with the loss of one row

oracle = dpsco.jax.oracle(loss, params)
problem = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(10.0), dimension=oracle.size)
result = dpsco.train(plan, dpsco.stream(X, y), oracle=oracle, start=oracle.start)
params = oracle.weights(result.model)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from dpsco.clipping.class_labels import ClassLabels
from dpsco.errors import ExtraMissing, InvalidArgument, positive_integer
from dpsco.planning.plan import Plan
from dpsco.rows.shaped import declared_shape
from dpsco.run.network_fit import TrainOptions, check_classes_declared, fit_network, rows_of
from dpsco.run.result import Result

if TYPE_CHECKING:
    from dpsco.clipping.jax import JaxOracle

__all__ = ["fit", "oracle"]

MEMORY = 1 << 26


def fit(
    apply: Callable[[Any, Any], Any],
    params: Any,
    loss: Callable[[Any, Any], Any],
    data: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    n: int | None = None,
    plan: Plan | None = None,
    classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    **options: Unpack[TrainOptions],
) -> tuple[Any, Result]:
    """Train ``params`` in one pass over ``data``.

    Parameters
    ----------
    apply : callable
        ``apply(params, inputs)`` returns the outputs of a batch, rows first. It is called with batches of one row. It
        closes over whatever does not change: frozen parameters cost no privacy.
    params : pytree of floats
        The trainable parameters, with their public initial values.
    loss : callable
        ``loss(outputs, labels)`` of a batch: one number per row, or a single number.
    data : pair of arrays, iterable of chunks, or Stream
        ``(X, y)``: X of shape (rows, *input_shape), one label per row; the rows are checked before anything is spent,
        and mixed. Or an iterable of chunks (X, y), read once, without a look ahead. Or a ``dpsco.stream`` of flat rows.
    epsilon, delta, n, plan, input_shape
        As in ``dpsco.torch.fit``.
    classes : int, optional
        Number of classes of the labels. It is compared with the outputs of ``apply`` before a row is read, and rows
        with other labels count as zero. Chunks need it, if the loss takes whole numbers as labels. For arrays it is
        then the number of outputs. (Otherwise JAX takes the nearest class for a label that is out of range.)
    **options
        ``key``, ``checkpoint``, ``resume``, ``account``, ``progress``, ``on_round``, ``diagnostics`` of ``train``.

    Returns
    -------
    params : pytree
        The trained parameters, a pytree like the initial ones.
    result : Result
        With its ``report``.

    Raises
    ------
    ExtraMissing
        If JAX is not installed.
    InvalidArgument
        If the outputs are not as many as ``classes``, the loss cannot be traced, or n, the shape or the guarantee is
        not declared.
    DataError
        If rows or labels of arrays do not fit.

    Guarantee
    ---------
    The parameters, the report and everything passed to ``on_round`` together satisfy the budget. A row that does not
    fit counts as zero.

    Cost
    ----
    About one forward and backward pass per row; two with a plan of recursive gradients.
    """
    if not callable(apply) or not callable(loss):
        raise InvalidArgument("Expected apply(params, inputs) and loss(outputs, labels) to be functions.")
    pair = isinstance(data, tuple) and len(data) == 2
    shape = declared_shape(data[0] if pair else None, input_shape)

    def of_row(own: Any, row: tuple[Any, Any]) -> Any:
        return loss(apply(own, row[0].reshape(1, *shape)), row[1].reshape(1)).sum()

    made = _oracle(of_row, params, MEMORY, ghost=True, classes=classes)
    width = math.prod(shape)
    kind = made.row_type(width)
    count = made.outputs(apply, shape)
    if classes is not None:
        if count is None:
            raise InvalidArgument("Expected apply to return one array (rows, classes). Leave classes out otherwise.")
        ClassLabels(count).compare(classes)
    elif made.takes_whole_labels(width) and count is not None and count > 1:
        check_classes_declared(data)
        made = _oracle(of_row, params, MEMORY, ghost=True, classes=count)
    outputs = made.output_change(apply, shape) if plan is None else None
    rows = rows_of(data, shape, kind)
    result = fit_network(made, rows, epsilon=epsilon, delta=delta, n=n, plan=plan, outputs=outputs, **options)
    return made.weights(result.model), result


def oracle(
    loss: Callable[[Any, tuple[Any, Any]], Any], params: Any, *, memory: int = MEMORY, ghost: bool = True
) -> JaxOracle:
    """Build the oracle of ``loss(params, (features, label))``, the loss of one row.

    Parameters
    ----------
    loss : callable
        A pure function of its arguments that returns one real number.
    params : pytree of floats
        Initial parameters; they must be public.
    memory : int
        Limit on the bytes of temporaries. Rows are processed in blocks that fit.
    ghost : bool
        If False, form the gradient of every row with ``vmap``, for comparison.

    Returns
    -------
    JaxOracle
        ``size`` is the number of parameters, ``start`` the initial ones as a vector, ``weights(result.model)`` the
        trained ones as a pytree like ``params``, ``describe(example)`` explains how norms are computed.

    Raises
    ------
    ExtraMissing
        If JAX is not installed.
    InvalidArgument
        If ``loss`` is not callable, ``params`` holds no floats, or ``memory`` is not a positive integer.

    Guarantee
    ---------
    Each row changes the sum by at most the clip, whatever the loss computes. Rows that are not finite, or whose
    derivative is not, count as zero. The loss must depend on its arguments only.

    Cost
    ----
    About two ordinary forward and backward passes per round for dense layers, convolutions and embeddings. The
    gradients of other parameters are formed for each row of a block.
    """
    if not callable(loss):
        raise InvalidArgument("Expected loss to be a function loss(params, (features, label)) of one row.")
    bound = positive_integer("memory", memory, "It limits the bytes of temporaries per block of rows.")
    return _oracle(loss, params, bound, ghost=ghost)


def _oracle(
    loss: Callable[..., Any], params: Any, memory: int, *, ghost: bool, classes: int | None = None
) -> JaxOracle:
    try:
        from dpsco.clipping.jax import JaxOracle
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ExtraMissing("Losses in JAX need the package jax, which is not installed: install dpsco[jax].") from None
    return JaxOracle(loss, params, memory, ghost=ghost, classes=classes)
