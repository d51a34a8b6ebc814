"""One small training, which all tests of the demo begin with."""

import pytest


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of an encoder-decoder that was trained for six steps; next to it a decoder."""
    from qwen3nb.demo.train_ul2 import Ul2Settings, train_decoder, train_seq2seq

    small = Ul2Settings(
        steps=6, save_every=2, batch=4, length=24, vocabulary=400, hidden=32, layers=1
    )
    folder = tmp_path_factory.mktemp("demo") / "train"
    train_seq2seq(folder, small)
    train_decoder(folder.parent / "decoder", small)
    return folder
