"""Send 20 images one after the other, then 200 at once, and print what batching gains."""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from sklearn.datasets import load_digits

ONE_BY_ONE, AT_ONCE = 20, 200


def bodies(count: int) -> list[str]:
    """Return the JSON of some images."""
    images, _ = load_digits(return_X_y=True)
    return ["[" + ",".join(f"{pixel:g}" for pixel in image) + "]" for image in images[:count]]


def explain(base: str, server: int) -> None:
    """Wait until the service is ready, and print two commands to try; give up if its process ends."""
    python = os.path.relpath(sys.executable)
    while True:
        time.sleep(0.2)
        try:
            os.kill(server, 0)
            urlopen(f"{base}/readyz", timeout=5).close()
        except ProcessLookupError:
            return
        except (URLError, OSError):
            continue
        print(
            "\nIn another terminal, send one image, then 200 at once:\n\n"
            f"curl {base}/predict -H 'content-type: application/json' -d '{bodies(1)[0]}'\n\n"
            f"{python} examples/digits/burst.py {base}\n",
            flush=True,
        )
        return


def rows_in_batch(url: str, body: str) -> int:
    """Send one image; return how many shared its batch, or 0 if the gateway refused it."""
    request = Request(url, body.encode(), {"content-type": "application/json"})
    try:
        with urlopen(request, timeout=60) as response:
            response.read()
            return int(response.headers["x-batch-size"])
    except HTTPError as error:
        if error.code == 503 and "retry-after" in error.headers:
            return 0
        raise


def compare(base: str) -> None:
    """Send images one by one and at once, and print the rates."""
    url = f"{base}/predict"
    images = bodies(AT_ONCE)
    if not rows_in_batch(url, images[0]):
        sys.exit(f"{base}: the gateway refuses requests (503). Is the service ready?")
    began = time.perf_counter()
    for image in images[:ONE_BY_ONE]:
        rows_in_batch(url, image)
    alone = ONE_BY_ONE / (time.perf_counter() - began)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        began = time.perf_counter()
        sizes = [size for size in pool.map(lambda image: rows_in_batch(url, image), images) if size]
        together = len(sizes) / (time.perf_counter() - began)
    print(f"{ONE_BY_ONE} requests one by one: {alone:,.0f} per second, each in a batch of its own")
    print(
        f"{AT_ONCE} requests at once: {together:,.0f} per second, in batches of {min(sizes)} to {max(sizes)}"
    )
    print(f"Batching served {together / alone:.0f} times as many requests per second.")
    if len(sizes) < AT_ONCE:
        print(f"{AT_ONCE - len(sizes)} were refused (503): they could not be answered within the goal.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "base", metavar="URL", help="address of the service, for example http://127.0.0.1:3000"
    )
    parser.add_argument(
        "--explain", metavar="PID", type=int, help="wait for this server and print what to try"
    )
    options = parser.parse_args()
    try:
        if options.explain:
            explain(options.base, options.explain)
        else:
            compare(options.base)
    except URLError as error:
        sys.exit(f"{options.base}: {error}. Is the service ready?")
    except KeyboardInterrupt:
        sys.exit(130)
