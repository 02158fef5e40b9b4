"""What holds for all tests."""

from hypothesis import settings

# No test asserts a time: a busy machine may take long for any example.
settings.register_profile("uncork", deadline=None)
# For another look at the same code: pytest --hypothesis-profile quick
settings.register_profile("quick", deadline=None, max_examples=10)
settings.load_profile("uncork")
