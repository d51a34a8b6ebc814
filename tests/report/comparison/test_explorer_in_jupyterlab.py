"""The explorer's notebook is run in JupyterLab, with its kernel, and used there."""

import shutil

import pytest
from helpers import REPOSITORY
from helpers.browser import chromium
from helpers.devtools import opened
from helpers.jupyterlab import jupyterlab, open_notebook
from helpers.records import own, state

from qwen3nb.answers.explorer import explore

USE = """
const box = document.querySelector('.q-explorer');
const find = (what) => box.querySelector(what);
const pick = (name, value) => {
  const control = find(`[data-pick=${name}]`);
  control.value = value;
  control.dispatchEvent(new Event('change'));
};
const points = () => box.querySelectorAll('.q-point').length;
const look = () => ({...find('.q-tested').dataset, points: points()});
const before = location.href;
const out = {whole: look()};
pick('category', 'odd');
out.odd = look();
box.querySelectorAll('.q-point')[2].dispatchEvent(new MouseEvent('click', {bubbles: true}));
out.question = find('.q-question').textContent;
out.lists = box.querySelectorAll('.q-side li').length;
out.moved = location.href !== before;
out.wide = box.scrollWidth - box.clientWidth;
return out;
"""


@pytest.mark.integration
def test_the_notebook_is_alive_in_jupyterlab(tmp_path):
    chromium()  # skips without a browser
    pytest.importorskip("jupyterlab")
    study = tmp_path / "study"
    for name in ("_config.yml", "book/_toc.yml", "notebooks/explorer.ipynb"):
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, study / name)
    records = [own("a", 0.5, seed=1), own("b", 0.4, seed=2)]
    for record in records:
        state(record, boosts={}, judgements=None)
        record.save(study / "results")
    explorer = explore(records)
    with jupyterlab(study) as address, opened(tmp_path / "profile") as page:
        open_notebook(page, address, "notebooks/explorer.ipynb")
        page.run("await jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait("document.querySelectorAll('.q-point').length > 0")
        shown = page.run(USE)
    difference = explorer.difference()
    assert (shown["whole"]["points"], shown["odd"]["points"]) == (40, 20)
    assert float(shown["whole"]["p"]) == difference.p_value
    assert float(shown["odd"]["p"]) == explorer.only(category="odd").difference().p_value
    assert shown["question"].startswith("text of q")
    assert shown["lists"] == 2 * 5
    assert not shown["moved"]  # the address is JupyterLab's
    assert shown["wide"] <= 0
