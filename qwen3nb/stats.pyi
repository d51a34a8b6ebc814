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
from qwen3nb.analysis.stats.paired_tests import queries_to_show as queries_to_show
from qwen3nb.analysis.stats.paired_tests import t_test as t_test
from qwen3nb.analysis.stats.paired_tests import (
    unseen_outlier_could_turn as unseen_outlier_could_turn,
)
from qwen3nb.analysis.stats.resampling import percentile_interval as percentile_interval
from qwen3nb.metrics.intervals import difference_interval as difference_interval
from qwen3nb.metrics.intervals import student_interval as student_interval
