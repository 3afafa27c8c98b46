"""Rows in an S3-compatible store, served on loopback."""

from __future__ import annotations

import json
import shutil

import pytest
from tests.engines.on_dask.conftest import isolated

from dpsco.errors import InvalidArgument
from dpsco.rows.file_stream import open_source
from dpsco.rows.readers.remote import RemoteFile


@pytest.mark.slow
def test_rows_of_a_store_give_the_model_of_the_same_files_on_disk(table, tmp_path) -> None:
    server = shutil.which("moto_server")
    if server is None:
        pytest.skip("needs an S3 server to run against: pip install 'moto[s3]' flask flask-cors")
    done = isolated("from_store", str(table), str(tmp_path), server)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"same": [True, True], "fit": 0, "nothing there": 2}
    assert "No data file was found" in done.stderr
    assert "testing" not in done.stdout + done.stderr  # the secret key


def test_an_address_holds_no_keys() -> None:
    with pytest.raises(InvalidArgument, match="environment") as error:
        open_source("s3://me:secret@bucket/folder")
    assert "secret@" not in str(error.value)
    with pytest.raises(InvalidArgument, match="s3://bucket"):
        open_source("gs://bucket/folder")


def test_a_remote_file_has_a_name_to_show() -> None:
    assert (RemoteFile("bucket/folder/part-1.parquet").name, RemoteFile("b/c.Parquet").suffix) == (
        "part-1.parquet",
        ".Parquet",
    )
