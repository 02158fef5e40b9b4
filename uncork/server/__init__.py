"""Running a gateway as a process: listeners, HTTP servers, reloading, the control socket, tracing."""
