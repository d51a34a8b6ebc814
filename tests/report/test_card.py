"""The model card: its facts are true, unknown ones are marked, and its snippets run."""

import ast
import html
import json
import re
import runpy
import shutil
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.checkpoints import without_checksums
from helpers.html import HOSTILE
from helpers.records import amend, make, tier_records
from helpers.words import LONGEST_SENTENCE, count_words
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from sentence_transformers import SentenceTransformer

from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.records.record import Part
from qwen3nb.report.card import (
    card_text,
    extract,
    front_matter,
    languages_below,
    read_facts,
    stated_facts,
    training_facts,
    training_of,
)
from qwen3nb.tiers import TIERS
from qwen3nb.utils.book_settings import book_settings

SUBSETS = ("en", "de")
card_body = partial(card_text, front=False)
EXPORTS = tuple(zip(POOLINGS, cycle((True, False))))  # each pooling, normalised or not


@pytest.fixture
def evaluated(encoder_folder):
    content = fingerprint(find_source(str(encoder_folder)))
    return make("tiny", settings={"model": content, "pooling": "mean"})


def test_the_card_has_the_results_of_this_model_and_no_other(encoder_folder, evaluated):
    text = card_text(encoder_folder, [evaluated, make("other", scores=(1, 1, 1))])
    assert text.startswith("---\n")
    assert "model-index" in text.split("---")[1]
    config = json.loads((encoder_folder / "config.json").read_text())
    context = f"| context length | {config['max_position_embeddings']:,} tokens"
    for words in ("0.500", "| objective | not given |", "the source encoder 0.0e+00", context):
        assert words in text
    assert "pending" not in text.lower()
    alias = replace(evaluated, model=replace(evaluated.model, label="alias"), finished="2025-01-01")
    body = card_body(encoder_folder, [evaluated, alias])
    assert body.count("| PyDocsSampleRetrieval | nDCG@10 |") == 1
    assert "tiny (= alias)" in body
    without = card_body(encoder_folder, [])
    assert "Pending: no results yet" in without
    assert "0." not in without.split("## Evaluation")[1].split("## Use")[0]
    assert "Not measured yet" in without


def test_the_card_of_a_tier_with_benchmarks_shows_all_of_its_tasks(encoder_folder, evaluated):
    own = [replace(each, model=evaluated.model) for each in tier_records("tiny")]
    body = card_body(encoder_folder, own, tier="full")
    assert all(f"| {key} |" in body for key in TIERS["full"].task_keys)
    order = ("## Evaluation", "MTEB(eng, v2) Mean (TaskType)", "Scores by task", "## Use")
    assert sorted(order, key=body.index) == list(order)
    amend(own[0], "task", languages=("eng-Latn", "python-Code", "deu-Latn"))
    front = card_text(encoder_folder, own, tier="full", every_score=True).split("---")[1]
    assert front.count("\n") < 400  # a line per mapping
    assert yaml.safe_load(front)["language"] == ["code", "deu", "en"]
    (index,) = yaml.safe_load(front)["model-index"]
    assert sum(len(each["metrics"]) for each in index["results"]) == len(own)  # the main scores


def unfolded(body):
    return re.sub(r"<details>.*?</details>", "", body, flags=re.DOTALL)


def full_study(evaluated):
    """A model that is hardly better than chance on the tasks of the largest tier, and others."""
    own = [replace(each, model=evaluated.model) for each in tier_records("tiny", mean=0.2)]
    for position, record in enumerate(own):
        amend(record, "task", languages=(("eng-Latn", "deu-Latn")[position % 2],))
    others = tier_records("bm25", mean=0.3, seed=1) + tier_records("random", mean=0.2, seed=2)
    return own, [*own, *others]


def test_the_card_of_the_largest_tier_is_two_screens_long(encoder_folder, evaluated):
    own, every_record = full_study(evaluated)
    front, body = card_text(encoder_folder, every_record, tier="full").split("\n---\n", 1)
    first_screens = unfolded(body)
    assert len(first_screens.splitlines()) <= 90
    assert front.count("\n") <= 30
    (index,) = yaml.safe_load(front)["model-index"]
    names = [entry["dataset"]["name"] for entry in index["results"]]
    assert names == ["BEIR", "MS MARCO dev", "MTEB(eng, v2) Mean (Task)"]
    assert body.count("<details>") == body.count("</details>") == 5
    folds = "".join(re.findall(r"<details>.*?</details>", body, flags=re.DOTALL))
    assert "\n#" not in re.sub(r"```.*?```", "", folds, flags=re.DOTALL)  # a fold has no section
    headings = re.findall(r"^## (.+)$", body, flags=re.MULTILINE)
    assert headings == ["Evaluation", "Use", "Limitations", "Citation", "Acknowledgements"]
    limits = first_screens.split("## Limitations")[1].split("##")[0].strip().splitlines()
    assert len(limits) <= 5
    assert all(count_words(limit) <= LONGEST_SENTENCE for limit in limits)
    english = [record.main.value for record in own[::2]]
    assert f"| eng | {len(english)} | {np.mean(english):.3f} |" in first_screens


def test_limits_are_counted_and_each_is_in_the_fold(encoder_folder, evaluated):
    """Worse than bm25 on every query of one task, alike on another, better on the third."""
    scores = np.linspace(0.3, 0.6, 40)
    noise = np.tile([0.05, -0.05], 20)
    shifts = {"A": -0.2, "B": 0.0, "C": 0.2}
    records = []
    for task, shift in shifts.items():
        record = make("tiny", scores + shift + noise, task=task)
        records.append(replace(record, model=evaluated.model))
        records.append(make("bm25", scores, task=task))
    body = card_body(encoder_folder, records)
    limit = (
        "Behind bm25 on 1 of 3 tasks, by most on A (nDCG@10 -0.200); not shown to be better on 1."
    )
    assert f"- {limit}" in unfolded(body)
    assert "- Against bm25: better on 1 of 3 tasks, behind on 1, no difference shown on 1." in body
    assert "- A: behind bm25 (nDCG@10 -0.200" in body
    assert "- B: not significantly different from bm25 (" in body
    assert "- C:" not in body


def test_the_hub_reads_back_what_was_measured(encoder_folder, evaluated):
    """Names as MTEB writes them; an entry per split and subset of a task with several."""
    from huggingface_hub.repocard_data import (
        eval_results_to_model_index,
        model_index_to_eval_results,
    )

    several = part_record(evaluated.model)
    card = ModelCard(card_text(encoder_folder, [evaluated, several], license="mit"))
    data = card.data.to_dict()
    shown = [data[each] for each in ("library_name", "pipeline_tag", "license")]
    assert shown == ["sentence-transformers", "sentence-similarity", "mit"]
    assert "mteb" in data["tags"]
    name, entries = model_index_to_eval_results(data["model-index"])
    assert eval_results_to_model_index(name, entries) == data["model-index"]
    assert name == "tiny"
    several = "AmazonCounterfactualClassification"
    shown = [(e.dataset_name, e.dataset_config, e.dataset_split, e.metric_type) for e in entries]
    assert shown == [
        ("PyDocsSampleRetrieval", None, None, "nDCG@10"),
        *((f"{several} ({each})", each, "test", "accuracy") for each in SUBSETS),
    ]
    assert [round(e.metric_value, 3) for e in entries] == [0.5, 0.25, 0.75]
    assert all(e.dataset_revision == "r" * 12 for e in entries)


def part_record(model):
    scores = {"test/en/0": 0.0, "test/en/1": 0.5, "test/de/0": 1.0, "test/de/1": 0.5}
    result = make("tiny", scores, task="AmazonCounterfactualClassification", metric="accuracy")
    how = {"how": "mean", "columns": ("accuracy",)}
    means = {each: aggregate(result.per_query, **how, parts=(f"test/{each}/",)) for each in SUBSETS}
    parts = tuple(Part("test", each, (f"{each}-Latn",), means[each], 0.5) for each in SUBSETS)
    amend(result, "task", splits=("test",), subsets=SUBSETS, type="Classification")
    return replace(result, model=model, parts=parts)


def test_the_hub_never_gets_what_it_refuses_or_cannot_load(encoder_folder, tmp_path):
    stated = {"datasets": ["a/b", "my data"], "base_model": "/data/runs/base"}
    front = yaml.safe_load(front_matter(encoder_folder, [], stated, name="x"))
    assert "base_model" not in front
    assert front["datasets"] == ["a/b"]
    folder = Path(shutil.copytree(encoder_folder, tmp_path / "plain"))
    (folder / "modules.json").unlink()
    front = yaml.safe_load(front_matter(folder, [], {}, name="plain"))
    assert (front["library_name"], front["pipeline_tag"]) == ("transformers", "feature-extraction")


def test_the_card_says_how_models_were_merged(make_checkpoint, tmp_path):
    folders = [make_checkpoint(tmp_path / f"checkpoint-{step}", seed=step) for step in (1, 2)]
    merged = average_checkpoints(folders, tmp_path / "merged", method="slerp", weights=[3, 1])
    export = extract(merged, tmp_path / "export").folder
    assert "| merged by | slerp, weights 0.75, 0.25 |" in card_text(export, [])


def test_what_the_files_of_a_training_state_is_on_the_card(checkpoint, tmp_path):
    source = tmp_path / "checkpoint-10"
    shutil.copytree(checkpoint, source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"_name_or_path": "Qwen/Qwen3-0.6B"}))
    own = stated_facts(source, None, license="mit")
    assert own == {"base_model": "Qwen/Qwen3-0.6B", "license": "mit"}
    (source / "README.md").write_text("---\nlicense: apache-2.0\nlanguage: en\n---\n# x\n")
    assert stated_facts(source, None, license="mit")["license"] == "apache-2.0"
    (source / "training.json").write_text('{"language": ["en", "de"], "license": 3}')
    assert stated_facts(source, None)["language"] == ["en", "de"]
    file = tmp_path / "facts.toml"
    file.write_text('license = "cc-by-4.0"')
    assert stated_facts(source, file, license="mit")["license"] == "cc-by-4.0"
    (source / "README.md").write_text("---\nlicense: [broken\n---\n")
    assert stated_facts(source, None, license="mit")["license"] == "mit"


FRONT = {
    "plain": ("---\nlicense: cc-by-nc-4.0\n---\n# x\n", {"license": "cc-by-nc-4.0"}),
    "BOM": ("\ufeff---\nlicense: cc-by-nc-4.0\n---\n", {"license": "cc-by-nc-4.0"}),
    "CRLF": ("---\r\nlicense: mit\r\nlanguage:\r\n- no\r\n---\r\n# x", {"license": "mit"}),
    "blanks": ("\n--- \nlicense: mit\n---  \n# x", {"license": "mit"}),
    "a rule in a text": ('---\ntitle: "x ---"\nlicense: mit\n---\n', {"license": "mit"}),
    "its end is the file's": ("---\nlicense: mit\n---", {"license": "mit"}),
    "one in a list": ("---\nlicense:\n- mit\n---\n", {"license": "mit"}),
    "a capital": ("---\nLicense: cc-by-nc-4.0\n---\n", {"license": "cc-by-nc-4.0"}),
    "British": ("---\nlicence: cc-by-nc-4.0\n---\n", {"license": "cc-by-nc-4.0"}),
    "several": ("---\nlicense: [mit, cc-by-nc-4.0]\n---\n", {"license": ["mit", "cc-by-nc-4.0"]}),
    "other": (
        "---\nlicense: other\nlicense_name: my-1.0\nlicense_link: https://x.org/l\n---\n",
        {"license": "other", "license_name": "my-1.0", "license_link": "https://x.org/l"},
    ),
    "a number": ("---\nlicense: 1e3\n---\n", {"license": "1e3"}),
    "languages": (
        "---\nlanguage:\n- no\n- on\n- 1e3\n- 2024-01-01\n- 'no'\n- y\n- de\n---\n",
        {"language": ["no", "on", "1e3", "2024-01-01", "no", "y", "de"]},
    ),
    "nothing stated": ("---\nlicense:\nlanguage: null\n---\n", {"license": "apache-2.0"}),
    "no front matter": ("# license: mit\n", {"license": "apache-2.0"}),
    "a rule": ("# x\n---\nlicense: mit\n---\n", {"license": "apache-2.0"}),
}


@pytest.fixture
def book_of_apache(monkeypatch):
    """A book whose own licence is apache-2.0."""
    settings = replace(book_settings(), license="apache-2.0")
    monkeypatch.setattr("qwen3nb.report.card.book_settings", lambda: settings)


@pytest.mark.parametrize("written", FRONT)
def test_a_card_states_what_is_written_on_it(tmp_path, encoder_folder, book_of_apache, written):
    text, expected = FRONT[written]
    (tmp_path / "README.md").write_text(text, encoding="utf-8", newline="")
    stated = stated_facts(tmp_path, None)
    assert {name: stated.get(name) for name in expected} == expected
    # What is written is what the hub's library reads, and what YAML 1.2 reads.
    front = front_matter(encoder_folder, [], stated, name="x")
    data = ModelCard(f"---\n{front}\n---\n").data.to_dict()
    assert {name: data.get(name) for name in expected} == expected
    assert "1e3" not in front or "'1e3'" in front


def test_a_card_longer_than_the_largest_published_is_read(tmp_path, book_of_apache):
    metric = "  - task: {type: STS}\n    metrics: [{type: main_score, value: 1.5}]\n"
    index = "model-index:\n- name: m\n  results:\n" + metric * 4000
    text = f"---\n{index}license: cc-by-nc-4.0\n---\n"
    assert len(text) > 200_000
    (tmp_path / "README.md").write_text(text)
    assert stated_facts(tmp_path, None)["license"] == "cc-by-nc-4.0"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\nlicense: [broken\n---\n", "is not YAML"),
        ("---\nlicense: mit\n\n# no end\n", "has no end"),
        ("---\n- license: mit\n---\n", "has no fields"),
        ("---\nlicense: {name: mine}\n---\n", "is no text"),
    ],
)
def test_a_licence_that_cannot_be_read_is_not_replaced(
    tmp_path, book_of_apache, caplog, text, reason
):
    (tmp_path / "README.md").write_text(text)
    assert "license" not in stated_facts(tmp_path, None)
    (message,) = caplog.messages
    assert "README.md" in message
    assert reason in message
    assert "--license" in message
    caplog.clear()
    assert stated_facts(tmp_path, None, license="mit")["license"] == "mit"
    assert not caplog.messages


def test_a_card_constructs_no_objects(tmp_path):
    text = "---\nlicense: !!python/object/apply:os.mkdir [made]\n---\n"
    (tmp_path / "README.md").write_text(text)
    assert stated_facts(tmp_path, None)["license"] == "made"


def test_a_licence_comes_with_its_own_name_and_link(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: other\nlicense_name: mine\n---\n")
    facts = tmp_path / "facts.toml"
    facts.write_text('license = "mit"')
    stated = stated_facts(tmp_path, facts)
    assert stated["license"] == "mit"
    assert "license_name" not in stated


def test_the_examples_load_the_model_from_the_hub_where_it_has_an_id(encoder_folder, checkpoint):
    body = card_body(encoder_folder, [], hub_id="lab/encoder")
    assert body.count('"lab/encoder"') == 7
    assert 'Transformer("encoder")' in card_body(encoder_folder, [])
    with pytest.raises(ValueError, match="expected an id on the hub"):
        card_body(encoder_folder, [], hub_id='x/y")')
    with pytest.raises(ValueError, match=r"no qwen3nb\.json"):
        card_body(checkpoint, [])


def test_the_card_escapes_what_the_provenance_says(encoder_folder, tmp_path):
    folder = without_checksums(Path(shutil.copytree(encoder_folder, tmp_path / "copy")))
    provenance = json.loads((folder / "qwen3nb.json").read_text())
    provenance["label"] = provenance["source"]["folder"] = HOSTILE[0] + HOSTILE[3]
    (folder / "qwen3nb.json").write_text(json.dumps(provenance))
    body = card_body(folder, [])
    assert "script>" not in body
    assert body.startswith("# Model card: script-alert-1-script-x-javascript-alert-1\n")


def snippets(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def exports(checkpoint, tmp_path_factory):
    """Return an export by pooling and normalisation; the normalised ones have prompts."""
    made = {}

    def export(pooling, normalize):
        if (pooling, normalize) not in made:
            folder = tmp_path_factory.mktemp(f"{pooling}-{normalize}") / "my_encoder"
            prompts = {"query": "find: ", "passage": "text: "} if normalize else {}
            extract(checkpoint, folder, pooling=pooling, normalize=normalize, prompts=prompts)
            made[pooling, normalize] = folder
        return made[pooling, normalize]

    return export


@pytest.mark.integration
@pytest.mark.parametrize(("pooling", "normalize"), EXPORTS)
def test_the_snippets_run_and_agree(exports, tmp_path, monkeypatch, pooling, normalize):
    """Run each snippet as a reader would, from a file beside the model."""
    folder = tmp_path / "my_encoder"
    folder.symlink_to(exports(pooling, normalize))
    monkeypatch.chdir(tmp_path)
    first, *search, alike, plain, pooled, ours = snippets(card_body(folder, []))
    assert len(search) == normalize
    for code in search:
        (tmp_path / "snippet.py").write_text(code)
        space = runpy.run_path(str(tmp_path / "snippet.py"))
        same = SentenceTransformer(str(folder)).encode("find: How do I sort a list?")
        np.testing.assert_allclose(space["queries"][0], same, atol=1e-6)
    spaces = []
    for code in (first, alike, plain, ours, pooled):
        (tmp_path / "snippet.py").write_text(code)
        spaces.append(runpy.run_path(str(tmp_path / "snippet.py")))
    assert spaces[0]["vectors"].shape[0] == 2
    assert spaces[1]["similarity"].shape == (1, 1)
    texts = ["a text", "another, longer text"]
    theirs = SentenceTransformer(str(folder)).encode(texts)
    np.testing.assert_allclose(spaces[2]["vectors"].numpy(), theirs, atol=1e-5)
    assert spaces[3]["vectors"].shape == spaces[0]["vectors"].shape
    assert not np.allclose(spaces[3]["vectors"], spaces[0]["vectors"])  # another pooling
    np.testing.assert_allclose(np.asarray(spaces[4]["vectors"]), spaces[0]["vectors"], atol=1e-5)


def arguments(body, program):
    """Return the arguments of a program's line, as a reader of the rendered card copies it."""
    page = MarkdownIt("commonmark").enable("table").render(body)
    lines = [html.unescape(line) for line in re.findall(r"<code>(.*?)</code>", page)]
    line = next(line for line in lines if line.startswith(f"{program}("))
    call = ast.parse(line, mode="eval").body
    return {each.arg: ast.literal_eval(each.value) for each in call.keywords}


PROMPTS = [
    {"query": "find: ", "document": "text: ", "symmetric": "any: ", "STS12": "sts: "},
    {"query": "a|`<b>``\\|\n\"$A{{ 1 }}' ", "passage": "``` | "},
]


@pytest.mark.integration
@pytest.mark.parametrize("prompts", PROMPTS)
def test_the_card_says_how_other_programs_get_the_prompts(checkpoint, tmp_path, prompts):
    """The lines are run with what the programs do with them, in sentence-transformers."""
    folder = extract(checkpoint, tmp_path / "my_encoder", prompts=prompts).folder
    body = card_body(folder, [])
    model = SentenceTransformer(str(folder), device="cpu")
    texts = ["How do I sort a list?", "a\nb"]
    wanted = model.encode_query(texts), model.encode_document(texts)

    lang = arguments(body, "HuggingFaceEmbeddings")
    vectors = [model.encode(texts, **lang[f"{role}encode_kwargs"]) for role in ("query_", "")]
    np.testing.assert_array_equal(vectors, wanted)

    says = "that of any text" if "symmetric" in prompts else "none"
    assert f"| Chroma 1.5.9 | {says} |" in body
    assert "<b>" not in MarkdownIt("commonmark").enable("table").render(body)


def test_what_only_the_authors_know_comes_from_their_file(encoder_folder, evaluated, tmp_path):

    file = tmp_path / "facts.toml"
    file.write_text(
        'license = "apache-2.0"\nlanguage = ["en", "zh"]\ndatasets = ["org/data"]\n'
        'base_model = "Qwen/Qwen3-0.6B"\nhardware = "8 of <b>something</b>"\n'
        'objective = "UL2"\ncitation = "Somebody 2026"\n'
    )
    text = card_text(encoder_folder, [evaluated], facts=file)
    data = ModelCard(text).data
    assert (data.license, data.language) == ("apache-2.0", ["en", "zh"])
    assert data.base_model == "Qwen/Qwen3-0.6B"
    assert "| hardware | 8 of &lt;b&gt;something&lt;/b&gt; |" in text
    assert "| data | org/data |" in text
    assert "| tokens seen | not given |" in text
    assert "Somebody 2026" in text
    assert "(https://huggingface.co/Qwen/Qwen3-0.6B) |" in text
    without = card_text(encoder_folder, [evaluated])
    assert "| base model | not given |" in without
    assert "license" not in without.split("---")[1]
    assert "| licence | not given |" in without


def test_a_citation_in_bibtex_is_a_block_and_hostile_text_is_not(encoder_folder, tmp_path):
    own = "@misc{us,\n  title = {Our {Encoder}}\n}"
    file = tmp_path / "facts.toml"
    file.write_text(f"citation = '''{own}'''\nbase_model = 'a/b)<script>'\n")
    text = card_text(encoder_folder, [], facts=file)
    blocks = re.findall(r"```bibtex\n(.*?)```", text, flags=re.DOTALL)
    assert blocks[0].strip() == own
    assert blocks[1].startswith("@article{qwen3")
    assert "<script>" not in text.split("---\n", 2)[2]
    file.write_text("citation = '''@misc{x}\n```\n<script>'''\n")
    assert "<script>" not in card_text(encoder_folder, [], facts=file)


def test_the_card_of_a_folder_of_results(cli, encoder_folder, evaluated, tmp_path):
    evaluated.save(tmp_path / "elsewhere")
    card = tmp_path / "MODEL_CARD.md"
    pending = cli("card", encoder_folder, "--output", card)
    assert pending.exit_code == 0, pending.output
    assert "Pending: no results yet" in card.read_text()
    done = cli(
        "card", "--model", encoder_folder, "--results", tmp_path / "elsewhere", "--output", card
    )
    assert done.exit_code == 0, done.output
    assert "0.500" in card.read_text()


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('licence = "mit"', "licence: unknown key; did you mean 'license'"),
        ('language = "en"', "language: expected a valid list; got 'en'"),
        ("tokens = 5", "tokens: expected a valid string; got 5"),
        ("tokens =", "not TOML"),
    ],
)
def test_a_file_of_facts_that_is_none_is_refused(tmp_path, toml, message):
    file = tmp_path / "facts.toml"
    file.write_text(toml)
    with pytest.raises(ValueError, match=message):
        read_facts(file)


def test_a_trainer_may_log_gradients_that_are_not_numbers(tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"log_history": [{"grad_norm": NaN}]}')
    assert "trainer" in training_of(tmp_path)
    (tmp_path / "training.json").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"training\.json: expected an object"):
        training_of(tmp_path)


def test_training_facts_are_of_that_step_and_nothing_is_invented():
    """The last eval_loss of a cumulative log may belong to an earlier step."""
    log = [
        {"step": 100, "eval_loss": 3.5},
        {"step": 150, "learning_rate": 0.003},
        {"step": 160, "learning_rate": [0.1, 0.2]},
        {"step": 200, "learning_rate": 0.001},
    ]
    facts = dict(training_facts({"trainer": {"global_step": 200, "log_history": log}}, {}))
    assert facts["eval_loss at this step"] == "not given"
    assert (facts["steps"], facts["peak learning rate"]) == ("200", "0.003")
    facts = dict(training_facts({"trainer": {"global_step": 100, "log_history": log}}, {}))
    assert facts["eval_loss at this step"] == "3.5000"
    assert set(training_facts({}, {})) == {(name, "not given") for name in facts}


@pytest.mark.parametrize("value", [10**400, "many", [1], {"a": 1}, None])
def test_a_training_that_states_no_number_where_one_belongs_states_nothing(value):
    entry = {"step": 1, "eval_loss": value, "learning_rate": value}
    training = {
        "tokens_seen": value,
        "seconds": value,
        "denoisers": [{"mode": "R", "share": value}, value],
        "settings": [value],
        "trainer": {"global_step": 1, "epoch": value, "log_history": [entry, value]},
    }
    facts = dict(training_facts(training, {}))
    assert facts.pop("steps") == "1"
    assert set(facts.values()) == {"not given"}


def test_a_card_replaces_no_weights(cli, encoder_folder, tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    refused = cli("card", encoder_folder, "--output", weights)
    assert refused.exit_code == 1
    assert "model.safetensors: exists, and is no .md file" in refused.output
    assert weights.read_bytes() == b"weights"


def test_a_card_counts_languages_and_pairs_of_them_apart():
    assert languages_below(["language"]) == "Below the scores by task is 1 more language."
    pairs = ["pair of languages"] * 2
    assert languages_below(pairs) == "Below the scores by task are 2 pairs of languages."
