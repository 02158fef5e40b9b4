"""The project's own measurements: peers, chaos, fuzzing, interoperability, costs. Not in the wheel."""
