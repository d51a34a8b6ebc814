"""What a page would fetch from elsewhere."""

import pytest

from qwen3nb.book.build import remote_resources


@pytest.mark.parametrize(
    ("name", "page", "remote"),
    [
        ("p.html", '<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ("p.html", "<img alt='x' src='//cdn.example/x.png'>", "//cdn.example/x.png"),
        (
            "p.html",
            '<link rel="stylesheet" href="http://f.example/f.css">',
            "http://f.example/f.css",
        ),
        ("p.html", '<iframe\n src="https://x.example">', "https://x.example"),
        ("p.html", '<a href="https://x.example">a link is not fetched</a>', None),
        ("p.html", '<link rel="canonical" href="https://x.example">', None),
        ("p.html", '<script src="_static/x.js"></script><img src="data:image/png;,AA">', None),
        ("s.css", "@import url('https://x.example'); a{background:url(x)}", "https://x.example"),
    ],
)
def test_remote_resources_are_found_and_links_are_not(tmp_path, name, page, remote):
    (tmp_path / name).write_text(page)
    assert remote_resources(tmp_path) == ([(name, remote)] if remote else [])
