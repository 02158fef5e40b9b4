"""How many examples a Hypothesis test runs."""

from hypothesis import settings


def at_most(examples: int) -> settings:
    """Run fewer examples than the profile asks for, of a test whose examples take long."""
    return settings(max_examples=min(examples, settings().max_examples))
