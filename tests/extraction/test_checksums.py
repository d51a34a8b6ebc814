"""Exports and averages are compared with their checksums when they are loaded."""

import json
import shutil

import numpy as np
import pytest
from helpers import TEXTS
from helpers.flips import flipped, flips, refusal

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.models.load import load_encoder
from qwen3nb.utils.atomic_files import sha256_file, sha256_json


@pytest.fixture
def export(encoder_folder, tmp_path):
    shutil.copytree(encoder_folder, tmp_path / "encoder")
    return tmp_path / "encoder"


def vectors_of(folder):
    return load_encoder(folder, cache=False, show_progress=False).encode(list(TEXTS))


def test_a_flipped_byte_in_an_export_is_refused_or_harmless(export):
    expected, refused = vectors_of(export), 0
    for flip in flips(export, count=150, leave_out=("README.md",)):
        with flipped(*flip):
            text = refusal(lambda: fingerprint(find_source(str(export))))
            if text is None:
                np.testing.assert_array_equal(vectors_of(export), expected)
            else:
                assert str(export) in text
                refused += 1
    assert refused > 140
    fingerprint(find_source(str(export)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.safetensors", lambda data: data[:-9] + b"\x01" + data[-8:]),
        ("1_Pooling/config.json", lambda data: data.replace(b"true", b"false", 1)),
        ("check_encoder.py", lambda data: data + b"#"),
        ("qwen3nb.json", lambda data: data.replace(b'"tiny"', b'"tony"')),
    ],
)
def test_the_refusal_names_the_file_both_digests_and_what_to_do(export, name, change):
    file = export / name
    file.write_bytes(change(file.read_bytes()))
    pattern = rf"{name}: changed .* expected SHA-256 \w{{12}}…, got \w{{12}}…; extract or average"
    with pytest.raises(CheckpointError, match=pattern):
        load_encoder(export, cache=False)


def test_a_missing_file_is_refused_and_the_readme_is_the_authors(export):
    (export / "README.md").write_text("mine")
    load_encoder(export, cache=False)
    (export / "modules.json").unlink()
    with pytest.raises(CheckpointError, match=r"modules\.json: missing, but qwen3nb\.json lists"):
        load_encoder(export, cache=False)


def test_without_its_checksums_an_export_is_loaded(export):
    file = export / "qwen3nb.json"
    fields = json.loads(file.read_text())
    del fields["checksums"]
    file.write_text(json.dumps(fields))
    (export / "check_encoder.py").write_text("changed")
    load_encoder(export, cache=False)


@pytest.mark.parametrize(
    "name", ["../outside.json", "/etc/hostname", "1_Pooling/../../outside.json"]
)
def test_a_name_outside_the_folder_is_refused_unread(export, name):
    (export.parent / "outside.json").write_text("{}")
    fields = json.loads((export / "qwen3nb.json").read_text())
    fields["checksums"]["files"][name] = sha256_file(export.parent / "outside.json")
    del fields["checksums"]["self"]
    fields["checksums"]["self"] = sha256_json(fields)
    (export / "qwen3nb.json").write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match="expected files of its folder, got"):
        load_encoder(export, cache=False)
