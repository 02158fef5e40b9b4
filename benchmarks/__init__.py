"""The project's own measurements: peers, simulations, chaos, fuzzing, interoperability. Not in the wheel."""
