from qwen3nb.report.studies.ablation import ablation_table as ablation_table
from qwen3nb.report.studies.ablation import effects_table as effects_table
from qwen3nb.report.studies.ann import ann_table as ann_table
from qwen3nb.report.studies.ann import compression_table as compression_table
from qwen3nb.report.studies.calibration import calibration_table as calibration_table
from qwen3nb.report.studies.calibration import family_table as family_table
from qwen3nb.report.studies.datasets import pydocs_table as pydocs_table
from qwen3nb.report.studies.datasets import tier_table as tier_table
from qwen3nb.report.studies.extraction import checkpoints_table as checkpoints_table
from qwen3nb.report.studies.extraction import extraction_table as extraction_table
from qwen3nb.report.studies.interference import (
    configuration_differences_table as configuration_differences_table,
)
from qwen3nb.report.studies.interference import configurations_table as configurations_table
from qwen3nb.report.studies.interference import interference_table as interference_table
from qwen3nb.report.studies.interference import refusals_table as refusals_table
from qwen3nb.report.studies.parity import parity_table as parity_table
from qwen3nb.report.studies.probes import probes_table as probes_table
from qwen3nb.report.studies.reranking import cases_table as cases_table
from qwen3nb.report.studies.reranking import rerank_table as rerank_table
from qwen3nb.report.studies.speed import precision_table as precision_table
from qwen3nb.report.studies.speed import speed_table as speed_table
from qwen3nb.report.studies.trainings import gains_table as gains_table
