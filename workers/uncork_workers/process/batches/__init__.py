"""The execution of one batch: merge the requests, call the handler, search for rows that fail, stream."""
