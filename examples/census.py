"""A table with numbers and categories, from a CSV file to a private model, in Python and from the shell.

python examples/census.py
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np

from dpsco.cli import main as dpsco
from dpsco.run.model_file import SavedModel

JOBS = ("clerk", "farmer", "nurse", "teacher")


def write_people(path: Path, n: int, seed: int) -> None:
    """Return simulated people: age, hours per week, job, and whether the income is high."""
    rng = np.random.default_rng(seed)
    age, hours, job = rng.uniform(18, 80, n), rng.uniform(10, 60, n), rng.choice(JOBS, n)
    score = 0.08 * (age - 45) + 0.1 * (hours - 38) + (job == "nurse") - (job == "clerk")
    earns = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "much", "little")
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("age", "hours", "job", "earns"))
        table.writerows(zip(age.round(1), hours.round(1), job, earns, strict=True))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_people(folder / "people.csv", 40_000, seed=0)
        write_people(folder / "public.csv", 10_000, seed=1)
        declared = ["--features", "age,hours", "--range", "age=0:100", "--range", "hours=0:80"]
        declared += ["--categories", f"job={'|'.join(JOBS)}", "--label", "earns", "--classes", "little,much"]
        promise = ["--epsilon", "1", "--delta", "1e-6"]
        out = ["--out", str(folder / "model.json"), "--public-test", str(folder / "public.csv")]
        dpsco(["fit", str(folder / "people.csv"), *declared, *promise, *out])
        model = SavedModel.read(folder / "model.json")
        print("\nWhat the model learned, in units of the scaled columns:")
        for feature, weight in zip(model.columns.feature_names, model.result.model.coef, strict=True):
            print(f"  {feature:<14} {weight:+.2f}")


if __name__ == "__main__":
    main()
