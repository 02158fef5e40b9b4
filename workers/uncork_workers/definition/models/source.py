"""The Python file of a service that does what a model file does without code, for authors to change."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any, NamedTuple

import msgspec

from uncork_workers.definition.adapters import DataFrame
from uncork_workers.definition.models.targets import is_model_folder
from uncork_workers.definition.models.transformers import MOST_BYTES, most_tokens_of, pooling_of
from uncork_workers.definition.service import ApiDefinition, Service, find_apis
from uncork_workers.definition.text_models import EXAMPLE
from uncork_workers.wire.schema import ApiDescription

_WIDTH = 96


class _Parts(NamedTuple):
    """What differs between the kinds: modules to import, constants, and the lines of methods.

    ``calls`` are the bodies of the APIs, in their order.
    """

    modules: Sequence[str]
    setup: Sequence[str]
    calls: Sequence[Sequence[str]]
    constants: Sequence[str] = ()


def source_of(target: str, service: type[Service], *, folder: Path) -> str:
    """Return the text of a Python file in ``folder`` that serves a model as ``service`` does."""
    path = Path(target).absolute()
    first, *_ = definitions = find_apis(service)
    apis = [api.description for api in definitions]
    imports, text, constant = _input(first)
    parts = _parts(path, service, apis)
    in_folder = path.is_relative_to(folder)
    place = (
        f"Path(__file__).parent / {str(path.relative_to(folder))!r}" if in_folder else f"Path({str(path)!r})"
    )
    methods = [
        line
        for api, call in zip(apis, parts.calls, strict=True)
        for line in (
            "",
            f"    @{api.task or 'api'}({', '.join([*text, *_arguments(api)])})",
            f"    def {api.name}(self, rows):",
            *(f"        {one}" for one in call),
        )
    ]
    modules = [f"import {one}" for one in parts.modules]
    lines = [
        f'"""The service {service.__name__}, written by `uncork init`."""',
        *("", *(one for one in modules if one == "import os"), "from pathlib import Path"),
        *("", *(one for one in modules if one != "import os")),
        *("", *imports),
        *("", f"MODEL = {place}", *constant, *parts.constants),
        *("", "", f"class {service.__name__}(Service):", "    def setup(self):"),
        *(f"        {one}" for one in parts.setup),
        *methods,
    ]
    return "\n".join([*lines, ""])


def _input(definition: ApiDefinition) -> tuple[list[str], list[str], list[str]]:
    """Return the imports of decorator and adapter, arguments for all APIs, and constants."""
    api = definition.description
    if api.task:
        return ["from uncork import Service", f"from uncork.openai import {api.task}"], [], []
    constants: list[str] = []
    more: list[str] = []
    adapter, text = "Json", ""
    match api.input:
        case {"kind": "ndarray", "dtype": dtype, "shape": shape}:
            adapter, text = "NdArray", f"dtype={dtype!r}, shape={tuple(shape)!r}"
        case {"kind": "dataframe", "columns": columns}:
            assert isinstance(definition.adapter, DataFrame)
            adapter, text = "DataFrame", "columns=COLUMNS"
            constants = [_constant("COLUMNS", columns)]
            if dtypes := definition.adapter.dtypes:
                text = f"{text}, dtypes=DTYPES"
                constants.append(_constant("DTYPES", dtypes))
            if definition.sample is not None:
                more = ["warmup=EXAMPLE"]
                constants.append(_constant("EXAMPLE", msgspec.json.decode(definition.sample.body)))
        case {"kind": "text"}:
            adapter = "Text"
    imports = ["from uncork import Service, api", f"from uncork.adapters import {adapter}"]
    return imports, [f"input={adapter}({text})", *more], constants


def _constant(name: str, value: Any) -> str:
    return f"{name} = {pformat(value, width=_WIDTH, compact=True, sort_dicts=False)}"


def _arguments(api: ApiDescription) -> list[str]:
    settings = api.settings
    arguments = []
    match api.input:
        case {"kind": "ndarray"} if None not in api.input["shape"]:
            arguments.append(f"warmup={_zeros(api.input)}")
        case {"tensors": inputs} if not any(None in one["shape"] for one in inputs.values()):
            zeros = ", ".join([f"{name!r}: {_zeros(one)}" for name, one in inputs.items()])
            arguments.append(f"warmup={{{zeros}}}")
        case {"kind": "text"} if not api.task:
            arguments.append(f"warmup={EXAMPLE!r}")
    if api.task:
        arguments.append(f"mb_max_batch_size={MOST_BYTES}")
    elif settings.cost is not None:
        arguments += [f"cost={settings.cost!r}", f"mb_max_batch_size={MOST_BYTES}"]
    if settings.allowed_batch_sizes:
        arguments += [f"allowed_batch_sizes={list(settings.allowed_batch_sizes)!r}"]
    return arguments


def _zeros(tensor: Mapping[str, Any]) -> str:
    """Return the expression of a row of zeros, or of empty texts."""
    text = {"bool": "False", "str": "''"}.get(tensor["dtype"], "0")
    for length in reversed(tensor["shape"]):
        text = f"[{text}] * {length}"
    return text


def _parts(path: Path, service: type[Service], apis: Sequence[ApiDescription]) -> _Parts:
    if is_model_folder(str(path)):
        return _of_texts(path, service, apis)
    match path.suffix:
        case ".onnx":
            return _of_onnx(apis[0])
        case ".joblib" | ".pkl":
            only_numbers = getattr(service, "only_numbers", False) and apis[0].input["kind"] == "dataframe"
            calls = [_estimated(api.name, only_numbers=only_numbers) for api in apis]
            return _Parts(["joblib"], ["self.model = joblib.load(MODEL)"], calls)
        case ".txt":
            categories, booleans = [vars(service)[name] for name in ("categories", "booleans")]
            only_booleans = [
                f"for name in {list(booleans)!r}:  # pandas takes 1 and True for one category",
                "    rows[name] = [bool(one) if one in (0, 1) else None for one in rows[name]]",
            ]
            rows = f"rows.astype({dict.fromkeys(categories, 'category')!r})" if categories else "rows"
            calls = [[*(only_booleans if booleans else []), f"return self.model.predict({rows})"]]
            return _Parts(["lightgbm"], ["self.model = lightgbm.Booster(model_file=MODEL)"], calls)
    setup = [
        "self.model = xgboost.Booster(model_file=MODEL)",
        'best = self.model.attr("best_iteration")  # by early stopping',
        "self.rounds = (0, int(best) + 1) if best else (0, 0)",
    ]
    call = "return self.model.inplace_predict(rows, iteration_range=self.rounds)"
    if vars(service)["is_linear"]:
        setup, call = setup[:1], "return self.model.predict(xgboost.DMatrix(rows))"
    return _Parts(["xgboost"], setup, [[call]])


def _estimated(name: str, *, only_numbers: bool) -> list[str]:
    numbers = [
        "# Columns of objects, as of several clients, are refused.",
        'rows = rows.astype({name: "float64" for name in rows if rows[name].dtype == object})',
    ]
    call = [
        *(numbers if only_numbers else []),
        f"found = self.model.{name}(rows)",
        "# Classifiers of several labels may return a sparse matrix.",
        'found = found.toarray() if hasattr(found, "toarray") else found',
    ]
    if name == "predict":
        return [*call, "return found"]
    return [
        *call,
        "# Estimators of several outputs return a list of tables by output.",
        'by_output = isinstance(found, list) and any(getattr(one, "ndim", 0) == 2 for one in found)',
        "return list(zip(*found, strict=True)) if by_output else found",
    ]


def _of_onnx(api: ApiDescription) -> _Parts:
    setup = [
        "options = onnxruntime.SessionOptions()",
        'options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))',
        'options.add_session_config_entry("session.intra_op.allow_spinning", "0")',
        "available = onnxruntime.get_available_providers()",
        'wanted = "CUDAExecutionProvider", "CPUExecutionProvider"',
        "providers = [provider for provider in wanted if provider in available]",
        "self.session = onnxruntime.InferenceSession(MODEL, options, providers=providers)",
        "self.outputs = [output.name for output in self.session.get_outputs()]",
    ]
    result = "return dict(zip(self.outputs, self.session.run(None, inputs), strict=True))"
    if api.input["kind"] == "ndarray":
        feed = f"inputs = {{{api.input['name']!r}: rows}}"
        return _Parts(["os", "onnxruntime"], setup, [[feed, result]])
    tensors = api.input["tensors"].items()
    dtypes = {name: "object" if one["dtype"] == "str" else one["dtype"] for name, one in tensors}
    calls = [_call_by_shape(api.settings.allowed_batch_sizes)]
    return _Parts(["os", "numpy as np", "onnxruntime"], setup, calls, [_constant("DTYPES", dtypes)])


def _call_by_shape(sizes: Sequence[int] | None) -> list[str]:
    """Return the lines that call a model once for each shape of rows, each time with a whole batch."""
    return [
        "groups = {}",
        "for at, row in enumerate(rows):",
        "    shapes = tuple(np.array(row[name], dtype).shape for name, dtype in DTYPES.items())",
        "    groups.setdefault(shapes, []).append(at)",
        "found = {name: [None] * len(rows) for name in self.outputs}",
        "for places in groups.values():",
        *([f"    places.extend(places[-1:] * ({sizes[0]} - len(places)))"] if sizes else []),
        "    inputs = {",
        "        name: np.array([rows[at][name] for at in places], dtype) for name, dtype in DTYPES.items()",
        "    }",
        "    outputs = dict(zip(self.outputs, self.session.run(None, inputs), strict=True))",
        "    if len(groups) == 1:",
        "        return outputs",
        "    for name, values in outputs.items():",
        "        for at, value in zip(places, values, strict=True):",
        "            found[name][at] = value",
        "return found",
    ]


def _of_texts(path: Path, service: type[Service], apis: Sequence[ApiDescription]) -> _Parts:
    loader = "AutoModel" if apis[0].name == "embed" else "AutoModelForSequenceClassification"
    setup = [
        "self.tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL, local_files_only=True)",
        'self.device = "cuda" if torch.cuda.is_available() else "cpu"',
        f"self.model = transformers.{loader}.from_pretrained(MODEL, local_files_only=True).eval()",
        "self.model.to(self.device)",
    ]
    run = ["with torch.inference_mode():", "    output = self.model(**tokens.to(self.device))"]
    own = pooling_of(path).most_tokens if apis[0].name == "embed" else math.inf
    most = min(own, most_tokens_of(path))
    cut = f", truncation=True, max_length={int(most)}" if most < math.inf else ""
    if apis[0].name == "embed":
        setup.append('self.tokenizer.padding_side = "right"  # the first token stays the first')
        part = f"[:{int(most)}]" if cut else ""
        ids = [
            "ids = [",
            f'    row{part} if isinstance(row, list) else self.tokenizer(row{cut})["input_ids"]',
            "    for row in rows",
            "]",
            'tokens = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt")',
        ]
        calls = [[*ids, *run, *_pooled(path)]]
    elif apis[0].name == "rank":
        pairs = [
            "pairs = [(row.query, row.text) for row in rows]",
            f'tokens = self.tokenizer(pairs, padding=True, return_tensors="pt"{cut})',
        ]
        calls = [[*pairs, *run, "return output.logits.float().sigmoid()[:, 0].cpu().numpy()"]]
    else:
        tokens = f'tokens = self.tokenizer(rows, padding=True, return_tensors="pt"{cut})'
        labels = "labels = self.model.config.id2label"
        several = vars(service)["has_several"]
        scores = f"scores = output.logits.float().{'sigmoid()' if several else 'softmax(1)'}.cpu()"
        best = "return [labels[at] for at in scores.argmax(1).tolist()]"
        if several:
            above = "[labels[at] for at, one in enumerate(row) if one > 0.5]"
            best = f"return [{above} for row in scores.tolist()]"
        each = "return {labels[at]: column.numpy() for at, column in enumerate(scores.T)}"
        calls = [[tokens, *run, labels, scores, best], [tokens, *run, labels, scores, each]]
    return _Parts(["torch", "transformers"], setup, calls)


def _pooled(path: Path) -> list[str]:
    mean = [
        'mask = tokens["attention_mask"].to(self.device).unsqueeze(-1)',
        "vectors = (output.last_hidden_state * mask).sum(1) / mask.sum(1)",
    ]
    first = ["vectors = output.last_hidden_state[:, 0]"]
    return [*(first if pooling_of(path).first_token else mean), "return vectors, list(map(len, ids))"]
