"""The evaluator in real trainings of tiny models, by the trainers of both libraries."""

import json
import math
import random
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import REPOSITORY
from helpers.archetypes import write_sentence_bert
from helpers.beir import write_beir
from transformers import AutoTokenizer, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.checkpoints.folder import list_checkpoints, metric_of, open_checkpoint
from qwen3nb.demo.trainer import quietly
from qwen3nb.evaluation.embeddings.sts import STSPairs
from qwen3nb.evaluation.training import TrainingEvaluator
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM
from qwen3nb.models.types import SpecError

NOUNS = ["row", "file", "table", "image", "path", "token", "array", "graph"]
DOCUMENTS = [f"To read it, the {noun} must exist, unless it is empty." for noun in NOUNS]
SEARCH = q.TestCollection.from_texts(
    [f"Read one {noun}." for noun in NOUNS], DOCUMENTS, [[i] for i in range(8)], name="dev"
)
PAIRS = STSPairs("pairs", ("a row", "a file", "a path"), ("a table", "files", "up"), (3, 4, 0))
OPTIONS = {"pooling": "last", "prefix": "[R]", "append_eos": True, "max_length": 24}


class Seeding(TrainingEvaluator):
    """An evaluator that seeds every generator and switches modes, as MTEB's tasks and models do."""

    def _encoder(self, model, tokenizer):
        set_seed(0)
        model.eval()
        return super()._encoder(model, tokenizer)


def collate(rows):
    """A batch whose tokens are drawn from every generator that an evaluation might use."""
    ids = torch.randint(5, 300, (len(rows), 6))
    ids[:, 0] = random.randrange(5, 300)
    ids[:, 1] = int(np.random.randint(5, 300))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def arguments(folder, **options):
    return TrainingArguments(
        str(folder),
        max_steps=4,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        seed=5,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        label_names=["labels"],
        save_only_model=True,
        logging_steps=1,
        **{"save_steps": 1, **options},
    )


def train(folder, checkpoint, *callbacks, tokenizer=None, **options):
    """A training of four steps from a checkpoint; the trainer."""
    with quietly():
        trainer = Trainer(
            model=Qwen3ForSeq2SeqLM.from_pretrained(checkpoint),
            args=arguments(folder, **options),
            train_dataset=[{"row": i} for i in range(8)],
            eval_dataset=[{"row": 0}],
            data_collator=collate,
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.fixture(scope="module")
def trained(checkpoint, tokenizer, tmp_path_factory):
    """A training whose checkpoints at steps 1 to 4 are scored, and its evaluator."""
    folder = tmp_path_factory.mktemp("trained")
    pair = Seeding(SEARCH, **OPTIONS), Seeding(PAIRS, **OPTIONS)
    train(folder, checkpoint, *pair, tokenizer=tokenizer)
    for each in list_checkpoints(folder):
        assert (each / "tokenizer.json").is_file()
    return folder


def state_of(checkpoint):
    return json.loads((checkpoint / "trainer_state.json").read_text())


class Planned(TrainingEvaluator):
    """An evaluator whose scores are known before the training, by step."""

    plan = (0.3, 0.9, 0.1, 0.8, 0.5)

    def __init__(self):
        super().__init__(SEARCH, name="planned", tokenizer="unused")
        self.calls = []

    def _encoder(self, model, tokenizer):
        return None

    def _scores(self, model, tokenizer):
        self.calls.append(len(self.calls))
        return {"planned": self.plan[self.calls[-1]], "planned_runtime": 0.0}


@pytest.mark.integration
def test_a_training_with_the_evaluator_has_the_same_weights_as_without(
    trained, checkpoint, tmp_path
):
    train(tmp_path / "without", checkpoint)
    for ours, plain in zip(
        list_checkpoints(trained), list_checkpoints(tmp_path / "without"), strict=True
    ):
        assert open_checkpoint(ours).weights.digest == open_checkpoint(plain).weights.digest
        kept = [
            e for e in state_of(ours)["log_history"] if not {"eval_dev", "eval_pairs"} & e.keys()
        ]
        assert kept == state_of(plain)["log_history"]


@pytest.mark.integration
def test_a_checkpoint_scores_in_training_what_its_export_scores(trained, tmp_path):
    for each in list_checkpoints(trained)[1::2]:
        export = q.extract(each, tmp_path / each.name, label="x", **OPTIONS).folder
        (result,) = q.evaluate(export, SEARCH, output=tmp_path / "r", show_progress=False)
        pairs = q.evaluate_sts(q.load_encoder(export, cache=False), PAIRS).spearman.value
        assert metric_of(each, "eval_dev") == result.main.value
        assert metric_of(each, "eval_pairs") == pairs
        assert metric_of(each, "eval_dev_runtime") > 0


@pytest.mark.integration
def test_the_best_checkpoints_are_averaged_by_the_metric(checkpoint, tmp_path, cli):
    """Without evaluations of the trainer, the state is rewritten after it was saved."""
    evaluator = Planned()
    trainer = train(tmp_path / "run", checkpoint, evaluator)
    options = ("--best", 2, "--metric", evaluator.metric, "--higher-is-better")
    done = cli("average", tmp_path / "run", tmp_path / "mean", *options)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "mean" / "averaging_metadata.json").read_text())
    assert record["averaged_from"] == ["checkpoint-4", "checkpoint-2"]
    assert list(record["metrics"].values()) == list(Planned.plan[:4])
    # The model of the last step may be another one by now, so it is scored anew.
    assert trainer.evaluate()["eval_planned"] == Planned.plan[4]


def test_an_evaluation_changes_nothing_of_model_and_tokenizer_and_keeps_no_vector(
    checkpoint, tokenizer
):
    model = Qwen3ForSeq2SeqLM.from_pretrained(checkpoint).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = tokenizer.backend_tokenizer.to_str()
    cached = sorted(paths.cache().rglob("*"))
    evaluator = TrainingEvaluator(SEARCH, tokenizer=tokenizer, **OPTIONS)
    first, second = evaluator(model), evaluator(model)
    assert first["dev"] == second["dev"]
    assert first.keys() == {"dev", "dev_runtime"}
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
    assert tokenizer.backend_tokenizer.to_str() == state
    assert sorted(paths.cache().rglob("*")) == cached


def test_only_the_main_process_evaluates(monkeypatch):
    evaluator, scores = Planned(), {"planned": 0.7, "planned_runtime": 2.0}
    monkeypatch.setattr("qwen3nb.evaluation.training._of_main_process", lambda own: scores)
    state = SimpleNamespace(
        is_world_process_zero=False, global_step=3, epoch=0.5, log_history=[{"step": 3}]
    )
    metrics = {}
    evaluator.on_evaluate(None, state, None, metrics=metrics)
    assert metrics == {"eval_planned": 0.7, "eval_planned_runtime": 2.0}
    assert state.log_history[1:] == [{**metrics, "step": 3, "epoch": 0.5}]
    evaluator.on_save(None, state, None)  # nothing is written, and nothing scored again
    assert evaluator.calls == []


def test_a_model_without_a_score_is_logged_as_such_and_the_training_goes_on(
    checkpoint, tokenizer, caplog
):
    model = Qwen3ForSeq2SeqLM.from_pretrained(checkpoint)
    with torch.no_grad():
        model.model.encoder.norm.weight.fill_(math.nan)
    assert math.isnan(TrainingEvaluator(SEARCH, tokenizer=tokenizer)(model)["dev"])
    assert "dev: no score, NaN is logged" in caplog.text
    assert "not finite" in caplog.text


def test_a_score_that_cannot_be_had_is_refused_before_the_training(checkpoint, tokenizer):
    model = Qwen3ForSeq2SeqLM.from_pretrained(checkpoint)
    with pytest.raises(SpecError, match="no tokenizer for Qwen3ForSeq2SeqLM"):
        TrainingEvaluator(SEARCH).on_train_begin(None, None, None, model=model)
    evaluator = TrainingEvaluator(SEARCH, tokenizer=tokenizer)
    with pytest.raises(SpecError, match="Linear: expected a SentenceTransformer, or an encoder-de"):
        evaluator.on_train_begin(None, None, None, model=torch.nn.Linear(2, 2))
    sharded = type("FullyShardedDataParallel", (torch.nn.Sequential,), {})
    with pytest.raises(SpecError, match="sharded over processes"):
        evaluator.on_train_begin(None, None, None, model=torch.nn.Sequential(sharded(model)))
    model.model.encoder.layers[0].mlp.up_proj.weight.ds_id = 7
    with pytest.raises(SpecError, match="sharded over processes"):
        evaluator.on_train_begin(None, None, None, model=model)
    model.model.encoder.layers[0].mlp.up_proj = torch.nn.Linear(32, 5)
    with pytest.raises(SpecError, match=r"layers\.0\.mlp\.up_proj\.weight does not match"):
        evaluator.on_train_begin(None, None, None, model=model)


def test_a_name_that_no_log_can_have_is_refused():
    with pytest.raises(ValueError, match="letters, digits"):
        TrainingEvaluator(SEARCH, name="dev/1")


@pytest.fixture(scope="module")
def page(checkpoint, tokenizer, tokenizer_folder, tmp_path_factory):
    """The names that the guide's page uses, after its examples have run in a folder."""
    folder = tmp_path_factory.mktemp("page")
    from datasets import Dataset

    text = (REPOSITORY / "book" / "guide" / "inside-a-training.md").read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("QWEN3NB_HOME", str(folder))
        write_beir(folder / "development")
        write_sentence_bert(folder / "encoder", tokenizer_folder, prompts={"query": "q: "})
        names = {
            "model": Qwen3ForSeq2SeqLM.from_pretrained(checkpoint),
            "tokenizer": tokenizer,
            "train_dataset": [{"row": 0}, {"row": 1}],
            "collate": collate,
            "pairs": Dataset.from_dict({"anchor": NOUNS, "positive": DOCUMENTS}),
        }
        patch.setenv("ACCELERATE_USE_CPU", "true")
        with quietly(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="'pin_memory'")  # there is no GPU here
            for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
                exec(example, names)  # noqa: S102 - our own page
    return SimpleNamespace(folder=folder, names=names, text=text)


@pytest.mark.integration
def test_a_sentence_transformer_is_scored_with_its_own_prompts(page, tmp_path):
    """Each checkpoint of the guide's training, loaded again, has the score of its log."""
    from sentence_transformers import SentenceTransformer

    runs = page.folder / "runs" / "pairs"
    scores = {}
    for each in list_checkpoints(runs):
        model = SentenceTransformer(str(each), device="cpu")
        assert model.prompts["query"] == "q: "
        (result,) = q.evaluate(
            model, page.names["development"], output=tmp_path, show_progress=False
        )
        scores[each.name] = result.main.value
        assert metric_of(each, "eval_dev") == pytest.approx(result.main.value, abs=1e-6)
    best = page.names["trainer"].state.best_metric
    assert best == pytest.approx(max(scores.values()), abs=1e-6)
