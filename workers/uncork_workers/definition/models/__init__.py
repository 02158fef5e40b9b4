"""Services that are made from a model file: one module for each kind, loaded only for files of that kind."""
