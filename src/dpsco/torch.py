"""Train PyTorch models: ``dpsco.torch.fit(model, loss, (X, y), epsilon=1.0, delta=1e-5)``.

``dpsco.torch.oracle(model, loss)`` is the part that ``dpsco.train(..., oracle=...)`` takes.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from dpsco.errors import ExtraMissing, InvalidArgument
from dpsco.planning.plan import Plan
from dpsco.rows.shaped import declared_shape
from dpsco.run.network_fit import TrainOptions, check_classes_declared, fit_network, rows_of
from dpsco.run.result import Result

try:
    from torch.utils.data import DataLoader

    from dpsco.clipping.torch.loader import array_of, loader_array, loader_chunks
    from dpsco.clipping.torch.oracle import TorchOracle, oracle
    from dpsco.clipping.torch.passes import LossFunction
except ImportError as error:
    if error.name != "torch":
        raise
    raise ExtraMissing("PyTorch is not installed: pip install 'dpsco[torch]'.") from None

__all__ = ["TorchOracle", "fit", "oracle"]


def fit(
    model: Any,
    loss: LossFunction,
    data: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    n: int | None = None,
    plan: Plan | None = None,
    classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    **options: Unpack[TrainOptions],
) -> Result:
    """Train ``model`` in place, from its own initial weights, in one pass over ``data``.

    Parameters
    ----------
    model : nn.Module
        Its initial weights must be public: random ones, or those of a model trained on public data. Parameters with
        ``requires_grad=False`` do not change and cost no privacy.
    loss : callable
        ``loss(outputs, labels)``: one number per row (``reduction="none"``), or a single number.
    data : pair of arrays, DataLoader or Stream
        ``(X, y)``: X of shape (rows, *input_shape), one label per row; the rows are checked before anything is spent,
        and mixed. A DataLoader, or any iterable of chunks (X, y): read once, without a look ahead. Or a
        ``dpsco.stream`` of flat rows.
    epsilon, delta : float
        The guarantee, for ``adjacency="zero-out"``.
    n : int, optional
        Public number of rows; that of the arrays unless given. A loader needs it: its length decides nothing.
    plan : Plan, optional
        In place of epsilon, delta and n; ``plan_network(size, n, budget)`` unless given.
    classes : int, optional
        Number of classes of the labels. It is compared with the outputs of the model before a row is read. A loader
        needs it, if the loss takes classes: its labels are not seen before they are spent.
    input_shape : tuple of int, optional
        Shape of one row; that of the array X (or of a ``TensorDataset``) unless given. A loader needs it.
    **options
        ``key``, ``checkpoint``, ``resume``, ``account``, ``progress``, ``on_round``, ``diagnostics`` of ``train``.

    Returns
    -------
    Result
        With its ``report``; ``result.model.coef`` holds the trainable parameters as one vector.

    Raises
    ------
    InvalidArgument
        If the model mixes rows or is random, its outputs are not as many as ``classes``, or n, the shape or the
        guarantee is not declared.
    DataError
        If rows or labels of arrays do not fit the model.

    Guarantee
    ---------
    The weights, the report and everything passed to ``on_round`` together satisfy the budget. The model is not changed
    unless the run ends. Rows get the type of the first trainable parameter, whatever their own. A row that does not
    fit counts as zero. What a dataset or a collate function of the caller's does with a row, errors included, is not
    covered.

    Cost
    ----
    About one forward and backward pass per row; two with a plan of recursive gradients.

    Examples
    --------
    >>> import numpy as np, torch
    >>> y = np.arange(400) % 2
    >>> X = np.random.default_rng(0).normal(size=(400, 1, 2, 2)) + y[:, None, None, None]
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    >>> result = fit(model, torch.nn.functional.cross_entropy, (X, y), epsilon=3.0, delta=1e-5, classes=2)
    >>> result.report.epsilon, result.plan.rounds
    (3.0, 20)
    """
    if not callable(loss):
        raise InvalidArgument("Expected loss to be a function of (outputs, labels).")
    loader = data if isinstance(data, DataLoader) else None
    if isinstance(data, tuple) and len(data) == 2:
        data = array_of(data[0]), array_of(data[1])
    first = data[0] if isinstance(data, tuple) and data else None
    shape = declared_shape(loader_array(loader) if loader is not None else first, input_shape)
    made = oracle(model, loss, input_shape=shape)
    width = math.prod(shape)
    rule = made.label_rule(width)
    if classes is not None:
        if rule is None:
            raise InvalidArgument("This loss takes labels of any value: leave classes out.")
        rule.compare(classes)
    elif rule is not None:
        check_classes_declared(data)
    kind = made.row_type(width)
    rows = rows_of(data if loader is None else loader_chunks(loader, shape, kind), shape, kind)
    outputs = made.output_change(width) if plan is None else None
    result = fit_network(made, rows, epsilon=epsilon, delta=delta, n=n, plan=plan, outputs=outputs, **options)
    made.load_into(model, result.model)
    return result
