"""Run a gateway as a process: options, listeners, HTTP servers, services, workers, reloads and tracing."""
