"""The command line interface; every command calls one public function.

A command's module is imported when the command is used, and heavy libraries when it runs, which
keeps `--help` fast.
"""

import click

from qwen3nb.cli.program import Program

# By heading: the name of a command, its module and function in commands/, and a summary.
_FIRST = {
    "Make": {
        "new": ("study:new", "Begin a study of your own"),
        "demo": ("study:demo", "Try everything on toy models, in minutes"),
        "extract": ("models:extract", "Extract the encoder of a checkpoint, verified"),
    },
    "Measure": {
        "check": ("models:check", "Check that an encoder works, here or served"),
        "eval": ("notebooks:evaluate", "Evaluate a model, and publish its page"),
        "queries": ("queries:queries", "Generate queries from documents, and measure them"),
        "judge": ("judge:judge", "Grade documents until they decide between models"),
        "domain": ("domain:domain", "Evaluate on your own queries and documents"),
        "rerank": ("rerank:rerank", "Score pairs, search and rerank, evaluate adapters"),
        "sweep": ("notebooks:sweep", "Evaluate many models on many tiers; resumes"),
        "run": ("notebooks:run", "Run any notebook, and publish its page"),
    },
    "Compare": {
        "compare": ("records:compare", "Decide between models on your own data"),
        "migrate": ("migrate:migrate", "Rehearse the change from one model to another"),
        "analyze": ("records:analyze", "Measure interference of jointly trained adapters"),
        "choose": ("notebooks:choose", "Choose a checkpoint or a mixture, honestly"),
        "results": ("records:results", "List records, or export the score of every query"),
    },
    "Publish": {
        "book": ("study:book", "Build the book from the current results"),
        "card": ("publish:card", "Write a model card; upload the model to the hub"),
        "paper": ("publish:paper", "Write figures, tables and an article that compiles"),
        "freeze": ("publish:freeze", "Freeze the study as a release; show what changed"),
    },
}
# The same for commands that only `qwen3nb help all` lists.
_MORE = {
    "Make": {
        "average": ("models:average", "Average the checkpoints of a training"),
        "encode": ("encode:encode", "Encode a file of texts to vectors"),
        "cache": ("encode:cache", "Inspect, verify and prune the cached vectors"),
        "fetch": ("tasks:fetch", "Download data sets and models into a mirror"),
    },
    "Measure": {
        "tasks": ("tasks:list_tasks", "List tasks, and the minutes they take"),
        "reproduce": ("tasks:reproduce", "Compare our scores with published ones"),
        "contamination": ("tasks:contamination", "Look for the tests in training data"),
        "bench": ("bench:bench", "Measure speed, memory and errors of tests"),
    },
    "Compare": {
        "forgetting": ("forgetting:forgetting", "Map which queries a training lost and won"),
        "plan": ("records:plan", "Compute how many queries a difference needs"),
        "verify": ("records:verify", "Recompute the numbers of all records"),
    },
    "Publish": {
        "report": ("publish:report", "Evaluate, compare and describe one model in a folder"),
    },
}


@click.group(
    "qwen3nb",
    cls=Program,
    first=_FIRST,
    more=_MORE,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="qwen3nb")
def main() -> None:
    """Extract, evaluate and compare Qwen3 encoders; publish a book of traceable results.

    \b
    qwen3nb extract runs/ul2/checkpoint-9000 encoder
    qwen3nb eval --model encoder --tier smoke
    qwen3nb book
    """


if __name__ == "__main__":
    main()
