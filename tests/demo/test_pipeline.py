import pytest

from qwen3nb.datasets.pydocs import training_pairs
from qwen3nb.datasets.pydocs.training_pairs import TrainingPairs
from qwen3nb.demo import pipeline
from qwen3nb.evaluation.studies import lora_runs
from qwen3nb.utils.atomic_files import read_json


def keys_of(folder, versions):
    """The key of every training, without training anything."""
    keys, pairs = {}, TrainingPairs((), {}, versions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_once", lambda folder, key, make: keys.update({folder.name: key}))
        patch.setattr(f"{training_pairs.__name__}.load_training_pairs", lambda: pairs)
        patch.setattr(f"{lora_runs.__name__}.evaluate_trained", lambda *args, **kwargs: None)
        pipeline._train_encoders(folder)
        pipeline.make_language_models(folder)
    return keys


@pytest.mark.integration
def test_every_training_has_a_key_and_only_the_contrastive_phase_depends_on_the_pairs(tmp_path):
    keys, again = (keys_of(tmp_path, {"torch": version}) for version in "12")
    assert set(keys) == {"train", "contrastive", "decoder", "base", "outputs"}
    assert len(set(keys.values())) == 5
    assert [name for name in keys if keys[name] != again[name]] == ["contrastive"]


def test_a_training_is_repeated_only_when_its_key_changes(tmp_path, capsys):
    calls = []
    for key in ("a", "a", "b"):
        pipeline._once(tmp_path / "model", key, lambda folder: calls.append(folder))
    assert len(calls) == 2
    assert "reused" in capsys.readouterr().err
    assert read_json(tmp_path / "model" / "done.json") == {"key": "b"}
