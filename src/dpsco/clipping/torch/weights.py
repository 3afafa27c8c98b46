"""The trainable parameters of a module as one flat vector, and back."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dpsco.errors import InvalidArgument
from dpsco.query import Array

__all__ = ["Weights"]

Tensor = Any


@dataclass(frozen=True, eq=False)
class Weights:
    """Positions of the trainable parameters of ``module`` in the flat vector. Frozen parameters do not change."""

    module: Any
    """The module that passes run through."""
    shapes: dict[str, Any]
    untouched: Any
    """A copy that no row passes through: a module may store rows in attributes, and models are published."""

    @classmethod
    def of(cls, module: Any) -> Weights:
        """Collect the trainable parameters. Raise InvalidArgument if there are none or one is not a real float."""
        shapes = {name: p.shape for name, p in module.named_parameters() if p.requires_grad}
        for name in shapes:
            if not module.get_parameter(name).is_floating_point():
                raise InvalidArgument(f"Expected parameters of real floating types; {name} is not. Freeze it.")
        if not shapes:
            raise InvalidArgument("Expected model to have a parameter with requires_grad=True: nothing is trainable.")
        return cls(module, shapes, copy.deepcopy(module))

    @property
    def size(self) -> int:
        """Number of trainable parameters."""
        return sum(shape.numel() for shape in self.shapes.values())

    @property
    def start(self) -> Array:
        """Initial parameters in float64."""
        parts = [self.untouched.get_parameter(name).detach().cpu().double().flatten() for name in self.shapes]
        return np.asarray(torch.cat(parts).numpy())

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return views of a flat tensor in the shapes of the parameters."""
        parts = flat.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def parameters(self, x: Array) -> dict[str, Tensor]:
        """Convert the point ``x`` to tensors with the types and devices of the module's parameters."""
        own = {name: self.untouched.get_parameter(name) for name in self.shapes}  # no pass of a thread changes it
        return {
            name: part.to(own[name].device, own[name].dtype)
            for name, part in self.views(torch.from_numpy(np.array(x, dtype=np.float64))).items()
        }

    def load(self, weights: Any) -> Any:
        """Return a copy of the module with these weights: a flat vector, or the model of a result."""
        x = np.asarray(getattr(weights, "coef", weights), dtype=np.float64).ravel()
        if x.size != self.size:
            raise InvalidArgument(f"Expected {self.size} weights, one per trainable parameter, got {x.size}.")
        module = copy.deepcopy(self.untouched)
        with torch.no_grad():
            for name, values in self.parameters(x).items():
                module.get_parameter(name).copy_(values)
        return module
