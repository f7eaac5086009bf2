"""The base of every level of the settings tree."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Group(BaseModel):
    """A frozen level that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_empty(cls, data: Any) -> Any:
        """Accept `retry:` with every key below it commented out."""
        return {} if data is None else data
