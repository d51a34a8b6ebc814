"""A printed page."""

import shutil
import subprocess

import pytest
from helpers import REPOSITORY
from helpers.browser import FLAGS, chromium

from qwen3nb.report.render.html import unstyled
from qwen3nb.report.render.table import Cell, Table

STATIC = REPOSITORY / "book" / "_static"


@pytest.mark.integration
def test_a_table_over_several_pages_has_its_head_on_each(tmp_path):
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext here")
    table = Table(
        columns=["model", "score"], rows=[(Cell(f"model-{i}"), Cell("0.5")) for i in range(120)]
    )
    page = tmp_path / "page.html"
    styles = "".join(
        f'<link rel="stylesheet" href="{(STATIC / name).as_uri()}">'
        for name in ("qwen3nb.css", "q-render.css")
    )
    script = f'<script src="{(STATIC / "q-tables.js").as_uri()}"></script>'
    body = f'<article class="bd-article">{unstyled(table._repr_html_())}</article>'
    page.write_text(f"<!doctype html><head>{styles}</head><body>{body}{script}", encoding="utf-8")
    pdf = tmp_path / "page.pdf"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [chromium(), *FLAGS, profile, f"--print-to-pdf={pdf}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    text = subprocess.run(["pdftotext", pdf, "-"], check=True, capture_output=True, text=True)
    pages = [page for page in text.stdout.split("\f") if "model-" in page]
    assert len(pages) > 1
    assert all("score" in page for page in pages)
