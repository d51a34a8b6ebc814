"""The script that measures how pages look."""

import shutil

import pytest

from benchmarks.looks import BROWSERS, PHONE, main, measure

CALM = "<h1>T</h1><p>one <a href='#'>link</a></p>"
LOUD = (
    "<h1>T</h1><p style='font-size:11px'>one <a href='#'>link</a> "
    "<a href='#' style='color:red'>red</a></p>"
    + "".join(f"<p style='font-size:{size}px'>size</p>" for size in (13, 15, 17, 19))
    + "<pre style='overflow-x:auto'>"
    + "long " * 200
    + "</pre>"
    + "<p style='width:3000px;background:#fff'>wide</p>"
    + "<div class='cell_input'>code</div>"
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no browser here"),
]


def write_page(folder, name, content):
    page = folder / "_build" / "html" / "runs" / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(
        f"<!doctype html><html data-theme='light'><body><article class='bd-article'>{content}",
        encoding="utf-8",
    )
    return page


def test_every_fault_of_a_page_is_named(tmp_path):
    page = write_page(tmp_path, "loud", LOUD)
    (look,) = measure([page], root=tmp_path, widths=[PHONE])
    words = "\n".join(look.faults)
    assert look.width == PHONE
    for fault in (
        "7 sizes of type: ",
        "links in rgb(0, 0, 238), rgb(255, 0, 0)",
        "the page scrolls sideways",
        "beyond the edge: <p> wide",
        "scrolls sideways: <pre> long",
        "1 cells of code outside the fold",
        "white in the dark: <p> wide",
    ):
        assert fault in words


def test_the_exit_status_says_whether_a_page_breaks_a_rule(tmp_path, capsys):
    write_page(tmp_path, "calm", CALM)
    assert main([str(tmp_path)]) == 0
    assert "1 pages, at most 2 sizes of type; faults: 0" in capsys.readouterr().out
    write_page(tmp_path, "loud", LOUD)
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path), "--pages", "runs/calm.html"]) == 0
    assert main([str(tmp_path), "--pages", "none/*"]) == 2
