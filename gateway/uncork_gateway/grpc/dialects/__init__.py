"""The dialects of gRPC: ModelInfer of V2, and Predict of TensorFlow Serving."""
