"""What holds for all tests."""

from hypothesis import settings

# No test asserts a time: a busy machine may take long for any example.
settings.register_profile("uncork", deadline=None)
settings.load_profile("uncork")
