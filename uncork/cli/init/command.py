"""``uncork init``."""

from pathlib import Path
from typing import Annotated

import typer

from uncork.cli.terminal import print_error
from uncork_workers.definition.loading import TargetError, load_service
from uncork_workers.definition.models.source import source_of
from uncork_workers.definition.models.targets import is_model


def init(
    *,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model file, such as model.onnx, or folder.")
    ],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The Python file to write.")] = Path(
        "service.py"
    ),
    trust_pickle: Annotated[
        bool,
        typer.Option("--trust-pickle", help="Load model files that can run any code when they are loaded."),
    ] = False,
) -> None:
    """Write a Python file that serves a model as `uncork serve MODEL` does, to change it.

    It loads the model to learn its inputs. An existing file is never overwritten.
    """
    try:
        if not is_model(model):
            raise TargetError(
                f"{model!r} is no model; give a model file such as model.onnx, or a folder with config.json"
            )
        service = load_service(model, trust_pickle=trust_pickle)
        text = source_of(model, service, folder=output.absolute().parent)
        with output.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except TargetError as error:
        print_error("init", error)
        raise typer.Exit(2) from None
    except FileExistsError:
        print_error("init", f"{output} exists; give another file with --output")
        raise typer.Exit(2) from None
    except OSError as error:
        print_error("init", f"cannot write {output}: {error.strerror}; give another file with --output")
        raise typer.Exit(1) from None
    typer.echo(f"wrote {output}; serve it with: uncork serve {output}:{service.__name__}")
