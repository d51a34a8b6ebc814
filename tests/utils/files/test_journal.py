from qwen3nb.utils.files.journal import Journal


def test_a_journal_survives_a_torn_line(tmp_path):
    file = tmp_path / "j.jsonl"
    Journal(file).add("a", [1, 2.5])
    Journal(file).add("b", {"x": 1})
    whole = file.read_bytes()
    for cut in range(len(whole) - 1):
        file.write_bytes(whole[:cut])
        journal = Journal(file)
        assert journal.get("b") is None
        journal.add("c", cut)
        assert Journal(file).get("c") == cut
    file.write_bytes(whole.replace(b"2.5", b"2.6"))
    assert Journal(file).damaged == 1
    assert Journal(file).get("b") == {"x": 1}


def test_values_are_read_when_needed(tmp_path):
    file = tmp_path / "j.jsonl"
    journal = Journal(file)
    for number in range(5):
        journal.add(f"key {number}", {"values": [number] * 100})
    journal.add("key 1", "the last one counts")
    for each in (journal, Journal(file)):
        assert each.get("key 3") == {"values": [3] * 100}
        assert each.get("key 1") == "the last one counts"
        assert each.get("key 9") is None
    file.write_bytes(file.read_bytes().replace(b"3,3", b"3,4", 1))
    assert journal.get("key 3") is None  # garbled since: to be done again
    file.unlink()
    assert journal.get("key 1") is None
