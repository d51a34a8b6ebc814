"""What to write instead of an attribute that an object does not have."""

from collections.abc import Mapping


def missing_attribute(value: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that ``value`` lacks, with what to write, if that is known.

    What a pandas data frame can do is done with ``to_frame()``.

    >>> missing_attribute("text", "size", {"size": "len(text)"})
    AttributeError("'str' object has no attribute 'size'; write len(text)")

    Args:
        value: the object.
        name: what was looked for.
        instead: what to write, by name.
    """
    # A property of this name failed for want of another attribute, which its own error names.
    if hasattr(type(value), name):
        try:
            object.__getattribute__(value, name)
        except AttributeError as error:
            return error
    message = f"{type(value).__name__!r} object has no attribute {name!r}"
    if name in instead:
        message += f"; write {instead[name]}"
    # Names with underscores are what notebooks and copies look for, as in ``_repr_svg_``.
    elif not name.startswith("_") and _is_of_data_frames(name):
        message += f"; write .to_frame().{name}"
    return AttributeError(message)


def _is_of_data_frames(name: str) -> bool:
    import pandas as pd

    return hasattr(pd.DataFrame, name)
