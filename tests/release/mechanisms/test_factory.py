"""``mechanism(name, ...)``: names, options, and the choice of "auto"."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dpsco.errors import InvalidArgument
from dpsco.release.mechanisms import MECHANISMS, BufferedWorkload, Workload, mechanism


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_name_makes_its_mechanism_and_takes_a_z_step(name: str) -> None:
    made = mechanism(name, horizon=6, z_step="listed", dimension=10, memory=1e6)
    assert made.name == name
    assert made.horizon == 6


def test_unknown_names_are_listed() -> None:
    with pytest.raises(InvalidArgument, match=r"Unknown mechanism='toeplitz'\. Choose one of: auto, blt, dense"):
        mechanism("toeplitz", horizon=4)


@pytest.mark.parametrize("name", MECHANISMS)
def test_unknown_options_are_named(name: str) -> None:
    with pytest.raises(InvalidArgument, match="Unknown options bandz, colour for mechanism="):
        mechanism(name, horizon=4, bandz=3, colour="blue")


def test_the_options_there_are_are_listed() -> None:
    with pytest.raises(InvalidArgument, match=r"Unknown option objectives .* It takes: objective\."):
        mechanism("dense", horizon=4, objectives="max")
    with pytest.raises(InvalidArgument, match=r"It takes none\."):
        mechanism("tree", horizon=4, prior="flat")


@pytest.mark.parametrize(
    "wrong", [{"horizon": 0}, {"horizon": 2.5}, {"z_step": "doubled"}, {"dimension": 0}, {"memory": -1.0}]
)
def test_arguments_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"horizon": 4, **wrong}
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        mechanism("auto", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"horizon": 64}, Workload),
        ({"horizon": 512, "dimension": 1000}, Workload),
        ({"horizon": 513}, BufferedWorkload),
        ({"horizon": 64, "dimension": 10**7}, BufferedWorkload),
        ({"horizon": 64, "dimension": 10**7, "memory": 1e10}, Workload),
        ({"horizon": 64, "dimension": 1000, "memory": 1e5}, BufferedWorkload),
    ],
)
@pytest.mark.parametrize("name", ["auto", "workload"])
def test_auto_and_workload_pick_by_horizon_dimension_and_memory(
    name: str, arguments: dict[str, int], kind: type
) -> None:
    assert type(mechanism(name, **arguments)) is kind


def test_buffers_may_be_asked_for() -> None:
    assert mechanism("workload", horizon=32, buffers=3).memory == 3


def test_importing_the_mechanisms_does_not_import_scipy() -> None:
    code = "import sys, dpsco.release.mechanisms; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
