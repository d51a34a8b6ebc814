"""The progress bar of an encoding."""

import io

from qwen3nb.models.encoders.progress import EncodingProgress


def test_the_bar_shows_texts_per_second_and_time_left():
    out = io.StringIO()
    with EncodingProgress("tiny", [5, 3, 3], show=True, file=out, delay=0, mininterval=0) as bar:
        bar.advance(1)
        bar.advance(2)
    assert bar.texts == 3
    lines = out.getvalue().split("\r")
    assert any("tiny: encoding:  43%" in line and "1/3 texts" in line for line in lines)
    assert "texts/s]" in out.getvalue()
    silent = io.StringIO()
    with EncodingProgress("tiny", [5, 3], show=False, file=silent, delay=0) as bar:
        bar.advance(2)
    assert silent.getvalue() == ""
