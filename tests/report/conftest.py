"""The studies of ``tests/tracking/conftest.py``: both floors read the same event logs."""

import importlib.util
import sys
from pathlib import Path

_NAME = "golfray_test_study_log"
_SPEC = importlib.util.spec_from_file_location(_NAME, Path(__file__).parents[1] / "tracking" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules[_NAME] = _MODULE
_SPEC.loader.exec_module(_MODULE)

study_log_class = _MODULE.study_log_class
ran_to_end_function = _MODULE.ran_to_end_function
ended_early_function = _MODULE.ended_early_function
mixed_study_function = _MODULE.mixed_study_function
