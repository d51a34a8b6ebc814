"""The callback in real trainings, and a real evaluation of their checkpoints."""

import json
import re
import sys
import time
import types
from types import SimpleNamespace

import pytest
import torch
from helpers import REPOSITORY
from helpers.archetypes import write_sentence_bert
from helpers.checkout import write_checkout
from transformers import AutoTokenizer, Trainer, TrainingArguments

from qwen3nb.answers.status import status
from qwen3nb.checkpoints.folder import list_checkpoints, open_checkpoint
from qwen3nb.demo.trainer import quietly
from qwen3nb.during_training import child
from qwen3nb.during_training import evaluations as module
from qwen3nb.during_training.callback import CheckpointEvaluation
from qwen3nb.during_training.loggers import logger_named
from qwen3nb.during_training.orders import Orders, Score
from qwen3nb.execution.parameters import ParameterError
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM
from qwen3nb.paths import NoStudyError
from qwen3nb.records.failures import failed_runs
from qwen3nb.records.store import load_results

# Notes which checkpoint it is given and what is kept of it; the first one dies.
PROGRAM = """
import json, os, signal, sys
from pathlib import Path
file = Path(sys.argv[1])
orders = json.loads(file.read_text())
names = sorted(entry.name for entry in Path(orders["copy"]).iterdir())
with open("evaluated.txt", "a") as log:
    print(orders["checkpoint"], *names, file=log)
if orders["checkpoint"].endswith("-1"):
    os.kill(os.getpid(), signal.SIGKILL)
file.with_name("outcome.json").write_text(json.dumps({"seconds": 0.1, "files": "0"}))
"""


def collate(rows):
    ids = torch.randint(5, 300, (len(rows), 6))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def train(folder, checkpoint, *callbacks, **options):
    usual = {"max_steps": 3, "save_steps": 1, "save_total_limit": 1, "report_to": "none"}
    arguments = TrainingArguments(
        str(folder),
        use_cpu=True,
        seed=5,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        label_names=["labels"],
        **{**usual, **options},
    )
    with quietly():
        trainer = Trainer(
            model=Qwen3ForSeq2SeqLM.from_pretrained(checkpoint),
            args=arguments,
            train_dataset=[{"row": i} for i in range(8)],
            data_collator=collate,
            callbacks=list(callbacks),
        )
        trainer.train()
    return trainer


@pytest.fixture
def program(checkout, monkeypatch, tmp_path):
    """Evaluations by `PROGRAM`; return a function for the checkpoints it was given."""
    (tmp_path / "evaluation_of_a_training.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "PROGRAM", "evaluation_of_a_training")
    monkeypatch.chdir(checkout)

    def evaluated():
        lines = (checkout / "evaluated.txt").read_text().splitlines()
        return {name: set(files) for name, *files in map(str.split, lines)}

    return evaluated


@pytest.mark.integration
def test_a_training_with_a_failing_evaluation_and_rotation_has_the_same_weights(
    program, checkout, checkpoint, caplog
):
    evaluation = CheckpointEvaluation(tier="smoke", share=1.0, book=False)
    train("runs/new", checkpoint, evaluation)
    train("runs/without", checkpoint)
    (ours,), (plain,) = map(list_checkpoints, (checkout / "runs/new", checkout / "runs/without"))
    assert open_checkpoint(ours).weights.digest == open_checkpoint(plain).weights.digest
    assert {"config.json", "model.safetensors"} <= program()["runs/new/checkpoint-3"]
    assert not {"optimizer.pt", "trainer_state.json"} & program()["runs/new/checkpoint-3"]
    (note,) = failed_runs()
    assert note.parameters["checkpoint"] == "runs/new/checkpoint-1"
    assert "checkpoint-1 could not be evaluated: its process was killed" in caplog.text
    assert "Failed: checkpoint-1." in evaluation.summary


@pytest.mark.integration
def test_the_trainer_of_sentence_transformers_has_its_whole_model_evaluated(
    program, checkout, tokenizer_folder
):
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = write_sentence_bert(checkout / "start", tokenizer_folder)
    arguments = Arguments(
        "runs/pairs",
        max_steps=2,
        save_steps=2,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    with quietly():
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"a": ["row", "file"], "b": ["table", "path"]}),
            loss=MultipleNegativesRankingLoss(model),
            callbacks=[CheckpointEvaluation(book=False)],
        )
        trainer.train()
    assert {"modules.json", "1_Pooling", "model.safetensors"} <= program()[
        "runs/pairs/checkpoint-2"
    ]


@pytest.mark.integration
def test_the_guides_training_has_a_page_and_records_of_its_last_checkpoint(
    home, checkpoint, tokenizer_folder, monkeypatch, capsys
):
    checkout = write_checkout(home)
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    text = (REPOSITORY / "book" / "guide" / "during-training.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    # A book takes a minute; tests of its own build one.
    block = block.replace("share=0.05", "share=0.05, book=False, niceness=0, tasks='AuthorSTS'")
    block = block.replace("save_steps=500", "save_steps=500, dataloader_pin_memory=False")
    block = block.replace("save_steps=500", "save_steps=500, remove_unused_columns=False")
    names = {
        "model": Qwen3ForSeq2SeqLM.from_pretrained(checkpoint),
        "tokenizer": AutoTokenizer.from_pretrained(tokenizer_folder),
        "train_dataset": [{"row": 0}, {"row": 1}],
        "collate": collate,
    }
    with quietly():
        exec(block, names)  # noqa: S102 - our own page
    assert "1 checkpoint evaluated" in capsys.readouterr().out
    (page,) = (checkout / "book" / "runs").glob("eval-new-checkpoint-3-*.ipynb")
    records = load_results()
    assert {record.model.spec for record in records} == {"runs/new/checkpoint-3"}
    entry = names["evaluation"]._evaluations._journal.get("checkpoint-3")
    digests = {score["task"]: score["record"] for score in entry["scores"]}
    assert digests == {record.task.key: record.checksum for record in records}
    assert entry["page"] == page.stem


def test_a_checkpoint_that_is_no_model_is_noted_and_a_time_limit_ends_an_evaluation(
    checkout, checkpoint, monkeypatch
):
    copy = checkout / "kept" / "new" / "checkpoint-1"
    copy.mkdir(parents=True)
    original = checkout / "runs" / "new" / "checkpoint-1"
    monkeypatch.setenv("QWEN3NB_KEPT_COPY", json.dumps([str(original), str(copy)]))
    orders = Orders("runs/new/checkpoint-1", str(copy), {}, 60.0, threads=1, niceness=0, book=False)
    outcome = child.evaluate(orders, log=checkout / "log.txt")
    # The status page counts it, although it has no page.
    assert status(load_results()).conclusion.text.startswith("1 run, 1 failed (eval-new-checkpoint")
    assert (outcome.status, failed_runs()[0].page) == ("failed", "eval-new-checkpoint-1")
    assert outcome.reason.startswith("runs/new/checkpoint-1: no config.json")
    monkeypatch.delenv("QWEN3NB_KEPT_COPY")

    monkeypatch.setattr(child, "sweep", lambda *_, **__: time.sleep(60))
    original.parent.mkdir(parents=True)
    original.symlink_to(checkpoint)
    orders = Orders("runs/new/checkpoint-1", "", {}, 0.2, threads=1, niceness=0, book=False)
    outcome = child.evaluate(orders, log=checkout / "log.txt")
    assert outcome.reason == "stopped at its time limit of 0 s"
    assert outcome.page in {run.page for run in failed_runs()}
    assert (checkout / "book" / "runs" / f"{outcome.page}.ipynb").is_file()


def test_only_the_main_process_evaluates(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    evaluation = CheckpointEvaluation()
    arguments = SimpleNamespace(output_dir="runs/new", run_name="", project="")
    state = SimpleNamespace(is_world_process_zero=False, global_step=1)
    for event in ("train_begin", "save", "step_begin", "train_end"):
        getattr(evaluation, f"on_{event}")(arguments, state, None)
    assert not (checkout / "runs").exists()
    assert evaluation.summary == "No training has begun in this process."


def test_an_error_of_ours_does_not_end_the_training(checkout, monkeypatch, caplog):
    monkeypatch.chdir(checkout)
    (checkout / "runs").write_text("not a folder")
    evaluation = CheckpointEvaluation()
    arguments = SimpleNamespace(output_dir="runs/new", run_name="", project="")
    state = SimpleNamespace(is_world_process_zero=True, global_step=0)
    evaluation.on_train_begin(arguments, state, None)
    assert "evaluations during training: " in caplog.text


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"share": 5}, ValueError, "at most 1, such as 0.05; got 5"),
        ({"time_limit": 0}, ValueError, "more than 0 seconds"),
        ({"time_limit": float("inf")}, ValueError, "finite; got inf"),
        ({"threads": 0}, ValueError, "at least 1 of threads"),
        ({"study": "other"}, ValueError, "unset it, or leave study out"),
        ({"niceness": 20}, ValueError, "from 0 to 19"),
        ({"book_every": -1}, ValueError, "at least 0 seconds"),
        ({"checkpoint": "x"}, ValueError, "the training names it"),
        ({"teir": "smoke"}, ParameterError, "did you mean 'tier'"),
        ({"tier": "smok"}, ParameterError, "smoke"),
        ({"report_to": "paper"}, ValueError, "expected report_to 'trackio'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_training(
    checkout, monkeypatch, options, error, message
):
    monkeypatch.chdir(checkout)
    with pytest.raises(error, match=re.escape(message)):
        CheckpointEvaluation(**options)


def test_without_a_study_there_is_nothing_to_write_to(tmp_path, monkeypatch):
    monkeypatch.delenv("QWEN3NB_HOME")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoStudyError, match="qwen3nb new my-study"):
        CheckpointEvaluation()
    study = write_checkout(tmp_path / "elsewhere")
    assert CheckpointEvaluation(study=study)._study == study


def test_an_adapter_is_found_from_its_kept_files_with_its_base(adapters, home, monkeypatch):
    """Its base is named by a path relative to a folder above the adapter."""
    (adapter, *_) = sorted(adapters.glob("outputs/*/seed_42/checkpoints/final"))
    original = home / "runs" / "lora" / "checkpoint-5"
    copy = home / "runs" / "lora" / "_evaluation" / "lora" / "checkpoint-5"
    module.keep_files(adapter, copy)
    (home / "base").symlink_to(adapters / "base")
    configuration = json.loads((copy / "adapter_config.json").read_text())
    configuration["base_model_name_or_path"] = "base"
    (copy / "adapter_config.json").unlink()
    (copy / "adapter_config.json").write_text(json.dumps(configuration))
    monkeypatch.setenv("QWEN3NB_KEPT_COPY", json.dumps([str(original), str(copy)]))
    source = find_source("runs/lora/checkpoint-5")
    assert (source.spec, source.label) == ("runs/lora/checkpoint-5", "lora-checkpoint-5")
    assert source.base.folder.path.resolve() == (adapters / "base").resolve()


SCORES = (Score("SciFact", "nDCG@10", 0.5, record="ab12"),)
LOGGED = {"eval/SciFact/nDCG@10": 0.5, "eval/SciFact/nDCG@10/record": "ab12"}


def test_scores_are_logged_to_the_run_of_the_training_with_the_digests_of_records(monkeypatch):
    logged = []

    def run_named(name):
        return SimpleNamespace(log=lambda values, step: logged.append((name, values, step)))

    current = run_named("of the training")
    trackio = types.ModuleType("trackio")
    trackio.context_vars = SimpleNamespace(current_run=SimpleNamespace(get=lambda: current))
    trackio.init = lambda **options: run_named(options["project"] + "/" + options["name"])
    trackio.finish = lambda: logged.append("finished")
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    logger = logger_named("trackio")
    logger.begin(SimpleNamespace(project="ours", run_name="first", output_dir="runs/new"))
    logger.log(SCORES, step=10)
    current = None  # the trainer's own callback has finished its run
    logger.log(SCORES, step=20)
    logger.log((), step=30)
    assert logged == [
        ("of the training", LOGGED, 10),
        ("ours/first", LOGGED, 20),
        "finished",
    ]


def test_trackio_keeps_a_score_with_the_digest_of_its_record(monkeypatch, tmp_path):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio")
    logger = logger_named("trackio")
    logger.begin(SimpleNamespace(project="ours", run_name="first", output_dir="runs/new"))
    logger.log(SCORES, step=10)
    logs = trackio.sqlite_storage.SQLiteStorage.get_logs("ours", "first")
    (entry,) = [entry for entry in logs if "eval/SciFact/nDCG@10" in entry]
    assert LOGGED.items() <= entry.items()
    assert entry["step"] == 10


def test_a_logger_that_is_not_installed_is_named(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(ImportError, match="pip install trackio"):
        CheckpointEvaluation(report_to="trackio")
