"""Folders of transformers as services. The models themselves run only where torch is installed."""

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.workers.definition.models.serving import refusal, run, served
from uncork_workers.definition.loading import load_service, service_files
from uncork_workers.definition.service import find_apis

HAS_TORCH = all(map(find_spec, ("torch", "transformers")))
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="needs torch and transformers")
torch, transformers = map(import_module, ("torch", "transformers")) if HAS_TORCH else (None, None)
CLASSIFIER = {"architectures": ["BertForSequenceClassification"], "model_type": "bert"}
ENCODER = {"architectures": ["BertModel"], "model_type": "bert"}
WORDS = ("[PAD]", "[UNK]", "good", "bad", "day")
TEXTS = ["good day", "bad", "good good day bad day"]


def write(name: str, content: object, folder: str = "bert-tiny") -> None:
    file = Path(folder, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("config", "apis"),
    [
        (ENCODER, ["embed"]),
        (CLASSIFIER, ["predict", "predict_proba"]),
        ({**CLASSIFIER, "id2label": {"0": "LABEL_0"}}, ["rank"]),
    ],
)
def test_the_architecture_says_what_is_served(project: Path, config: object, apis: list[str]) -> None:
    write("config.json", config)
    write("model.safetensors", "")

    service = load_service("bert-tiny/")
    found = [api.description for api in find_apis(service)]

    assert service.__name__ == "BertTiny"
    assert [one.name for one in found] == apis
    assert {one.settings.cost for one in found} == {"bytes"}
    assert [one.task for one in found] == [
        {"embed": "embeddings", "rank": "rerank"}.get(one, "") for one in apis
    ]
    names = {Path(file).name for file in service_files("bert-tiny")}
    assert names == {"config.json", "model.safetensors"}


def test_a_folder_without_safetensors_needs_trust(project: Path) -> None:
    write("config.json", ENCODER)

    assert refusal("bert-tiny").startswith("bert-tiny: the folder has no model.safetensors")
    write("pytorch_model.bin", "")
    assert refusal("bert-tiny") == (
        "bert-tiny: the weights are a pickle, which can run any code when it is loaded; give --trust-pickle "
        "if you trust its author, or save them as safetensors"
    )
    assert load_service("bert-tiny", trust_pickle=True).__name__ == "BertTiny"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {"architectures": ["GPT2LMHeadModelX"]},
            "must be one that ends in ForSequenceClassification or Model, got GPT2LMHeadModelX",
        ),
        ({"architectures": ["A", "B"]}, "got A, B"),
        ({"architectures": "BertModel"}, "got none"),
        ({"architectures": [5]}, "got none"),
        ({}, "got none"),
        ([], "config.json cannot be read: expected a JSON object"),
        ({**CLASSIFIER, "problem_type": "regression"}, "it is a regression"),
        ({"architectures": None, "id2label": 5}, "got none"),
    ],
)
def test_other_models_are_rejected(project: Path, config: object, says: str) -> None:
    write("config.json", config)
    write("model.safetensors", "")

    assert says in refusal("bert-tiny")


def test_a_config_that_is_no_config_is_rejected(project: Path) -> None:
    write("config.json", ENCODER)
    for content in ("{", "[" * 100_000, " " * 2**21):
        Path("bert-tiny/config.json").write_text(content)
        assert "config.json cannot be read: " in refusal("bert-tiny")


@pytest.mark.parametrize(
    ("modules", "pooling", "says"),
    [
        (["Dense"], {}, "modules.json has the module Dense; only Transformer, Pooling, Normalize are served"),
        (
            ["Pooling"],
            {"pooling_mode_max_tokens": True},
            "1_Pooling/config.json says max_tokens; only mean_tokens",
        ),
        (["Pooling"], {}, "1_Pooling/config.json says None"),
    ],
)
def test_other_poolings_are_rejected(project: Path, modules: list[str], pooling: object, says: str) -> None:
    write("config.json", ENCODER)
    write("model.safetensors", "")
    write("modules.json", [{"type": f"sentence_transformers.models.{one}"} for one in modules])
    write("1_Pooling/config.json", pooling)

    assert says in refusal("bert-tiny")


def save(kind: str, **settings: Any) -> Any:
    """Save a tiny model with its tokenizer, and return it."""
    assert torch is not None
    assert transformers is not None
    torch.manual_seed(0)
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=4
    )
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        **settings,
    )
    model = getattr(transformers, kind)(config).eval()
    model.save_pretrained("bert-tiny")
    tokens.save_pretrained("bert-tiny")
    return lambda text: model(**tokens([text], return_tensors="pt", truncation=True, max_length=4))


def assert_embeddings(found: list[Any], vectors: list[Any]) -> None:
    """Check embeddings against vectors of any length."""
    expected = [(one / one.norm()).tolist() for one in vectors]
    np.testing.assert_allclose([row["embedding"] for row in found], expected, atol=1e-5)


@needs_torch
def test_embeddings_are_the_mean_of_the_tokens(project: Path) -> None:
    alone = save("BertModel")

    found = run("bert-tiny", *TEXTS, [2, 4], [len(WORDS)], api="embed")

    means = [alone(text).last_hidden_state[0].mean(0) for text in [*TEXTS, "good day"]]
    assert_embeddings(found[:-1], means)
    assert [row["tokens"] for row in found[:-1]] == [2, 1, 4, 2]
    assert "token ids that this model does not have" in found[-1]


@needs_torch
def test_sentence_transformers_say_how_to_pool(project: Path) -> None:
    alone = save("BertModel")
    write(
        "modules.json", [{"type": f"sentence_transformers.models.{one}"} for one in ("Pooling", "Normalize")]
    )
    write("1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    write("sentence_bert_config.json", {"max_seq_length": 2})

    found = run("bert-tiny", *TEXTS, api="embed")

    first = [alone(" ".join(text.split()[:2])).last_hidden_state[0, 0] for text in TEXTS]
    assert_embeddings(found, first)


@needs_torch
@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_a_longer_text_moves_no_token_of_an_embedding(project: Path, mode: str) -> None:
    alone = save("BertModel")
    settings = json.loads(Path("bert-tiny/tokenizer_config.json").read_text())
    write("tokenizer_config.json", {**settings, "padding_side": "left"})
    write("modules.json", [{"type": "sentence_transformers.models.Pooling"}])
    write("1_Pooling/config.json", {"pooling_mode": mode})

    found = run("bert-tiny", *TEXTS, api="embed")

    vectors = [alone(text).last_hidden_state[0] for text in TEXTS]
    assert_embeddings(found, [one[0] if mode == "cls" else one.mean(0) for one in vectors])


@needs_torch
def test_a_classifier_has_labels_and_probabilities(project: Path) -> None:
    alone = save("BertForSequenceClassification", id2label={0: "no", 1: "maybe", 2: "yes"})

    labels = run("bert-tiny", *TEXTS)
    probabilities = run("bert-tiny", *TEXTS, api="predict_proba")

    expected = [alone(text).logits[0].softmax(0).tolist() for text in TEXTS]
    np.testing.assert_allclose([list(row.values()) for row in probabilities], expected, atol=1e-5)
    assert list(probabilities[0]) == ["no", "maybe", "yes"]
    assert labels == [["no", "maybe", "yes"][int(np.argmax(row))] for row in expected]


@needs_torch
def test_one_label_is_the_relevance_to_a_query(project: Path) -> None:
    assert transformers is not None
    save("BertForSequenceClassification", num_labels=1)
    tokens = transformers.AutoTokenizer.from_pretrained("bert-tiny")
    model = transformers.AutoModelForSequenceClassification.from_pretrained("bert-tiny").eval()

    found = run("bert-tiny", *[{"query": "good", "text": text} for text in TEXTS], api="rank")

    alone = [
        model(**tokens("good", text, return_tensors="pt", truncation=True)).logits.sigmoid().item()
        for text in TEXTS
    ]
    np.testing.assert_allclose(found, alone, atol=1e-5)


@needs_torch
def test_a_text_can_have_several_labels(project: Path) -> None:
    alone = save("BertForSequenceClassification", num_labels=3, problem_type="multi_label_classification")

    found = run("bert-tiny", *TEXTS)

    expected = [alone(text).logits[0].sigmoid().tolist() for text in TEXTS]
    assert found == [[f"LABEL_{at}" for at, one in enumerate(row) if one > 0.5] for row in expected]


@needs_torch
def test_no_code_of_the_folder_runs(project: Path) -> None:
    save("BertModel")
    Path("bert-tiny/evil.py").write_text("open('exploded', 'w')\n")
    config = json.loads(Path("bert-tiny/config.json").read_text())
    write(
        "config.json",
        {**config, "model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}},
    )

    with pytest.raises(ValueError, match="transformers cannot load it: "):
        served("bert-tiny")
    assert not Path("exploded").exists()
