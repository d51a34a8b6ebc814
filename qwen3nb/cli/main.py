"""The command line interface; every command calls one public function.

A command's module is imported when the command is used, and heavy libraries when it runs, which
keeps `--help` fast.
"""

import click

from qwen3nb.cli.program import Program

# By heading: the name of a command, its module and function in commands/, and a summary.
_CONTENTS = {
    "Make": {
        "new": ("study:new", "Begin a study of your own"),
        "demo": ("study:demo", "Train, extract and evaluate toy models; build the book"),
        "average": ("models:average", "Average the checkpoints of a training"),
        "extract": ("models:extract", "Extract the encoder of a checkpoint, verified"),
        "encode": ("encode:encode", "Encode a file of texts to vectors"),
        "cache": ("encode:cache", "Inspect, verify and prune the cached vectors"),
        "fetch": ("tasks:fetch", "Download data sets and models into a mirror"),
    },
    "Measure": {
        "quick": ("models:quick", "Check within a minute whether an encoder works"),
        "parity": ("models:parity", "Check that a served model is the one measured"),
        "eval": ("notebooks:evaluate", "Evaluate a model, and publish its page"),
        "run": ("notebooks:run", "Run any notebook, and publish its page"),
        "sweep": ("notebooks:sweep", "Evaluate many models on many tiers; resumes"),
        "domain": ("domain:domain", "Evaluate on your own queries and documents"),
        "rerank": ("rerank:rerank", "Score pairs of query and document"),
        "rerank-suite": ("rerank:rerank_suite", "Search and rerank data sets or a tier"),
        "rerank-outputs": ("rerank:rerank_outputs", "Evaluate all adapters of a training"),
        "reproduce": ("tasks:reproduce", "Compare our scores with published ones"),
        "tasks": ("tasks:list_tasks", "List tasks, and the minutes they take"),
        "contamination": ("tasks:contamination", "Look for the tests in training data"),
        "bench": ("bench:bench", "Measure speed, memory and errors of tests"),
    },
    "Compare": {
        "plan": ("records:plan", "Compute how many queries a difference needs"),
        "compare": ("records:compare", "Decide between models on your own data"),
        "analyze": ("records:analyze", "Measure interference of jointly trained adapters"),
        "diff": ("records:diff", "Show what changed since a release, with intervals"),
        "results": ("records:results", "List records, or export the score of every query"),
        "verify": ("records:verify", "Recompute the numbers of all records"),
    },
    "Publish": {
        "book": ("study:book", "Build the book from the current results"),
        "report": ("publish:report", "Evaluate, compare and describe one model in a folder"),
        "freeze": ("publish:freeze", "Freeze the study as a release"),
        "card": ("publish:card", "Write a model card from training and results"),
        "paper": ("publish:paper", "Write figures, tables and an article that compiles"),
        "tables": ("publish:tables", "Write the paper's tables in another format"),
        "push": ("models:push", "Upload an export to the hub, without secrets"),
    },
}


@click.group(
    "qwen3nb",
    cls=Program,
    contents=_CONTENTS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="qwen3nb")
def main() -> None:
    """Extract, evaluate and compare Qwen3 encoders; publish a book of traceable results.

    \b
    qwen3nb demo                                   everything on toy models, in minutes
    qwen3nb extract runs/ul2/checkpoint-9000 encoder
    qwen3nb eval --model encoder --tier smoke
    qwen3nb book

    Exit codes: 0, success; 1, an error, or a part that failed; 2, an invalid command line; 3 and
    above, verdicts listed in the command's help; 130, stopped by Ctrl-C.
    """


if __name__ == "__main__":
    main()
