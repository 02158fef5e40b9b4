"""What is said about a cluster, without one."""

import pytest

from uncork_workers.ray.cluster import AUTO, describe_shortage, one_line, why_refused

SMALL, LARGE = {"CPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ({"CPU": 1.0, "GPU": 0.0}, "each needs 1 CPU, the Ray cluster has 0.5 of 12 CPU free"),
        (
            {"CPU": 8.0, "GPU": 0.5},
            "each needs 8 CPU and 0.5 GPU, the Ray cluster has 0.5 of 12 CPU and 0 of 2 GPU free",
        ),
        (
            {"CPU": 12.0},
            "each needs 12 CPU, the Ray cluster has 0.5 of 12 CPU free, and no single node is large enough",
        ),
        ({"CPU": 0.0}, "each needs a node, the Ray cluster has 2 free"),
    ],
)
def test_a_shortage_names_needs_and_resources(needs: dict[str, float], says: str) -> None:
    assert describe_shortage(needs, [SMALL, LARGE], {"CPU": 0.5}) == says


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("The actor died.\n\tclass_name: Host\n", "The actor died."),
        (
            "Raised in creation:\n File x\nModuleNotFoundError: No module named 'uncork'",
            "ModuleNotFoundError: No module named 'uncork'",
        ),
        ("The actor died.\nThe actor died because its node has died. Node Id: 1", "its node has died"),
        ("", "ValueError"),
    ],
)
def test_an_error_is_shown_as_one_line(text: str, line: str) -> None:
    assert one_line(ValueError(text)) == line


class AuthenticationError(RuntimeError):
    """Named like the error of Ray, which is not installed here."""


HEAD, CLIENT = "head:6379", "ray://head:10001"
# What Ray 2.60 raises.
NO_TOKEN = "Token authentication is enabled but no authentication token was found. Ensure that ..."
NO_TOKEN_FOR_CLIENT = (
    "Token authentication is enabled but Ray couldn't find an authentication token. Create ..."
)
WRONG_TOKEN = "Token authentication is enabled but the authentication token is invalid or incorrect."
MISMATCH = "Version mismatch: The cluster was started with:\n    Ray: 2.55.1\n    Python: 3.11.7\n"


@pytest.mark.parametrize(
    ("address", "error", "says"),
    [
        (
            AUTO,
            ConnectionError("Could not find any running Ray instance."),
            "no Ray node runs on this machine",
        ),
        (
            HEAD,
            RuntimeError(MISMATCH),
            "Ray and Python must have the same versions here and in the cluster: ",
        ),
        (CLIENT, RuntimeError(MISMATCH), "Version mismatch: The cluster was started with: Ray: 2.55.1"),
        (HEAD, AuthenticationError(NO_TOKEN), "but there is none; set RAY_AUTH_TOKEN"),
        (CLIENT, AuthenticationError(NO_TOKEN_FOR_CLIENT), "but there is none; set RAY_AUTH_TOKEN"),
        (HEAD, AuthenticationError(WRONG_TOKEN), "but the cluster refuses it; set RAY_AUTH_TOKEN"),
        # A wrong token, or none, where the cluster requires one.
        *(
            (
                address,
                ConnectionError("cannot connect"),
                f"{address} does not accept the connection (cannot connect); if the cluster requires a token",
            )
            for address in (HEAD, CLIENT)
        ),
        (HEAD, ValueError("a\nb"), "cannot connect to Ray at head:6379: a b"),
    ],
)
def test_a_refused_connection_is_explained_in_one_line(address: str, error: Exception, says: str) -> None:
    line = why_refused(address, error)
    assert says in line
    assert "\n" not in line
