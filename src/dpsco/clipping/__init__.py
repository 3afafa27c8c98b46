"""Oracles: rows in, one clipped sum out."""

from dpsco.clipping.choose_oracle import linear_oracle, survey_oracle
from dpsco.clipping.compiled import CompiledOracle
from dpsco.clipping.compiled_survey import CompiledSurveyOracle
from dpsco.clipping.linear import LinearOracle
from dpsco.clipping.mapped import MappedOracle
from dpsco.clipping.oracle import Oracle
from dpsco.clipping.per_example import PerExample
from dpsco.clipping.row_map import RowMap
from dpsco.clipping.survey import SurveyOracle

__all__ = [
    "CompiledOracle",
    "CompiledSurveyOracle",
    "LinearOracle",
    "MappedOracle",
    "Oracle",
    "PerExample",
    "RowMap",
    "SurveyOracle",
    "linear_oracle",
    "survey_oracle",
]
