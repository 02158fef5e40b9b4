"""Server reflection (v1 and v1alpha): sends the definitions of services and messages to clients."""

from functools import partial
from typing import Any

from google.protobuf.descriptor import FileDescriptor

from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.interfaces import CallHead, CallStream, OpenCall
from uncork_gateway.grpc.messages import POOL, SERVICES, message
from uncork_gateway.grpc.services.streaming import StreamingCall
from uncork_gateway.grpc.statuses import CallFailed, Code, code_of


def reflection_methods() -> dict[bytes, OpenCall]:
    """Return the reflection method of both versions by path."""
    return {
        f"/{package}.ServerReflection/ServerReflectionInfo".encode(): partial(_Reflecting, package=package)
        for package in ("grpc.reflection.v1", "grpc.reflection.v1alpha")
    }


class _Reflecting(StreamingCall):
    """Sends a response to each message; a question without an answer does not end the call."""

    def __init__(self, stream: CallStream, head: CallHead, package: str) -> None:
        self._response: Any = message(f"{package}.ServerReflectionResponse")
        super().__init__(stream, head, message(f"{package}.ServerReflectionRequest"))

    def asked(self, request: Any) -> None:
        try:
            answer = self._answer(request)
        except GatewayError as error:
            answer = {"error_response": {"error_code": code_of(error), "error_message": str(error)}}
        self.send(self._response(valid_host=request.host, original_request=request, **answer))

    def _answer(self, request: Any) -> dict[str, Any]:
        match request.WhichOneof("message_request"):
            case "list_services":
                return {"list_services_response": {"service": [{"name": name} for name in sorted(SERVICES)]}}
            case "file_by_filename":
                return _files(_file_named(request.file_by_filename))
            case "file_containing_symbol":
                return _files(_file_with(request.file_containing_symbol))
            case "file_containing_extension":
                extension = request.file_containing_extension
                number, extended = extension.extension_number, extension.containing_type
                raise CallFailed(f"{extended!r} has no extension {number}", Code.NOT_FOUND)
            case "all_extension_numbers_of_type":
                extended = request.all_extension_numbers_of_type
                _require_message(extended)
                return {"all_extension_numbers_response": {"base_type_name": extended}}
            case _:
                raise CallFailed(
                    "the request asks nothing; set one field of message_request", Code.INVALID_ARGUMENT
                )


def _file_named(name: str) -> FileDescriptor:
    try:
        return POOL.FindFileByName(name)
    except KeyError:
        raise CallFailed(f"unknown file {name!r}", Code.NOT_FOUND) from None


def _file_with(symbol: str) -> FileDescriptor:
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        pass
    # The pool does not find methods.
    service, _, method = symbol.rpartition(".")
    try:
        return POOL.FindServiceByName(service).methods_by_name[method].containing_service.file
    except KeyError:
        raise CallFailed(f"unknown symbol {symbol!r}", Code.NOT_FOUND) from None


def _require_message(name: str) -> None:
    try:
        POOL.FindMessageTypeByName(name)
    except KeyError:
        raise CallFailed(f"unknown message {name!r}", Code.NOT_FOUND) from None


def _files(file: FileDescriptor) -> dict[str, Any]:
    """Return a file and all its imports, imports last, so that clients need not ask for them."""
    found: dict[str, bytes] = {}
    _add(file, found)
    return {"file_descriptor_response": {"file_descriptor_proto": [*reversed(found.values())]}}


def _add(file: FileDescriptor, found: dict[str, bytes]) -> None:
    """Add a file by its name, after all its imports."""
    if file.name not in found:
        for imported in file.dependencies:
            _add(imported, found)
        found[file.name] = file.serialized_pb
