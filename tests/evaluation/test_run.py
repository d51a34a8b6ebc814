"""The loop over items, what it returns, and when a record is reused."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from helpers.records import make

from qwen3nb.evaluation.run import (
    EvaluationError,
    EvaluationRun,
    Run,
    UnsupportedError,
    Work,
    assemble,
    evaluate_each,
    stored,
)
from qwen3nb.models.counters import Stats
from qwen3nb.records.record import Environment, Result, TaskInfo
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_failures, load_results

MODEL = make("one").model


@dataclass(frozen=True)
class Item:
    """An item that makes a record, or raises an error."""

    key: str
    error: BaseException | None = None
    measures: tuple[str, ...] = ("nDCG@10",)
    revision: str = "r"

    @property
    def name(self):
        return self.key

    def same(self, record, folder):
        return record.task.revision == self.revision

    def evaluate(self, model, run, earlier):
        if self.error is not None:
            raise self.error
        versions = Environment.current().versions
        each = make("one", task=self.key, scores=(0.5, 0.7), revision=self.revision, run=run.id)
        metrics = dict.fromkeys(self.measures, each.metrics["nDCG@10"])
        scores = dict.fromkeys(self.measures, each.per_query["nDCG@10"])
        environment = Environment(versions=versions)
        return replace(each, metrics=metrics, per_query=scores, environment=environment)


def run(*items, **options):
    def find(item):
        if isinstance(item, str):
            raise UnsupportedError("one has no vectors")
        return [(MODEL, item)]

    jobs = [(getattr(item, "key", item), lambda item=item: find(item)) for item in items]
    options = Run(show_progress=False, **options)
    return evaluate_each(jobs, options, label="one", kind="tasks")


FAILING = Item("V", EvaluationError("no such data"))


def test_records_skips_and_failures_are_kept_and_the_others_go_on(home):
    run(Item("T"))
    done = run(FAILING, "U", Item("T"), strict=False)
    assert isinstance(done.results, Results)
    assert ([result.task.name for result in done], len(done)) == (["T"], 1)
    assert (done.reused, done.skipped) == (("T",), {"U": "one has no vectors"})
    assert done.failures["V"].startswith("Traceback")
    assert done.failures["V"].endswith("EvaluationError: no such data\n")
    text = repr(done)
    assert text.startswith("<EvaluationRun: 1 record, 1 reused, 1 skipped, 1 failed>")
    for line in ("one on T: nDCG@10 0.600", "U: skipped, one has", "V: EvaluationError: no such"):
        assert line in text
    assert repr(EvaluationRun()) == "<EvaluationRun: 0 records>"
    assert list(load_failures().values()) == [done.failures["V"].strip().splitlines()[-1]]
    run(Item("V"))
    assert load_failures() == {}  # forgotten once it works


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (0, "one: 1 of 1 tasks failed; nothing is saved"),
        (1, "1 of 2 tasks failed; the other is saved in "),
        (2, "1 of 3 tasks failed; the other 2 are saved in "),
    ],
)
def test_failures_are_raised_at_the_end_and_say_what_is_saved(home, saved, words):
    with pytest.raises(EvaluationError) as error:
        run(FAILING, *(Item(f"T{number}") for number in range(saved)))
    assert words in str(error.value)
    assert str(error.value).endswith("\n  V: EvaluationError: no such data")  # without its module
    assert len(error.value.run) == len(load_results()) == saved


def test_an_interrupt_is_no_failure(home):
    with pytest.raises(KeyboardInterrupt):
        run(Item("T", KeyboardInterrupt()))


def test_an_item_is_evaluated_again_if_data_or_measures_are_others(home, caplog):
    first = run(Item("T"), config={"a": 1}).results[0]
    assert run(Item("T")).results[0] == first
    more = Item("T", measures=("nDCG@10", "Hit@5"))
    again = run(more)
    assert (again.reused, set(again.results[0].metrics)) == ((), {"nDCG@10", "Hit@5"})
    assert "recorded without Hit@5" in caplog.text
    assert run(more).reused == run(Item("T")).reused == ("T",)  # fewer are wanted: it has them
    assert run(Item("T", revision="s")).reused == ()
    assert run(Item("T", revision="s"), fresh=True).reused == ()
    assert run(Item("T", revision="s"), seed=1).reused == ()


@pytest.mark.parametrize(
    ("identity", "versions", "item", "reused"),
    [
        (MODEL.identity, {}, Item("T"), True),
        ("0" * 64, {}, Item("T"), False),
        (MODEL.identity, {}, Item("T", measures=("nDCG@10", "Hit@5")), False),
        (MODEL.identity, {}, Item("T", revision="s"), False),
        (MODEL.identity, {"torch": "1.0.0"}, Item("T"), False),
        (MODEL.identity, {"another": "1.0.0"}, Item("T"), False),
    ],
)
def test_a_record_is_reused_only_if_all_is_as_wanted(home, identity, versions, item, reused):
    installed = Environment.current().versions | versions
    result = make("one", task="T", revision="r", environment=Environment(versions=installed))
    file = result.save()
    model = SimpleNamespace(label="one", identity=identity)
    if identity != MODEL.identity:  # whose records have the same folder
        model.identity = identity = MODEL.identity[:8] + identity[8:]
    assert (stored(model, item, Run()) == result) is reused
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
    assert stored(model, item, Run()) is None


@pytest.mark.parametrize(
    ("parameters", "device", "precision", "linear"),
    [
        (10, "cpu", "float32", "mkl"),
        (10, "cpu", "bfloat16", ""),
        (10, "cuda:0", "float32", "H100, without TF32"),
        (10, "cuda", "bfloat16", "H100, without TF32"),
        (None, "cuda", "float32", ""),
        (None, "cpu", "float32", ""),
    ],
)
def test_a_record_names_the_library_that_multiplied(
    tmp_path, monkeypatch, parameters, device, precision, linear
):
    monkeypatch.setenv("QWEN3NB_LINEAR", "mkl")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "H100")
    own = {
        "label": "a",
        "identity": "f" * 64,
        "stats": Stats(),
        "source": SimpleNamespace(spec="a"),
    }
    settings = {"dtype": precision}
    model = SimpleNamespace(**own, parameters=parameters, device=device, settings=settings)
    work, task = Work(model), TaskInfo("x", "Retrieval", "m")
    result = assemble(work, task, {"m": {"q1": 1.0, "q2": 0.0}}, Run(), config={})
    assert Result.load(result.save(tmp_path)).environment.linear == linear
