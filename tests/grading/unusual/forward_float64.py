# exercise: forward
# unusual: all in float64 with einsum, rounded to float32 at the end; silu through logaddexp
import numpy as np


def wide(*arrays):
    return [np.asarray(a, dtype=np.float64) for a in arrays]


def rmsnorm(x, w, eps=1e-5):
    x, w = wide(x, w)
    scale = np.reciprocal(np.sqrt(np.einsum("td,td->t", x, x) / x.shape[1] + eps))
    return np.einsum("td,t,d->td", x, scale, w).astype("float32")


def swiglu(x, Wg, Wu, Wd):
    x, Wg, Wu, Wd = wide(x, Wg, Wu, Wd)
    gate, up = np.einsum("td,hd->th", x, Wg, optimize=True), np.einsum("td,hd->th", x, Wu, optimize=True)
    silu = gate * np.exp(-np.logaddexp(0.0, -gate))
    return np.einsum("th,dh->td", silu * up, Wd, optimize=True).astype("float32")


def head(h, E):
    h, E = wide(h, E)
    return np.einsum("d,vd->v", h, E).astype("float32")
