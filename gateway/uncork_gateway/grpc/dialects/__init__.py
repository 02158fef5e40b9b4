"""gRPC dialects: ModelInfer of V2, and Predict of TensorFlow Serving."""
