"""The dispatcher as a decorator for any asyncio program, without HTTP."""
