"""dpsco's objective perturbation, many passes."""

from __future__ import annotations

from loss_dpsco import run

run(solver="objective-perturbation")
