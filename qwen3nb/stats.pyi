from qwen3nb.analysis.comparison.differences import significant as significant
from qwen3nb.analysis.stats.interference_ratio import Gate as Gate
from qwen3nb.analysis.stats.multiple_testing import benjamini_hochberg as benjamini_hochberg
from qwen3nb.analysis.stats.multiple_testing import holm as holm
from qwen3nb.analysis.stats.paired_tests import effect_size as effect_size
from qwen3nb.analysis.stats.paired_tests import equivalence as equivalence
from qwen3nb.analysis.stats.paired_tests import mean_difference as mean_difference
from qwen3nb.analysis.stats.paired_tests import (
    minimum_detectable_effect as minimum_detectable_effect,
)
from qwen3nb.analysis.stats.paired_tests import permutation_test as permutation_test
from qwen3nb.analysis.stats.paired_tests import power as power
from qwen3nb.analysis.stats.paired_tests import t_test as t_test
from qwen3nb.answers.calibration import calibration as calibration
from qwen3nb.evaluation.embeddings.probes import analogies as analogies
from qwen3nb.evaluation.embeddings.probes import clusters as clusters
from qwen3nb.evaluation.embeddings.probes import linear_probe as linear_probe
from qwen3nb.evaluation.embeddings.probes import word_similarity as word_similarity
from qwen3nb.metrics.intervals import difference_interval as difference_interval
from qwen3nb.metrics.intervals import student_interval as student_interval
from qwen3nb.metrics.retrieval import score_rankings as score_rankings
from qwen3nb.models.search.faiss_index import build_index as build_index
from qwen3nb.models.search.faiss_index import measure_speed as measure_speed
from qwen3nb.models.search.faiss_index import recall_at_k as recall_at_k
