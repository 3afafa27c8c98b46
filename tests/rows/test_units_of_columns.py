"""Features in the units of the table: every affine map of a column is undone exactly."""

from __future__ import annotations

import numpy as np
import pytest

import dpsco

N = 200
RNG = np.random.default_rng(0)
DAYS = np.datetime64("2000-01-01") + RNG.integers(0, 3650, N)
TABLE = {
    "plain": RNG.standard_normal(N),
    "age": RNG.uniform(20, 70, N),
    "income": RNG.uniform(0, 1e6, N),
    "above": RNG.uniform(5, 50, N),
    "below": RNG.uniform(-50, -5, N),
    "clicks": RNG.uniform(0, 1000, N),
    "balance": RNG.uniform(-2e3, 1e4, N),
    "since": DAYS.astype(str),
    "member": RNG.choice(["yes", "no"], N),
    "city": RNG.choice(["Lyon", "Paris", "Oslo"], N),
}
QUANTITIES = {  # by hand, beside the names
    "plain": TABLE["plain"],
    "age": TABLE["age"],
    "log(1 + income / 1000)": np.log(1 + TABLE["income"] / 1000),
    "log(1 + (above - 5) / 0.045)": np.log(1 + (TABLE["above"] - 5) / 0.045),
    "log(1 + (below + 50) / 0.045)": np.log(1 + (TABLE["below"] + 50) / 0.045),
    "log(1 + clicks)": np.log(1 + TABLE["clicks"]),
    "sign(balance) log(1 + |balance| / 10)": np.sign(TABLE["balance"]) * np.log(1 + np.abs(TABLE["balance"]) / 10),
    "since in days since 2000-01-01": (DAYS - np.datetime64("2000-01-01")).astype(float),
    "member": (TABLE["member"] == "yes").astype(float),
    "city=Paris": (TABLE["city"] == "Paris").astype(float),
    "city=Oslo": (TABLE["city"] == "Oslo").astype(float),
}


def declared(**more) -> dpsco.PublicColumns:
    ranges = {"age": (20, 70), "income": (0, 1e6), "above": (5, 50), "below": (-50, -5), "clicks": (0, 1e3)}
    return dpsco.PublicColumns(
        ["plain"],
        ranges={**ranges, "balance": (-2e3, 1e4)},
        log=["income", "above", "below", "clicks", "balance"],
        dates={"since": ("2000-01-01", "2010-01-01")},
        booleans=["member"],
        categories={"city": ["Lyon", "Paris", "Oslo"]},
        drop="first",
        **more,
    )


@pytest.mark.parametrize("centered", [False, True])
def test_features_are_affine_maps_of_the_quantities_that_units_name(centered) -> None:
    columns = declared(centered=centered)
    slopes, offsets, names = columns.units
    assert names == tuple(QUANTITIES)
    features = np.asarray(columns.transform(TABLE), dtype=np.float64)
    quantities = np.column_stack(list(QUANTITIES.values()))
    np.testing.assert_allclose(slopes * quantities + offsets, features, atol=2e-7)


@pytest.mark.parametrize("centered", [False, True])
def test_a_model_predicts_the_same_in_the_units_of_the_table(centered) -> None:
    columns = declared(centered=centered, missing=True)
    features = np.asarray(columns.transform(TABLE), dtype=np.float64)
    coef, intercept = RNG.standard_normal((3, columns.width)), RNG.standard_normal(3)
    of_table, constant = columns.original_units(coef, intercept)
    held = [name in QUANTITIES for name in columns.units.quantities]
    quantities = np.column_stack(list(QUANTITIES.values()))
    np.testing.assert_allclose(
        quantities @ of_table[:, held].T + constant, features @ coef.T + intercept, atol=1e-5, rtol=1e-6
    )
    one, end = columns.original_units(coef[0], intercept[0])
    np.testing.assert_array_equal(one, of_table[0])
    assert end == pytest.approx(constant[0])


def test_flags_of_missing_cells_keep_their_meaning() -> None:
    slopes, offsets, names = declared(missing=True, centered=True).units
    flags = [k for k, name in enumerate(names) if name.endswith("is missing")]
    assert len(flags) == 10
    assert all((slopes[k], offsets[k]) == (1.0, 0.0) for k in flags)
