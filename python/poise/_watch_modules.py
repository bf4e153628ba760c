"""Which module of a model is running, by its name, without a change to the model.

In: a torch model, whose modules get forward hooks while a watch runs. Out: for each attention call
the name of its module, and the attention modules that were never seen. Must not happen here: what
is done with a call.
"""

import fnmatch
import threading

import torch

from ._torch_autograd import traced

_ATTENTION_WORDS = ("attention", "attn")
# Parts of names that stand for attention to another sequence, where a mask tells of keys only.
_CROSS_WORDS = ("cross", "encoder_attn", "encdec", "multihead_attn", "encoder_decoder")


def in_backward():
    return torch._C._current_graph_task_id() != -1


def has_no_numbers():
    """Whether calls are written into a graph, or are torch.func's: what cannot be measured."""
    return (torch.compiler.is_compiling() or traced()
            or torch._C._are_functorch_transforms_active())


def _unwatched(*arguments):
    """What a hook is in a copy of a watched model."""


def _unwatched_hook():
    return _unwatched


class _Hook:
    """A forward hook of one module: copies of the module, deep or pickled, are not watched."""

    __slots__ = ("_function",)

    def __init__(self, function):
        self._function = function

    def __call__(self, *arguments):
        self._function(*arguments)

    def __deepcopy__(self, memo):
        return _unwatched

    def __reduce__(self):
        return _unwatched_hook, ()


class Place:
    """Where an attention call is.

    label: its module's name, "#2" behind it where that module calls a second time in a step.
    module: the name. names: of all modules around it. number: of the call in its step, from 0 on.
    repeated: whether the module was entered before in this step, so that its weights serve twice.
    crosses: whether a name says that its keys are another sequence's.
    """

    __slots__ = ("label", "module", "names", "number", "repeated", "crosses")

    def __init__(self, label, module, names, number, repeated):
        self.label, self.module, self.names = label, module, names
        self.number, self.repeated = number, repeated
        self.crosses = any(word in name.lower() for name in names for word in _CROSS_WORDS)


class Trail:
    """The modules that are running, outermost first, in the thread that called attach()."""

    def __init__(self, model):
        self._model = model
        self._handles = []
        self._running = []  # (name, number of this entry into the module in this step)
        self._seen, self._callers_seen = set(), set()
        self._ran = False
        self._thread = None
        self.names = [name for name, _ in model.named_modules()]
        self.on_begin = self.on_end = lambda: None  # of the outermost module
        self.begin_step()

    def attach(self):
        self._thread = threading.get_ident()
        self._running = []
        for name, module in self._model.named_modules():
            self._handles += [
                module.register_forward_pre_hook(_Hook(self._enter(name))),
                module.register_forward_hook(_Hook(self._leave), always_call=True)]

    def detach(self):
        for handle in self._handles:
            handle.remove()
        self._handles, self._running = [], []

    @property
    def running(self):
        return bool(self._running)

    def begin_step(self):
        """Calls are numbered anew: the same call has the same label in every step."""
        self._entries, self._calls, self._first_entry = {}, {}, {}

    def _passes(self):
        """Whether what happens now is another thread's, or checkpoints recomputing in backward."""
        return threading.get_ident() != self._thread or in_backward()

    def _enter(self, name):
        def enter(module, arguments):
            if self._passes():
                return
            if not self._running:
                self._ran = True
                self.on_begin()
            entry = self._entries.get(name, 0) + 1
            self._entries[name] = entry
            self._running.append((name, entry))

        return enter

    def _leave(self, module, arguments, result):
        if self._passes() or not self._running:
            return
        self._running.pop()
        if not self._running:
            self.on_end()

    def place(self):
        """The Place of an attention call that happens now, None outside the model."""
        if not self._running or self._passes():
            return None
        names = tuple(name for name, _ in self._running)
        name, entry = self._running[-1]
        if not has_no_numbers():
            self._seen.update(names)
            self._callers_seen.add(name)
        number = self._calls.get(name, 0) + 1
        self._calls[name] = number
        label = name or type(self._model).__name__
        return Place(label if number == 1 else f"{label}#{number}", name, names,
                     sum(self._calls.values()) - 1,
                     entry != self._first_entry.setdefault(name, entry))

    @property
    def saw_nothing(self):
        """Whether the model ran without an attention call that could be watched."""
        return self._ran and not self._seen

    def unseen(self):
        """Names of the outermost attention modules in which no attention call was seen."""
        if not self._ran:
            return []
        found = []
        for name, module in self._model.named_modules():
            word = getattr(module, "original_name", type(module).__name__).lower()  # TorchScript
            is_attention = isinstance(module, torch.nn.MultiheadAttention) or any(
                part in word for part in _ATTENTION_WORDS)
            known = name in self._seen or any(
                name.startswith(outer + ".") for outer in (*found, *self._callers_seen))
            if name and is_attention and not known:
                found.append(name)
        return found


class Selection:
    """Which calls are wanted: None, or names, patterns and numbers of layers.

    A name or shell pattern means the modules it matches and all inside; a number means the n-th
    attention call of a step.
    """

    def __init__(self, layers, names):
        self._patterns, self._numbers = None, set()
        if layers is None:
            return
        chosen = [layers] if isinstance(layers, (str, int)) else list(layers)
        self._patterns = []
        for layer in chosen:
            if isinstance(layer, int) and not isinstance(layer, bool) and layer >= 0:
                self._numbers.add(layer)
            elif isinstance(layer, str):
                if not any(fnmatch.fnmatchcase(name, layer) for name in names):
                    raise ValueError(
                        f"[watch] layers: {layer!r} matches no module of the model; names are like "
                        f"{names[-1]!r}")
                self._patterns.append(layer)
            else:
                raise TypeError(
                    f"[watch] layers: {layer!r}, expected names, patterns or numbers from 0 on")

    def takes(self, place):
        if self._patterns is None or place.number in self._numbers:
            return True
        return any(fnmatch.fnmatchcase(name, pattern)
                   for name in place.names for pattern in self._patterns)
