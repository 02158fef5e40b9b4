"""The metadata pages of KServe, the Open Inference Protocol and Triton."""
