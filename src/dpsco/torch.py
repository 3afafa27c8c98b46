"""Train PyTorch models: ``dpsco.torch.oracle(model, loss)`` for ``dpsco.train(..., oracle=...)``."""

from __future__ import annotations

from dpsco.errors import ExtraMissing

try:
    from dpsco.clipping.torch.oracle import TorchOracle, oracle
except ImportError as error:
    if error.name != "torch":
        raise
    raise ExtraMissing("PyTorch is not installed: pip install 'dpsco[torch]'.") from None

__all__ = ["TorchOracle", "oracle"]
