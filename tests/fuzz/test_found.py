"""What fuzzing and reviews have found in readers, kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.fuzz.targets import TARGETS, attempt

import dpsco
from dpsco.cli import main
from dpsco.rows.file_stream import FileRows, Labels, open_source
from dpsco.rows.public_columns import PublicColumns


def changed(name: str, **fields: object) -> bytes:
    return json.dumps({**json.loads(TARGETS[name].seeds()[0]), **fields}).encode()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("report", {"records": 0}),
        ("report", {"records": True}),
        ("report", {"mu": -1.0}),
        ("report", {"mu": 1e300}),
        ("report", {"mu": 1e-300}),
        ("report", {"delta": 2.0}),
        ("report", {"rounds": 10**400}),
        ("report", {"assumptions": [1]}),
        ("report", {"versions": {"numpy": None}}),
        ("account, sealed anew", {"runs": 1e-300}),
        ("account, sealed anew", {"runs": [{"id": "a"}]}),
        ("account, sealed anew", {"runs": [{"id": "a", "mu": "0.1", "log_float_loss": -50.0}]}),
        ("account, sealed anew", {"runs": [{"id": "a", "mu": -0.1, "log_float_loss": -50.0}]}),
        ("account, sealed anew", {"runs": [{"id": "a", "mu": 1e300, "log_float_loss": -50.0}]}),
    ],
)
def test_numbers_that_no_run_has_are_refused(name: str, fields: dict[str, object], tmp_path: Path) -> None:
    assert not attempt(name, changed(name, **fields), tmp_path)


def test_a_header_that_numpy_cannot_tokenize_is_refused(tmp_path: Path) -> None:
    import io
    import zipfile

    buffer = io.BytesIO()
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape':\xff\xff" + b" " * 60 + b"\n"
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert not attempt("npz", buffer.getvalue(), tmp_path)


def test_an_archive_whose_members_are_not_where_it_says_is_refused(tmp_path: Path) -> None:
    """Every byte of the archive, one after the other: refused by name, or read."""
    whole = TARGETS["npz"].seeds()[0]
    for place in range(len(whole)):
        attempt("npz", whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :], tmp_path)


@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (3, 2, 1)])
def test_arrays_of_another_shape_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=np.ones(shape), y=np.zeros(3))
    with pytest.raises(dpsco.DataError):
        open_source(tmp_path / "rows.npz")


@pytest.mark.parametrize("index", ["uint8", "uint16", "uint32", "uint64", "int8"])
def test_dictionaries_with_any_kind_of_index_are_read(index: str, tmp_path: Path) -> None:
    import pyarrow as pa

    codes = pa.array([0, 1, None, 0], type=getattr(pa, index)())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["x", "y"]))
    table = pa.table({"c": column, "y": [0, 1, 1, 0]})
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    columns = PublicColumns(categories={"c": ["x", "y"]})
    rows = FileRows(tmp_path / "rows.arrow", Labels("y", ("0", "1")), columns)
    assert np.concatenate([x for x, _ in rows]).tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]


def test_a_line_break_in_a_header_is_refused_with_and_without_pyarrow(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('"a\nb",y\n1,0\n2,1\n')
    with pytest.raises(dpsco.DataError, match="line break"):
        open_source(tmp_path / "rows.csv")


def test_a_unit_among_the_features_is_refused_by_name(tmp_path: Path, capsys) -> None:
    (tmp_path / "rows.csv").write_text("a,who,y\n1,5,0\n2,6,1\n")
    words = "--label y --unit who --max-rows-per-unit 1 --features a,who --epsilon 1 --delta 1e-5"
    code = main(["fit", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "model.json"), *words.split()])
    assert code == 2
    assert "is among the features: who." in capsys.readouterr().err


def test_a_plan_of_more_rounds_than_memory_holds_is_refused() -> None:
    method = dpsco.AcceleratedSRGD(rounds=8, beta=1.0, clip=1.0, mechanism="sqrt")
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 2)
    text = dpsco.Plan(problem, 10**12, dpsco.Budget(1.0, 1e-6), method).to_json()
    with pytest.raises(dpsco.InvalidArgument, match="fewer rounds"):
        dpsco.Plan.from_json(text.replace('"rounds": 8', f'"rounds": {4 * 10**10}'))
