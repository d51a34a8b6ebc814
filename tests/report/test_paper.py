import shutil

import numpy as np
import pytest
from helpers.figures import TASK, records
from helpers.records import make, tier_records

from qwen3nb.report.paper import paper_figures, paper_tables, write_figures, write_tables
from qwen3nb.tiers import TIERS


@pytest.mark.integration
def test_a_paper_gets_all_of_it(tmp_path):
    results = [result for result in records() if "demo" not in result.model.label]
    results.append(make("../x y", scores=np.zeros(60)))
    files = write_figures(results, tmp_path / "f", tier="smoke", format="pdf", columns=1)
    named = [file.name for file in files]
    assert len(set(named)) == len(named) == len(paper_figures(results, tier="smoke")) + 1
    wanted = {"comparison-smoke.pdf", f"differences-{TASK}.pdf", "ranks.pdf", "captions.md"}
    assert wanted <= set(named), named
    assert "per-query-..-x-y.pdf" in named
    captions = (tmp_path / "f" / "captions.md").read_text()
    assert all(name in captions.replace("\\", "") for name in named[:-1])
    for format, ending in (("latex", "tex"), ("csv", "csv"), ("markdown", "md")):
        tables = write_tables(results, tmp_path / format, tier="smoke", format=format)
        assert f"comparison-smoke.{ending}" in [file.name for file in tables]
        assert all(file.read_text().strip() for file in tables)
    assert all(table.name and table.caption for table in paper_tables(results, tier="smoke"))
    with pytest.raises(ValueError, match="tier 'fast'"):
        write_figures(results, tmp_path, tier="fast", format="pdf")


@pytest.mark.integration
def test_trainings_need_no_records(home, fixtures, tmp_path):
    if not (fixtures / "adapters").is_dir():
        pytest.skip("these fixtures hold no adapters")
    shutil.copytree(fixtures / "adapters" / "outputs", home / "runs" / "outputs")
    files = write_tables([], tmp_path / "t", format="latex")
    names = [file.name for file in files]
    assert names == ["configurations.tex", "configuration-differences.tex", "interference.tex"]
    text = files[0].read_text()
    assert r"\textbf{0.230}\textsubscript{0.050}" in text
    assert r"\underline{0.172}\textsubscript{0.010}" in text
    figures = {file.name for file in write_figures([], tmp_path / "f", format="svg")}
    assert {"configurations.svg", "interference.svg", "losses.svg", "conflicts.svg"} <= figures
    with pytest.raises(ValueError, match="tier 'smoke'"):
        write_tables([], tmp_path, tier="smoke", format="latex")


def test_without_records_and_trainings_there_is_nothing_to_write(home, tmp_path):
    with pytest.raises(ValueError, match="run `qwen3nb eval"):
        write_tables([], tmp_path, format="latex")


@pytest.mark.integration
def test_a_paper_on_benchmarks_has_every_task_and_no_wide_table():
    results = [*tier_records("a", mean=0.6), *tier_records("b")]
    tables = {table.name: table for table in paper_tables(results, tier="full")}
    assert len(tables["comparison-full"].rows) == 12
    names = {row[0].text for table in tables.values() for row in table.rows}
    assert names >= set(TIERS["full"].task_keys)
    assert max(len(table.columns) for name, table in tables.items() if name != "cost") <= 6
    assert {"overview", "missing", "differences-STS", "headline-full"} <= set(tables)
    assert all(table.caption for table in tables.values())
    figures = [name for name, _ in paper_figures(results, tier="full")]
    assert {"comparison-full", "bars-full", "ranks", "differences", "pairs"} <= set(figures)
