"""Mark 12: every way rows reach ``release`` from the command line, recorded on D and replayed on D'.

Sums differ by no more than declared; exit code, what is printed and the model file are the same (run id apart).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpsco.audit.recording import Transcript, observe
from dpsco.cli import main
from dpsco.run.model_file import SavedModel

N, P = 600, 3
RNG = np.random.default_rng(0)
X = np.round(RNG.standard_normal((N, P)), 4)
Y = RNG.integers(0, 2, N)


def csv(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    path = path.with_suffix(".csv")
    cells = [[*map(repr, row.tolist()), str(int(label))] for row, label in zip(x, y, strict=True)]
    path.write_text("\n".join(["a,b,c,y", *(",".join(row) for row in cells)]) + "\n")
    return path


def parquet(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = path.with_suffix(".parquet")
    pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}), path, row_group_size=100)
    return path


def arrow(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    import pyarrow as pa

    path = path.with_suffix(".arrow")
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=128)
    return path


def npz(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    path = path.with_suffix(".npz")
    np.savez(path, X=x, y=y)
    return path


def libsvm(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    path = path.with_suffix(".svm")
    lines = (
        " ".join([str(int(label)), *(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()))])
        for row, label in zip(x, y, strict=True)
    )
    path.write_text("\n".join(lines) + "\n")
    return path


FORMATS: dict[str, Callable[[Path, np.ndarray, np.ndarray], Path]] = {
    "csv": csv, "parquet": parquet, "arrow": arrow, "npz": npz, "libsvm": libsvm,
}  # fmt: skip
ROWS = {
    "mirrored": ([-9.0, 3.0, 1.0], 1),
    "huge": ([1e30, -1e30, 0.0], 0),
    "not finite": ([np.nan, 1.0, 1.0], 1),
    "unknown class": ([1.0, 1.0, 1.0], 7),
}
FAST = ("mirrored",)
DATA = {
    "ordinary": (X, Y),
    "duplicate rows": (np.tile(X[:1], (N, 1)), np.ones(N, dtype=int)),
    "one class only": (X, np.zeros(N, dtype=int)),
    "short last batch": (X[: N - 90], Y[: N - 90]),
    "last batches empty": (X[: N // 3], Y[: N // 3]),
}


def fit(make, folder: Path, x: np.ndarray, y: np.ndarray, options: str, frozen: Transcript | None) -> Transcript:
    """``dpsco fit`` on these rows, in a file of the same name whichever they are."""
    folder.mkdir(exist_ok=True)
    path = make(folder / "rows", x, y)
    shown = io.StringIO()

    def run() -> bytes:
        width = f"--dimension {P}" if path.suffix == ".svm" else ""
        if path.suffix == ".csv" and "--features" not in options:
            width = "--features a,b" if "--unit c" in options else "--features a,b,c"
        promise = f"--label y --epsilon 1 --delta 1e-5 --rounds 4 --rows {N}"
        words = f"{path} --out {folder}/model.json {promise} {width} {options.format(folder=folder)}"
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            code = main(["fit", *words.split()])
        result = SavedModel.read(folder / "model.json").result
        page = folder / "page.html"
        shown.write(page.read_text() if page.exists() else "")
        text = shown.getvalue().replace(str(folder), "").replace(result.report.run_id, "")
        return str(code).encode() + text.encode() + result.model.coef.tobytes() + repr(result.trace).encode()

    return observe(run, frozen)


def compare(make, tmp_path: Path, data, other, options: str, rows: int = 1) -> float:
    """The largest distance of the sums as a share of the declared difference; ``rows`` of them may differ."""
    one = fit(make, tmp_path / "one", *data, options, None)
    two = fit(make, tmp_path / "two", *other, options, one)
    assert one.error is two.error is None
    assert one.warned == two.warned
    assert one.visible == two.visible
    assert [q.digest() for q in one.queries] == [q.digest() for q in two.queries]
    saved = SavedModel.read(tmp_path / "one" / "model.json")
    distances = [float(np.linalg.norm(a - b)) for a, b in zip(one.sums, two.sums, strict=True)]
    assert sum(distance > 0 for distance in distances) <= rows
    # Each sum against the bound of its own release: a survey has another than the rounds that it planned.
    first, later = saved.result.plan.schedule.calibration.difference, saved.result.report.difference
    return max([distances[0] / first, *(distance / later for distance in distances[1:])])


@pytest.mark.parametrize("change", [*FAST, *(pytest.param(c, marks=pytest.mark.slow) for c in ROWS if c not in FAST)])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_row_of_a_file_moves_one_sum_of_the_command_and_nothing_it_prints(
    kind: str, change: str, tmp_path, mark_figure
) -> None:
    x, y = X.copy(), Y.copy()
    x[411], y[411] = ROWS[change]
    share = compare(FORMATS[kind], tmp_path, (X, Y), (x, y), "--json --adjacency replace --shuffle 0")
    assert share <= 1
    if change == "mirrored" and kind == "csv":
        mark_figure(12, f"fit {share:.2f}")


@pytest.mark.parametrize("name", DATA)
def test_degenerate_data_sets_and_their_neighbours_look_alike_on_the_command_line(name: str, tmp_path) -> None:
    x, y = (values.copy() for values in DATA[name])
    x[-1], y[-1] = ROWS["mirrored"]
    assert compare(csv, tmp_path, DATA[name], (x, y), "--json --adjacency replace --shuffle 100") <= 1


OPTIONS = [
    "--json --checkpoint {folder}/run --resume",
    pytest.param("--json --html {folder}/page.html", marks=pytest.mark.slow),  # plots
    "--json --loss smoothed-hinge",
    "--json --loss huber --label-bound 2",
    "--json --loss squared --label-bound 0.5",
    "--json --loss softmax --classes 0,1,2 --no-intercept",
    "--json --range a=-3:3 --features a,b --centered",
    "--json --features a,b --categories c=0.5|1.5",
    "--json --features a --hashed b=16 --hashed c=16",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_losses_columns_checkpoints_and_pages_too(options: str, tmp_path) -> None:
    x = X.copy()
    x[17] = [5.0, -5.0, 5.0]
    assert compare(csv, tmp_path, (X, Y), (x, Y), f"{options} --adjacency replace") <= 1


def test_all_rows_of_a_unit_together_move_at_most_so_many_sums_as_count(tmp_path) -> None:
    """Ids in column c, ten rows each, two of which count: all of a person's rows and labels are exchanged."""
    x, y = X.copy(), Y.copy()
    x[:, 2] = np.arange(N) % (N // 10)
    other, labels = x.copy(), y.copy()
    mine = x[:, 2] == 7
    other[mine, :2], labels[mine] = [-9.0, 9.0], 1 - y[mine]
    options = "--json --unit c --max-rows-per-unit 2 --adjacency replace"
    assert 0 < compare(csv, tmp_path, (x, y), (other, labels), options, rows=2) <= 2
