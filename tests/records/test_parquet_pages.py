"""The pages of Parquet files, compared with what Arrow says of files that it has written."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from qwen3nb.records.parquet_pages import PageError, pages

COLUMNS = {
    "numbers": pa.array([i / 7 for i in range(5000)], pa.float64()),
    "some numbers": pa.array([None if i % 3 else i / 7 for i in range(5000)], pa.float64()),
    "texts": pa.array([f"text {i}" * (i % 5) for i in range(5000)], pa.large_string()),
    "lists": pa.array([["d"] * (i % 4) for i in range(5000)], pa.large_list(pa.large_string())),
}


def columns(data):
    """The footer's entry of each column, by row group."""
    footer = parquet.ParquetFile(pa.BufferReader(data)).metadata
    for group in range(footer.num_row_groups):
        for column in range(footer.num_columns):
            yield footer.row_group(group).column(column)


def pages_of(data, column):
    start = column.data_page_offset
    if column.has_dictionary_page:
        start = column.dictionary_page_offset
    return [*pages(data, start=start, size=column.total_compressed_size)]


def written(**options):
    sink = pa.BufferOutputStream()
    settings = {"use_dictionary": False, "data_page_size": 4096, "row_group_size": 2000}
    parquet.write_table(pa.table(COLUMNS), sink, **settings | options)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("statistics", [False, True])
def test_pages_add_up_to_what_arrow_says(version, statistics):
    options = {"data_page_version": version, "write_statistics": statistics}
    plain = written(compression="none", **options)
    packed = written(compression="zstd", write_page_checksum=True, **options)
    several = 0
    for one, other in zip(columns(plain), columns(packed), strict=True):
        found = pages_of(plain, one)
        assert sum(page.values for page in found) == one.num_values
        assert all(page.is_plain for page in found)
        # The rest are the headers.
        headers = one.total_uncompressed_size - sum(page.unpacked_size for page in found)
        assert 0 < headers <= 200 * len(found)
        assert pages_of(packed, other) == found
        several += len(found) > 1
    assert several


def test_a_dictionary_is_seen():
    data = written(use_dictionary=True)
    assert not any(page.is_plain for column in columns(data) for page in pages_of(data, column)[1:])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\0", "states no sizes"),
        (b"\x25\x01\x15\x02\0", "states no sizes"),  # a size of -1
        (b"\x25", "is cut"),
        (b"\x1c" * 9, "nests too deep"),
        (b"\x19\0\0", "a value of type 9"),
        (b"\x15" + b"\xff" * 11, "too long a number"),
        (b"\x25\x02\x15\x09\0", "states no sizes"),  # a packed size of -5
        (b"\x25\x02\x15\x0a\0", "ends elsewhere"),  # of 5, after which there is nothing
    ],
)
def test_other_bytes_are_refused(content, words):
    with pytest.raises(PageError, match=words):
        list(pages(content, start=0, size=len(content)))


def test_pages_outside_the_file_are_refused():
    with pytest.raises(PageError, match="would be at 4 to 12 of 9 bytes"):
        list(pages(b"123456789", start=4, size=8))


@given(st.binary(max_size=200))
def test_any_bytes_end_in_pages_or_in_an_error(content):
    try:
        found = list(pages(content, start=0, size=len(content)))
    except PageError:
        return
    assert all(page.unpacked_size >= 0 for page in found)
