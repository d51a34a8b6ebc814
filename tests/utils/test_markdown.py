import pytest
from helpers.html import HOSTILE, Tags
from markdown_it import MarkdownIt

from qwen3nb.utils.format import escaped, markdown_table

AT_THE_START = """
- a;+ a;1. a;2) a;+++;---;===;(a)=;:::;::: note;% a;# a;> a;* a;| a;```;~~~
""".strip().split(";")


def test_escaped_text_is_one_line_and_inert():
    assert escaped("a\n\n# b | c <d> *e* _f_ `g` [h](i) {j} $k$") == (
        r"a \# b \| c &lt;d&gt; \*e\* \_f\_ \`g\` \[h\]\(i) \{j\} \$k\$"
    )


@pytest.mark.parametrize("text", [*HOSTILE, *AT_THE_START, "+0.021 (n = 3)"])
def test_escaped_text_reads_as_it_was(text):
    """CommonMark takes the whole of it for the text of one paragraph."""
    for before in ("", "before\n"):
        opened, inline, closed = MarkdownIt().parse(before + escaped(text))
        assert (opened.type, closed.type) == ("paragraph_open", "paragraph_close")
        shown = "".join(
            " " if child.type == "softbreak" else child.content for child in inline.children
        )
        assert shown == " ".join(f"{before}{text}".split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, f"\\{text}") for text in ("(a)=", ":::", "+++", "% a", "===", "::: note")),
        *((text, text) for text in ("+0.021 (n = 3)", "-0.5", "1.5 s", "a + b (c)", "2026-01-02")),
    ],
)
def test_what_only_myst_reads_is_escaped_and_numbers_and_prose_are_not(text, expected):
    assert escaped(text) == expected


@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_has_its_columns_whatever_the_cells(text):
    table = markdown_table((text, "b"), [(text, "1"), ("a", text)])
    tags = Tags(MarkdownIt().enable("table").render(table)).tags
    assert (tags.count("th"), tags.count("td")) == (2, 4)
    assert set(tags) <= {"table", "thead", "tbody", "tr", "th", "td"}
    assert markdown_table(("a",), [(1.0,)], cell=lambda x: f"**{x}**").endswith("| **1.0** |")
