"""Opacus: DP-SGD with Poisson batches drawn by hand (its loader takes longer), its clipping, noise and accountant."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch
from opacus.accountants.utils import get_noise_multiplier
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from simulated import DELTA, EPSILON, asked, told

warnings.simplefilter("ignore")
torch.set_num_threads(2)
features, labels, settings = asked()
X, y = torch.from_numpy(features), torch.from_numpy(labels).float()
n, batch, epochs = len(y), int(settings["batch"]), int(settings["epochs"])
steps = n // batch
noise = get_noise_multiplier(
    target_epsilon=EPSILON, target_delta=DELTA, sample_rate=batch / n, steps=steps * epochs, accountant="prv"
)


def fit(epochs: int) -> tuple[list[float], list[Any]]:
    rng, seconds, coefficients, spent = np.random.default_rng(0), [], [], 0.0
    model = GradSampleModule(torch.nn.Linear(X.shape[1], 1))
    torch.nn.init.zeros_(model._module.weight)
    torch.nn.init.zeros_(model._module.bias)
    plain = torch.optim.SGD(model.parameters(), lr=settings["rate"])
    optimizer = DPOptimizer(plain, noise_multiplier=noise, max_grad_norm=1.0, expected_batch_size=batch)
    for _ in range(epochs):
        start = time.perf_counter()
        for _ in range(steps):
            rows = rng.choice(n, rng.binomial(n, batch / n), replace=False, shuffle=False)
            optimizer.zero_grad()
            scores = model(X[rows])[:, 0]
            torch.nn.functional.binary_cross_entropy_with_logits(scores, y[rows]).backward()
            optimizer.step()
        spent += time.perf_counter() - start
        seconds.append(spent)
        weight, bias = model._module.weight.detach().numpy()[0], model._module.bias.detach().numpy()
        coefficients.append(np.concatenate([weight, bias]))
    return seconds, coefficients


fit(1)
told(*fit(epochs), batch=batch, rate=settings["rate"], noise=noise)
