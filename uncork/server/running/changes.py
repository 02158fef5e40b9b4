"""What differs between two sets of options of ``uncork serve``, and how each change takes effect."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from uncork.config.changes import Change, Effect, unset_text, value_text, without_secrets
from uncork.config.names import OF_SERVICES, settings_of
from uncork.server.credentials import OF_CLIENTS, OF_WORKERS
from uncork.server.options import ServeOptions
from uncork.server.server_options import ServerOptions

EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(
        (
            "workers",
            "idle_after",
            "policy",
            "mb_max_latency",
            "mb_max_batch_size",
            "max_batches_per_worker",
            "max_worker_memory",
            "max_body_bytes",
            "max_request_rows",
            "max_request_values",
            "max_queue_rows",
            "max_queue_bytes",
            "fair_by",
            "header_timeout",
            "body_timeout",
            "max_connections",
            "max_header_fields",
            "allowed_hosts",
            "cors_origin",
            "drain_delay",
            "drain_timeout",
            "log_level",
            "access_log",
            *OF_CLIENTS,
            *OF_WORKERS,
            "grpc_max_connection_age",
            "own_routes",
            "weight",
            "shadow",
        ),
        Effect.AT_ONCE,
    ),
    **dict.fromkeys(
        (
            "target",
            "gpus",
            "python",
            "trust_pickle",
            "environment",
            "worker_memory_limit",
            "worker_cpus",
            "worker_gpus",
            "warmup_seconds",
            "log_format",
        ),
        Effect.NEW_WORKERS,
    ),
}
"""How a change of a setting takes effect, by name; a setting that is not here needs a restart."""

WITH_NEW_WORKERS = ("cost", "allowed_batch_sizes", "allowed_lengths")
"""The arguments of ``@api`` for which workers warm up again; all others take effect at once."""

# What a server does not begin to use, or cease to use, while it runs: options of which none may become unset.
_FIXED_USES = {
    "goal_ms": ("goal_ms",),
    **{
        name: (f"{prefix}_cert", f"{prefix}_client_ca")
        for prefix in ("tls", "worker_tls")
        for name in (f"{prefix}_cert", f"{prefix}_key", f"{prefix}_client_ca")
    },
}
_OTHER_CONTENT, _OTHER_VALUES = "other content", "other values"
_NOT_SERVED = "(not served)"


def changes_between(
    before: ServeOptions, after: ServeOptions, *, renewed: Collection[str] = ()
) -> list[Change]:
    """Return the settings of the only service and its server that differ, then those of single APIs.

    ``renewed`` are the options whose files have other contents.
    """
    changes = _differing(before, after, names=settings_of(ServeOptions))
    return [*changes, *_renewed(before, after, renewed), *_of_single_apis(before, after)]


def changes_of_server(
    before: ServeOptions, after: ServeOptions, *, renewed: Collection[str] = ()
) -> list[Change]:
    """Return the settings that several services share and that differ."""
    names = settings_of(ServeOptions).keys() - set(OF_SERVICES)
    return [*_differing(before, after, names=names), *_renewed(before, after, renewed)]


def changes_of_proxy(
    before: ServerOptions, after: ServerOptions, *, renewed: Collection[str]
) -> list[Change]:
    """Return the settings of ``uncork proxy`` that differ."""
    names = settings_of(type(after)).keys()
    at_once = {"log_format", *(names - settings_of(ServerOptions).keys())} - {"protocol"}
    return [*_differing(before, after, names=names, at_once=at_once), *_renewed(before, after, renewed)]


def changes_of_services(
    before: Mapping[str, ServeOptions],
    after: Mapping[str, ServeOptions],
    *,
    renewed: Mapping[str, Collection[str]],
) -> dict[str, list[Change]]:
    """Return the changes of each of several services, by name, in the order of ``after``."""
    return {
        name: _of_service(before[name], after[name], f"services.{name}.", renewed.get(name, ()))
        if name in before and name in after
        else [_added_or_removed(name, before, after)]
        for name in (*after, *before)
    }


def _of_service(
    before: ServeOptions, after: ServeOptions, prefix: str, renewed: Collection[str]
) -> list[Change]:
    return [
        *_differing(before, after, names=OF_SERVICES, prefix=prefix),
        *_renewed(before, after, renewed, prefix),
        *_of_single_apis(before, after, prefix),
    ]


def _differing(
    before: ServerOptions,
    after: ServerOptions,
    *,
    names: Collection[str],
    prefix: str = "",
    at_once: Collection[str] = (),
) -> list[Change]:
    """Return the options of these names whose values differ, in the order of the options.

    Those of ``at_once`` take effect at once.
    """
    changes = []
    for name, parameter in settings_of(type(after)).items():
        old, new = getattr(before, name), getattr(after, name)
        if old != new and name in names:
            unset = unset_text(parameter)
            old_text, new_text = (value_text(without_secrets(name, one), unset=unset) for one in (old, new))
            if old_text == new_text:
                new_text = f"{new_text} ({_OTHER_VALUES})"
            changes.append(Change(prefix + name, old_text, new_text, _effect(name, before, after, at_once)))
    return changes


def _renewed(
    before: ServerOptions, after: ServerOptions, renewed: Collection[str], prefix: str = ""
) -> Iterator[Change]:
    for name in renewed:
        if getattr(before, name) == getattr(after, name):
            file = str(getattr(after, name))
            yield Change(prefix + name, file, f"{file} ({_OTHER_CONTENT})", Effect.AT_ONCE)


def _added_or_removed(
    name: str, before: Mapping[str, ServeOptions], after: Mapping[str, ServeOptions]
) -> Change:
    old, new = (one[name].service if name in one else _NOT_SERVED for one in (before, after))
    effect = Effect.NEW_WORKERS if name in after else Effect.AT_ONCE
    return Change(f"services.{name}", old, new, effect)


def _effect(name: str, before: Any, after: Any, at_once: Collection[str]) -> Effect:
    """Return how a change takes effect where it depends on the values."""
    fixed = _FIXED_USES.get(name, ())
    if [getattr(before, one) is None for one in fixed] != [getattr(after, one) is None for one in fixed]:
        return Effect.RESTART
    if name == "workers" and (before.worker_count.most == 0) != (after.worker_count.most == 0):
        return Effect.RESTART
    if name in (*OF_WORKERS, "target") and after.ray_address is not None:
        # Ray starts workers with what they need to reach the first worker port, and with the code of the
        # target's folder.
        return Effect.RESTART
    return Effect.AT_ONCE if name in at_once else EFFECTS.get(name, Effect.RESTART)


def _of_single_apis(before: ServeOptions, after: ServeOptions, prefix: str = "") -> Iterator[Change]:
    named = {
        (str(one.api), one.argument): None for options in (before, after) for _, one in options.api_overrides
    }
    for api, argument in named:
        old, new = _override(before, api, argument), _override(after, api, argument)
        if old != new:
            effect = Effect.NEW_WORKERS if argument in WITH_NEW_WORKERS else Effect.AT_ONCE
            unset = "(set by the code)"
            name = f"{prefix}api.{api}.{argument}"
            yield Change(name, value_text(old, unset=unset), value_text(new, unset=unset), effect)


def _override(options: ServeOptions, api: str, argument: str) -> Any:
    """Return the value that overrides an argument of an API; None if none does."""
    values = [one.value for one in options.overrides if one.argument == argument and one.applies_to(api)]
    return values[-1] if values else None
