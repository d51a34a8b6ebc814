"""The table of the guide's page on odd data, run row by row with every reader it names."""

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner
from helpers import REPOSITORY
from helpers.odd_data import CANNOT, CASES, DAMAGES, FORMATS, READERS, Data, lines, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen3nb.cli.main import main
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.custom.documents import read_documents
from qwen3nb.datasets.rows import LINE, RATIO
from qwen3nb.datasets.trec import read_run, write_run

PAGE = REPOSITORY / "book" / "guide" / "what-is-refused.md"


def rows_of(title):
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


ROWS = [row[:4] for row in rows_of("The table") if not row[0].startswith("**")]


def test_every_case_is_a_row_and_every_reader_is_explained():
    cases = [case for case, *_ in ROWS]
    assert sorted(cases) == sorted([*CASES, *DAMAGES])
    named = {name.strip() for _, _, readers, _ in ROWS for name in readers.split(",")}
    assert named == READERS.keys() == {name for name, _ in rows_of("The readers")}


def formats_of(case, readers):
    """The formats of these readers that can express a case."""
    endings = DAMAGES[case][1] if case in DAMAGES else ("",)
    names = dict.fromkeys(name for reader in readers.split(", ") for name in READERS[reader])
    fit = [name for name in names if FORMATS[name].file.endswith(endings)]
    return [name for name in fit if case not in CANNOT.get(name, ())]


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """What each format reads when nothing is wrong."""
    read = {}
    for name, each in FORMATS.items():
        folder = tmp_path_factory.mktemp("clean")
        each.write(folder, Data())
        read[name] = each.read(folder)
    return read


@pytest.mark.parametrize(("case", "rule", "readers", "shown"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_table_holds(case, rule, readers, shown, tmp_path, clean):
    for reader in readers.split(", "):
        assert formats_of(case, reader), f"no format of {reader} can express this"
    for number, name in enumerate(formats_of(case, readers)):
        each, folder = FORMATS[name], tmp_path / str(number)
        folder.mkdir()
        each.write(folder, CASES.get(case, lambda data: data)(Data()))
        if case in DAMAGES:
            DAMAGES[case][0](folder / each.file)
        if rule == "refused":
            check_refused(name, folder, shown)
            continue
        read = each.read(folder)
        if rule == "counted":
            assert read.counts.get(shown) == 1, f"{name}: {read.counts}"
        else:
            assert (rule, read) == ("accepted", clean[name]), name


def check_refused(name, folder, shown):
    """One line that names the file, and the line or the option if the table says so."""
    with pytest.raises(ValueError, match=re.escape(str(folder))) as error:
        pytest.fail(f"{name}: {FORMATS[name].read(folder)}")
    message = str(error.value)
    assert message.isprintable(), f"{name}: {message!r}"
    assert len(message) < 600 + 2 * len(str(folder)), f"{name}: {message}"
    if "with the line" in shown:
        assert re.search(r":\d+: ", message), f"{name}: {message}"
    if "`--read-limit`" in shown:
        assert "--read-limit SIZE" in message, f"{name}: {message}"


def test_an_option_that_errors_name_raises_a_limit(tmp_path, monkeypatch):
    folder, each = tmp_path / "own", FORMATS["own JSONL"]
    each.write(folder, Data())
    DAMAGES["a `.gz` file that unpacks to more than 200 times its size, and 16 MiB"][0](
        folder / each.file
    )
    command = ["domain", "--check", "--queries", str(folder / "queries.toml")]
    command += ["--documents", str(folder / "docs.jsonl.gz")]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert "more than 16 MiB unpacked from" in refused.output
    raised = CliRunner().invoke(main, [*command, "--read-limit", "64MB"])
    assert "among the 180 documents of docs.jsonl.gz" in raised.output  # so all was read
    assert "QWEN3NB_READ_LIMIT" not in os.environ
    monkeypatch.setenv("QWEN3NB_READ_LIMIT", "much")
    assert "QWEN3NB_READ_LIMIT: expected a size" in CliRunner().invoke(main, command).output


def test_limits_in_the_guide_are_those_of_the_code():
    limits = dict(rows_of("Limits"))
    assert limits["a line"] == f"{LINE >> 20} MiB"
    assert limits["a `.gz` file, unpacked"].startswith(f"{RATIO} times its size")
    for name in ("domain", "rerank", "rerank-suite", "rerank-outputs", "analyze"):
        assert "--read-limit" in CliRunner().invoke(main, [name, "--help"]).output


def test_counts_are_printed_before_the_scores(tmp_path):
    each = FORMATS["own JSONL"]
    each.write(tmp_path, CASES["a negative grade: counts as 0"](Data()))
    command = ["domain", "--check", "--queries", str(tmp_path / "queries.toml")]
    done = CliRunner().invoke(main, [*command, "--documents", str(tmp_path / "docs.jsonl")])
    assert "judgements with a negative grade, counted as 0: 1" in done.output


# Text without what the table names: any other character is data.
NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=st.dictionaries(NAMES, TEXTS, min_size=1, max_size=5),
    grades=st.lists(st.integers(-1000, 1000), min_size=5, max_size=5),
)
def test_valid_data_are_read_back_equal_from_every_format(texts, grades):
    texts = {**texts, "one": "one"}
    judged = dict(zip(texts, grades, strict=False)) | {"one": 1}
    rows = list(texts.items())
    judgements = [("q", name, grade) for name, grade in judged.items()]
    data = Data(documents=rows, queries=[("q", "asked")], judgements=judgements)
    want = TestCollection.from_texts({"q": "asked"}, texts, {"q": judged})
    with TemporaryDirectory() as name:
        for kind in ("BEIR", "BEIR JSONL qrels"):
            folder = Path(name, kind)
            FORMATS[kind].write(folder, data)
            read = TestCollection.from_beir(folder)
            stripped = {each: text.strip() for each, text in texts.items()}
            assert (read.documents, read.qrels) == (stripped, want.qrels)
        FORMATS["MS MARCO"].write(Path(name, "msmarco"), data)
        (read,) = find_collections(Path(name, "msmarco"))
        assert (read.documents, read.qrels) == (texts, want.qrels)
        put(Path(name, "docs.jsonl"), lines({"id": i, "text": t} for i, t in rows))
        assert read_documents(Path(name, "docs.jsonl")).texts == {
            each: text.strip() for each, text in texts.items()
        }
        run = {"q": {each: float(rank) for rank, each in enumerate(texts)}}
        assert read_run(write_run(Path(name, "run.trec"), run, tag="t")) == run
