"""Every reference can be looked up."""

import re

from helpers import REPOSITORY

BOOK = REPOSITORY / "book"


def entries():
    text = (BOOK / "references.bib").read_text(encoding="utf-8")
    bodies = re.findall(r"^@\w+\{([^,]+),\n(.*?)^\}", text, flags=re.DOTALL | re.MULTILINE)
    return {key: dict(re.findall(r"^ *(\w+) *= *\{(.*)\},?$", body, re.M)) for key, body in bodies}


def test_every_reference_has_an_address():
    lacking = [key for key, fields in entries().items() if not {"doi", "url"} & fields.keys()]
    assert len(entries()) > 20
    assert lacking == []


def test_addresses_are_well_formed():
    for key, fields in entries().items():
        assert re.fullmatch(r"10\.\d{4,5}/\S+", fields.get("doi", "10.1000/x")), key
        assert re.fullmatch(r"https://\S+", fields.get("url", "https://x")), key


def test_every_citation_has_an_entry():
    text = "".join(page.read_text(encoding="utf-8") for page in BOOK.rglob("*.md"))
    cited = {
        key.strip() for keys in re.findall(r"\{cite\w*\}`([^`]+)`", text) for key in keys.split(",")
    }
    assert cited
    assert cited <= entries().keys()
