#!/usr/bin/env python3
"""A character GPT trained twice side by side: with scores over sqrt(head_dim), and with raw ones.

In: a text, by default data/alice.txt beside this directory. Out, in --out: run.jsonl, the health
of every head over the steps (`poise report run.jsonl --html page.html` draws it), and health.html,
that of the last step; on the terminal losses and health as they go, and prose of each model.

Both models are plain PyTorch, start from the same weights and see the same batches; only the factor
on q . k differs. poise.watch computes every attention call and measures it in the same pass:

    pip install . torch
    python examples/char_gpt.py
"""

import argparse
import math
import pathlib
import time

import torch
from torch import nn
from torch.nn import functional as F

import poise

TEXT = pathlib.Path(__file__).resolve().parent.parent / "data" / "alice.txt"
# What is told of a model while it trains: the largest score of any head, and means over heads.
COLUMNS = ("max_score", "entropy_ratio", "saturated_share", "transmission")


class Attention(nn.Module):
    """Causal self-attention [B, L, width] -> [B, L, width]; scale None = 1/sqrt(head_dim)."""

    def __init__(self, width, heads, scale):
        super().__init__()
        self.heads, self.scale = heads, scale
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        # Components of q and k begin with variance 1 for inputs with variance 1, which LayerNorm
        # makes: then q . k has variance head_dim.
        nn.init.normal_(self.qkv.weight, std=width**-0.5)

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for part in self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=self.scale)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, scale):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, scale)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class CharGPT(nn.Module):
    """Logits of the next character, [B, L, characters], for [B, L] characters."""

    def __init__(self, characters, context, width, heads, layers, scale):
        super().__init__()
        self.context = context
        self.character = nn.Embedding(characters, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, scale) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)

    def forward(self, ids):
        x = self.character(ids) + self.place.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class SideBySide(nn.Module):
    """Models that share nothing but their inputs, as one that a watch can see."""

    def __init__(self, models):
        super().__init__()
        for name, model in models.items():
            self.add_module(name, model)

    def forward(self, ids):
        return {name: model(ids) for name, model in self.named_children()}


def batch_of(ids, starts, context):
    """Inputs and the characters that follow them, both [len(starts), context]."""
    windows = torch.stack([ids[start:start + context + 1] for start in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def losses_of(logits, targets):
    """Mean cross-entropy per model, nats per character."""
    return {name: F.cross_entropy(each.flatten(0, 1), targets.flatten())
            for name, each in logits.items()}


def held_out_losses(pair, ids, context, batch):
    """Losses over all of the held-out text, cut into windows."""
    starts = torch.arange(0, len(ids) - context - 1, context)
    sums = dict.fromkeys(dict(pair.named_children()), 0.0)
    with torch.no_grad(), poise.use():
        for part in starts.split(batch):
            inputs, targets = batch_of(ids, part, context)
            for name, loss in losses_of(pair(inputs), targets).items():
                sums[name] += loss.item() * len(part) / len(starts)
    return sums


def pair_table_loss(learned, held_out, characters):
    """Held-out loss of a table of character pairs: what can be had without attention."""
    counts = torch.bincount(learned[:-1] * characters + learned[1:], minlength=characters**2)
    counts = counts.view(characters, characters) + 0.1  # pairs that were never seen
    log_p = (counts / counts.sum(1, keepdim=True)).log()
    return -log_p[held_out[:-1], held_out[1:]].mean().item()


def write_prose(model, start, characters, length):
    """`length` characters drawn from the model, after `start`."""
    ids = torch.tensor([[characters.index(c) for c in start]])
    with torch.no_grad(), poise.use():
        for _ in range(length):
            last = model(ids[:, -model.context:])[0, -1]
            ids = torch.cat((ids, torch.multinomial(last.softmax(-1), 1)[None]), dim=1)
    return "".join(characters[i] for i in ids[0].tolist())


def health_of(stats, name):
    """One number for each of COLUMNS, over the heads of the layers of model `name`."""
    layers = [layer for label, layer in stats.items() if label.startswith(f"{name}.")]
    means = [torch.cat([torch.as_tensor(getattr(layer, column)) for layer in layers]).nanmean()
             for column in COLUMNS[1:]]
    return [max(layer.max_score.max() for layer in layers), *map(float, means)]


def train(pair, ids, watch, arguments):
    """Trains both models on the same batches; prints a line for each measured step."""
    optimizer = torch.optim.AdamW(pair.parameters(), lr=arguments.learning_rate)
    generator = torch.Generator().manual_seed(arguments.seed)
    names = [name for name, _ in pair.named_children()]
    print(f"{'':12}" + "".join(f"{name:^48}" for name in names))
    print(f"{'step':>6}{'s':>6}" + len(names) * "".join(
        f"{title:>12}" for title in ("loss", "max score", "H/ln n", "one key")))
    begun = time.perf_counter()
    for step in range(arguments.steps):
        for group in optimizer.param_groups:  # a short warm-up, then a half cosine
            group["lr"] = arguments.learning_rate * min(
                (step + 1) / 20, 0.5 + 0.5 * math.cos(math.pi * step / arguments.steps))
        starts = torch.randint(len(ids) - arguments.context - 1, (arguments.batch,),
                               generator=generator)
        inputs, targets = batch_of(ids, starts, arguments.context)
        losses = losses_of(pair(inputs), targets)
        optimizer.zero_grad()
        sum(losses.values()).backward()  # they share no weights: each gets its own gradient
        for model in pair.children():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % arguments.every == 0:
            stats = watch.stats
            line = f"{step:6}{time.perf_counter() - begun:6.0f}"
            for name in names:
                score, entropy, saturated, _ = health_of(stats, name)
                line += f"{losses[name].item():12.3f}{score:12.1f}{entropy:12.3f}{saturated:12.3f}"
            print(line, flush=True)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=pathlib.Path, default=TEXT, help="what to learn")
    parser.add_argument("--out", type=pathlib.Path, default="char-gpt", help="directory")
    for name, default, meaning in (
            ("steps", 800, "batches to learn from"), ("every", 25, "measure every n-th step"),
            ("batch", 8, "windows in a batch"), ("context", 128, "characters in a window"),
            ("width", 128, "of the residual stream"), ("heads", 2, "head_dim = width / heads"),
            ("layers", 2, "blocks"), ("seed", 0, "of weights and batches"),
            ("prose", 240, "characters to write at the end")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{meaning} (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="of AdamW (%(default)s)")
    found = parser.parse_args(arguments)
    for name in ("steps", "every", "batch", "context", "width", "heads", "layers"):
        if getattr(found, name) < 1:
            parser.error(f"--{name}: {getattr(found, name)}, expected 1 or more")
    if found.width % found.heads:
        parser.error(f"--width: {found.width} is no multiple of --heads {found.heads}")
    try:
        text = found.text.read_text(encoding="utf-8")
        found.out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        parser.error(str(problem))
    except UnicodeDecodeError as problem:
        parser.error(f"--text: {found.text} is no text in UTF-8: {problem}")
    if len(text) < 10 * (found.context + 2):  # a tenth is held out
        parser.error(f"--text: {len(text)} characters, expected ten times --context and some")
    return found, text


def main():
    arguments, text = parse()
    characters = sorted(set(text))
    ids = torch.tensor([characters.index(c) for c in text])
    learned, held_out = ids[:len(ids) * 9 // 10], ids[len(ids) * 9 // 10:]

    torch.manual_seed(arguments.seed)
    sizes = (len(characters), arguments.context, arguments.width, arguments.heads, arguments.layers)
    scaled, unscaled = CharGPT(*sizes, scale=None), CharGPT(*sizes, scale=1.0)
    unscaled.load_state_dict(scaled.state_dict())
    pair = SideBySide({"scaled": scaled, "unscaled": unscaled})
    print(f"two models of {sum(p.numel() for p in scaled.parameters()):,} weights, head_dim "
          f"{arguments.width // arguments.heads}, on {len(learned):,} characters")

    log = arguments.out / "run.jsonl"
    log.unlink(missing_ok=True)  # it is appended to, and this is another run
    with poise.watch(pair, every=arguments.every, stats="full", compute="poise", log=log) as watch:
        train(pair, learned, watch, arguments)

    losses = held_out_losses(pair, held_out, arguments.context, arguments.batch)
    print("\nheld-out loss, nats per character: "
          + ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
          + f", a table of pairs {pair_table_loss(learned, held_out, len(characters)):.3f}")
    print("transmission of the last measured step: " + ", ".join(
        f"{name} {health_of(watch.stats, name)[3]:.3f}" for name in losses))
    begin = "Alice " if set("Alice ") <= set(characters) else text[:1]
    for name, model in pair.named_children():
        print(f"\n{name} writes:\n{write_prose(model, begin, characters, arguments.prose)}")
    page = watch.report(arguments.out / "health.html", title="A character GPT, scaled and unscaled")
    print(f"\n{page}: the last measured step\n{log}: all of them; draw it with\n"
          f"    poise report {log} --html {arguments.out / 'over-time.html'}")


if __name__ == "__main__":
    main()
