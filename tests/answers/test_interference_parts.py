"""Joint adapters with exchanged layers: which are evaluated, what is kept, and what is said."""

import json
import shutil
import warnings

import pytest
import torch
from helpers.adapters import quiet_peft
from helpers.rerankers import write_reranker

import qwen3nb as q
from qwen3nb.answers.interference_parts import interference_by
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.studies.exchanges import find_pairs
from qwen3nb.models.types import SpecError

TEXTS = {f"d{place}": f"Sort the rows by date {place} and drop {place % 5}" for place in range(12)}
QUERIES = {f"q{place}": f"rows {place} of date {place % 5}" for place in range(10)}
QRELS = {query: {f"d{place}": 1} for place, query in enumerate(QUERIES)}
SMALL = TestCollection("small", TEXTS, QUERIES, QRELS)
OPTIONS = {"data": [SMALL], "show_progress": False}


def write_adapter(home, configuration, seed, *, random_seed, rank=2, modules=("q_proj", "up_proj")):
    """An adapter as a training leaves it, with random factors."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = home / "outputs" / configuration / f"seed_{seed}"
    config = LoraConfig(r=rank, lora_alpha=8, target_modules=list(modules))
    with quiet_peft(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(home / "base"), config)
        generator = torch.Generator().manual_seed(random_seed)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.data = torch.randn(parameter.shape, generator=generator) * 0.5
        adapted.save_pretrained(folder / "checkpoints" / "final")
    file = folder / "checkpoints" / "final" / "adapter_config.json"
    stored = json.loads(file.read_text())
    file.write_text(json.dumps({**stored, "base_model_name_or_path": "base"}))
    (folder / "config.yaml").write_text(f"lora: {{rank: {rank}}}\n")
    return folder / "checkpoints" / "final"


@pytest.fixture
def outputs(home):
    write_reranker(home / "base")
    write_adapter(home, "joint_r2", 42, random_seed=1)
    write_adapter(home, "emb_only_r2", 42, random_seed=2, rank=3, modules=["up_proj", "o_proj"])
    return home / "outputs"


def no_work(monkeypatch):
    """Let every further encoding fail."""
    monkeypatch.setattr(
        "qwen3nb.models.encoders.base.Encoder.encode",
        lambda *_, **__: pytest.fail("encoded again"),
    )


def test_each_layer_has_a_cost_and_what_was_measured_is_measured_once(outputs, monkeypatch, home):
    answer = interference_by("layer", outputs, kind="embedding", **OPTIONS)
    ((name, costs),) = answer.configurations
    assert (name, [part.part for part in costs.parts]) == ("joint_r2", ["0", "1"])
    total = sum(part.cost for part in costs.parts)
    assert total == pytest.approx(costs.specialist - costs.joint)  # of two layers, exactly
    frame = answer.to_frame()
    assert list(frame["cost"]) == [part.cost for part in costs.parts]
    assert "rank is 2 of joint_r2, 3 of emb_only_r2" in answer.notes[0]
    records = list((home / "results" / "exchanges").glob("*/seed_42/small.json"))
    # Of two layers, the joint adapter with one of them is the specialist with the other.
    assert len(records) >= 4
    no_work(monkeypatch)
    again = q.load_results().interference_by("layer", outputs, kind="embedding", **OPTIONS)
    assert again.conclusion.text == answer.conclusion.text


def test_a_study_that_was_stopped_keeps_what_it_measured(outputs, monkeypatch, home):
    from qwen3nb.evaluation.studies import exchanges

    evaluate, evaluated = exchanges.evaluate, []

    def stopped_at_the_fourth(model, *arguments, **options):
        if len(evaluated) == 3:
            raise KeyboardInterrupt
        evaluated.append(model.label)
        return evaluate(model, *arguments, **options)

    monkeypatch.setattr(exchanges, "evaluate", stopped_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        interference_by("layer", outputs, kind="embedding", **OPTIONS)
    first_records = set((home / "results" / "exchanges").glob("*/seed_42/small.json"))
    assert len(first_records) == 3
    times = {file: file.stat().st_mtime_ns for file in first_records}
    monkeypatch.setattr(exchanges, "evaluate", evaluate)
    interference_by("layer", outputs, kind="embedding", **OPTIONS)
    assert {file: file.stat().st_mtime_ns for file in first_records} == times


def test_reranking_is_scored_with_the_ranking_specialist(outputs, home):
    write_adapter(home, "rank_only_r2", 42, random_seed=3)
    answer = interference_by("kind", outputs, kind="reranking", depth=3, **OPTIONS)
    ((_, costs),) = answer.configurations
    assert costs.task == "reranking"
    assert [part.part for part in costs.parts] == ["up_proj", "q_proj"]
    assert "kind of module" in answer.conclusion.text


def test_two_adapters_that_are_named_are_compared_wherever_they_are(outputs, home):
    joint = shutil.copytree(outputs / "joint_r2/seed_42/checkpoints/final", home / "a")
    specialist = shutil.copytree(outputs / "emb_only_r2/seed_42/checkpoints/final", home / "b")
    answer = interference_by("layer", joint, specialist=specialist, **OPTIONS)
    assert answer.configurations[0][0] == "a"
    same = interference_by("layer", joint, specialist=joint, **OPTIONS)
    assert "there is no cost" in same.conclusion.text
    assert same.figure() is None
    with pytest.raises(SpecError, match="expected one joint adapter to compare"):
        interference_by("layer", [], specialist=specialist, **OPTIONS)


def test_pairs_are_of_one_seed_and_what_lacks_a_pair_is_said(outputs, home):
    write_adapter(home, "joint_r2", 7, random_seed=4)
    write_adapter(home, "emb_only_r3", 42, random_seed=5, rank=3)
    pairs, notes = find_pairs([outputs], kind="embedding")
    assert [pair.seed for pair in pairs] == []
    assert any("2 emb_only runs, none preferred, of seed 42" in note for note in notes)
    assert any("no emb_only run of seed 7" in note for note in notes)
    write_adapter(home, "emb_only_r4", 42, random_seed=5, rank=2)
    pairs, _ = find_pairs([outputs], kind="embedding")
    assert [pair.specialist.parts[-4] for pair in pairs] == ["emb_only_r4"]


def test_without_a_joint_adapter_there_is_a_sentence_and_for_a_stated_folder_an_error(home):
    answer = interference_by("layer", kind="embedding", **OPTIONS)
    assert "No joint adapter has a specialist" in answer.conclusion.text
    assert "no joint adapter among 0" in answer.refusals().to_markdown()
    write_reranker(home / "base")
    write_adapter(home, "emb_only_r2", 42, random_seed=2)
    with pytest.raises(SpecError, match="no joint adapter among 1"):
        interference_by("layer", home / "outputs", kind="embedding", **OPTIONS)


def test_an_unknown_part_is_refused_before_anything_is_measured(outputs, monkeypatch):
    no_work(monkeypatch)
    with pytest.raises(ValueError, match="unknown part 'layers'"):
        interference_by("layers", outputs, kind="embedding", **OPTIONS)
