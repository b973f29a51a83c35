"""Taps: copies of the tensors that llama.cpp computes, by name, while it computes them; and changes to them.

llama.cpp asks a callback for every node of its graph whether it wants the data, then calls it again when the
data is there. The tensor arrives as a C struct whose layout Python has to know: it is compared once with a
tensor that the library itself made, and a library with another layout is refused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tutor.llama import library
from tutor.llama.errors import EngineMisuse, EngineUnavailable

Array = NDArray[Any]
Change = Callable[[Array], Array] | Literal["zero"]
F32, F16, I32, BF16 = 0, 1, 26, 30
OBJECT_BYTES = 32  # struct ggml_object, which ggml_tensor_overhead() counts too


class TensorStruct(ctypes.Structure):
    """struct ggml_tensor, https://github.com/ggml-org/ggml/blob/master/include/ggml.h"""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
        ("extra", ctypes.c_void_p),
        ("padding", ctypes.c_char * 8),
    )


class _InitParams(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


@cache
def check_layout() -> None:
    """Compare TensorStruct with a tensor that the library makes. Raises EngineUnavailable."""
    library.load()
    from llama_cpp._ggml import libggml as lib

    lib.ggml_init.argtypes, lib.ggml_init.restype = [_InitParams], ctypes.c_void_p
    lib.ggml_new_tensor_4d.argtypes = [ctypes.c_void_p, ctypes.c_int, *[ctypes.c_int64] * 4]
    lib.ggml_new_tensor_4d.restype = ctypes.c_void_p
    lib.ggml_set_name.argtypes, lib.ggml_set_name.restype = (
        [ctypes.c_void_p, ctypes.c_char_p],
        ctypes.c_void_p,
    )
    lib.ggml_get_data.argtypes, lib.ggml_get_data.restype = [ctypes.c_void_p], ctypes.c_void_p
    lib.ggml_free.argtypes, lib.ggml_free.restype = [ctypes.c_void_p], None
    lib.ggml_tensor_overhead.argtypes, lib.ggml_tensor_overhead.restype = [], ctypes.c_size_t
    scratch = lib.ggml_init(_InitParams(1 << 16, None, False))
    made = lib.ggml_new_tensor_4d(scratch, F32, 3, 5, 7, 2)
    lib.ggml_set_name(made, b"layout")
    seen = ctypes.cast(made, ctypes.POINTER(TensorStruct)).contents
    same = (
        lib.ggml_tensor_overhead() == OBJECT_BYTES + ctypes.sizeof(TensorStruct)
        and (seen.type, list(seen.ne), list(seen.nb)) == (F32, [3, 5, 7, 2], [4, 12, 60, 420])
        and (seen.name, seen.data) == (b"layout", lib.ggml_get_data(made))
    )
    lib.ggml_free(scratch)
    if not same:
        raise EngineUnavailable(
            "This llama.cpp lays out its tensors in another way, so they cannot be read.", library.INSTALL
        )


class Tap:
    """Captures graph tensors by name, and may change them. Give it to a Context; read it after a decode.

    `names` are exact tensor names ("Qcur-0", "result_norm"), or a function that says yes or no to a name.
    `captured[name]` has one array for each time a node of that name was seen, in order: f32 (f16 and bf16 are
    widened) or i32, always four-dimensional, in numpy order (ggml's ne reversed: [1, T, heads, head_dim]).

    `interventions[name]` is "zero", or a function from such an array to one of the same shape. What it gives
    is written into the tensor before the next node reads it, so captures show the changed values. A name may
    stand for several nodes (`Kcur-0`: projected [1, 1, T, width], then rotated [1, T, heads, head_dim]): each
    is changed; a mere view of one that was changed is left alone. The dict may change between decodes; when
    it is empty, llama.cpp computes as if it had never been there.
    """

    def __init__(
        self,
        names: Iterable[str] | Callable[[str], bool] = (),
        interventions: Mapping[str, Change] | None = None,
    ) -> None:
        check_layout()
        wanted = names if callable(names) else frozenset(names).__contains__
        self._wanted: Callable[[str], bool] = wanted
        self.interventions: dict[str, Change] = dict(interventions or {})
        self.captured: dict[str, list[Array]] = {}
        self.seen: dict[str, int] = {}
        self.changed: dict[str, int] = {}  # how many nodes of a name were written to in the last decode
        self._failure = _Failure()
        self.callback: Any = library.load().ggml_backend_sched_eval_callback(self._receive)

    def begin(self) -> None:
        """Forget what an earlier decode captured. The context calls this at each decode."""
        self.captured = {}
        self.seen = {}
        self.changed = {}
        self._failure = _Failure()

    def raise_failure(self, complete: bool = True) -> None:
        """Raise what went wrong inside the callback: exceptions cannot cross the C code.

        The cache then holds the batch, computed without the interventions from that node on. Raises
        EngineMisuse also for an intervention whose name no node had in a `complete` pass.
        """
        if self._failure.error is not None:
            raise self._failure.error
        missed = next((name for name in self.interventions if name not in self.changed), None)
        if missed is not None and complete:
            raise EngineMisuse(
                f"The forward pass computed no tensor named {missed!r} that could be changed.",
                "Some names: Qcur-0, kqv_out-0, ffn_out-0, l_out-0, result_norm.",
            )

    def _receive(self, address: int, ask: bool, _user_data: object) -> bool:
        tensor = ctypes.cast(address, ctypes.POINTER(TensorStruct)).contents
        name = tensor.name.decode("utf-8", "replace")
        with self._failure:
            change = None if tensor.view_src else self.interventions.get(name)
            wanted = bool(self._wanted(name))
            if ask:
                self.seen[name] = self.seen.get(name, 0) + 1
                return wanted or change is not None
            if change is not None and self._failure.error is None:
                _write(tensor, name, change)
                self.changed[name] = self.changed.get(name, 0) + 1
            if wanted:
                self.captured.setdefault(name, []).append(_copy(tensor, name))
        return True


class _Failure:
    """Keeps the first exception of the `with` blocks it is used for, whatever its kind, for later."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        self.error = self.error or error
        return True


def _write(tensor: TensorStruct, name: str, change: Change) -> None:
    """Put what `change` makes of the tensor into it."""
    view = _view(tensor, name)
    if isinstance(change, str):
        if change != "zero":
            raise EngineMisuse(f"There is no intervention {change!r}.", 'Pass "zero" or a function.')
        view[...] = 0
        return
    values = np.asarray(change(_widened(tensor, view.copy())))
    if values.shape != view.shape:
        raise EngineMisuse(
            f"The intervention at {name} returned shape {values.shape}; the tensor has {view.shape}.",
            "Return an array of the shape that you were given.",
        )
    if values.dtype.kind not in ("iu" if tensor.type == I32 else "fiu"):
        raise EngineMisuse(
            f"The intervention at {name} returned values of type {values.dtype}.", "Return numbers."
        )
    view[...] = _to_bf16(values.astype(np.float32)) if tensor.type == BF16 else values


def _to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of f32, rounded to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint64(0x7FC0), rounded).astype(np.uint16)


def _widened(tensor: TensorStruct, values: Array) -> Array:
    """bf16 and f16 as f32; other types as they are."""
    if tensor.type == BF16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32) if tensor.type == F16 else values


def _copy(tensor: TensorStruct, name: str) -> Array:
    """The tensor's values as a contiguous array, shape ne reversed."""
    return _widened(tensor, _view(tensor, name).copy())


def _view(tensor: TensorStruct, name: str) -> Array:
    """The tensor's own memory as an array, shape ne reversed; bf16 as its bits."""
    kinds: dict[int, type[np.generic]] = {F32: np.float32, F16: np.float16, I32: np.int32, BF16: np.uint16}
    kind = kinds.get(tensor.type)
    if kind is None:
        raise EngineMisuse(
            f"Tensor {name} has ggml type {tensor.type}, which a tap cannot read.",
            "Tap tensors of type f32, f16, bf16 or i32.",
        )
    ne, nb = list(tensor.ne), list(tensor.nb)
    if 0 in ne:
        return np.zeros(ne[::-1], np.float32)
    item = np.dtype(kind).itemsize
    length = sum((n - 1) * step for n, step in zip(ne, nb, strict=True)) + item
    raw = np.frombuffer((ctypes.c_char * length).from_address(tensor.data), np.uint8)
    return np.lib.stride_tricks.as_strided(raw[:item].view(kind), ne[::-1], nb[::-1])
