import csv
import io

import pytest

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table


@pytest.mark.parametrize("text", ["=1+1", "@SUM(1)", "+x", "-x", "\t=1"])
def test_no_label_is_a_formula_in_a_spreadsheet(text):
    (cell,) = list(csv.reader(io.StringIO(Table(("a",), ((Cell(text),),)).to_csv())))[1]
    assert cell == f"'{text.strip()}"
