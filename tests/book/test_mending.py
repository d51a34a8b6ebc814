"""What the theme does wrong is mended on the built page."""

import pytest

from qwen3nb.book.pages import mend_page

SEARCH = 'class="btn search-button-field search-button__button" title="Search"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'<button {SEARCH} aria-label="Search" data-x>', f"<button {SEARCH} data-x>"),
        ('<summary aria-label="Toggle hidden content">', "<summary>"),
        ('<summary aria-label="Mine">', '<summary aria-label="Mine">'),
        (
            '<i class="theme-switch fa-sun" data-mode="light" title="Light"></i>',
            '<i class="theme-switch fa-sun" data-mode="light"></i>',
        ),
        (
            '<a class="navbar-brand logo" href="#">\n<p>T</p></a>',
            '<nav class="q-home" aria-label="Home"><a class="navbar-brand logo" href="#">\n<p>T</p>'
            "</a></nav>",
        ),
        ('<div class="citation" id="a" role="doc-biblioentry">', '<div class="citation" id="a">'),
        ('<div role="list" class="citation-list">', '<div class="citation-list">'),
        ("<thead><tr><th><p></p></th>\n<th></th></tr></thead><tbody>", "<tbody>"),
        ("<tr><th>a</th><th></th></tr>", "<tr><th>a</th><td></td></tr>"),
        ('<image id="a"/><image id="a"/><image id="b"/>', '<image id="a"/><image/><image id="b"/>'),
    ],
)
def test_a_violation_is_mended_once(before, after):
    assert mend_page(before) == after
    assert mend_page(after) == after
