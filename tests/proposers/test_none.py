from proposers.none import NoProposer


def test_nothing_is_drafted_however_many_tokens_are_asked_for() -> None:
    proposer = NoProposer()
    assert proposer.num_draft_tokens == 0
    assert proposer.propose([object(), object()], [4, 1]) == [None, None]
