"""Draw the pictures of the explanation pages: ``python docs/pictures/draw.py`` writes them beside this file.

They have a white card as their background, so that they are legible on light and dark pages.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
INK, SOFT, LINE = "#1f2328", "#59636e", "#d0d7de"
FIXED, ROWS, HOLD, REQUEST, SAFE = "#aeb9c6", "#4269d0", "#ffd9a8", "#c2410c", "#cfe8d5"


class Picture:
    """An SVG under construction; coordinates are pixels."""

    def __init__(self, name: str, width: int, height: int, title: str) -> None:
        self.name = name
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" font-family="system-ui, -apple-system, Segoe UI, Helvetica, '
            f'Arial, sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{SOFT}"/></marker></defs>',
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="#ffffff" '
            f'stroke="{LINE}"/>',
        ]

    def box(
        self, x: float, y: float, w: float, h: float, fill: str, *, stroke: str = "none", r: int = 2
    ) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{r}" fill="{fill}" '
            f'stroke="{stroke}"/>'
        )

    def text(
        self, x: float, y: float, text: str, *, fill: str = INK, anchor: str = "start", bold: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}"{weight}>'
            f"{escape(text)}</text>"
        )

    def line(
        self, points: list[tuple[float, float]], *, stroke: str = SOFT, arrow: str = "", dashed: bool = False
    ) -> None:
        """Draw a line; ``arrow`` is "end" or "both"."""
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        marks = ' marker-end="url(#arrow)"' if arrow else ""
        marks += ' marker-start="url(#arrow)"' if arrow == "both" else ""
        marks += ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="1.3"{marks}/>')

    def dot(self, x: float, y: float) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{REQUEST}"/>')

    def clip(self, x: float, y: float, w: float, h: float) -> None:
        """Show only what lies in this area, until :meth:`unclip`."""
        name = f"clip{len(self.parts)}"
        area = f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"/>'
        self.parts.append(f'<clipPath id="{name}">{area}</clipPath><g clip-path="url(#{name})">')

    def unclip(self) -> None:
        self.parts.append("</g>")

    def legend(self, x: float, y: float, entries: list[tuple[str, str]]) -> None:
        for color, label in entries:
            if color == REQUEST:
                self.dot(x + 6, y - 4)
            else:
                self.box(x, y - 10, 12, 12, color)
            self.text(x + 18, y, label, fill=SOFT)
            x += 40 + 6.4 * len(label)

    def save(self) -> None:
        (FOLDER / self.name).write_text("\n".join([*self.parts, "</svg>", ""]))


def batch(picture: Picture, x: float, y: float, rows: int, *, scale: float, height: float = 24) -> float:
    """Draw a batch of a model of 5 + 0.1 n ms, and return where it ends."""
    picture.box(x, y, 5 * scale, height, FIXED)
    picture.box(x + 5 * scale, y, 0.1 * rows * scale, height, ROWS)
    return x + (5 + 0.1 * rows) * scale


def batch_cost() -> None:
    picture = Picture("batch-cost.svg", 760, 222, "A batch of 64 rows takes little longer than one row")
    picture.text(24, 32, "A model that takes 5 ms per batch and 0.1 ms per row", bold=True)
    picture.text(736, 62, "time per row", fill=SOFT, anchor="end")
    for at, rows in enumerate((1, 8, 64)):
        y = 76 + 38 * at
        picture.text(96, y + 17, f"{rows} row{'s' if rows > 1 else ''}", anchor="end")
        end = batch(picture, 110, y, rows, scale=40)
        picture.text(end + 8, y + 17, f"{5 + 0.1 * rows:.1f} ms")
        picture.text(736, y + 17, f"{(5 + 0.1 * rows) / rows + 1e-9:.2g} ms", anchor="end")
    picture.legend(110, 206, [(FIXED, "fixed part of a batch"), (ROWS, "work per row")])
    picture.save()


def fixed_window() -> None:
    picture = Picture("fixed-window.svg", 760, 368, "A fixed window wastes time at light and at heavy load")
    scale, left = 17.0, 150
    picture.text(24, 32, "A lone request", bold=True)
    for at, (label, hold) in enumerate((("window of 5 ms", 5), ("CORK", 0))):
        y = 46 + 34 * at
        picture.text(138, y + 17, label, anchor="end")
        picture.box(left, y, hold * scale, 24, HOLD)
        end = batch(picture, left + hold * scale, y, 1, scale=scale)
        picture.dot(left, y + 12)
        picture.text(end + 8, y + 17, f"answer after {hold + 5.1:.1f} ms")
    picture.text(
        24, 150, "16 clients that each wait for an answer before they send again, one worker", bold=True
    )
    picture.text(736, 172, "rows/s", fill=SOFT, anchor="end")
    rows_of = (
        ("no window", 8, 0.0, "1,380"),
        ("window of 5 ms", 16, 5.5, "1,350"),
        ("CORK", 16, 0.5, "2,190"),
    )
    for at, (label, rows, pause, rate) in enumerate(rows_of):
        y, x = 182 + 42 * at, float(left)
        picture.text(138, y + 17, label, anchor="end")
        picture.clip(left, y, 522, 24)
        while x < 672:
            end = batch(picture, x, y, rows, scale=scale)
            picture.text(x + 2.5 * scale, y + 17, f"{rows} rows", anchor="middle")
            picture.box(end, y, pause * scale, 24, HOLD)
            x = end + (pause * scale or 1.5)
        picture.unclip()
        picture.text(736, y + 17, rate, anchor="end", bold=label == "CORK")
    picture.line([(left, 316), (left + 10 * scale, 316)], arrow="both")
    picture.text(left + 10 * scale + 8, 320, "10 ms", fill=SOFT)
    colors = [(FIXED, "fixed part"), (ROWS, "work per row"), (HOLD, "worker idle"), (REQUEST, "request")]
    picture.legend(left, 350, colors)
    picture.save()


def even_arrivals(hold: bool) -> tuple[list[tuple[int, float, int]], float]:
    """Run two workers at two rows per ms; return the batches and the mean time queued in ms.

    A batch is its worker, its start and its rows. With ``hold``, batches are kept even as CORK does.
    """
    free, batches, queue, waits, step = [0.0, 0.6], [], [], [], 0.05
    for tick in range(round(60 / step)):
        now = tick * step
        if tick % 10 == 0:
            queue.append(now)
        for worker in (0, 1):
            other = free[1 - worker] - now
            if free[worker] > now + 1e-9 or not queue or (hold and other > 0 and len(queue) < 2 * other):
                continue
            batches.append((worker, now, len(queue)))
            waits += [now - arrived for arrived in queue]
            free[worker] = now + 5 + 0.1 * len(queue)
            queue = []
    return batches, sum(waits) / len(waits)


def bunching() -> None:
    picture = Picture("bunching.svg", 760, 308, "Two workers fall into step; balance keeps them apart")
    scale, left, begin = 23.0, 96, 12.0
    for at, (title, hold) in enumerate((("Release when free", False), ("CORK: balance", True))):
        batches, wait = even_arrivals(hold)
        y = 32 + 128 * at
        picture.text(24, y, title, bold=True)
        picture.text(736, y, f"mean time queued: {wait:.1f} ms", fill=SOFT, anchor="end")
        for worker in (0, 1):
            picture.text(84, y + 31 + 34 * worker, f"worker {worker + 1}", anchor="end")
            picture.box(left, y + 14 + 34 * worker, 640, 24, HOLD)
        picture.clip(left, y + 14, 640, 58)
        for worker, start, rows in batches:
            x, top = left + (start - begin) * scale, y + 14 + 34 * worker
            batch(picture, x, top, rows, scale=scale)
            picture.text(x + 2.5 * scale, top + 17, f"{rows} row{'s' if rows > 1 else ''}", anchor="middle")
        picture.unclip()
    picture.legend(96, 290, [(FIXED, "fixed part"), (ROWS, "work per row"), (HOLD, "worker idle")])
    picture.save()


def deadline() -> None:
    picture = Picture("deadline.svg", 760, 214, "From the arrival of a request to its deadline")
    arrival, latest, deadline, y = 60, 380, 700, 96
    picture.text(24, 32, "How long a request can be held", bold=True)
    picture.box(arrival, y, latest - arrival, 34, HOLD)
    picture.text((arrival + latest) / 2, y + 22, "may be held, if holding pays", anchor="middle")
    parts = [(170, FIXED, "estimated batch time"), (76, SAFE, "2 std. dev."), (74, "#e6e1f5", "reserve")]
    x = float(latest)
    for width, color, label in parts:
        picture.box(x, y, width, 34, color)
        picture.text(x + width / 2, y + 22, label, anchor="middle")
        x += width
    for x, label in ((arrival, "arrival"), (latest, "latest release"), (deadline, "deadline")):
        picture.line([(x, y - 12), (x, y + 46)], stroke=INK)
        picture.text(x, y - 20, label, anchor="middle")
    picture.dot(arrival, y + 17)
    picture.line([(arrival, y + 66), (deadline, y + 66)], arrow="both")
    picture.text((arrival + deadline) / 2, y + 86, "goal: mb_max_latency", fill=SOFT, anchor="middle")
    picture.save()


def labelled(picture: Picture, x: float, y: float, w: float, title: str, *lines: str, fill: str) -> None:
    """Draw a box with a title and lines of small print."""
    picture.box(x, y, w, 30 + 18 * len(lines), fill, stroke=LINE, r=6)
    picture.text(x + 12, y + 20, title, bold=True)
    for at, line in enumerate(lines):
        picture.text(x + 12, y + 40 + 18 * at, line, fill=SOFT)


def architecture() -> None:
    picture = Picture("architecture.svg", 860, 388, "Clients, the gateway process and its workers")
    picture.text(24, 40, "Clients", bold=True)
    picture.box(216, 56, 372, 310, "#eef3fd", stroke="#b9c9ee", r=8)
    picture.text(216, 40, "Gateway: one process, one event loop", bold=True)
    labelled(
        picture,
        232,
        72,
        340,
        "Connection and codec",
        "parse HTTP, count rows, check structure",
        fill="#ffffff",
    )
    for at, client in enumerate(("native HTTP", "KServe V1", "Open Inference V2", "TensorFlow Serving")):
        picture.box(24, 72 + 42 * at, 148, 30, "#f3f5f7", stroke=LINE, r=6)
        picture.text(98, 92 + 42 * at, client, anchor="middle")
        picture.line([(172, 87 + 42 * at), (194, 87 + 42 * at), (194, 96), (230, 96)], arrow="end" * (not at))
    dispatcher(picture)
    picture.line([(402, 121), (402, 142)], arrow="both")
    labelled(picture, 232, 302, 162, "Supervisor", "starts workers", fill="#ffffff")
    labelled(picture, 410, 302, 162, "Pages", "metrics, dashboard", fill="#ffffff")
    picture.text(650, 40, "Workers: one process each", bold=True)
    for at in range(3):
        y = 72 + 104 * at
        labelled(
            picture,
            650,
            y,
            186,
            f"Worker {at}",
            "your Service: validate,",
            "merge, handler, split",
            fill="#eef7f0",
        )
        picture.line([(574, 209), (611, 209), (611, y + 33), (648, y + 33)], arrow="both")
    picture.text(650, 366, "batches over Unix sockets", fill=SOFT)
    picture.save()


def dispatcher(picture: Picture) -> None:
    """Draw the dispatcher of the architecture."""
    picture.box(232, 144, 340, 134, "#ffffff", stroke=ROWS, r=6)
    picture.text(244, 164, "Dispatcher", bold=True)
    picture.text(244, 184, "a queue per API and batch key", fill=SOFT)
    for at in range(9):
        picture.box(244 + 16 * at, 195, 12, 15, REQUEST if at > 5 else "#f0a878")
    picture.text(406, 207, "admission, deadlines", fill=SOFT)
    for x, title, line in ((244, "CORK policy", "hold or release"), (406, "Learned", "batch time, arrivals")):
        picture.box(x, 220, 152, 46, "#f3f5f7", r=5)
        picture.text(x + 12, 239, title, bold=True)
        picture.text(x + 12, 257, line, fill=SOFT)


def peers() -> None:
    """From benchmarks/results/all-peers.md: the forest with 256 clients, each peer with its best setting."""
    measured = {
        "Uncork": (6844, 41),
        "Mosec": (6057, 45),
        "static batcher by hand": (4820, 110),
        "Triton (PyTriton)": (3259, 100),
        "MLServer": (1955, 410),
        "LitServe": (1488, 230),
        "BentoML": (622, 680),
        "Ray Serve": (326, 810),
    }
    picture = Picture(
        "peers.svg", 760, 286, "Requests per second and p99 with 256 clients: Uncork and seven others"
    )
    picture.text(24, 32, "A forest of 200 trees, one worker, 256 clients: requests/s (p99)", bold=True)
    for at, (name, (rate, p99_ms)) in enumerate(measured.items()):
        y, wide = 50 + 28 * at, rate / 6844 * 440
        picture.text(170, y + 15, name, anchor="end", bold=at == 0)
        picture.box(182, y, wide, 20, ROWS if at == 0 else FIXED)
        picture.text(182 + wide + 8, y + 15, f"{rate:,} ({p99_ms} ms)")
    picture.save()


if __name__ == "__main__":
    for draw in (batch_cost, fixed_window, bunching, deadline, architecture, peers):
        draw()
