"""The course's kernels for Python: attention, deformable attention, convolution with instance norm,
LayerNorm, linear layers and MLP, CvT's convolutional projection. Tensors on a GPU are used in place
on their current stream; tensors on the CPU and NumPy's arrays go through the virtual GPU. `make
operators` builds the library; common/operators/README.md tells more.

With PyTorch: attention, cross_attention, deformable_attention, layer_norm, layer_norm_residual,
linear, mlp, conv_norm, projection, which record gradients, and replaced(model). Without it, and for
NumPy: the same in pairs, attention_forward, attention_backward and so on.
"""
from .functions import (attention_backward, attention_forward, conv_norm_forward,
                        deformable_attention_backward,
                        deformable_attention_forward, fold_batch_norm, layer_norm_backward,
                        layer_norm_forward, linear_forward, mlp_forward, projection_backward,
                        projection_forward)
from .library import BadArgument, DeviceError, MissingLibrary, describe

_OF_TORCH = {"autograd": ("attention", "cross_attention", "deformable_attention", "layer_norm",
                          "layer_norm_residual",
                          "linear", "mlp", "conv_norm", "projection"),
             "replace": ("replaced", "Used")}
__all__ = ["attention_backward", "attention_forward", "conv_norm_forward",
           "deformable_attention_backward",
           "deformable_attention_forward", "fold_batch_norm", "layer_norm_backward",
           "layer_norm_forward", "linear_forward", "mlp_forward", "projection_backward",
           "projection_forward", "BadArgument", "DeviceError", "MissingLibrary", "describe"]


def _has_torch():
    from importlib.util import find_spec
    try:
        return find_spec("torch") is not None
    except ValueError:  # something without a specification stands in its place
        return False


if _has_torch():
    __all__ += [name for names in _OF_TORCH.values() for name in names]


def __getattr__(name):
    """PyTorch is imported where a function with gradients is asked for, not before."""
    import importlib
    for module, names in _OF_TORCH.items():
        if name in names:
            try:
                return getattr(importlib.import_module("." + module, __name__), name)
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                raise AttributeError(f"vision_operators.{name} needs PyTorch, which this Python "
                                     f"has not") from None
    raise AttributeError(f"module vision_operators has no {name}")
