"""Arrow files with text in views, which polars writes: read like text in one buffer, each cell by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsco import PublicColumns
from dpsco.rows.file_stream import FileRows, Labels

COLUMNS = PublicColumns(
    ranges={"a": (0, 10)}, categories={name: ["x", "a longer name of a city"] for name in "cke"}, missing=True
)
CITIES = ["x", "a longer name of a city", None, "elsewhere"] * 6
FRAME = pl.DataFrame(
    {
        "a": [str(k % 7) for k in range(24)],
        "c": CITIES,
        "k": pl.Series(CITIES, dtype=pl.Categorical),
        "e": pl.Series(CITIES, dtype=pl.Enum(["elsewhere", "a longer name of a city", "x"])),
        "who": [f"a person with a long name {k // 2}" for k in range(24)],
        "y": ["0", "1"] * 12,
    }
)


def features(path: Path) -> tuple[Any, Any]:
    rows = FileRows(path, Labels("y", classes=("0", "1")), COLUMNS, unit="who", max_rows_per_unit=1)
    parts = [(np.asarray(a), y) for a, y in rows]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def views(table: Any) -> Any:
    """Return a table whose texts are views."""
    return pa.table({name: pa.array(table.column(name).to_pylist(), pa.string_view()) for name in table.column_names})


def write(path: Path, table: Any) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


@pytest.mark.skipif(not hasattr(pl, "CompatLevel"), reason="polars before 1.1 writes no views")
@pytest.mark.parametrize("form", ["write_ipc", "write_ipc_stream"])
def test_files_of_polars_have_the_rows_of_their_older_form(form: str, tmp_path: Path) -> None:
    getattr(FRAME, form)(tmp_path / "new.arrow")
    getattr(FRAME, form)(tmp_path / "old.arrow", compat_level=pl.CompatLevel.oldest())
    with pa.OSFile(str(tmp_path / "new.arrow")) as file:
        opened = pa.ipc.open_file(file) if form == "write_ipc" else pa.ipc.open_stream(file)
        assert opened.schema.field("c").type == pa.string_view()
    (new, targets), (old, same) = (features(tmp_path / f"{age}.arrow") for age in ("new", "old"))
    np.testing.assert_array_equal(new, old)
    np.testing.assert_array_equal(targets, same)
    assert np.isfinite(targets).sum() == 12
    assert len({tuple(row) for row in new.tolist()}) > 10


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize("name", ["a", "c", "y", "who"])
def test_a_cell_that_is_no_text_is_missing_and_changes_no_other_row(kind: str, name: str, tmp_path: Path) -> None:
    table = FRAME.select("a", "c", pl.col("c").alias("k"), pl.col("c").alias("e"), "who", "y").to_arrow()
    cells = [None if cell is None else cell.encode() for cell in table.column(name).to_pylist()]
    cells[4] = b"\xff\xfe and some more bytes"
    broken = pa.array(cells, pa.binary_view()).view(pa.string_view())
    whole = views(table)
    odd = whole.set_column(whole.column_names.index(name), name, broken)
    try:
        for each, path in ((whole, tmp_path / f"whole.{kind}"), (odd, tmp_path / f"odd.{kind}")):
            write(path, each) if kind == "arrow" else pq.write_table(each, path)
    except pa.ArrowNotImplementedError:
        pytest.skip("this version of Arrow writes no views into Parquet")
    (rows, targets), (others, same) = (features(tmp_path / f"{which}.{kind}") for which in ("whole", "odd"))
    kept = np.arange(24) != 4
    np.testing.assert_array_equal(rows[kept], others[kept])
    if name == "who":  # the second row of that person counts now
        kept[5] = False
    np.testing.assert_array_equal(targets[kept], same[kept])
    assert np.array_equal(rows[4], others[4]) == (name in ("y", "who"))
    assert np.isnan(same[4]) == (name in ("y", "who"))
