"""The landing page: the first screen, and the fold with every number."""

import html
import re

import numpy as np
import pytest
from helpers import REPOSITORY
from helpers.browser import used
from helpers.records import RETRIEVAL, amend, make

from qwen3nb import paths
from qwen3nb.answers.landing import landing_page
from qwen3nb.answers.leaderboard import leaderboard

BASE = np.random.default_rng(6).uniform(0.3, 0.6, 200)


def scored(label, gain, *, spread=0.02, spec=""):
    """A model whose scores are those of the base, with a gain and noise."""
    noise = np.random.default_rng([200, *label.encode()]).normal(0, spread, 200)
    record = make(label, scores=BASE + gain + noise - noise.mean())
    if spec:
        amend(record, "model", spec=spec)
    return record


def page_of(*records):
    return landing_page(records, leaderboard(records, tier="smoke"))


def words_of(text):
    """The words of HTML that a reader sees, without the figure."""
    without_figure = re.sub(r"<figure.*?</figure>", " ", text, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", without_figure)).split()


def caption_of(page):
    (caption,) = re.findall(r'<p class="q-note">.*?</p>', page["lead"])
    return caption


MANY = [scored(f"model-{place}", 0.2 - place / 20) for place in range(9)]


def test_the_first_screen_says_which_model_how_sure_and_on_what(home):
    page = page_of(*MANY)
    first, second = "model-0", "model-1"
    assert f"<strong>{first}</strong> finds the most, clearly more than {second}" in page["lead"]
    assert (
        "9 models · 200 questions to Python&#x27;s documentation · 1 January 2026" in page["lead"]
    )
    assert "3 more models</a>" in caption_of(page)
    assert 'href="methods.html#formula-ndcg">nDCG@10</a>' in caption_of(page)
    shown = " ".join(words_of(page["lead"] + page["findings"]))
    assert not re.search(r"\bp [<=]|interval|corrected|permutation", shown)


def test_chance_is_always_in_the_figure_and_light(home):
    page = page_of(*MANY, scored("random", -0.3, spec="random"))
    label = re.search(r'aria-label="([^"]*)"', page["lead"])[1]
    assert re.findall(r"(model-\d|random) ", label) == [*[f"model-{i}" for i in range(5)], "random"]
    assert "light: not clearly above chance" in caption_of(page)


def test_a_tie_of_many_is_drawn_whole(home):
    tied = [scored(f"tied-{place}", place / 1e4, spread=0.3) for place in range(8)]
    page = page_of(*tied, scored("far", -0.2))
    assert "and 6 more are as good" in page["lead"]
    assert len(re.findall(r"tied-\d 0\.", re.search(r'aria-label="([^"]*)"', page["lead"])[1])) == 8
    assert "Joined: no difference shown." in caption_of(page)


def test_the_caption_is_short_with_everything_in_it(home):
    (paths.notebooks() / "sure.ipynb").parent.mkdir(parents=True, exist_ok=True)
    (paths.notebooks() / "sure.ipynb").write_text("{}")
    toy = scored("demo-init", 0.2, spread=0.3, spec="runs/demo/encoder/init")
    other = make("elsewhere", scores={f"other{i}": 0.2 for i in range(50)})
    page = page_of(*MANY, toy, scored("random", -0.3, spec="random"), other)
    caption = caption_of(page)
    assert len([word for word in words_of(caption) if re.search(r"\w", word)]) <= 40
    for words in ("1 model lacks scores", '<a href="#toys">toy: not for use</a>', "how sure?"):
        assert words in caption
    assert "<strong>demo-init</strong> (a toy)" in page["lead"]
    assert "demo-init (toy)" in page["lead"]


def test_the_fold_has_the_scores_and_the_test_of_every_pair_with_the_best(home):
    page = page_of(*MANY[:3])
    assert [
        re.search(rf'id="{name}"', page["headline"]) is not None
        for name in ("tab-headline", f"tab-differences-{RETRIEVAL}")
    ] == [True, True]
    assert "Paired differences from model-0" in page["headline"]
    for note in re.findall(r'<p class="q-note">(.*?)</p>', page["headline"]):
        assert len(words_of(note)) <= 40


def test_cards_have_a_title_two_numbers_and_a_reason_and_the_fold_their_test(home):
    start = scored("demo-checkpoint-0", 0, spread=0)
    page = page_of(start, scored("demo-checkpoint-100", 0.1), scored("bm25", 0.3))
    assert [words_of(part) for part in re.findall(r"<p.*?</p>", page["findings"])] == [
        ["Training", "helps"],
        ["0.46", "→", "0.56"],
        ["100", "steps", "of", "demo"],
    ]
    assert "Training demo lifts nDCG@10 by 0.100" in page["headline"]
    assert re.search(r"p &lt; 0\.001, corrected over 3", page["headline"])


@pytest.mark.integration
@pytest.mark.parametrize(("width", "drawing"), [(390, "q-narrow"), (1350, "q-wide")])
def test_nothing_is_beyond_the_edge_of_a_phone_and_the_fold_needs_no_script(
    home, tmp_path, width, drawing
):
    page = page_of(*MANY, scored("a-model-with-a-long-name-checkpoint-24000", 0.1))
    styles = [REPOSITORY / "book" / "_static" / name for name in ("q-render.css", "qwen3nb.css")]
    links = "".join(f'<link rel="stylesheet" href="{style.as_uri()}">' for style in styles)
    fold = f'<details class="q-section"><summary>x</summary>{page["headline"]}</details>'
    body = f'<article class="bd-article">{page["lead"]}{page["findings"]}{fold}</article>'
    file = tmp_path / "index.html"
    file.write_text(f"<!doctype html><html><head>{links}</head><body>{body}</body></html>")
    shown = used(
        file,
        """
        const drawings = ['q-wide', 'q-narrow'].filter(
          name => document.querySelector('.' + name).checkVisibility());
        const fold = document.querySelector('details');
        fold.querySelector('summary').click();
        const root = document.documentElement;
        return [drawings, fold.open, root.scrollWidth - root.clientWidth];
        """,
        folder=tmp_path / "browser",
        width=width,
    )
    assert shown == [[drawing], True, 0]


@pytest.mark.parametrize("records", [[], MANY[:1]])
def test_without_a_second_model_there_is_no_test(home, records):
    page = page_of(*records)
    assert "tab-differences" not in page["headline"]
    assert (page["lead"].count("<figure"), page["findings"]) == (
        len(records),
        '<div class="q-findings"></div>',
    )
