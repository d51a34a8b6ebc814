from qwen3nb.demo import steps, ul2_denoising
from qwen3nb.utils.atomic_files import read_json


def test_every_training_has_a_key_of_settings_data_and_code(tmp_path, monkeypatch):
    keys = {}
    monkeypatch.setattr(steps, "_once", lambda folder, key, make: keys.setdefault(folder.name, key))
    monkeypatch.setattr(
        "qwen3nb.evaluation.studies.lora_runs.evaluate_trained", lambda *args, **kwargs: None
    )
    steps._train(tmp_path)
    steps.make_adapters(tmp_path)
    assert set(keys) == {"train", "decoder", "base", "outputs"}
    assert keys["train"] == keys["decoder"]
    assert len(set(keys.values())) == 3
    assert len({steps._key({}), steps._key({"a": 1}), steps._key({}, ul2_denoising)}) == 3


def test_a_training_is_repeated_only_when_its_key_changes(tmp_path, capsys):
    calls = []
    for key in ("a", "a", "b"):
        steps._once(tmp_path / "model", key, lambda folder: calls.append(folder))
    assert len(calls) == 2
    assert "reused" in capsys.readouterr().err
    assert read_json(tmp_path / "model" / "done.json") == {"key": "b"}
