"""The facts that a book's configuration states."""

import pytest
from helpers import REPOSITORY

from qwen3nb.utils.book_settings import BookSettings, book_settings


def test_this_book_states_its_own():
    ours = book_settings(REPOSITORY / "_config.yml")
    assert (ours.title, ours.year, ours.license) == ("qwen3nb", "2026", "apache-2.0")


def test_the_checkout_is_read_and_may_state_nothing(home):
    assert book_settings() == BookSettings()
    (home / "_config.yml").write_text("title: A\nqwen3nb:\n  license: MIT\nhtml:\n  baseurl: u\n")
    assert book_settings() == BookSettings(title="A", url="u", license="MIT")
    (home / "_config.yml").write_text("qwen3nb: none\nhtml:\n")
    assert book_settings() == BookSettings()


@pytest.mark.parametrize("text", ["a: [", "- a"])
def test_what_is_no_configuration_is_refused_by_name(tmp_path, text):
    (tmp_path / "c.yml").write_text(text)
    with pytest.raises(ValueError, match=r"c\.yml: (not YAML|expected)"):
        book_settings(tmp_path / "c.yml")
