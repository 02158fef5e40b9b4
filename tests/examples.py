"""How many examples tests with Hypothesis try."""

from hypothesis import settings


def at_most(examples: int) -> settings:
    """Return settings for a test whose examples take long; the profile may want fewer."""
    return settings(max_examples=min(examples, settings.default.max_examples))
