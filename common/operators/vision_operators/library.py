"""The C functions of common/operators/operators.h: which library serves an array, and one call of
it.

A tensor on a GPU is used in place, on the stream that PyTorch uses there, by the library that was
built for GPUs. Everything in the host's memory goes to the virtual GPU: its library has memory of
its own, so arrays are copied in before a call and results are copied out behind it.
"""
import ctypes
import os
import sys

INTERFACE = 2
MAX_DIMENSIONS = 6
TYPES = {"float16": 1, "float32": 2, "float64": 3, "bfloat16": 4, "int32": 5, "int64": 6}
BYTES = {"float16": 2, "float32": 4, "float64": 8, "bfloat16": 2, "int32": 4, "int64": 8}
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "..", "build", "operators")


class BadArgument(ValueError):
    """A tensor of another shape, type or layout, or something that the kernel cannot do: by name
    and limit."""


class DeviceError(RuntimeError):
    """CUDA, or the virtual GPU, refused."""


class MissingLibrary(RuntimeError):
    """No library was built for that device; the message says which command builds it."""


class Tensor(ctypes.Structure):
    """vision_tensor."""
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("dimensions", ctypes.c_int32),
                ("shape", ctypes.c_int64 * MAX_DIMENSIONS),
                ("strides", ctypes.c_int64 * MAX_DIMENSIONS)]


class ConvNormOptions(ctypes.Structure):
    """vision_conv_norm_options."""
    _fields_ = [(name, ctypes.c_int32)
                for name in ("stride", "top", "left", "bottom", "right", "reflect", "relu")]
    _fields_ += [("epsilon", ctypes.c_float)]


def is_torch(array):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def contiguous_strides(shape):
    strides, stride = [], 1
    for size in reversed(shape):
        strides.insert(0, stride)
        stride *= size
    return tuple(strides)


class View:
    """Where an array lies and what it is like: of a torch tensor, or of whatever NumPy could take
    without a copy (__array_interface__). strides are in elements."""

    def __init__(self, name, array):
        self.name, self.array = name, array
        self.device = None  # the GPU's number; None is the host
        if is_torch(array):
            if array.layout is not sys.modules["torch"].strided:
                raise BadArgument(f"{name} has layout {array.layout}, must be torch.strided")
            if array.device.type not in ("cpu", "cuda"):
                raise BadArgument(f"{name} lies on {array.device}, must lie on a GPU or on the CPU")
            self.data, self.type = array.data_ptr(), str(array.dtype).removeprefix("torch.")
            self.shape, self.strides = tuple(array.shape), tuple(array.stride())
            if array.device.type == "cuda":
                self.device = array.device.index
            return
        found = getattr(array, "__array_interface__", None)
        if found is None:
            raise BadArgument(f"{name} is a {type(array).__name__}, must be a torch tensor or a "
                              f"NumPy array")
        order, kind, size = found["typestr"][0], found["typestr"][1], int(found["typestr"][2:])
        self.type = {"f": "float", "i": "int"}.get(kind, kind) + str(8 * size)
        if order == ">":
            self.type = "big-endian " + self.type
        self.data, self.shape = found["data"][0], tuple(found["shape"])
        strides = found.get("strides")
        if strides is None:
            self.strides = contiguous_strides(self.shape)
        elif any(stride % size for stride in strides):
            raise BadArgument(f"{name} has strides of {strides} bytes, must be contiguous "
                              f"{self.type}: {size} bytes an element")
        else:
            self.strides = tuple(stride // size for stride in strides)

    def is_contiguous(self):
        return all(size == 1 or stride == expected for size, stride, expected in
                   zip(self.shape, self.strides, contiguous_strides(self.shape)))

    def bytes(self):
        count = BYTES.get(self.type, 8)
        for size in self.shape:
            count *= size
        return count

    def tensor(self):
        if len(self.shape) > MAX_DIMENSIONS:
            raise BadArgument(f"{self.name} has shape {list(self.shape)}: {len(self.shape)} "
                              f"dimensions, "
                              f"must have at most {MAX_DIMENSIONS}")
        numbers = ctypes.c_int64 * MAX_DIMENSIONS
        return Tensor(self.data, TYPES.get(self.type, 0), len(self.shape), numbers(*self.shape),
                      numbers(*self.strides))


class Library:
    """One library file. `staged`: arrays are copied to its memory and back."""

    def __init__(self, path, staged):
        self.path, self.staged, self._process = path, staged, os.getpid()
        command = "make operators DEVICE=" + ("vgpu" if staged else "cuda")
        try:
            self._c = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)  # its names are for nobody else
            interface = self._c.vision_interface()
        except (OSError, AttributeError) as error:
            raise MissingLibrary(f"{path} cannot be used: {error}: build it again, "
                                 f"{command}") from None
        if interface != INTERFACE:
            raise MissingLibrary(f"{path} has interface {interface}, this module needs "
                                 f"{INTERFACE}: build it "
                                 f"again, {command}")
        self._c.vision_last_message.restype = ctypes.c_char_p
        self._c.vision_device.restype = ctypes.c_char_p

    def device(self):
        """What the kernels run on, in words."""
        found = self._c.vision_device()
        if found is None:
            raise DeviceError(self.message())
        return found.decode()

    def message(self):
        return self._c.vision_last_message().decode(errors="replace")

    def check(self, status):
        if status == 2:
            raise BadArgument(self.message())
        if status:
            raise DeviceError(self.message() + ("" if os.getpid() == self._process
                                                else ": this process was forked "
                              "after the library was loaded, and a device is not shared that way; "
                              "start it with "
                              "multiprocessing.get_context('spawn')"))

    def call(self, function, arguments, stream=None):
        """vision_FUNCTION(arguments..., stream). Of a View the C function gets a tensor, of None
        null, of what ctypes has that; what is written, outputs, stands in Output(View)."""
        taken, passed, copies_back = [], [], []
        handle = ctypes.c_void_p(stream)
        try:
            for argument in arguments:
                view = argument.view if isinstance(argument, Output) else argument
                if not isinstance(view, View):
                    passed.append(argument)
                    continue
                tensor = view.tensor()
                # What is not contiguous is refused by the call, which reads no element then.
                if self.staged and view.is_contiguous() and view.type in TYPES and view.bytes():
                    address = ctypes.c_void_p()
                    size = ctypes.c_int64(view.bytes())
                    self.check(self._c.vision_allocate(size, ctypes.byref(address)))
                    taken.append(address)
                    tensor.data = address.value
                    if isinstance(argument, Output):
                        copies_back.append((view.data, address, size))
                    if not isinstance(argument, Output) or argument.is_read:
                        self.check(self._c.vision_copy(address, ctypes.c_void_p(view.data), size,
                                                       handle))
                passed.append(ctypes.byref(tensor))
            self.check(getattr(self._c, "vision_" + function)(*passed, handle))
            if self.staged:
                self.check(self._c.vision_synchronize(handle))
            for data, address, size in copies_back:
                self.check(self._c.vision_copy(ctypes.c_void_p(data), address, size, handle))
        finally:
            for address in taken:
                self._c.vision_free(address)


class Output:
    """A View that the call writes; is_read: that it reads first."""

    def __init__(self, view, is_read=False):
        self.view, self.is_read = view, is_read


_libraries = {}


def path_of(kind):
    """Of the library for "cuda" or "vgpu": VISION_OPERATORS_CUDA and VISION_OPERATORS_VGPU in the
    environment, else what `make operators` left."""
    return os.environ.get("VISION_OPERATORS_" + kind.upper()) or \
        os.path.normpath(os.path.join(FOLDER, f"libvision_operators_{kind}.so"))


def library(kind):
    """The library for "cuda", tensors on a GPU, or "vgpu", arrays of the host. Raises
    MissingLibrary."""
    if kind not in _libraries:
        path = path_of(kind)
        if not os.path.exists(path):
            what = "tensors on a GPU" if kind == "cuda" else "tensors on the CPU and NumPy's arrays"
            raise MissingLibrary(f"{path} is not there: for {what} run make operators "
                                 f"DEVICE={kind}")
        _libraries[kind] = Library(path, staged=kind == "vgpu")
    return _libraries[kind]


def describe():
    """Which libraries are there, and what each runs on: a line each."""
    lines = []
    for kind, serves in (("cuda", "tensors on a GPU"), ("vgpu", "arrays of the host")):
        try:
            lines.append(f"{serves}: {library(kind).device()}, {path_of(kind)}")
        except (MissingLibrary, DeviceError, OSError) as error:
            lines.append(f"{serves}: {error}")
    return "\n".join(lines)


def run(function, views, arguments):
    """Calls the function of the library that serves the views, which must all lie on one device."""
    first = views[0]
    for view in views[1:]:
        if view.device != first.device:
            place = ["the CPU" if v.device is None else f"GPU {v.device}" for v in (view, first)]
            raise BadArgument(f"{function}: {view.name} lies on {place[0]}, must lie on {place[1]} "
                              f"as "
                              f"{first.name} does")
    if first.device is None:
        return library("vgpu").call(function, arguments)
    stream = sys.modules["torch"].cuda.current_stream(first.device).cuda_stream
    return library("cuda").call(function, arguments, stream)
