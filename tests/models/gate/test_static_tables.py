"""A static model that is not what it says it is, is refused by name."""

import json

import numpy as np
import pytest
from helpers.malformed_files import CUT
from helpers.static_models import WORDS, write_model2vec, write_static_sentence_model
from safetensors.numpy import load_file, save_file
