"""The order in which a process must receive its numbers: each greater than the one before by a step."""

_misplaced = 0


def misplace():
    """Counts a number that was received in the wrong order."""
    global _misplaced
    _misplaced += 1


def check(outcome):
    outcome.check("messages received in the wrong order", _misplaced, 0)
