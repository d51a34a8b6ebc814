"""Rehearsals of a migration: planted relations between models, with and without grades."""

import json
from statistics import fmean

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import REPOSITORY
from helpers.migration import DOCUMENTS, OTHER_TABLE, RANDOM, ROTATION, TABLE, WordModel, model
from safetensors.numpy import load_file

from qwen3nb.answers.migration import long_duration_text, migration, size_text
from qwen3nb.cli.main import main
from qwen3nb.datasets.rows import DataError
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.models.load import to_model


@pytest.fixture
def files(tmp_path):
    """Documents, queries of two words of a document, and their grades."""
    documents = tmp_path / "docs.jsonl"
    documents.write_text(
        "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in DOCUMENTS.items())
    )
    rows = []
    for number, (name, text) in enumerate(list(DOCUMENTS.items())[:40]):
        query = " ".join(text.split()[:3])
        rows.append({"id": f"q{number}", "query": query, "relevance_grades": {name: 3}})
    graded = tmp_path / "graded.json"
    graded.write_text(json.dumps(rows))
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(row["query"] for row in rows))
    return {"documents": documents, "graded": graded, "plain": plain}


def rehearsed(files, old, new, *, queries="graded", **options):
    return migration(
        old, new, queries=files[queries], documents=files["documents"], draws=2, **options
    )


def test_a_planted_rotation_is_found_exactly_and_its_map_can_be_used(files, tmp_path):
    found = rehearsed(files, model(TABLE, "old"), model(TABLE @ ROTATION, "new"), queries="plain")
    assert all(set(overlaps.values()) == {1} for overlaps in found.rehearsal.overlaps.values())
    assert "rotation of each other: no re-encoding needed, apply this map" in str(found.conclusion)
    assert found.best_map.document_error < 1e-5
    assert found.best_map.query_error < 1e-5
    tensors = load_file(found.save_map(tmp_path / "map.safetensors"))
    np.testing.assert_allclose(tensors["matrix"], ROTATION, atol=1e-4)
    unseen = ["w1 w2", "w5 w7 w9"]
    mapped = WordModel(TABLE).encode(unseen) @ tensors["matrix"] + tensors["offset"]
    np.testing.assert_allclose(mapped, WordModel(TABLE @ ROTATION).encode(unseen), atol=1e-4)


def test_a_rotation_of_the_documents_alone_is_none(files):
    """A model may encode queries otherwise, as with a prompt."""

    class OtherQueries(WordModel):
        def vector(self, text):
            return WordModel(OTHER_TABLE if len(text.split()) == 3 else self.table).vector(text)

    new = to_model(OtherQueries(TABLE @ ROTATION), label="new")
    found = rehearsed(files, model(TABLE, "old"), new, queries="plain")
    assert found.best_map.document_error < 1e-5
    assert found.best_map.query_error > 0.1
    assert "rotation of each other" not in str(found.conclusion)


@pytest.mark.parametrize(
    ("new_table", "options", "sentence"),
    [
        (TABLE, {}, "Nothing to migrate: old and new give the same vectors."),
        (5 * TABLE, {}, "Nothing to migrate: old and new give the same vectors."),
        (TABLE, {"unit": False}, "give vectors that differ in length alone"),
        (TABLE[:, :5], {}, "the first 5 dimensions of old's, so cut the stored ones"),
        (np.hstack([TABLE, TABLE]), {}, "the first 12 dimensions of the new ones: one new index"),
    ],
)
def test_planted_relations_are_named(files, new_table, options, sentence):
    found = rehearsed(files, model(TABLE, "old"), model(new_table, "new", **options))
    assert sentence in str(found.conclusion)


def test_the_same_model_twice_has_nothing_to_migrate(files):
    old = model(TABLE, "old")
    found = rehearsed(files, old, old)
    assert str(found.conclusion) == "Nothing to migrate: old and old are the same model."
    assert found.scores_table() is None
    assert found.changes_table() is None


def test_two_models_of_one_label_are_refused(files):
    with pytest.raises(DataError, match="both models are called 'old'"):
        rehearsed(files, model(TABLE, "old"), model(OTHER_TABLE, "old"))


def test_a_better_model_is_recommended_with_the_houses_test(files):
    noisy = TABLE + 1.5 * OTHER_TABLE[::-1]
    found = rehearsed(
        files, model(noisy[:, :3], "old"), model(TABLE, "new"), complete=True, thresholds=[0.8]
    )
    assert str(found.conclusion).startswith("Migrate: new is better than old, nDCG@10 ")
    assert found.is_recommended
    assert found.decision.best.significant(0.05)
    back = rehearsed(files, model(TABLE, "old"), model(noisy[:, :3], "new"), complete=True)
    assert str(back.conclusion).startswith("Not yet: new is worse than old,")
    (threshold,) = found.rehearsal.thresholds
    assert threshold.left == threshold.came  # as many results as before
    assert "same precision" in " ".join(found.thresholds_table().columns)


def test_a_mixed_index_ends_where_one_model_is_alone(files):
    found = migration(
        model(TABLE, "old"),
        model(OTHER_TABLE, "new"),
        queries=files["graded"],
        documents=files["documents"],
        draws=2,
    )
    by_strategy = {(point.strategy.value, point.share): point for point in found.rehearsal.mixed}
    assert len(by_strategy) == 5 * 3
    old_mean = fmean(found.rehearsal.ndcg["old"].values())
    few = by_strategy["each part, merged by score", 0.1]
    assert few.mean == pytest.approx(old_mean, abs=0.15)
    assert few.draws[0] != few.draws[1]
    assert fmean(few.by_query.values()) == pytest.approx(few.mean)
    assert found.rehearsal.records[0].main.value == pytest.approx(old_mean)


def test_maps_of_unrelated_models_are_told_by_documents_they_have_not_seen(files):
    found = rehearsed(files, model(TABLE, "old"), model(OTHER_TABLE, "new"))
    for search in found.rehearsal.maps:
        assert search.document_error > 0.5
        assert fmean(search.overlap.values()) < 0.9
    assert "A linear map would keep" in str(found.conclusion)
    counts = [point.documents for point in found.rehearsal.curve if point.kind == "ridge"]
    assert counts == sorted(counts)


def test_fewer_documents_than_dimensions_have_no_map_that_can_be_trusted(files, tmp_path):
    wide = RANDOM.normal(size=(60, 300))
    found = rehearsed(files, model(wide, "old"), model(wide[:, ::-1], "new"), queries="plain")
    assert "A linear map cannot be trusted: 120 documents for 300 dimensions" in str(
        found.conclusion
    )
    file = tmp_path / "map.safetensors"
    with pytest.raises(ValueError, match="fit by chance"):
        found.save_map(file)
    assert not file.exists()


def test_without_grades_all_is_measured_but_the_verdict(files):
    found = rehearsed(files, model(TABLE, "old"), model(OTHER_TABLE, "new"), queries="plain")
    assert str(found.conclusion).startswith("Not yet: without grades (`qwen3nb judge`)")
    assert found.scores_table() is None
    assert "overlap@10" in str(found.mixed_conclusion)
    frame = found.to_frame()
    assert list(frame.columns) == [
        "text",
        "overlap@1",
        "overlap@10",
        "overlap@100",
        "rank-biased overlap",
    ]
    assert len(frame) == 40


def test_bm25_has_rankings_alone(files):
    found = rehearsed(files, "bm25", model(TABLE, "new"))
    assert 0 < fmean(found.rehearsal.overlaps[10].values()) < 1
    assert found.rehearsal.mixed == found.rehearsal.maps == ()
    assert found.figure() is found.map_table() is found.curve_table() is None
    assert "bm25 has no vectors" in str(found.map_conclusion)
    with pytest.raises(DataError, match="bm25 has none: leave out --threshold"):
        rehearsed(files, "bm25", model(TABLE, "new"), thresholds=[0.5])


def test_generated_queries_are_named_and_give_no_verdict(files):
    rows = json.loads(files["graded"].read_text())
    for row in rows:
        row["generated"] = "title"
    files["graded"].write_text(json.dumps(rows))
    noisy = TABLE + 1.5 * OTHER_TABLE[::-1]
    found = rehearsed(files, model(noisy[:, :3], "old"), model(TABLE, "new"), complete=True)
    assert str(found.conclusion).startswith("Not yet: 40 of 40 queries are generated")
    assert not found.is_recommended
    assert "40 of 40 queries are generated" in found.table().note


def test_foreign_texts_are_escaped(files):
    lines = files["documents"].read_text().splitlines()
    lines.append(json.dumps({"id": "<img src=x>", "text": "w1 w2 <script>alert(1)</script>"}))
    files["documents"].write_text("\n".join(lines))
    found = rehearsed(files, model(TABLE, "old"), model(OTHER_TABLE, "new"), queries="plain")
    html = found.changes_table().to_html()
    assert "<script" not in html
    assert "<img" not in html


def test_the_command_prints_every_part(files, tmp_path):
    words = ["migrate", "bm25", "random", "--queries", str(files["plain"])]
    words += ["--documents", str(files["documents"]), "--no-page"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "Not yet: without grades" in result.output
    refused = CliRunner().invoke(main, [*words, "--map", str(tmp_path / "map.npy")])
    assert refused.exit_code == 1
    assert "expected the name of a .safetensors file" in refused.output


def test_what_is_missing_or_no_cosine_is_refused(files, tmp_path):
    models = (model(TABLE, "old"), model(OTHER_TABLE, "new"))
    with pytest.raises(ValueError, match="missing: new, queries"):
        migration("bm25", "", queries="", documents=files["documents"])
    for threshold in (float("nan"), 62):
        with pytest.raises(DataError, match="expected a cosine from -1 to 1"):
            rehearsed(files, *models, thresholds=[threshold])
    with pytest.raises(DataError, match="nowhere"):
        migration(*models, queries=tmp_path / "nowhere.txt", documents=files["documents"])


def test_durations_and_sizes_are_said_in_two_digits():
    durations = [0.2, 45, 130, 11_160, 432_000]
    assert [long_duration_text(seconds) for seconds in durations] == [
        "less than a second",
        "45 seconds",
        "2.2 minutes",
        "3.1 hours",
        "5.0 days",
    ]
    assert [size_text(size) for size in (None, 999, 1500, 3_072_000_000, 10**16)] == [
        "–",
        "999 bytes",
        "1.5 kB",
        "3.1 GB",
        "10,000 TB",
    ]


def test_the_command_knows_the_parameters_of_its_notebook():
    declared = read_parameters(REPOSITORY / "notebooks" / "migration.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        given = {}
        patch.setattr("qwen3nb.cli.commands.migrate.paths.find_root", lambda: REPOSITORY)
        patch.setattr(
            "qwen3nb.cli.commands.migrate.run_and_print",
            lambda notebook, values, **options: given.update(values, **options),
        )
        words = ["migrate", "old", "runs/a b", "--queries", "q.txt", "--documents", "d.jsonl"]
        result = CliRunner().invoke(main, [*words, "--threshold", "0.62", "--threshold", "0.5"])
    assert result.exit_code == 0, result.output
    assert given.pop("name") == "migration-old-to-runs-a-b-on-d"
    assert given.pop("fresh") is False
    assert given["thresholds"] == "0.62,0.5"
    assert set(given) <= set(declared)
