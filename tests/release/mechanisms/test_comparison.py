"""The comparison table and the command that prints it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from dpsco.cli.mechanisms import add_parser, run
from dpsco.errors import InvalidArgument
from dpsco.release.mechanisms import MECHANISMS
from dpsco.release.mechanisms.comparison import (
    algorithm_errors,
    comparison,
    factorisation_norm,
    lower_bound,
    max_errors,
)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    return parser.parse_args(["mechanisms", *words])


def test_the_table_has_every_mechanism_and_the_best_for_the_algorithm_last() -> None:
    rows = comparison(24, dimension=1000)
    assert {row.name for row in rows} == {*MECHANISMS, "workload, buffered"}
    by_name = {row.name: row for row in rows}
    assert by_name["sqrt"].algorithm_error_halved == pytest.approx(1.0, rel=1e-9)
    assert by_name["sqrt"].algorithm_error_listed == pytest.approx(1.0, rel=1e-9)
    assert rows[-1].name == "workload"
    assert by_name["blt"].bytes == 8 * 1000 * by_name["blt"].vectors
    assert all(row.over_lower_bound >= 1.0 for row in rows)


def test_the_known_bounds_on_the_least_max_error_are_met() -> None:
    """The nuclear norm bound approaches the lower one from above; the fitted optimum is between both, to o(1)."""
    for horizon in (256, 4096):
        low, high = factorisation_norm(horizon)
        assert low < lower_bound(horizon) < low + 0.01
        normalised = max_errors(["normalised-sqrt", "sqrt"], [horizon])
        assert low < normalised["normalised-sqrt"][0] < high + 0.04
        assert normalised["normalised-sqrt"][0] < normalised["sqrt"][0] - 0.15
    assert factorisation_norm(64)[0] < max_errors(["dense"], [64])["dense"][0] < factorisation_norm(64)[1]


def test_beyond_the_longest_fit_the_table_has_the_buffered_form_only() -> None:
    assert "dense" not in {row.name for row in comparison(600)}
    with pytest.raises(InvalidArgument, match="horizon=5000"):
        comparison(5000)


def test_curves_are_nan_where_a_mechanism_cannot_be_made() -> None:
    curves = max_errors(["dense", "tree"], [8, 600])
    assert np.isnan(curves["dense"]).tolist() == [False, True]
    assert not np.isnan(curves["tree"]).any()
    assert algorithm_errors(["sqrt"], [8])["sqrt"] == pytest.approx([1.0])


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(parsed("--horizon", "8", "--dimension", "1e6", "--json")) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["horizon"] == 8
    assert body["dimension"] == 1_000_000
    assert body["lower_bound"] == pytest.approx(lower_bound(8))
    assert body["factorisation_norm"] == pytest.approx([0.701 + np.log(8) / np.pi, 0.846 + np.log(8) / np.pi])
    assert len(body["mechanisms"]) == len(MECHANISMS) + 1


def test_the_command_prints_a_table_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("errors.svg", "errors.png"):
        assert run(parsed("--horizon", "6", "--plot", str(tmp_path / name))) == 0
        assert (tmp_path / name).stat().st_size > 5000
    assert "workload" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--horizon", "2.5"), ("--horizon", "8", "--plot", "errors.pdf")])
def test_the_command_refuses_what_it_cannot_do(words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument, match="Expected"):
        run(parsed(*words))
