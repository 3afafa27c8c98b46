"""The client's half: a bound that holds, and three files that need NumPy and nothing else."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpsco
from dpsco.clipping import LinearOracle
from dpsco.engines.flower import LocalNodes, client, linear_gradients, oracle_gradients, serve, wire

SOURCES = Path(client.__file__).parent


def test_a_clipped_vector_is_never_longer_than_the_clip_in_exact_arithmetic() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 7)) * 10.0 ** rng.uniform(-200, 149, (400, 1))
    rows[:50] *= 10.0 ** rng.uniform(-8, 0, (50, 7))
    for clip in (0.3, 1.0, 1e-100, 7e99):
        for row in client.clipped(rows, clip):
            assert sum(Fraction(float(v)) ** 2 for v in row) <= Fraction(clip) ** 2


def test_short_vectors_are_kept_and_bad_ones_are_zero() -> None:
    rows = np.array([[0.1, 0.2], [np.nan, 0.1], [np.inf, 0.0], [1e200, 0.0], [0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(
        client.clipped(rows, 1.0), [[0.1, 0.2], [0, 0], [0, 0], [0, 0], [0, 0], [0.6, 0.8]], rtol=1e-14
    )


def test_three_files_are_all_a_device_needs(tmp_path: Path) -> None:
    """Copied into a folder of their own, without this library, they answer the page's query."""
    device = tmp_path / "device"
    device.mkdir()
    (device / "__init__.py").touch()
    for name in ("client.py", "maps.py", "wire.py", "assignment.py"):
        shutil.copy(SOURCES / name, device)
    script = """
import sys
sys.modules.update(dict.fromkeys(("dpsco", "scipy", "numba", "flwr")))  # an import of any of them fails
import numpy as np
from device import client, wire
query = wire.encode_query(run=bytes(32), first=0, last=1, places=1, unit=1, clip=1.0, grid=0.5, weights=[1.0],
                          points=[np.zeros(2)])
answer = client.respond(query, {"d": lambda x: np.array([[3.0, 4.0]])})
print(wire.decode_answer(wire.decode_query(query), answer)[0][1].tolist())
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[1, 2]"


def test_the_client_is_a_few_dozen_lines() -> None:
    source = (SOURCES / "client.py").read_text(encoding="utf-8")
    documented = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Module, ast.FunctionDef))]
    texts = [node.body[0] for node in documented if ast.get_docstring(node) is not None]
    docstrings = {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}
    code = [line for at, line in enumerate(source.splitlines(), 1) if line.strip() and at not in docstrings]
    assert len(code) < 66


def test_a_row_of_another_width_does_not_become_two_contributions() -> None:
    """With unit example a row twice as wide was two rows, each as long as the clip; ``respond`` counts it as 0."""
    for matrix in (None, np.eye(3)):
        query = wire.encode_query(
            run=bytes(32),
            first=0,
            last=1,
            places=1,
            unit=wire.EXAMPLE,
            clip=1.0,
            grid=2.0**-20,
            weights=[1.0],
            points=[np.zeros(3)],
            matrix=matrix,
        )
        asked = wire.decode_query(query)
        for wide in (np.array([[3.0, 0, 0, 3, 0, 0]]), np.array([3.0, 0, 0, 3, 0, 0]), np.ones((3, 2))):
            answer = client.respond(query, {"wide": lambda x, wide=wide: wide})
            assert wire.decode_answer(asked, answer) == []
        for fits in (np.array([3.0, 0, 0]), np.array([[[3.0], [0], [0]]])):
            answer = client.respond(query, {"fits": lambda x, fits=fits: fits})
            assert np.linalg.norm(wire.decode_answer(asked, answer)[0][1]) * 2.0**-20 <= 1.0 + 2.0**-20


def test_the_rows_of_a_client_do_not_print_themselves() -> None:
    """Logs and interactive sessions print objects; a client's rows are SENSITIVE."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=2)
    own = linear_gradients(problem, np.array([[0.123456, 0.5]]), [1])
    network = oracle_gradients(LinearOracle(dpsco.Logistic(), intercept=False), np.array([[0.123456, 0.5]]), np.ones(1))
    assert "0.123" not in repr([own, network, own.shortened, LocalNodes([{"phone": own}])])


def test_what_a_gradient_function_warns_of_on_its_rows_is_not_shown() -> None:
    """In one process the warnings of devices would be those of the server: an output that a row decides."""

    def gradient(x: np.ndarray) -> np.ndarray:
        warnings.warn("an odd row", RuntimeWarning, stacklevel=1)
        return np.ones((1, 2))

    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=2)
    method = dpsco.AcceleratedSRGD(rounds=1, beta=1.0, clip=1.0)
    budget = dpsco.Budget(1.0, 1e-6, adjacency="add-remove")
    plan = dpsco.Plan(problem=problem, n=2, budget=budget, method=method)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        serve(plan, LocalNodes([{"phone": gradient}]))
    assert not caught


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit, BaseException])
def test_whatever_a_gradient_function_raises_costs_its_own_client_alone(error: type[BaseException]) -> None:
    """``sys.exit`` on an odd row would end the node, and all of its clients would count as 0."""

    def broken(x: np.ndarray) -> np.ndarray:
        raise error

    query = wire.encode_query(
        run=bytes(32), first=0, last=1, places=1, unit=1, clip=1.0, grid=0.5, weights=[1.0], points=[np.zeros(2)]
    )
    answer = client.respond(query, {"a": broken, "b": lambda x: np.ones((1, 2))})
    assert [name for name, _ in wire.decode_answer(wire.decode_query(query), answer)] == ["b"]


def test_an_interrupt_by_the_user_is_no_matter_of_rows() -> None:
    def interrupted(x: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    query = wire.encode_query(
        run=bytes(32), first=0, last=1, places=1, unit=1, clip=1.0, grid=0.5, weights=[1.0], points=[np.zeros(2)]
    )
    with pytest.raises(KeyboardInterrupt):
        client.respond(query, {"a": interrupted})
