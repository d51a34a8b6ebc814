from qwen3nb.report.studies.ablation import effects_figure as effects_figure
from qwen3nb.report.studies.ann import ann_figure as ann_figure
from qwen3nb.report.studies.interference import interference_figure as interference_figure
from qwen3nb.report.studies.reranking import gain_figure as gain_figure
from qwen3nb.report.studies.speed import speed_figure as speed_figure
from qwen3nb.report.studies.trainings import conflict_figure as conflict_figure
from qwen3nb.report.studies.trainings import loss_figure as loss_figure
