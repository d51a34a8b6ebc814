"""Options as the design documents write them, and with underscores, are accepted or explained."""

import click
import pytest
from helpers.command_tree import commands

from qwen3nb.cli.spellings import respelled


def parsed(line):
    name, dash, options = line.partition(" --")
    words = f"{dash}{options}".split()
    return commands()[tuple(name.split())].make_context(name, words).params


SAME = {
    "report --encoder_path e --qwen3_baseline_path p --output_dir d --run_sts --run_retrieval "
    "--retrieval_num_docs 10000": "report --model e --baselines p --out d --types STS,Retrieval "
    "--limit 10000",
    "report --model e --compare_baselines --baselines bm25 random": "report --model e "
    "--baselines bm25,random",
    "report --model e --baselines a b --qwen3_baseline_path c": "report --model e "
    "--baselines a,b,c",
    "report --qwen3_baseline_path c --baselines a b --model e": "report --model e "
    "--baselines a,b,c",
    "report --model e --run_mteb --mteb_tasks A B --batch_size 8": "report --model e "
    "--tasks A,B --batch-size 8",
    "eval --encoder_path=e --run_sts --output_dir=o": "eval --model e --types STS --out o",
    "eval --model e --max_length 9 --no-append_eos": "eval --model e --max-length 9 "
    "--no-append-eos",
    "check --encoder_path e --batch_size 8": "check --model e --batch-size 8",
    "card --model_name m --eval_results r --output o": "card --model m --results r --out o",
    "extract --checkpoint c --output_dir o --max_length 9": "extract --model c --out o "
    "--max-length 9",
    "average --checkpoint_dir c --output o --last_n 5": "average --training c --out o --last 5",
    "analyze --output_dir o": "analyze --outputs o",
    "rerank suite --model m --eval_tier fast --batch_size 64": "rerank suite --model m "
    "--tier fast --batch-size 64",
    "domain --queries q --documents d --model m --output_dir o": "domain --queries q "
    "--documents d --model m --out o",
    "encode --model m --input i --output o": "encode --model m --input i --out o",
}


@pytest.mark.parametrize("line", SAME)
def test_a_line_of_the_documents_means_ours(checkout, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q").write_text("")
    (tmp_path / "i").write_text("")
    assert parsed(line) == parsed(SAME[line])


def test_every_option_of_every_command_may_have_underscores(checkout):
    tried = 0
    for words, command in commands().items():
        context = click.Context(command)
        for parameter in command.get_params(context):
            known = {name for each in command.get_params(context) for name in each.opts}
            for option in (*parameter.opts, *parameter.secondary_opts):
                if not option.startswith("--") or "-" not in option[2:]:
                    continue
                written = "--" + option[2:].replace("-", "_")
                known |= set(parameter.secondary_opts)
                assert respelled(words[-1], [written, "x"], known) == [option, "x"], words
                assert respelled(words[-1], [f"{written}=a_b"], known) == [f"{option}=a_b"]
                tried += 1
    assert tried > 100


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("check --model e --run_sts", "qwen3nb eval --model M --types STS"),
        ("eval --model e --baselines a b", "qwen3nb report --model M --baselines A,B"),
        ("eval --model e --qwen3_baseline_path p", "qwen3nb report"),
        ("card m --run_retrieval", "--types Retrieval"),
    ],
)
def test_an_option_that_a_command_lacks_names_the_one_that_has_it(checkout, cli, line, words):
    done = cli(*line.split())
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_values_and_what_follows_two_dashes_stay_as_they_are():
    known = {"--model", "--out", "--label"}
    arguments = ["--label", "a_b", "my_model", "--", "--output_dir"]
    assert respelled("extract", arguments, known) == arguments
    assert respelled("x", ["--label=--encoder_path"], known) == ["--label=--encoder_path"]


def test_one_value_follows_an_option_of_a_command_with_arguments():
    known = {"--tasks", "--model"}
    arguments = ["--tasks", "A", "plan.toml"]
    assert respelled("sweep", arguments, known, has_arguments=True) == arguments
    assert respelled("eval", arguments, known) == ["--tasks", "A,plan.toml"]


# What a command was called in an earlier release, or in the design documents, and is called now.
MOVED = {
    "quick": "check",
    "parity": "check parity",
    "rerank-suite": "rerank suite",
    "rerank-outputs": "rerank outputs",
    "tables": "paper tables",
    "push": "card push",
    "diff": "freeze diff",
    "bench compare": "bench diff",
    "quick_eval": "check",
    "run_evaluation": "report",
    "generate_model_card": "card",
    "extract_encoder": "extract",
    "average_checkpoints": "average",
    "evaluate_reranking_suite": "rerank suite",
    "evaluate_embeddings": "rerank outputs",
    "analyze_results": "analyze",
}


@pytest.mark.parametrize("old", MOVED)
def test_a_command_is_found_by_its_old_name_and_says_what_to_write(checkout, cli, old):
    done = cli(*old.split(), "--help")
    assert done.exit_code == 0
    assert done.stdout == cli(*MOVED[old].split(), "--help").stdout
    assert done.stdout.startswith(f"Usage: qwen3nb {MOVED[old]} ")
    assert done.stderr == f"Write: qwen3nb {MOVED[old]} --help\n"


@pytest.mark.parametrize("line", ["rerank --model m --pairs p --out o", "rerank --help"])
def test_rerank_alone_scored_pairs(checkout, cli, tmp_path, line):
    done = cli(*line.split())
    if line == "rerank --help":
        assert (done.exit_code, done.stderr) == (0, "")
        assert "suite" in done.stdout
    else:
        first_line = done.stderr.splitlines()[0]
        assert first_line == "Write: qwen3nb rerank pairs --model m --pairs p --out o"


def test_old_names_keep_their_exit_codes(checkout, cli):
    unknown = cli("diff", "no-such-release")
    assert unknown.exit_code == cli("freeze", "diff", "no-such-release").exit_code == 2
    assert (
        cli("push", "nowhere", "a/b").exit_code
        == cli("card", "push", "nowhere", "a/b").exit_code
        == 1
    )


def test_another_spelling_of_an_option_says_what_to_write(checkout, cli):
    written = cli("verify", "--no-such").stderr
    assert "Write:" not in written
    done = cli("average", "--checkpoint_dir", "a b", "--output=o")
    assert done.stderr.splitlines()[0] == "Write: qwen3nb average --training 'a b' --out=o"


def test_words_below_a_command_are_completed(checkout, monkeypatch):
    from click.shell_completion import ShellComplete

    from qwen3nb.cli.main import main

    complete = ShellComplete(main, {}, "qwen3nb", "_QWEN3NB_COMPLETE")

    def completions(*words):
        return [item.value for item in complete.get_completions([*words[:-1]], words[-1])]

    assert completions("fr") == ["freeze"]
    assert completions("card", "p") == ["push"]
    assert completions("freeze", "d") == ["diff"]
    assert completions("paper", "") == ["tables"]
    assert completions("check", "pa") == ["parity"]
    assert completions("rerank", "") == ["pairs", "suite", "outputs"]
    assert completions("card", "push", "--dr") == ["--dry-run"]
    assert completions("push", "--dr") == ["--dry-run"]
