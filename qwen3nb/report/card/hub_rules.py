"""What the hub accepts in a card's front matter, checked without the hub.

The hub checks a card when it is uploaded; these are the rules that need no network. See
https://huggingface.co/docs/hub/model-cards and https://huggingface.co/docs/hub/repositories-licenses.
"""

from __future__ import annotations

import difflib
import re

__all__ = ["HUB_ID", "LICENSES", "license_problem", "not_a_language"]

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
LICENSES = frozenset(
    """
apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear
c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0
cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl
ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl
lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0
odc-by odbl openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr
deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3
llama4 grok2-community gemma unknown other
""".split()  # noqa: SIM905 - a list of words reads better as lines
)
# ISO 639-1 or 639-3, perhaps with a script or region, or one of the hub's own words.
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|multilingual|code")


def license_problem(name: str) -> str:
    """Return why the hub would refuse a licence identifier; empty if it would not.

    >>> license_problem("Apache 2.0")
    "license is 'Apache 2.0', which the hub does not know; did you mean apache-2.0? Any other \
licence is 'other', with its license_name and license_link"
    """
    if name in LICENSES:
        return ""
    near = difflib.get_close_matches(name.lower().replace(" ", "-"), sorted(LICENSES), n=3)
    return (
        f"license is {name!r}, which the hub does not know"
        + (f"; did you mean {' or '.join(near)}?" if near else ".")
        + " Any other licence is 'other', with its license_name and license_link"
    )


def not_a_language(code: str) -> bool:
    """Return whether ``code`` is no language code.

    >>> not_a_language("en"), not_a_language("English")
    (False, True)
    """
    return not _LANGUAGE.fullmatch(code)
