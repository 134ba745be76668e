"""An operation of the library: one function of arrays, and an operator of PyTorch.

Outputs are allocated by one function and filled by another. NumPy arrays take the two in turn. For
tensors they are an operator `torch.ops.tilewright.<name>`, made by `torch.library.custom_op`, whose
fake implementation is the allocation alone: so `torch.compile(fullgraph=True)`, CUDA graphs,
`torch.func` and autograd know what to do with it.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from tilewright.kernels import checks
from tilewright.kernels.arrays import is_tensor, torch

__all__ = ["Operation", "has_autocast", "operation", "under_autocast"]

_NAMESPACE = "tilewright"

# What a number or a text of a schema has to be.
_PLAIN = {
    "int": "an integer",
    "SymInt": "an integer",
    "float": "a number",
    "str": "a text",
    "bool": "True or False",
}

Autocast = Literal["lower", "float32"]


class Operation:
    """See `operation`."""

    def __init__(
        self,
        schema: str,
        allocate: Callable[..., Any],
        fill: Callable[..., None],
        autocast: Autocast | None,
    ) -> None:
        self.name = schema.partition("(")[0]
        self._parameters = _parameters(schema)
        self._allocate = allocate
        self._fill = fill
        self._autocast = autocast
        self._function: Any = None
        if torch is not None:
            self._operator = torch.library.custom_op(
                f"{_NAMESPACE}::{self.name}",
                self._run,
                mutates_args=(),
                schema=schema.removeprefix(self.name),
            )
            self._operator.register_fake(allocate)
            self.register_autograd(self._refuse_backward, setup_context=_keep_nothing)

    def __call__(self, *arguments: Any) -> Any:
        """Compute the outputs, which are new arrays."""
        self._require_types(arguments)
        if not any(map(is_tensor, arguments)):
            return self._run(*arguments)
        if self._autocast is not None:
            arguments = under_autocast(arguments, self._autocast)
        if torch._C._are_functorch_transforms_active():  # noqa: SLF001 - there is no other way to ask
            return self._function.apply(*arguments)
        if not _concerns_pytorch(arguments):
            return self._run(*arguments)
        self._refuse_tangents_of(arguments)
        return self._operator(*arguments)

    def _require_types(self, arguments: tuple[Any, ...]) -> None:
        """Raise `TypeError` unless arguments are of the schema's types."""
        for (kind, name, types), given in zip(self._parameters, arguments, strict=True):
            if isinstance(given, types):
                continue
            if kind in _PLAIN:
                checks.plain(_PLAIN[kind], **{name: given})
            else:
                checks.array(**{name: given})

    def _run(self, *arguments: Any) -> Any:
        self._refuse_tangents_of(arguments)
        outputs = self._allocate(*arguments)
        self._fill(outputs, *arguments)
        return outputs

    def register_autograd(
        self, backward: Callable[..., Any], *, setup_context: Callable[..., None]
    ) -> None:
        """Say how gradients are computed, as `torch.library.register_autograd` does.

        `backward(ctx, *gradients of the outputs)` returns a gradient, or None, for each argument,
        and is made of operations and of functions of PyTorch. `setup_context(ctx, inputs, output)`
        keeps what it needs. An argument that wants a gradient and gets None is an error, unless
        the first output has none either.
        """
        if torch is None:
            return

        def whole_backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            given: tuple[Any, ...] = backward(ctx, *gradients)
            if gradients[0] is not None:
                self._refuse_lacking(ctx.needs_input_grad, given)
            return given

        def flat_backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            given = whole_backward(ctx, *gradients)
            return tuple(None if isinstance(gradient, list) else gradient for gradient in given)

        self._operator.register_autograd(whole_backward, setup_context=setup_context)

        # An operator's own formula is not seen by the transforms of torch.func; a Function's is.
        # To that one a list of tensors is no tensor, and has no gradients.
        self._function = type(
            self.name,
            (torch.autograd.Function,),
            {
                "forward": staticmethod(self._operator),
                "setup_context": staticmethod(setup_context),
                "backward": staticmethod(flat_backward),
                "jvp": staticmethod(self._refuse_tangents),
                "vmap": staticmethod(self._refuse_batches),
            },
        )

    def _refuse_backward(self, ctx: Any, *gradients: Any) -> None:
        raise NotImplementedError(
            f"{_NAMESPACE}::{self.name} has no derivative, and what has one has no second one: take"
            " `x.detach()`, or functions of PyTorch"
        )

    def _refuse_lacking(self, needed: tuple[Any, ...], given: tuple[Any, ...]) -> None:
        """Raise where an argument wants a gradient that there is no formula for."""
        for (_, name, _), wanted, gradient in zip(self._parameters, needed, given, strict=True):
            if _is_lacking(wanted, gradient):
                raise NotImplementedError(
                    f"{_NAMESPACE}::{self.name} has no derivative by `{name}`: take its `detach()`"
                )

    def _refuse_tangents_of(self, arguments: tuple[Any, ...]) -> None:
        """Raise where a result would be without the tangent that it has in forward mode.

        What is compiled raises when it runs: the tensors that it is traced with have no tangents.
        """
        if torch is None or torch.autograd.forward_ad._current_level < 0:  # noqa: SLF001
            return
        if not torch.compiler.is_dynamo_compiling() and any(map(_has_tangent, arguments)):
            self._refuse_tangents()

    def _refuse_tangents(self, *_: Any) -> None:
        raise NotImplementedError(
            f"{_NAMESPACE}::{self.name} has no derivative in forward mode: take reverse mode"
            " (`torch.func.vjp`, `torch.autograd.grad`), or functions of PyTorch"
        )

    def _refuse_batches(self, *_: Any) -> None:
        raise NotImplementedError(
            f"{_NAMESPACE}::{self.name} cannot be mapped by `torch.vmap`, which `torch.func.jacrev`"
            " calls: give it a dimension more, or loop over the calls"
        )


def _concerns_pytorch(arguments: tuple[Any, ...]) -> bool:
    """Whether PyTorch has to see a call, to differentiate it, trace it, or tell of it.

    The others need not go through its dispatcher, which takes longer than a launch.
    """
    is_watched = (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()  # noqa: SLF001 - modes that see operators
        or torch._C._get_tracing_state() is not None  # noqa: SLF001 - torch.jit.trace
        or torch.autograd._profiler_enabled()  # noqa: SLF001
    )
    return bool(is_watched) or not all(map(_is_ordinary, arguments))


def _is_ordinary(x: Any) -> bool:
    """Whether an argument is no tensor, or one with elements in memory and without a gradient."""
    if not is_tensor(x):
        return not (isinstance(x, list | tuple) and any(map(is_tensor, x)))
    return (
        type(x) in {torch.Tensor, torch.nn.Parameter}
        and x.device.type in {"cpu", "cuda"}
        and not x.is_neg()
        and not (x.requires_grad and torch.is_grad_enabled())
    )


def _is_lacking(wanted: Any, gradient: Any) -> bool:
    """Whether a gradient that is wanted is None, for tensors and lists of them."""
    if isinstance(wanted, list | tuple):
        return any(map(_is_lacking, wanted, gradient or [None] * len(wanted)))
    return wanted and gradient is None


def _has_tangent(x: Any) -> bool:
    """Whether an argument is a tensor with a tangent of forward mode, or a list with one."""
    if isinstance(x, list | tuple):
        return any(map(_has_tangent, x))
    if not is_tensor(x):
        return False
    # Tangents are kept where PyTorch keeps track of views, which is left off within operators.
    key = torch._C.DispatchKey.ADInplaceOrView  # noqa: SLF001
    with torch._C._SetExcludeDispatchKeyGuard(key, False):  # noqa: SLF001
        return torch.autograd.forward_ad.unpack_dual(x).tangent is not None


def _parameters(schema: str) -> list[tuple[str, str, tuple[type, ...]]]:
    """Return the type of each parameter of a schema, its name, and what types of Python it takes.

    >>> [(kind, name) for kind, name, _ in _parameters("f(Tensor x, int[] sizes) -> Tensor")]
    [('Tensor', 'x'), ('int[]', 'sizes')]
    """
    parameters = schema.partition("(")[2].partition(")")[0].split(",")
    pairs = (parameter.split() for parameter in parameters)
    return [(kind, name, _types_of(kind)) for kind, name in pairs]


def _types_of(kind: str) -> tuple[type, ...]:
    """Return the types of Python of a schema's type; those of lists are left to PyTorch."""
    if kind in _PLAIN:
        return checks.PLAIN[_PLAIN[kind]]
    arrays = (np.ndarray,) if torch is None else (torch.Tensor, np.ndarray)
    return {"Tensor": arrays, "Tensor?": (*arrays, type(None))}.get(kind, (object,))


def has_autocast(x: Any) -> bool:
    """Whether autocast of PyTorch is on where an array is."""
    # The device "meta" of tensors that have shapes only has no autocast: asking is an error.
    if not is_tensor(x) or x.device.type == "meta":
        return False
    return bool(torch.is_autocast_enabled(x.device.type))


def under_autocast(arguments: tuple[Any, ...], autocast: Autocast) -> tuple[Any, ...]:
    """Cast tensors as autocast does where it is on: all floating-point ones but those of fp64."""
    first = next((x for x in arguments if is_tensor(x)), None)
    if first is None or not has_autocast(first):
        return arguments
    is_wide = autocast == "float32"
    dtype = torch.float32 if is_wide else torch.get_autocast_dtype(first.device.type)
    return tuple(
        x.to(dtype) if is_tensor(x) and x.is_floating_point() and x.dtype != torch.float64 else x
        for x in arguments
    )


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep nothing for a backward pass that is an error."""


def operation(
    schema: str, *, allocate: Callable[..., Any], autocast: Autocast | None = None
) -> Callable[[Callable[..., None]], Operation]:
    """Make an operation of a function `fill(outputs, *arguments)` that launches kernels.

    Args:
        schema: The operator's name, parameters and results, in PyTorch's language of schemas.
        allocate: `allocate(*arguments)` checks the arguments and returns the outputs, not filled:
            an array, or a tuple of them. It sees fake tensors, too, and must not look at elements.
        autocast: What tensors become under `torch.autocast`: "lower", its fp16 or bf16, as products
            do; "float32", as losses do. By default they stay as they are.

    >>> import numpy as np
    >>> @operation("example_negative(Tensor x) -> Tensor", allocate=np.empty_like)
    ... def negative(out, x):
    ...     np.negative(x, out)
    >>> negative(np.ones(2))
    array([-1., -1.])
    """
    return lambda fill: Operation(schema, allocate, fill, autocast)
